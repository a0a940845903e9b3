"""fovea.torch on CPU tensors, and on CUDA tensors where there is a GPU."""

import gc
import importlib.util
import os
import pathlib
import sys
import threading
import unittest
import weakref

SOURCE = pathlib.Path(os.environ.get("TEST_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
BINARY = pathlib.Path(os.environ.get("TEST_BINARY_DIR", SOURCE / "build"))
sys.path.insert(0, str(SOURCE / "python"))

import fovea  # noqa: E402

fovea.load_library(BINARY / "libfovea.so")

if importlib.util.find_spec("torch") is None:
    raise unittest.SkipTest("PyTorch is not installed")

import torch  # noqa: E402
import torch._dynamo  # noqa: E402
from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402

import fovea.torch  # noqa: E402

HAS_CUDA = torch.cuda.is_available()
NO_CUDA = "no CUDA device"
SEED = 20260801
# Relative L2 error of out by dtype, from the table of tests/support/tolerance.hpp.
TOLERANCE = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 6e-3}


def inputs(dtype=torch.float32, device="cpu", batch=2, seq_q=70, seq_kv=90, heads=4, heads_kv=2, dim=32, dim_v=None):
    """q, k, v in bshd."""
    generator = torch.Generator().manual_seed(SEED)

    def make(seq, count, size):
        return torch.randn(batch, seq, count, size, generator=generator).to(device=device, dtype=dtype)

    return make(seq_q, heads, dim), make(seq_kv, heads_kv, dim), make(seq_kv, heads_kv, dim_v or dim)


def oracle(q, k, v, bias=None, scale=None):
    """softmax in float64 with an explicit additive mask [B,H,Sq,Skv]; q, k, v in bshd. Returns out and lse."""
    q, k, v = (t.detach().cpu().double().transpose(1, 2) for t in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if bias is not None:
        scores = scores + bias.cpu().double()
    lse = torch.logsumexp(scores, -1)
    weights = torch.nan_to_num(torch.exp(scores - lse.unsqueeze(-1)))
    return (weights @ v).transpose(1, 2), lse


def hidden(visible):
    """The additive mask of a boolean one."""
    return torch.zeros(visible.shape, dtype=torch.float64).masked_fill(~visible.cpu(), float("-inf"))


class TorchCase(unittest.TestCase):
    def setUp(self):
        print(f"seed {SEED}")
        torch._dynamo.reset()

    def assert_close(self, got, expected, tolerance=None):
        self.assertEqual(got.shape, expected.shape)
        error = (got.cpu().double() - expected).norm() / expected.norm()
        self.assertLessEqual(error.item(), TOLERANCE[got.dtype] if tolerance is None else tolerance)


class Eager(TorchCase):
    device = "cpu"

    def run_case(self, tensors, bias=None, scale=None, **arguments):
        out, lse = fovea.torch.attention(*tensors, scale=scale, return_lse=True, **arguments)
        expected, expected_lse = oracle(*tensors, bias, scale)
        self.assertTrue(out.is_contiguous())
        self.assertEqual(out.dtype, tensors[0].dtype)
        self.assertEqual(out.device, tensors[0].device)
        self.assert_close(out, expected)
        self.assertEqual(lse.dtype, torch.float32)
        torch.testing.assert_close(lse.cpu().double(), expected_lse, atol=1e-3, rtol=0)

    def test_dtypes_and_grouped_heads(self):
        for dtype in TOLERANCE:
            for heads_kv in (4, 2, 1):
                with self.subTest(dtype=dtype, heads_kv=heads_kv):
                    self.run_case(inputs(dtype, self.device, heads_kv=heads_kv))

    def test_value_heads_of_another_size(self):
        q, k, v = inputs(torch.float16, self.device, dim=64, dim_v=32)
        try:
            self.run_case((q, k, v))
        except fovea.UnsupportedError as refused:
            self.assertEqual(self.device, "cuda")
            self.assertIn("dim_v", {reason.code for reason in refused.reasons})

    def test_strided_inputs_are_read_in_place(self):
        generator = torch.Generator().manual_seed(SEED)
        fused = torch.randn(2, 64, 3, 4, 32, generator=generator).to(self.device, torch.float16)
        q, k, v = fused.unbind(2)
        self.assertFalse(q.is_contiguous())
        self.run_case((q, k, v))

    def test_layouts(self):
        q, k, v = inputs(torch.float16, self.device)
        expected, _ = oracle(q, k, v)
        moved = [t.transpose(1, 2) for t in (q, k, v)]
        self.assert_close(fovea.torch.attention(*moved, layout="bhsd"), expected.transpose(1, 2))
        self.assert_close(fovea.torch.attention(*moved, layout="BNSD", output_layout="BSND"), expected)
        self.assert_close(
            fovea.torch.attention(*(t.contiguous() for t in moved), layout="bhsd"), expected.transpose(1, 2)
        )

    def test_masks(self):
        tensors = inputs(torch.float16, self.device)
        generator = torch.Generator().manual_seed(SEED + 1)

        def random(*shape):
            return torch.rand(*shape, generator=generator) > 0.4

        for shape, view in (
            ((2, 90), (2, 1, 1, 90)),
            ((1, 90), (1, 1, 1, 90)),
            ((2, 70, 90), (2, 1, 70, 90)),
            ((1, 1, 90), (1, 1, 1, 90)),
            ((2, 1, 70, 90), (2, 1, 70, 90)),
            ((2, 4, 70, 90), (2, 4, 70, 90)),
            ((1, 4, 1, 90), (1, 4, 1, 90)),
        ):
            visible = random(*shape)
            visible[..., 0] = True
            bias = hidden(visible).view(view).expand(2, 4, 70, 90)
            with self.subTest(shape=shape, kind="bool"):
                self.run_case(tensors, bias, mask=visible.to(self.device))
            added = torch.randn(*shape, generator=generator).half()
            for dtype in (torch.float32, torch.float16):
                with self.subTest(shape=shape, kind=dtype):
                    bias = added.double().view(view).expand(2, 4, 70, 90)
                    self.run_case(tensors, bias, mask=added.to(self.device, dtype))

    def test_lengths_causal_window_and_scale(self):
        tensors = inputs(torch.float16, self.device, seq_q=80, seq_kv=80)
        rows, columns = torch.arange(80).view(-1, 1), torch.arange(80)
        self.run_case(tensors, hidden(columns <= rows).expand(2, 4, 80, 80), is_causal=True)
        near = (columns >= rows - 9) & (columns <= rows + 3)
        try:
            self.run_case(tensors, hidden(near).expand(2, 4, 80, 80), window=(9, 3))
        except fovea.UnsupportedError:
            self.assertEqual(self.device, "cuda")
        lengths = torch.tensor([80, 33], dtype=torch.int32)
        visible = columns.view(1, 1, 1, -1) < lengths.view(-1, 1, 1, 1)
        self.run_case(tensors, hidden(visible).expand(2, 4, 80, 80), kv_lengths=lengths.to(self.device))
        self.run_case(tensors, scale=0.31)

    def test_packed_documents(self):
        q, k, v = (t[0] for t in inputs(torch.float16, self.device, seq_q=96, seq_kv=96))
        out_starts = [0, 30, 30, 96]
        starts = torch.tensor(out_starts, dtype=torch.int32, device=self.device)
        longest = {"max_seqlen_q": 66, "max_seqlen_kv": 66} if self.device == "cuda" else {}
        out, lse = fovea.torch.attention(q, k, v, cu_seqlens=starts, layout="packed", return_lse=True, **longest)
        self.assertEqual(lse.shape, (4, 96))
        for begin, end in zip(out_starts, out_starts[1:]):
            if begin < end:
                expected, _ = oracle(*(t[None, begin:end] for t in (q, k, v)))
                self.assert_close(out[begin:end], expected[0])
        # Other boundaries of the same shape are another call.
        moved = torch.tensor([0, 90, 92, 96], dtype=torch.int32, device=self.device)
        longest = {"max_seqlen_q": 90, "max_seqlen_kv": 90} if self.device == "cuda" else {}
        out = fovea.torch.attention(q, k, v, cu_seqlens=moved, layout="packed", **longest)
        self.assert_close(out[:90], oracle(*(t[None, :90] for t in (q, k, v)))[0][0])

    def test_metadata(self):
        tensors = inputs(torch.float16, self.device)
        visible = torch.arange(90) < 40
        self.run_case(tensors, hidden(visible).expand(2, 4, 70, 90), metadata={"valid_kv_length": 40})

    def test_empty_batch(self):
        q, k, v = (t[:0] for t in inputs(torch.float16, self.device))
        out, lse = fovea.torch.attention(q, k, v, return_lse=True)
        self.assertEqual((out.shape, lse.shape), ((0, 70, 4, 32), (0, 4, 70)))

    def test_inputs_stay_as_they_are(self):
        tensors = inputs(torch.float16, self.device)
        before = [t.clone() for t in tensors]
        fovea.torch.attention(*tensors)
        for now, then in zip(tensors, before):
            self.assertTrue(torch.equal(now, then))

    def test_receipt_report_and_records(self):
        tensors = inputs(torch.float16, self.device)
        out, receipt = fovea.torch.attention(*tensors, return_receipt=True)
        report = fovea.torch.resolve(*tensors)
        for field in ("backend", "path", "instance"):
            self.assertEqual(receipt[field], report[field])
        self.assertNotEqual(report["support"], "unsupported")
        layer = fovea.torch.Attention(role="cross")
        with fovea.torch.record_calls() as calls:
            layer(*tensors)
            with fovea.torch.record_calls() as inner:
                layer(*tensors)
        self.assertEqual(len(calls), 2)
        self.assertEqual(inner, calls[1:])
        self.assertIn("f16 b2 h4", calls[0]["problem"])
        self.assertEqual(layer.receipts()[-1]["receipt"], calls[0]["receipt"])
        self.assertEqual(layer.resolve(*tensors)["backend"], calls[0]["receipt"]["backend"])

    def test_gradients_are_refused(self):
        q, k, v = inputs(torch.float16, self.device)
        q.requires_grad_(True)
        for call in (fovea.torch.attention, torch.ops.fovea.attention):
            with self.assertRaises(fovea.UnsupportedError) as caught:
                call(q, k, v)
            self.assertIn("no_grad", str(caught.exception))
            self.assertEqual(caught.exception.reasons[0].field, "requires_grad")
        with torch.no_grad():
            fovea.torch.attention(q, k, v)
        with torch.inference_mode():
            fovea.torch.attention(q, k, v)

    def test_errors_are_typed(self):
        q, k, v = inputs(torch.float16, self.device)
        with self.assertRaises(fovea.ArgumentError):
            fovea.torch.attention(q, k[..., :8], v)
        with self.assertRaises(fovea.ArgumentError):
            fovea.torch.attention(q, k, v.float())
        with self.assertRaises(fovea.ArgumentError):
            fovea.torch.attention(q, k, v, backend="FLASH_ATN")
        with self.assertRaises(fovea.ArgumentError):
            fovea.torch.attention(q, k, v, layout="sbhd")
        with self.assertRaises(fovea.ArgumentError):
            fovea.torch.attention(q[0], k[0], v[0])
        with self.assertRaises(fovea.ArgumentError):
            fovea.torch.attention(q, k, v, key="FLASH_ATTN")
        with self.assertRaises(fovea.ArgumentError):
            fovea.torch.attention(q, k, v, metadata={"valid_kv_lenght": 3})
        with self.assertRaises(fovea.ArgumentError):
            fovea.torch.attention(q, k, v, kv_lengths=torch.zeros(3, dtype=torch.int32, device=self.device))
        wide = torch.zeros(1, 4, 1, 600, dtype=torch.float16, device=self.device)
        with self.assertRaises(fovea.UnsupportedError) as caught:
            fovea.torch.attention(wide, wide, wide, backend="FLASH_ATTN")
        self.assertEqual(caught.exception.reasons[0].code, "head_dim")
        # A refusal leaves nothing behind.
        self.assert_close(fovea.torch.attention(q, k, v), oracle(q, k, v)[0])

    def test_keys_are_immutable_text(self):
        key = fovea.torch.resolve_key({"default": "TORCH_SDPA"}, role="cross")
        self.assertEqual(key, fovea.torch.resolve_key('{"default": "SDPA"}', role="cross"))
        self.assertNotEqual(key, fovea.torch.resolve_key({"default": "TORCH_SDPA"}, role="self"))
        tensors = inputs(torch.float16, self.device)
        _, receipt = fovea.torch.attention(*tensors, key=key, return_receipt=True)
        self.assertEqual(receipt["backend"], "TORCH_SDPA")
        config = {"per_role": {"cross": {"backend": "TORCH_SDPA"}}}
        _, receipt = fovea.torch.attention(*tensors, config=config, role="cross", return_receipt=True)
        self.assertEqual(receipt["backend"], "TORCH_SDPA")

    def test_threads(self):
        cases = [inputs(torch.float16, self.device, seq_q=16 * (i % 3 + 1), batch=i % 2 + 1) for i in range(8)]
        expected = [oracle(*tensors)[0] for tensors in cases]
        layer = fovea.torch.Attention()
        failures = []

        def work(i):
            try:
                for _ in range(20):
                    self.assert_close(layer(*cases[i]), expected[i])
            except BaseException as failure:  # noqa: BLE001
                failures.append(failure)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])


@unittest.skipUnless(HAS_CUDA, NO_CUDA)
class EagerCuda(Eager):
    device = "cuda"

    def test_runs_on_the_current_stream(self):
        tensors = inputs(torch.float16, "cuda", seq_q=2048, seq_kv=2048)
        expected, _ = oracle(*tensors)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(20):
                scaled = [t * 1 for t in tensors]
                out = fovea.torch.attention(*scaled)
                for t in scaled:
                    t.fill_(float("nan"))
        stream.synchronize()
        self.assert_close(out, expected)

    def test_outputs_come_from_torchs_allocator(self):
        tensors = inputs(torch.float16, "cuda", seq_q=1024, seq_kv=1024)
        fovea.torch.attention(*tensors)
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        out = fovea.torch.attention(*tensors)
        self.assertGreaterEqual(torch.cuda.memory_allocated() - before, out.numel() * out.element_size())

    def test_cuda_graph_replays_with_new_values(self):
        tensors = inputs(torch.bfloat16, "cuda", seq_q=512, seq_kv=512)
        layer = fovea.torch.Attention()
        with torch.no_grad():
            layer(*tensors)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out, lse = layer(*tensors, return_lse=True)
            for factor in (1.0, 0.5, 2.0):
                for t, fresh in zip(tensors, inputs(torch.bfloat16, "cuda", seq_q=512, seq_kv=512)):
                    t.copy_(fresh * factor)
                graph.replay()
                torch.cuda.synchronize()
                expected, expected_lse = oracle(*tensors)
                self.assert_close(out, expected)
                torch.testing.assert_close(lse.cpu().double(), expected_lse, atol=1e-3, rtol=0)


class Operator(TorchCase):
    device = "cpu"

    def test_opcheck(self):
        q, k, v = inputs(torch.float32, self.device)
        mask = torch.ones(2, 90, dtype=torch.bool, device=self.device)
        key = fovea.torch.resolve_key()
        cases = (
            ((q, k, v), {}),
            ((q, k, v, mask), {"return_lse": True, "key": key}),
            ((q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)), {"layout": "bhsd", "output_layout": "bshd"}),
        )
        for arguments, options in cases:
            torch.library.opcheck(torch.ops.fovea.attention.default, arguments, {"key": key, **options})

    def test_fake_follows_the_contract(self):
        q, k, v = inputs(torch.bfloat16, self.device, dim=32, dim_v=48)
        strided = q.transpose(1, 2).contiguous().transpose(1, 2)
        self.assertFalse(strided.is_contiguous())
        with torch._subclasses.FakeTensorMode() as mode:
            fakes = [mode.from_tensor(t) for t in (strided, k, v)]
            out, lse = torch.ops.fovea.attention(*fakes, return_lse=True)
            self.assertEqual((out.shape, out.dtype), ((2, 70, 4, 48), torch.bfloat16))
            self.assertTrue(out.is_contiguous())
            self.assertEqual((lse.shape, lse.dtype), ((2, 4, 70), torch.float32))
            out, lse = torch.ops.fovea.attention(*fakes, output_layout="bhsd")
            self.assertEqual((out.shape, lse.shape), ((2, 4, 70, 48), (0,)))
            out, lse = torch.ops.fovea.attention(*(t[0] for t in fakes), layout="packed", return_lse=True)
            self.assertEqual((out.shape, lse.shape), ((70, 4, 48), (4, 70)))


@unittest.skipUnless(HAS_CUDA, NO_CUDA)
class OperatorCuda(Operator):
    device = "cuda"


class Block(torch.nn.Module):
    """Enough of a transformer block to give a compiler something to do around the operator."""

    def __init__(self, width=64, heads=4, **options):
        super().__init__()
        self.heads = heads
        self.to_qkv = torch.nn.Linear(width, 3 * width)
        self.to_out = torch.nn.Linear(width, width)
        self.attend = fovea.torch.Attention(**options)

    def forward(self, x, mask=None):
        q, k, v = self.to_qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(2)
        return self.to_out(self.attend(q, k, v, mask).flatten(2))


class Compiled(TorchCase):
    device = "cpu"

    def check_block(self, backend):
        torch.manual_seed(SEED)
        block = Block().to(self.device).eval()
        counter = CompileCounterWithBackend(backend)
        compiled = torch.compile(block, fullgraph=True, dynamic=True, backend=counter)
        torch._dynamo.utils.counters.clear()
        with torch.no_grad():
            for batch, seq in ((2, 40), (2, 77), (3, 40), (2, 128)):
                x = torch.randn(batch, seq, 64, device=self.device)
                torch.testing.assert_close(compiled(x), block(x), atol=2e-5, rtol=1e-4)
        self.assertEqual(sum(torch._dynamo.utils.counters["graph_break"].values()), 0)
        self.assertEqual(counter.frame_count, 1, "one graph for all lengths")
        with torch.no_grad():
            x = torch.randn(2, 40, 64, device=self.device)
            mask = torch.arange(40, device=self.device) < torch.tensor([[40], [25]], device=self.device)
            torch.testing.assert_close(compiled(x, mask), block(x, mask), atol=2e-5, rtol=1e-4)
        self.assertEqual(counter.frame_count, 2, "a mask is another graph")

    def test_eager_backend(self):
        self.check_block("eager")

    def test_aot_eager_backend(self):
        self.check_block("aot_eager")

    def test_inductor(self):
        self.check_block("inductor")

    def test_explain_finds_one_graph(self):
        block = Block().to(self.device).eval()
        x = torch.randn(2, 40, 64, device=self.device)
        with torch.no_grad():
            explained = torch._dynamo.explain(block)(x)
        self.assertEqual((explained.graph_count, explained.graph_break_count), (1, 0))

    def test_a_configuration_is_resolved_while_tracing(self):
        def attend(q, k, v):
            return fovea.torch.attention(q, k, v, config={"default": "TORCH_SDPA"}, role="cross")

        tensors = inputs(torch.float32, self.device)
        compiled = torch.compile(attend, fullgraph=True, backend="eager")
        with fovea.torch.record_calls() as calls:
            out = compiled(*tensors)
        self.assert_close(out, oracle(*tensors)[0])
        self.assertEqual([call["receipt"]["backend"] for call in calls], ["TORCH_SDPA"])

    def test_export_keeps_the_configuration_in_the_graph(self):
        from fovea.torch import guide

        class Two(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.attend = fovea.torch.Attention()
                self.config = guide.AttentionConfig.dense_attention(guide.AttnImplType.TORCH_SDPA)

            def forward(self, q, k, v):
                return self.attend(q, k, v) + guide.attention(q, k, v, attention_config=self.config)

        model = Two()
        length = {1: torch.export.Dim("length", min=2, max=512)}
        with torch.no_grad():
            example = tuple(torch.randn(2, 40, 4, 32, device=self.device) for _ in range(3))
            exported = torch.export.export(model, example, dynamic_shapes=(length, length, length))
            other = tuple(torch.randn(2, 77, 4, 32, device=self.device) for _ in range(3))
            self.assertTrue(torch.equal(exported.module()(*other), model(*other)))
        self.assertIn("TORCH_SDPA", exported.graph_module.code)

    def test_profilers_and_transforms_see_the_operator(self):
        tensors = inputs(torch.float32, self.device)
        with torch.profiler.profile() as profile:
            fovea.torch.attention(*tensors)
        self.assertIn("fovea::attention", {event.key for event in profile.key_averages()})
        with torch._subclasses.FakeTensorMode() as mode:
            out = fovea.torch.attention(*(mode.from_tensor(t) for t in tensors))
        self.assertIsInstance(out, torch._subclasses.FakeTensor)

    def test_layers_of_one_configuration_share_a_graph(self):
        blocks = [Block().to(self.device).eval() for _ in range(3)]
        counter = CompileCounterWithBackend("eager")
        x = torch.randn(2, 40, 64, device=self.device)

        def attend(key, q, k, v):
            return fovea.torch.attention(q, k, v, key=key)

        attend = torch.compile(attend, fullgraph=True, backend=counter)
        with torch.no_grad():
            for block in blocks:
                attend(block.attend.key, *inputs(torch.float32, self.device))
                block(x)
        self.assertEqual(counter.frame_count, 1)

    def test_gradients_are_refused(self):
        block = Block().to(self.device)
        compiled = torch.compile(block, backend="aot_eager", dynamic=True)
        with self.assertRaisesRegex(Exception, "no_grad"):
            compiled(torch.randn(2, 40, 64, device=self.device))


@unittest.skipUnless(HAS_CUDA, NO_CUDA)
class CompiledCuda(Compiled):
    device = "cuda"

    def test_cuda_graphs_of_inductor(self):
        block = Block(backend="TORCH_SDPA").cuda().eval()
        compiled = torch.compile(block, fullgraph=True, mode="reduce-overhead")
        with torch.no_grad():
            for _ in range(4):
                x = torch.randn(2, 64, 64, device="cuda")
                torch.testing.assert_close(compiled(x).clone(), block(x), atol=2e-4, rtol=1e-3)


GIVEN_BLOCKS = {"default": {"backend": "BLOCK_SPARSE_ATTN", "block_sparse": {"selection": "mask"}}}


class Sparse(TorchCase):
    """Block lists, states and the guide's names; 8 frames of 128 tokens make 8 blocks."""

    device = "cpu"
    CONFIG = {
        "default": {
            "backend": "RADIAL_ATTN",
            "radial": {"dense_timesteps": 2, "dense_layers": 1, "decay_factor": 0.5, "block_size": 128},
        }
    }

    def tensors(self):
        return inputs(torch.float16, self.device, batch=1, seq_q=1024, seq_kv=1024, heads=2, dim=64)

    def state(self, config=None):
        return fovea.torch.SparseAttentionState(config or self.CONFIG, fovea.torch.MaskMap(1024, 8))

    def visible(self, mask, rows, columns):
        counts, shape = mask.counts()
        counts = torch.frombuffer(bytearray(counts), dtype=torch.int32).reshape(shape)[0, 0]
        indices, shape = mask.indices()
        indices = torch.frombuffer(bytearray(indices), dtype=torch.int32).reshape(shape)[0, 0]
        blocks = torch.zeros(counts.numel(), -(-columns // mask.block_kv), dtype=torch.bool)
        for row, count in enumerate(counts.tolist()):
            blocks[row, indices[row, :count].long()] = True
        tokens = blocks.repeat_interleave(mask.block_q, 0).repeat_interleave(mask.block_kv, 1)
        return tokens[:rows, :columns]

    def attend(self, *tensors, **arguments):
        """A call that this device may have no sparse kernel for."""
        try:
            return fovea.torch.attention(*tensors, **arguments)
        except fovea.UnsupportedError as refused:
            if self.device == "cpu":
                raise
            self.skipTest(f"no sparse kernel on this GPU: {refused}")

    def test_block_lists_are_arguments(self):
        q, k, v = self.tensors()
        blocks = torch.rand(8, 8, generator=torch.Generator().manual_seed(SEED)) < 0.4
        blocks[:, 0] = True
        mask = fovea.torch.BlockMask(blocks.to(torch.uint8).numpy().tobytes(), 1024, 1024)
        self.assertAlmostEqual(mask.density, blocks.double().mean().item())
        lists = fovea.torch.block_lists(mask, self.device)
        out, receipt = self.attend(q, k, v, config=GIVEN_BLOCKS, return_receipt=True, **lists)
        self.assertEqual(receipt["backend"], "BLOCK_SPARSE_ATTN")
        bias = hidden(self.visible(mask, 1024, 1024)).expand(1, 2, 1024, 1024)
        self.assert_close(out, oracle(q, k, v, bias)[0])

    def test_a_state_decides(self):
        q, k, v = self.tensors()
        state = self.state()
        key = fovea.torch.resolve_key(self.CONFIG)
        state.update(numeral_timestep=1, layer_idx=5)
        self.assertTrue(state.should_use_dense())
        self.assertEqual((state.sparsity_type(), state.dense_cause()), ("dense", "first_steps"))
        out, receipt = fovea.torch.attention(q, k, v, key=key, sparse_state=state, return_receipt=True)
        self.assertEqual((receipt["backend"], receipt["scheduled_dense"]), (state.dense_backend(), True))
        self.assert_close(out, oracle(q, k, v)[0])
        state.update(numeral_timestep=2)
        self.assertEqual((state.numeral_timestep, state.layer_idx), (2, 5))
        self.assertEqual(state.sparsity_type(), "radial")
        out, receipt = self.attend(q, k, v, key=key, sparse_state=state, return_receipt=True)
        self.assertEqual(receipt["backend"], "RADIAL_ATTN")
        mask = state.mask(1024)
        self.assertLess(mask.density, 1)
        self.assertAlmostEqual(receipt["density"], mask.density)
        bias = hidden(self.visible(mask, 1024, 1024)).expand(1, 2, 1024, 1024)
        self.assert_close(out, oracle(q, k, v, bias)[0])
        report = fovea.torch.resolve(q, k, v, key=key, sparse_state=state)
        self.assertEqual(report["backend"], "RADIAL_ATTN")
        self.assertIn(report["support"], ("supported", "unmigrated"))
        state.update(layer_idx=0)
        report = fovea.torch.resolve(q, k, v, key=key, sparse_state=state)
        self.assertEqual(report["backend"], state.dense_backend())
        with self.assertRaises(fovea.ArgumentError):
            state.update(numeral_timestep=-1)
        with self.assertRaises(fovea.UnsupportedError):
            fovea.torch.attention(q, k, v, key=key)

    def test_a_state_of_other_options_is_refused(self):
        q, k, v = self.tensors()
        state = self.state()
        other = {"default": {"backend": "RADIAL_ATTN", "radial": {"decay_factor": 2.0}}}
        with self.assertRaises(fovea.ArgumentError) as caught:
            fovea.torch.attention(q, k, v, config=other, sparse_state=state)
        self.assertIn("make the state from the layer's own configuration", str(caught.exception))
        with self.assertRaises(fovea.ArgumentError):
            self.state({"default": "FLASH_ATTN"})
        with self.assertRaises(fovea.ArgumentError):
            fovea.torch.MaskMap(1000, 16)

    def test_compiled_code_follows_the_state(self):
        q, k, v = self.tensors()
        state = self.state()
        key = fovea.torch.resolve_key(self.CONFIG)
        counter = CompileCounterWithBackend("aot_eager")

        def attend(q, k, v, state):
            return fovea.torch.attention(q, k, v, key=key, sparse_state=state)

        compiled = torch.compile(attend, fullgraph=True, backend=counter)
        state.update(numeral_timestep=5, layer_idx=5)
        self.attend(q, k, v, key=key, sparse_state=state)
        ran = []
        for state in (self.state(), self.state()):
            for step in range(4):
                for layer in (1, 2, 3):
                    state.update(step, layer)
                    with fovea.torch.record_calls() as calls:
                        out = compiled(q, k, v, state)
                    self.assertTrue(torch.equal(out, attend(q, k, v, state)))
                    ran.append(calls[0]["receipt"]["backend"])
        dense = state.dense_backend()
        self.assertEqual(ran, ([dense] * 6 + ["RADIAL_ATTN"] * 6) * 2)
        self.assertEqual(counter.frame_count, 2, "one graph for dense and one for sparse, of every step and state")

    def test_the_guides_names(self):
        from fovea.torch import guide

        q, k, v = self.tensors()
        dense = guide.AttentionConfig.dense_attention(guide.AttnImplType.TORCH_SDPA)
        out = guide.attention(q, k, v, attention_config=dense)
        self.assert_close(out, oracle(q, k, v)[0])
        moved = [t.transpose(1, 2) for t in (q, k, v)]
        out = guide.attention(*moved, attention_config=dense, input_layout="BNSD")
        self.assert_close(out, oracle(q, k, v)[0])
        out = guide.attention(*moved, input_layout="BNSD", output_layout="BNSD")
        self.assert_close(out, oracle(q, k, v)[0].transpose(1, 2))

        config = guide.AttentionConfig.radial_attention(dense_timesteps=40, dense_layers=0, decay_factor=1.0)
        out, receipt = guide.attention(q, k, v, attention_config=config, return_receipt=True)
        self.assertEqual(receipt["backend"], "FLASH_ATTN")
        self.assertEqual(receipt["fallback"]["from"], "RADIAL_ATTN")
        mask_map = guide.MaskMap(video_token_num=1024, num_frame=8)
        state = guide.SparseAttentionState(config.sparse_config, mask_map, model_type="wan")
        state.update(numeral_timestep=20, layer_idx=5)
        self.assertTrue(state.should_use_dense())
        guide.attention(q, k, v, attention_config=config, sparse_state=state, input_layout="BSND")
        state.update(numeral_timestep=40, layer_idx=5)
        self.assertFalse(state.should_use_dense())
        arguments = {"attention_config": config, "sparse_state": state, "return_receipt": True}
        try:
            _, receipt = guide.attention(q, k, v, **arguments)
            self.assertIn(receipt["backend"], ("RADIAL_ATTN", "FLASH_ATTN"))
        except fovea.UnsupportedError:
            self.assertEqual(self.device, "cuda")

        for name in ("FLASH_ATTN_2", "FLASH_ATTN_3", "FLASH_ATTN_4", "SAGE_ATTN", "FLASHINFER", "RADIAL_ATTN"):
            self.assertIsInstance(getattr(guide, f"{name}_AVAILABLE"), bool)
        with self.assertRaises(AttributeError):
            guide.NO_SUCH_AVAILABLE
        with self.assertRaises(fovea.ArgumentError):
            guide.AttentionConfig(dropout=0.5)
        with self.assertRaises(fovea.ArgumentError):
            guide.AttentionConfig(attn_impl=guide.AttnImplType.RADIAL_ATTN)
        with self.assertRaises(fovea.ArgumentError):
            guide.SparseAttentionState(guide.SparseAttentionConfig(), mask_map)
        with self.assertRaises(fovea.UnsupportedError) as caught:
            guide.long_context_attention(q, k, v, device_mesh=None)
        self.assertIn("long_context_attention", str(caught.exception))
        if self.device == "cpu":
            with self.assertRaises(fovea.UnsupportedError):
                config = guide.AttentionConfig.dense_attention(guide.AttnImplType.FLASH_ATTN_2)
                guide.attention(q, k, v, attention_config=config)


@unittest.skipUnless(HAS_CUDA, NO_CUDA)
class SparseCuda(Sparse):
    device = "cuda"


# An attention that owns a scale of its queries: the state is an argument of the operator, never part of its key.
_test_library = torch.library.Library("fovea_test", "FRAGMENT")
_test_library.define("scaled_attention(Tensor q, Tensor k, Tensor v, Tensor q_scale, str key) -> Tensor")


def _scaled_attention(q, k, v, q_scale, key):
    return torch.ops.fovea.attention(q * q_scale.view(-1, 1), k, v, key=key)[0]


_test_library.impl("scaled_attention", _scaled_attention, "CPU")
_test_library.impl("scaled_attention", _scaled_attention, "CUDA")
torch.library.register_fake(
    "fovea_test::scaled_attention", lambda q, k, v, q_scale, key: torch.empty_like(q), lib=_test_library
)


class ScaledAttention(torch.nn.Module):
    def __init__(self, q_scale):
        super().__init__()
        self.q_scale = q_scale
        self.key = fovea.torch.resolve_key()

    def forward(self, q, k, v):
        return torch.ops.fovea_test.scaled_attention(q, k, v, self.q_scale, self.key) + 1


class StateLifetime(TorchCase):
    """Tensors prepared eagerly belong to the module that calls, and go with its compiled callable."""

    device = "cpu"

    def prepare(self, factor):
        return torch.full((4,), factor, device=self.device)

    def expect(self, tensors, factor):
        q, k, v = tensors
        return oracle(q * factor, k, v)[0] + 1

    def test_opcheck(self):
        q, k, v = inputs(torch.float32, self.device)
        arguments = (q, k, v, self.prepare(0.5), fovea.torch.resolve_key())
        torch.library.opcheck(torch.ops.fovea_test.scaled_attention.default, arguments)

    def check_lifetime(self, backend):
        tensors = inputs(torch.float32, self.device)
        counter = CompileCounterWithBackend(backend)
        scale = self.prepare(0.5)
        seen = weakref.ref(scale)
        compiled = torch.compile(ScaledAttention(scale), fullgraph=True, dynamic=True, backend=counter)
        del scale
        with torch.no_grad():
            self.assert_close(compiled(*tensors), self.expect(tensors, 0.5), 1e-5)
            gc.collect()
            self.assertIsNotNone(seen(), "the compiled module owns its state")
            self.assert_close(compiled(*tensors), self.expect(tensors, 0.5), 1e-5)
            # Another instance runs the same graph with its own values, at other lengths too.
            other = torch.compile(ScaledAttention(self.prepare(2.0)), fullgraph=True, dynamic=True, backend=counter)
            for seq in (70, 33, 51):
                some = (tensors[0][:, :seq].contiguous(), tensors[1], tensors[2])
                self.assert_close(other(*some), self.expect(some, 2.0), 1e-5)
                self.assert_close(compiled(*some), self.expect(some, 0.5), 1e-5)
            self.assertEqual(counter.frame_count, 1)
            del compiled
            gc.collect()
            self.assertIsNone(seen(), "deleting the compiled callable releases it")
            self.assert_close(other(*tensors), self.expect(tensors, 2.0), 1e-5)

    def test_aot_eager(self):
        self.check_lifetime("aot_eager")

    def test_inductor(self):
        self.check_lifetime("inductor")

    def test_block_lists_are_owned_alike(self):
        tensors = inputs(torch.float16, self.device, batch=1, seq_q=256, seq_kv=256, heads=2, heads_kv=2, dim=64)
        key = fovea.torch.resolve_key(GIVEN_BLOCKS)

        class Owner(torch.nn.Module):
            def __init__(self, lists):
                super().__init__()
                self.counts, self.indices = lists["block_counts"], lists["block_indices"]

            def forward(self, q, k, v):
                return fovea.torch.attention(q, k, v, key=key, block_counts=self.counts, block_indices=self.indices)

        def lists(first):
            matrix = bytes([1, 0, 1, 1] if first else [1, 1, 0, 1])
            return fovea.torch.block_lists(fovea.torch.BlockMask(matrix, 256, 256), self.device)

        counter = CompileCounterWithBackend("aot_eager")
        owners = [Owner(lists(first)) for first in (True, False)]
        try:
            expected = [owner(*tensors) for owner in owners]
        except fovea.UnsupportedError as refused:
            self.skipTest(f"no sparse kernel on this GPU: {refused}")
        self.assertFalse(torch.equal(*expected))
        seen = weakref.ref(owners[0].indices)
        compiled = [torch.compile(owner, fullgraph=True, backend=counter) for owner in owners]
        del owners
        for run, out in zip(compiled, expected):
            self.assertTrue(torch.equal(run(*tensors), out))
        self.assertEqual(counter.frame_count, 1)
        del run
        compiled.pop(0)
        gc.collect()
        self.assertIsNone(seen())


@unittest.skipUnless(HAS_CUDA, NO_CUDA)
class StateLifetimeCuda(StateLifetime):
    device = "cuda"


class Documentation(TorchCase):
    def test_the_examples_run(self):
        names = {}
        text = (SOURCE / "docs" / "python.md").read_text()
        blocks = [block.split("```")[0] for block in text.split("```python\n")[1:]]
        self.assertGreater(len(blocks), 8)
        for block in blocks:
            if "cuda" not in block:
                exec(block, names)


if __name__ == "__main__":
    unittest.main()
