"""fovea.torch on CPU tensors, and on CUDA tensors where there is a GPU."""

import importlib
import inspect
import os
import sys
import threading
import typing
import unittest
import unittest.mock

from torch_case import (
    GIVEN_BLOCKS,
    SEED,
    SOURCE,
    TOLERANCE,
    TorchCase,
    fovea,
    hidden,
    inputs,
    needs_cuda,
    oracle,
    torch,
)


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

    def test_arguments_of_other_types_are_named(self):
        q, k, v = inputs(torch.float16, self.device)
        array = torch.ones(2, 90, dtype=torch.bool).numpy()
        attend, resolve = fovea.torch.attention, fovea.torch.resolve
        cases = (
            ("q is of type ndarray", lambda: attend(array, k, v)),
            ("q is of type NoneType", lambda: attend(None, k, v)),
            ("v is of type list", lambda: attend(q, k, [1.0])),
            ("mask is of type ndarray", lambda: attend(q, k, v, array)),
            ("mask is of type ndarray", lambda: resolve(q, k, v, array)),
            ("kv_lengths is of type list", lambda: attend(q, k, v, kv_lengths=[90, 3])),
            ("sparse_state is of type dict", lambda: attend(q, k, v, sparse_state={})),
            ("sparse_state is of type dict", lambda: resolve(q, k, v, sparse_state={})),
            ("scale is of type str", lambda: attend(q, k, v, scale="0.5")),
            ("is_causal is of type str", lambda: attend(q, k, v, is_causal="no")),
            ("k is on device meta", lambda: attend(q, k.to("meta"), v)),
            ("config of type object", lambda: attend(q, k, v, config=object())),
            ("mask_map is of type NoneType", lambda: fovea.torch.SparseAttentionState("RADIAL_ATTN", None)),
        )
        for text, call in cases:
            for mode in (torch.enable_grad, torch.inference_mode):
                with self.subTest(text, mode=mode.__name__), mode():
                    with self.assertRaisesRegex(fovea.ArgumentError, text) as caught:
                        call()
                    self.assertIn("accepted", str(caught.exception))

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

    def test_the_environment_is_read_when_a_key_is_made(self):
        tensors = inputs(torch.float16, self.device)
        with unittest.mock.patch.dict(os.environ, FOVEA_BACKEND="sdpa"):
            key = fovea.torch.resolve_key()
            _, receipt = fovea.torch.attention(*tensors, return_receipt=True)
            self.assertEqual(receipt["backend"], "TORCH_SDPA")
            _, receipt = fovea.torch.attention(*tensors, backend="FLASH_ATTN", return_receipt=True)
            self.assertEqual(receipt["backend"], "FLASH_ATTN")
        _, receipt = fovea.torch.attention(*tensors, return_receipt=True)
        self.assertEqual(receipt["backend"], "FLASH_ATTN")
        _, receipt = fovea.torch.attention(*tensors, key=key, return_receipt=True)
        self.assertEqual(receipt["backend"], "TORCH_SDPA", "a key keeps what it was made from")

    def test_defaults_of_torch_do_not_matter(self):
        tensors = inputs(torch.float16, self.device)
        expected = oracle(*tensors)[0]
        torch.set_default_dtype(torch.float64)
        self.addCleanup(torch.set_default_dtype, torch.float32)
        with torch.device("meta"):
            for arguments in ({}, {"return_lse": True}):
                out, lse = torch.ops.fovea.attention(*tensors, **arguments)
                self.assertEqual((lse.dtype, lse.device), (torch.float32, tensors[0].device))
                self.assert_close(out, expected)
            self.assert_close(fovea.torch.attention(*tensors, key=fovea.torch.resolve_key(role="other")), expected)

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


@needs_cuda
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
            layer(*tensors, return_lse=True)
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

    def forms(self):
        """Calls that between them give every argument of the operator."""
        q, k, v = inputs(torch.float32, self.device)
        packed = [t[0] for t in inputs(torch.float16, self.device, seq_q=96, seq_kv=96)]
        blocks = inputs(torch.float16, self.device, batch=1, seq_q=256, seq_kv=256, heads=2, dim=64)
        mask = fovea.torch.BlockMask(bytes([1, 0, 1, 1]), 256, 256)
        lists = fovea.torch.block_lists(mask, self.device)
        partial = torch.zeros_like(lists["block_indices"], dtype=torch.uint8)
        radial = {"default": {"backend": "RADIAL_ATTN", "radial": {"dense_timesteps": 0, "dense_layers": 0}}}
        state = fovea.torch.SparseAttentionState(radial, fovea.torch.MaskMap(256, 2))
        state.update(1, 1)
        starts = torch.tensor([0, 30, 96], dtype=torch.int32, device=self.device)
        lengths = torch.tensor([90, 33], dtype=torch.int32, device=self.device)
        longest = {"max_seqlen_q": 66, "max_seqlen_kv": 66}
        in_packed = {"layout": "packed", "output_layout": "packed", "return_lse": True}
        moved = [t.transpose(1, 2) for t in (q, k, v)]
        return {
            "plain": ((q, k, v), {}),
            "mask": ((q, k, v, torch.ones(2, 90, dtype=torch.bool, device=self.device)), {"return_lse": True}),
            "bias": ((q, k, v, torch.zeros(2, 1, 70, 90, device=self.device)), {"scale": 0.3}),
            "layouts": (moved, {"layout": "bhsd", "output_layout": "bshd"}),
            "lengths": ((q, k, v), {"kv_lengths": lengths, "is_causal": True}),
            "window": ((q, k, v), {"window_left": 9, "window_right": 3}),
            "metadata": ((q, k, v), {"metadata": '{"valid_kv_length": 40}'}),
            "packed": (
                packed,
                {"cu_seqlens_q": starts, "cu_seqlens_kv": starts, **longest, **in_packed},
            ),
            "block lists": (
                blocks,
                {"key": fovea.torch.resolve_key(GIVEN_BLOCKS), **lists, "block_partial": partial},
            ),
            "sparse state": (blocks, {"key": fovea.torch.resolve_key(radial), "sparse": state.text}),
        }

    def test_opcheck(self):
        forms = self.forms()
        key = fovea.torch.resolve_key()
        given = {"q", "k", "v", "mask", "key"}.union(*(options for _, options in forms.values()))
        self.assertEqual({argument.name for argument in fovea.torch._op.op._schema.arguments}, given)
        for name, (arguments, options) in forms.items():
            with self.subTest(name):
                options = {"key": key, **options}
                try:
                    fovea.torch._op.op(*arguments, **options)
                except fovea.UnsupportedError as refused:
                    if self.device == "cpu":
                        raise
                    print(f"not on this GPU: {name}: {refused}")
                    continue
                torch.library.opcheck(fovea.torch._op.op, tuple(arguments), options)

    def test_it_is_the_only_operator(self):
        names = {name for name in torch._C._dispatch_get_all_op_names() if name.startswith("fovea::")}
        self.assertEqual(names, {"fovea::attention"})

    def test_fake_is_what_a_run_gives(self):
        for name, (arguments, options) in self.forms().items():
            with self.subTest(name):
                try:
                    ran = fovea.torch._op.op(*arguments, **options)
                except fovea.UnsupportedError:
                    continue
                with torch._subclasses.FakeTensorMode() as mode:

                    def faked(value):
                        return mode.from_tensor(value) if isinstance(value, torch.Tensor) else value

                    fakes = fovea.torch._op.op(
                        *map(faked, arguments), **{key: faked(value) for key, value in options.items()}
                    )
                for real, fake in zip(ran, fakes):
                    self.assertEqual(
                        (fake.shape, fake.stride(), fake.dtype, fake.device),
                        (real.shape, real.stride(), real.dtype, real.device),
                    )

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


@needs_cuda
class OperatorCuda(Operator):
    device = "cuda"


class Types(unittest.TestCase):
    """The package says that it is typed: every public function states its types."""

    MODULES = ("fovea", "fovea.errors", "fovea.sparse", "fovea.torch", "fovea.torch.guide", "fovea.torch.providers")

    def functions(self, module):
        """(name, function) of what a module lists, methods and properties included."""
        names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
        for name in names:
            value = getattr(module, name)
            if not str(getattr(value, "__module__", "")).startswith("fovea"):
                continue
            if inspect.isfunction(value):
                yield name, value
            for inner, member in vars(value).items() if inspect.isclass(value) else ():
                member = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
                member = member.fget if isinstance(member, property) else member
                own = inspect.isfunction(member) and member.__module__.startswith("fovea")
                if own and (not inner.startswith("_") or inner in ("__init__", "__call__")):
                    yield f"{name}.{inner}", member

    def test_public_functions_state_their_types(self):
        seen = 0
        for name in self.MODULES:
            for function, value in self.functions(importlib.import_module(name)):
                if value.__code__.co_filename == "<string>" or not value.__code__.co_filename.endswith(".py"):
                    continue  # made by dataclasses or enum
                stated = inspect.signature(value)
                missing = [
                    each.name for each in stated.parameters.values()
                    if each.annotation is each.empty and each.name not in ("self", "cls")
                ]  # fmt: skip
                missing += ["return"] * (stated.return_annotation is stated.empty)
                self.assertEqual(missing, [], f"{name}.{function}")
                if sys.version_info >= (3, 10):
                    typing.get_type_hints(value)
                seen += 1
        self.assertGreater(seen, 60)


class Documentation(TorchCase):
    def test_the_examples_run(self):
        names = {}
        text = (SOURCE / "docs" / "python.md").read_text()
        blocks = [block.split("```")[0] for block in text.split("```python\n")[1:]]
        self.assertGreater(len(blocks), 8)
        for block in blocks:
            if "cuda" not in block:
                exec(block, names)



class Joint(unittest.TestCase):
    def check(self, device):
        for strategy in ("front", "rear"):
            for layout, axis in (("bshd", 1), ("bhsd", 2)):
                with self.subTest(strategy=strategy, layout=layout):
                    made = inputs(device=device, seq_q=70, seq_kv=70)
                    q, k, v = (t.transpose(1, 2) if axis == 2 else t for t in made)
                    cut = (20, 50) if strategy == "front" else (50, 20)
                    parts = [t.split(cut, axis) for t in (q, k, v)]
                    joint, own = (0, 1) if strategy == "front" else (1, 0)
                    keys = torch.rand(2, 70, device=device) > 0.2
                    (out, joint_out), lse = fovea.torch.attend_jointly(
                        *(p[own] for p in parts), *(p[joint] for p in parts), keys, strategy=strategy, layout=layout,
                        return_lse=True,
                    )  # fmt: skip
                    whole, whole_lse = fovea.torch.attention(q, k, v, keys, layout=layout, return_lse=True)
                    wanted = whole.split(cut, axis)
                    self.assertTrue(torch.equal(out, wanted[own]) and torch.equal(joint_out, wanted[joint]))
                    self.assertTrue(torch.equal(lse, whole_lse))
                    masks = keys.split(cut, 1)
                    pair = fovea.torch.attend_jointly(
                        *(p[own] for p in parts), *(p[joint] for p in parts), masks[own], joint_mask=masks[joint],
                        strategy=strategy, layout=layout,
                    )  # fmt: skip
                    self.assertTrue(torch.equal(pair[0], wanted[own]) and torch.equal(pair[1], wanted[joint]))
                    shown = keys.clone()
                    shown.split(cut, 1)[own][:] = True
                    pair = fovea.torch.attend_jointly(
                        *(p[own] for p in parts), *(p[joint] for p in parts), joint_mask=masks[joint],
                        strategy=strategy, layout=layout,
                    )  # fmt: skip
                    wanted = fovea.torch.attention(q, k, v, shown, layout=layout).split(cut, axis)
                    self.assertTrue(torch.equal(pair[0], wanted[own]) and torch.equal(pair[1], wanted[joint]))

    def test_cpu(self):
        self.check("cpu")

    @needs_cuda
    def test_cuda(self):
        self.check("cuda")

    def test_refusals(self):
        q, k, v = inputs()
        with self.assertRaisesRegex(fovea.UnsupportedError, "put the joint tokens into the documents") as caught:
            fovea.torch.attend_jointly(q[0], k[0], v[0], q[0], k[0], v[0], layout="packed")
        self.assertEqual(caught.exception.reasons[0].field, "layout")
        with self.assertRaisesRegex(fovea.ArgumentError, "joint k"):
            fovea.torch.attend_jointly(q, k, v, q, k[..., :8], v)
        with self.assertRaisesRegex(fovea.ArgumentError, "front, rear"):
            fovea.torch.attend_jointly(q, k, v, q, k, v, strategy="middle")
        both = torch.ones(k.shape[0], 2 * k.shape[1], dtype=torch.bool)
        with self.assertRaisesRegex(fovea.ArgumentError, "mask .* does not fit beside a joint mask"):
            fovea.torch.attend_jointly(q, k, v, q, k, v, both, joint_mask=both[:, : k.shape[1]])


if __name__ == "__main__":
    unittest.main()
