"""What the tests of fovea.torch share. Importing it skips the test file where PyTorch is missing."""

import importlib.util
import os
import pathlib
import sys
import unittest

SOURCE = pathlib.Path(os.environ.get("TEST_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
BINARY = pathlib.Path(os.environ.get("TEST_BINARY_DIR", SOURCE / "build"))
sys.path[:0] = [str(SOURCE / "python"), str(SOURCE / "tests" / "python")]

import fovea  # noqa: E402

fovea.load_library(BINARY / "libfovea.so")

if importlib.util.find_spec("torch") is None:
    raise unittest.SkipTest("PyTorch is not installed")

import torch  # noqa: E402
import torch._dynamo  # noqa: E402

import fovea.torch  # noqa: E402
import graph_counts  # noqa: E402

needs_cuda = unittest.skipUnless(torch.cuda.is_available(), "no CUDA device")
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
        graph_counts.start()

    def assert_close(self, got, expected, tolerance=None):
        self.assertEqual(got.shape, expected.shape)
        error = (got.cpu().double() - expected).norm() / expected.norm()
        self.assertLessEqual(error.item(), TOLERANCE[got.dtype] if tolerance is None else tolerance)


GIVEN_BLOCKS = {"default": {"backend": "BLOCK_SPARSE_ATTN", "block_sparse": {"selection": "mask"}}}
