"""Block lists, sparse states and the guide's names on torch tensors."""

import unittest

from torch_case import GIVEN_BLOCKS, SEED, TorchCase, fovea, hidden, inputs, needs_cuda, oracle, torch
from torch._dynamo.testing import CompileCounterWithBackend

import graph_counts


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
        # One graph for dense and one for sparse, of every step and state.
        self.assertEqual(graph_counts.state(self, len(ran), counter), (2, 0, 1))

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
            self.assertEqual(getattr(fovea.torch, f"{name}_AVAILABLE"), getattr(guide, f"{name}_AVAILABLE"))
        for module in (guide, fovea.torch):
            with self.assertRaises(AttributeError):
                module.NO_SUCH_AVAILABLE
        self.assertIs(fovea.torch.AttentionConfig, guide.AttentionConfig)
        self.assertIs(fovea.torch.SparseAttentionState, guide.SparseAttentionState)
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


@needs_cuda
class SparseCuda(Sparse):
    device = "cuda"


if __name__ == "__main__":
    unittest.main()
