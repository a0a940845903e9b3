"""The real packages behind Fovea's names on a CUDA device: numerics, compilers, refusals. What is absent is skipped."""

import importlib
import json
import pathlib
import tempfile
import unittest

from torch_case import SEED, SOURCE, TorchCase, fovea, needs_cuda, oracle, torch
from torch._dynamo.testing import CompileCounterWithBackend

import fovea.check
import graph_counts
from fovea.torch import providers

RECORDS = SOURCE / "docs" / "validation"
# The dimensions that the execution contract is sampled at, with batches of 1 and 2 and up to 1,024 tokens.
DIMENSIONS = ((32, 32), (64, 64), (80, 48), (192, 128), (256, 256))
SHAPES = ((1, 256, 256), (2, 384, 1024), (2, 1024, 127))
WRONG_DIMENSIONS = ((60, 60), (4, 4), (264, 264), (64, 264))
BOUND = {"atol": 1e-2, "rtol": 1e-2}


def tensors(batch, seq_q, seq_kv, dim, dim_v=None, heads=4, heads_kv=4, dtype=torch.bfloat16):
    generator = torch.Generator(device="cuda").manual_seed(SEED)

    def make(seq, count, size):
        return torch.randn(batch, seq, count, size, generator=generator, device="cuda", dtype=dtype)

    return make(seq_q, heads, dim), make(seq_kv, heads_kv, dim), make(seq_kv, heads_kv, dim_v or dim)


def sdpa(q, k, v, **arguments):
    """torch's own attention in float32."""
    moved = (t.float().transpose(1, 2) for t in (q, k, v))
    return torch.nn.functional.scaled_dot_product_attention(
        *moved, enable_gqa=q.shape[2] != k.shape[2], **arguments
    ).transpose(1, 2)


class Package(TorchCase):
    package = ""

    def setUp(self):
        super().setUp()
        self.addCleanup(providers.unbind, self.package)
        (row,) = providers.bind(self.package)
        if row["state"] != "bound":
            self.skipTest(f"{self.package}: {row['cause']}")
        self.version = row["version"]

    def key(self, backend):
        return fovea.torch.resolve_key({"default": {"backend": backend, "provider": "package"}})

    def attend(self, backend, *given, **arguments):
        """One call; the inputs are as they were, and the package ran it."""
        kept = [t.clone() for t in given]
        *out, receipt = fovea.torch.attention(*given, key=self.key(backend), return_receipt=True, **arguments)
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(given, kept)), "inputs changed")
        self.assertEqual(receipt["provider"], f"package {self.package} {self.version}")
        self.assertTrue(out[0].is_contiguous() and out[0].isfinite().all())
        return out if len(out) > 1 else out[0]

    def reasons(self, backend, *given, **arguments):
        report = fovea.torch.resolve(*given, key=self.key(backend), **arguments)
        self.assertEqual(report["support"], "unsupported")
        return {reason["code"]: reason for reason in report["reasons"]}


@needs_cuda
class Flash4(Package):
    package = "fa4"

    def committed(self):
        """Whether a committed record is of this version on this kind of device."""
        stated = {
            "library": f"package fa4 {self.version}",
            "device_class": "sm_{}{}".format(*torch.cuda.get_device_capability()),
        }
        records = map(json.loads, (file.read_text() for file in RECORDS.glob("FLASH_ATTN_4-*.json")))
        return any(stated.items() <= record.items() for record in records)

    def eager(self, *given, **arguments):
        result = importlib.import_module("flash_attn.cute").flash_attn_func(*given, **arguments)
        return result[0] if isinstance(result, tuple) else result

    def test_numerics(self):
        for dim, dim_v in DIMENSIONS:
            for shape in SHAPES:
                with self.subTest(dim=dim, dim_v=dim_v, shape=shape):
                    given = tensors(*shape, dim, dim_v)
                    out = self.attend("FLASH_ATTN_4", *given)
                    torch.testing.assert_close(out.float(), sdpa(*given), **BOUND)
                    torch.testing.assert_close(out, self.eager(*given), **BOUND)

    def test_strided_inputs_and_layouts(self):
        fused = torch.randn(2, 300, 3, 4, 64, device="cuda", dtype=torch.bfloat16).unbind(2)
        expected = sdpa(*fused)
        torch.testing.assert_close(self.attend("FLASH_ATTN_4", *fused).float(), expected, **BOUND)
        moved = [t.transpose(1, 2) for t in fused]
        out = self.attend("FLASH_ATTN_4", *moved, layout="bhsd")
        torch.testing.assert_close(out.transpose(1, 2).float(), expected, **BOUND)

    def test_lse_groups_diagonals_and_windows(self):
        for dtype in (torch.bfloat16, torch.float16):
            given = tensors(2, 200, 333, 128, heads=8, heads_kv=2, dtype=dtype)
            rows = torch.arange(200)[:, None] + 333 - 200
            columns = torch.arange(333)[None, :]
            for arguments, visible in (
                ({}, columns >= 0),
                ({"is_causal": True}, columns <= rows),
                ({"window": (40, 25)}, (columns >= rows - 40) & (columns <= rows + 25)),
            ):
                with self.subTest(dtype=dtype, **arguments):
                    out, lse = self.attend("FLASH_ATTN_4", *given, return_lse=True, **arguments)
                    bias = torch.zeros(visible.shape).masked_fill(~visible, float("-inf"))
                    expected, expected_lse = oracle(*given, bias=bias)
                    self.assert_close(out, expected)
                    torch.testing.assert_close(lse.cpu().double(), expected_lse, atol=1e-3, rtol=0)

    def test_packed_documents(self):
        q, k, v = (t[0] for t in tensors(1, 500, 500, 64))
        bounds = (0, 130, 131, 500)
        starts = torch.tensor(bounds, dtype=torch.int32, device="cuda")
        arguments = {"layout": "packed", "cu_seqlens": starts, "max_seqlen_q": 369, "max_seqlen_kv": 369}
        out, lse = self.attend("FLASH_ATTN_4", q, k, v, return_lse=True, **arguments)
        for a, b in zip(bounds, bounds[1:]):
            expected, expected_lse = oracle(q[None, a:b], k[None, a:b], v[None, a:b])
            self.assert_close(out[None, a:b], expected)
            torch.testing.assert_close(lse[None, :, a:b].cpu().double(), expected_lse, atol=1e-3, rtol=0)

    def test_compiled(self):
        for dim, dim_v in DIMENSIONS:
            for backend in ("aot_eager", "inductor"):
                with self.subTest(dim=dim, dim_v=dim_v, backend=backend):
                    torch._dynamo.reset()
                    graph_counts.start()
                    key, counter = self.key("FLASH_ATTN_4"), CompileCounterWithBackend(backend)

                    def attend(q, k, v, key=key):
                        return fovea.torch.attention(q, k, v, key=key)

                    compiled = torch.compile(attend, fullgraph=True, dynamic=True, backend=counter)
                    # A length equal to a head size would share its symbol and make a second graph.
                    for seq in (320, 512, 1024):
                        given = tensors(2, seq, seq, dim, dim_v)
                        out = compiled(*given)
                        torch.testing.assert_close(out.float(), sdpa(*given), **BOUND)
                        torch.testing.assert_close(out, self.eager(*given), **BOUND)
                    counted = graph_counts.state(f"Flash4.test_compiled {dim}/{dim_v} {backend}", 3, counter)
                    self.assertEqual(counted, (1, 0, 0))

    def test_schema_and_fake(self):
        key = self.key("FLASH_ATTN_4")
        for given in (
            tensors(1, 256, 256, 80, 48),
            torch.randn(2, 300, 3, 4, 64, device="cuda", dtype=torch.bfloat16).unbind(2),
        ):
            torch.library.opcheck(fovea.torch._op.op, given, {"key": key})

    def test_captured(self):
        given = tensors(1, 512, 512, 128)
        self.attend("FLASH_ATTN_4", *given)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = fovea.torch.attention(*given, key=self.key("FLASH_ATTN_4"))
        given[0].copy_(torch.randn_like(given[0]))
        graph.replay()
        torch.testing.assert_close(out.float(), sdpa(*given), **BOUND)

    def test_other_streams(self):
        given = tensors(1, 256, 256, 64)
        expected = sdpa(*given)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            out = self.attend("FLASH_ATTN_4", *given)
        torch.cuda.current_stream().wait_stream(stream)
        torch.testing.assert_close(out.float(), expected, **BOUND)

    def test_the_packages_rule_for_head_sizes_is_what_refuses(self):
        for dim, dim_v in WRONG_DIMENSIONS:
            given = tensors(1, 64, 64, dim, dim_v)
            with self.subTest(dim=dim, dim_v=dim_v):
                with self.assertRaises(AssertionError) as raised:
                    self.eager(*given)
                refused = self.reasons("FLASH_ATTN_4", *given)["head_dim"]
                self.assertIn(str(raised.exception), refused["accepted"])
                with self.assertRaises(fovea.UnsupportedError) as caught:
                    fovea.torch.attention(*given, key=self.key("FLASH_ATTN_4"))
                self.assertIn(str(raised.exception), str(caught.exception))

    def test_support_needs_a_record_and_the_contracts_conditions(self):
        given = tensors(1, 256, 256, 64)
        key = self.key("FLASH_ATTN_4")
        report = fovea.torch.resolve(*given, key=key)
        support = "supported" if self.committed() else "unmigrated"
        self.assertEqual((report["path"], report["support"]), ("fa4_dense", support))
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "record.json"
            done = fovea.check.main(
                ["--contract", "--backend", "FLASH_ATTN_4", "--device", "cuda", "--record", str(file)]
            )
            self.assertEqual(done, 0)
            providers.bind("fa4", records={"fa4": file})
        report = fovea.torch.resolve(*given, key=key, require_fullgraph=True)
        self.assertEqual(
            (report["path"], report["support"], report["compilation_mode"]), ("fa4_dense", "supported", "custom_op")
        )
        self.assertEqual(report["requested"]["status"], "supported")
        for arguments in ({"is_causal": True}, {"parallel_strategy": "ulysses"}, {"outer_boundaries": "hsdp"}):
            report = fovea.torch.resolve(*given, key=key, **arguments)
            self.assertEqual((report["path"], report["support"]), ("unverified", "unmigrated"), arguments)
        half = fovea.torch.resolve(*(t.half() for t in given), key=key)
        self.assertEqual((half["path"], half["support"]), ("unverified", "unmigrated"))
        mask = torch.ones(1, 256, device="cuda", dtype=torch.bool)
        self.assertIn("mask", self.reasons("FLASH_ATTN_4", *given, mask=mask))
        self.assertIn("dtype", self.reasons("FLASH_ATTN_4", *(t.float() for t in given)))

    def test_unbound_it_is_refused_with_what_to_do(self):
        providers.unbind("fa4")
        with self.assertRaises(fovea.UnsupportedError) as caught:
            fovea.torch.attention(*tensors(1, 64, 64, 64), backend="FLASH_ATTN_4")
        print(caught.exception)
        self.assertIn("flash-attn-4", str(caught.exception))


@needs_cuda
class Sage(Package):
    package = "sageattention"

    def setUp(self):
        super().setUp()
        self.sage = importlib.import_module("sageattention")
        self.first = not self.version or self.version.startswith("1.")

    def test_numerics(self):
        for dim in (64, 96, 128):
            for batch, seq_q, seq_kv in ((1, 256, 256), (2, 333, 1024), (1, 70, 512)):
                with self.subTest(dim=dim, batch=batch, seq_q=seq_q, seq_kv=seq_kv):
                    given = tensors(batch, seq_q, seq_kv, dim, heads=4, heads_kv=2)
                    out = self.attend("SAGE_ATTN", *given)
                    torch.testing.assert_close(out.float(), sdpa(*given), atol=8e-2, rtol=8e-2)
                    q, k, v = (t.clone() for t in given)
                    direct = self.sage.sageattn(q, k, v, tensor_layout="NHD", sm_scale=dim**-0.5)
                    self.assertTrue(torch.equal(out, direct), "what the package itself computes")

    def test_diagonal_layout_and_strides(self):
        given = torch.randn(2, 384, 3, 4, 64, device="cuda", dtype=torch.float16).unbind(2)
        out = self.attend("SAGE_ATTN", *given, is_causal=True)
        torch.testing.assert_close(out.float(), sdpa(*given, is_causal=True), atol=8e-2, rtol=8e-2)
        moved = self.attend("SAGE_ATTN", *(t.transpose(1, 2) for t in given), layout="bhsd", is_causal=True)
        self.assertTrue(torch.equal(moved.transpose(1, 2), out))

    def test_lengths_that_the_first_version_gets_wrong_are_refused(self):
        if not self.first:
            self.skipTest(f"version {self.version}")
        given = tensors(1, 70, 90, 64)
        q, k, v = (t.clone() for t in given)
        direct = self.sage.sageattn(q, k, v, tensor_layout="NHD")
        error = ((direct.float() - sdpa(*given)).norm() / sdpa(*given).norm()).item()
        print(f"sageattention {self.version} by itself, 90 keys: relative error {error:.3f}")
        self.assertFalse(torch.equal(k, given[1]), "it centres the caller's keys in place")
        self.assertGreater(error, 0.1)
        self.assertEqual(self.reasons("SAGE_ATTN", *given)["seq_limit"]["got"], "90")
        self.assertIn("lse", self.reasons("SAGE_ATTN", *tensors(1, 64, 64, 64), return_lse=True))
        self.assertIn("head_dim", self.reasons("SAGE_ATTN", *tensors(1, 64, 64, 80)))

    def test_names_of_the_second_version_are_absent_with_the_cause(self):
        given = tensors(1, 128, 128, 64)
        for backend, name in (
            ("SAGE_ATTN_2_8_8", "sageattn_qk_int8_pv_fp8_cuda"),
            ("SAGE_ATTN_2_8_16", "sageattn_qk_int8_pv_fp16_cuda"),
            ("SAGE_ATTN_2_8_8_SM90", "sageattn_qk_int8_pv_fp8_cuda_sm90"),
        ):
            with self.subTest(backend):
                if hasattr(self.sage, name):
                    out = self.attend(backend, *given)
                    torch.testing.assert_close(out.float(), sdpa(*given), atol=8e-2, rtol=8e-2)
                    continue
                with self.assertRaises(fovea.UnsupportedError) as caught:
                    fovea.torch.attention(*given, key=self.key(backend))
                print(caught.exception)
                self.assertRegex(str(caught.exception), "2.0|version 2")

    def test_compiled(self):
        key, counter = self.key("SAGE_ATTN"), CompileCounterWithBackend("inductor")
        compiled = torch.compile(
            lambda q, k, v: fovea.torch.attention(q, k, v, key=key), fullgraph=True, dynamic=True, backend=counter
        )
        for seq in (320, 512, 1024):
            given = tensors(2, seq, seq, 128)
            self.assertTrue(torch.equal(compiled(*given), self.attend("SAGE_ATTN", *given)))
        self.assertEqual(graph_counts.state(self, 3, counter), (1, 0, 0))
        torch.library.opcheck(fovea.torch._op.op, given, {"key": key})


@needs_cuda
class Others(TorchCase):
    def test_exact_ones(self):
        names = {"flash_attn_3": "FLASH_ATTN_3", "flash_attn": "FLASH_ATTN_2", "torch": "TORCH_SDPA"}
        for package, backend in names.items():
            with self.subTest(package):
                self.addCleanup(providers.unbind, package)
                (row,) = providers.bind(package)
                if row["state"] != "bound":
                    self.skipTest(f"{package}: {row['cause']}")
                key = fovea.torch.resolve_key({"default": {"backend": backend, "provider": "package"}})
                for dim in (64, 128):
                    for shape in SHAPES:
                        given = tensors(*shape, dim)
                        out, receipt = fovea.torch.attention(*given, key=key, return_receipt=True)
                        torch.testing.assert_close(out.float(), sdpa(*given), **BOUND)
                        self.assertIn(package, receipt["provider"])


if __name__ == "__main__":
    unittest.main()
