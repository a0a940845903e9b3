"""fovea.torch under compilers: graphs counted, exported programs, and who owns the state that a graph reads."""

import gc
import unittest
import weakref

from torch_case import GIVEN_BLOCKS, SEED, TorchCase, fovea, inputs, needs_cuda, oracle, torch
from torch._dynamo.testing import CompileCounterWithBackend

import graph_counts


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
        with torch.no_grad():
            shapes = ((2, 40), (2, 77), (3, 40), (2, 128))
            for batch, seq in shapes:
                x = torch.randn(batch, seq, 64, device=self.device)
                torch.testing.assert_close(compiled(x), block(x), atol=2e-5, rtol=1e-4)
        self.assertEqual(graph_counts.state(self, len(shapes), counter), (1, 0, 0), "one graph for all lengths")
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

    def test_head_sizes_are_constants_of_a_graph(self):
        graphs, counter = [], CompileCounterWithBackend("eager")

        def keep(graph, example):
            graphs.append(graph)
            return counter(graph, example)

        attend = torch.compile(fovea.torch.Attention(), fullgraph=True, dynamic=True, backend=keep)
        for seq, dim, dim_v in ((40, 32, 16), (77, 32, 16), (40, 48, 16), (77, 48, 24)):
            tensors = inputs(torch.float32, self.device, seq_q=seq, seq_kv=seq, dim=dim, dim_v=dim_v)
            self.assert_close(attend(*tensors), oracle(*tensors)[0])
        self.assertEqual(graph_counts.state(self, 4, counter), (3, 0, 2), "one for each pair of head sizes")
        for graph, dim_v in zip(graphs, (16, 16, 24)):
            (node,) = (node for node in graph.graph.nodes if "fovea" in str(node.target))
            batch, seq, _, size = node.meta["example_value"][0].shape
            self.assertIsInstance(size, int)
            self.assertEqual(size, dim_v)
            self.assertIsInstance(seq, torch.SymInt)

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


@needs_cuda
class CompiledCuda(Compiled):
    device = "cuda"

    def test_cuda_graphs_of_inductor(self):
        block = Block(backend="TORCH_SDPA").cuda().eval()
        compiled = torch.compile(block, fullgraph=True, mode="reduce-overhead")
        with torch.no_grad():
            for _ in range(4):
                x = torch.randn(2, 64, 64, device="cuda")
                torch.testing.assert_close(compiled(x).clone(), block(x), atol=2e-4, rtol=1e-3)


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
            self.assertEqual(graph_counts.state(self, 3, counter), (1, 0, 0), "for two instances")
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


@needs_cuda
class StateLifetimeCuda(StateLifetime):
    device = "cuda"


if __name__ == "__main__":
    unittest.main()
