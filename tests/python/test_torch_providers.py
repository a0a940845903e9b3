"""Kernels of packages behind Fovea's names, with stand-ins for the packages; the real ones where they are."""

import importlib
import importlib.machinery
import importlib.util
import json
import os
import sys
import tempfile
import types
import unittest

from torch_case import fovea, needs_cuda, torch

from fovea.torch import providers

SEED = 20260802
HOPPER = {"sm": 90, "cuda": "13.0", "flash_attn": "2.8.3", "flash_attn_3": "3.0.0", "fa4": "4.0.0"}
HOPPER["sageattention"] = "2.2.0"
# The dimensions that the execution contract is sampled at.
DIMENSIONS = ((32, 32), (64, 64), (80, 48), (192, 128), (256, 256))


def exact(q, k, v, scale, causal=False):
    """[B,S,H,D] in float64; causal from the bottom right. Returns out in q's dtype and lse."""
    a, b, c = (t.double().transpose(1, 2) for t in (q, k, v))
    group = a.shape[1] // b.shape[1]
    b, c = b.repeat_interleave(group, 1), c.repeat_interleave(group, 1)
    scores = a @ b.transpose(-1, -2) * scale
    if causal:
        rows, columns = scores.shape[-2:]
        scores = scores.masked_fill(~torch.ones(rows, columns).bool().tril(columns - rows), float("-inf"))
    lse = torch.logsumexp(scores, -1)
    return (torch.softmax(scores, -1) @ c).transpose(1, 2).to(q.dtype), lse.float()


class Fakes:
    """Modules in sys.modules that compute exactly and remember how they were called."""

    def __init__(self):
        self.calls = []
        self.names = []

    def module(self, name, version, **members):
        module = types.ModuleType(name)
        module.__version__ = version
        module.__path__ = []
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        for member, value in members.items():
            setattr(module, member, value)
        sys.modules[name] = module
        self.names.append(name)
        return module

    def remove(self):
        for name in self.names:
            sys.modules.pop(name, None)

    def flash_attn(self):
        def flash_attn_func(q, k, v, softmax_scale=None, causal=False, window_size=(-1, -1), return_attn_probs=False):
            self.calls.append(("flash_attn_func", q.data_ptr(), q.stride(), causal, window_size))
            out, lse = exact(q, k, v, softmax_scale, causal)
            return (out, lse, None) if return_attn_probs else out

        def flash_attn_varlen_func(
            q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, softmax_scale=None, causal=False,
            window_size=(-1, -1), return_attn_probs=False,
        ):  # fmt: skip
            self.calls.append(("flash_attn_varlen_func", max_seqlen_q, max_seqlen_k))
            out, lse = torch.empty_like(q), torch.empty(q.shape[1], q.shape[0])
            for a, b, c, d in zip(cu_seqlens_q, cu_seqlens_q[1:], cu_seqlens_k, cu_seqlens_k[1:]):
                part, part_lse = exact(q[None, a:b], k[None, c:d], v[None, c:d], softmax_scale, causal)
                out[a:b], lse[:, a:b] = part[0], part_lse[0]
            return (out, lse, None) if return_attn_probs else out

        functions = {"flash_attn_func": flash_attn_func, "flash_attn_varlen_func": flash_attn_varlen_func}
        self.module("flash_attn", "2.8.3", **functions)
        self.module("flash_attn_interface", "3.0.0", **functions)

    def cute(self, rule=True):
        def flash_attn_func(q, k, v, softmax_scale=None, causal=False, window_size=(None, None), return_lse=False):
            self.calls.append(("cute", q.data_ptr(), q.stride(), causal, window_size))
            out, lse = exact(q, k, v, softmax_scale, causal)
            return out, (lse if return_lse else None)

        def flash_attn_varlen_func(q, k, v, cu_seqlens_q=None, cu_seqlens_k=None, softmax_scale=None, causal=False):
            raise ValueError("not in this build")

        def validate(head_dim, head_dim_v, compute_capability, alignment):
            good = max(head_dim, head_dim_v) <= 256 and not head_dim % alignment and not head_dim_v % alignment
            assert good, f"({head_dim}, {head_dim_v}) is not supported on SM{compute_capability}0."

        parent = sys.modules.get("flash_attn") or self.module("flash_attn", "2.8.3")
        members = {"flash_attn_func": flash_attn_func, "flash_attn_varlen_func": flash_attn_varlen_func}
        parent.cute = self.module("flash_attn.cute", "4.0.0b36", **members)
        parent.cute.interface = self.module("flash_attn.cute.interface", "4.0.0b36")
        if rule:
            parent.cute.interface._validate_head_dims = validate

    def sage(self):
        def make(name):
            def function(q, k, v, tensor_layout="HND", is_causal=False, sm_scale=None, return_lse=False):
                self.calls.append((name, tensor_layout))
                moved = [t.transpose(1, 2) if tensor_layout == "HND" else t for t in (q, k, v)]
                out, lse = exact(*moved, sm_scale, is_causal)
                out = out.transpose(1, 2) if tensor_layout == "HND" else out
                return (out, lse) if return_lse else out

            return function

        names = ("sageattn", "sageattn_qk_int8_pv_fp8_cuda", "sageattn_qk_int8_pv_fp16_cuda")
        self.module("sageattention", "2.2.0", **{name: make(name) for name in names})


class Providers(unittest.TestCase):
    def setUp(self):
        print(f"seed {SEED}")
        torch.manual_seed(SEED)
        self.fakes = Fakes()

    def tearDown(self):
        providers.unbind()
        self.fakes.remove()

    def tensors(self, dim=64, dim_v=None, seq_q=40, seq_kv=40, dtype=torch.bfloat16):
        def make(seq, heads, size):
            return torch.randn(2, seq, heads, size).to(dtype)

        return make(seq_q, 4, dim), make(seq_kv, 2, dim), make(seq_kv, 2, dim_v or dim)

    def key(self, backend, **spec):
        config = {"default": {"backend": backend, **{name: value for name, value in spec.items() if value}}}
        return fovea.torch.resolve_key(config, platform="cuda", facts=HOPPER)

    def record(self):
        """The file of a validation run of FLASH_ATTN_4 that never took place: what such a file does is tested."""
        head = {"schema": "fovea.validation/1", "backend": "FLASH_ATTN_4", "provider": "package fa4 4.0.0b36"}
        head.update(library="package fa4 4.0.0b36", path="fa4_dense", platform="cuda", device_class="sm_90")
        head.update(device="a GPU", driver="1", compiler="GNU", fovea="0.1.0", date="2026-01-01")
        cases = [
            {"kind": kind, "problem": "bf16 b1 h2 s9 d64", "path": "fa4_dense", "ran": True, "outside": 0, "pass": True}
            for kind in ("dense", "unequal lengths", "replay")
        ]
        handle, name = tempfile.mkstemp(suffix=".json")
        self.addCleanup(os.remove, name)
        with os.fdopen(handle, "w") as stream:
            json.dump({**head, "atol": 0.01, "rtol": 0.01, "captured": True, "pass": True, "cases": cases}, stream)
        return name

    def check(self, backend, tensors, causal=None, provider="package", **arguments):
        key = self.key(backend, provider=provider)
        out, lse, receipt = fovea.torch.attention(
            *tensors, key=key, is_causal=causal, return_lse=True, return_receipt=True, **arguments
        )
        expected, expected_lse = exact(*tensors, tensors[0].shape[-1] ** -0.5, bool(causal))
        torch.testing.assert_close(out, expected, atol=1e-2, rtol=1e-2)
        torch.testing.assert_close(lse, expected_lse, atol=1e-3, rtol=0)
        self.assertEqual(receipt["backend"], backend)
        return receipt

    def reasons(self, backend, tensors, provider="package", **arguments):
        report = fovea.torch.resolve(*tensors, key=self.key(backend, provider=provider), **arguments)
        self.assertEqual(report["support"], "unsupported")
        return {reason["code"]: reason for reason in report["reasons"]}

    def test_absence_has_a_cause_and_an_install_line(self):
        for name in ("flash_attn", "fa4", "sageattention"):
            if importlib.util.find_spec(providers.PROVIDERS[name].module.split(".")[0]) is not None:
                continue
            (row,) = providers.bind(name)
            self.assertEqual(row["state"], "absent")
            self.assertIn("ModuleNotFoundError", row["cause"])
            self.assertTrue(row["install"])
        self.fakes.module("flash_attn", "1.0.0")
        (row,) = providers.bind("flash_attn")
        self.assertIn("flash_attn_func", row["cause"])
        with self.assertRaises(fovea.ArgumentError):
            providers.bind("flash_atn")
        with self.assertRaises(fovea.UnsupportedError) as caught:
            fovea.torch.attention(*self.tensors(), key=self.key("FLASH_ATTN_2", provider="package"))
        self.assertIn("bind", str(caught.exception))

    def test_flash_attn_2(self):
        self.fakes.flash_attn()
        (row,) = providers.bind("flash_attn")
        self.assertEqual((row["state"], row["version"]), ("bound", "2.8.3"))
        tensors = self.tensors()
        receipt = self.check("FLASH_ATTN_2", tensors)
        self.assertEqual(receipt["provider"], "package flash_attn 2.8.3")
        name, address, strides, causal, window = self.fakes.calls[-1]
        self.assertEqual((address, strides), (tensors[0].data_ptr(), tensors[0].stride()), "no copies")
        self.assertEqual((causal, window), (False, (-1, -1)))
        self.check("FLASH_ATTN_2", self.tensors(seq_q=30, seq_kv=50), causal=True)
        fused = torch.randn(2, 40, 3, 4, 64).bfloat16().unbind(2)
        self.check("FLASH_ATTN_2", fused)
        self.assertEqual(self.fakes.calls[-1][2], fused[0].stride())
        out = fovea.torch.attention(
            *(t.transpose(1, 2) for t in tensors), key=self.key("FLASH_ATTN_2", provider="package"), layout="bhsd"
        )
        torch.testing.assert_close(out.transpose(1, 2), exact(*tensors, 64**-0.5)[0], atol=1e-2, rtol=1e-2)

    def test_packed_documents(self):
        self.fakes.flash_attn()
        providers.bind("flash_attn", "flash_attn_3")
        q, k, v = (t[0] for t in self.tensors())
        starts = torch.tensor([0, 15, 40], dtype=torch.int32)
        for backend in ("FLASH_ATTN_2", "FLASH_ATTN_3"):
            key = self.key(backend, provider="package")
            out, lse = fovea.torch.attention(q, k, v, key=key, cu_seqlens=starts, layout="packed", return_lse=True)
            for a, b in ((0, 15), (15, 40)):
                expected, expected_lse = exact(q[None, a:b], k[None, a:b], v[None, a:b], 64**-0.5)
                torch.testing.assert_close(out[a:b], expected[0], atol=1e-2, rtol=1e-2)
                torch.testing.assert_close(lse[:, a:b], expected_lse[0], atol=1e-3, rtol=0)
            self.assertEqual(self.fakes.calls[-1], ("flash_attn_varlen_func", 25, 25))

    def test_flash_attn_refuses_what_it_cannot_do(self):
        self.fakes.flash_attn()
        providers.bind("flash_attn", "flash_attn_3")
        mask = torch.ones(2, 40, dtype=torch.bool)
        for backend in ("FLASH_ATTN_2", "FLASH_ATTN_3"):
            self.assertIn("mask", self.reasons(backend, self.tensors(), mask=mask))
            self.assertIn("kv_lengths", self.reasons(backend, self.tensors(), kv_lengths=torch.tensor([3, 40])))
            self.assertEqual(self.reasons(backend, self.tensors(dim_v=32))["dim_v"]["accepted"], "64")
            self.assertIn("head_dim", self.reasons(backend, self.tensors(dim=60)))
        with self.assertRaises(fovea.UnsupportedError):
            fovea.torch.attention(*self.tensors(), mask, key=self.key("FLASH_ATTN_2", provider="package"))

    def test_fa4_is_supported_exactly_where_it_was_validated(self):
        self.fakes.cute()
        providers.PROVIDERS["fa4"].capability = lambda: 9
        self.addCleanup(providers.PROVIDERS["fa4"].__dict__.pop, "capability")
        (row,) = providers.bind("fa4", records={"fa4": self.record()})
        self.assertEqual(row["version"], "4.0.0b36")
        for dim, dim_v in DIMENSIONS:
            tensors = self.tensors(dim, dim_v)
            report = fovea.torch.resolve(*tensors, key=self.key("FLASH_ATTN_4"), require_fullgraph=True)
            self.assertEqual(
                (report["path"], report["support"], report["compilation_mode"]), ("fa4_dense", "supported", "custom_op")
            )
            self.assertEqual(report["requested"]["status"], "supported")
            receipt = self.check("FLASH_ATTN_4", tensors)
            self.assertEqual((receipt["path"], receipt["provider"]), ("fa4_dense", "package fa4 4.0.0b36"))
        tensors = self.tensors()
        for arguments in (
            {"is_causal": True},
            {"window": (3, 3)},
            {"parallel_strategy": "ulysses"},
            {"outer_boundaries": "hsdp"},
            {"kv_cache_dtype": "fp8", "paged_kv": True},
        ):
            report = fovea.torch.resolve(*tensors, key=self.key("FLASH_ATTN_4"), **arguments)
            self.assertEqual(
                (report["path"], report["support"], report["compilation_mode"]),
                ("unverified", "unmigrated", "eager_only"),
                arguments,
            )
        report = fovea.torch.resolve(*self.tensors(dtype=torch.float16), key=self.key("FLASH_ATTN_4"))
        self.assertEqual((report["path"], report["support"]), ("unverified", "unmigrated"))
        self.check("FLASH_ATTN_4", tensors, causal=True)
        bad = self.reasons("FLASH_ATTN_4", self.tensors(dim=60), provider=None)
        self.assertIn("(60, 60) is not supported on SM90.", bad["head_dim"]["accepted"])
        self.assertIn("mask", self.reasons("FLASH_ATTN_4", tensors, provider=None, mask=torch.ones(2, 40).bool()))

    def test_fa4_without_a_record_or_a_rule_is_unmigrated(self):
        self.fakes.cute()
        providers.PROVIDERS["fa4"].capability = lambda: 9
        self.addCleanup(providers.PROVIDERS["fa4"].__dict__.pop, "capability")
        tensors = self.tensors()
        providers.bind("fa4")
        report = fovea.torch.resolve(*tensors, key=self.key("FLASH_ATTN_4"))
        self.assertEqual((report["path"], report["support"]), ("fa4_dense", "unmigrated"))
        self.fakes.cute(rule=False)
        providers.bind("fa4", records={"fa4": self.record()})
        report = fovea.torch.resolve(*tensors, key=self.key("FLASH_ATTN_4"))
        self.assertEqual((report["support"], report["compilation_mode"]), ("unmigrated", "eager_only"))

    def test_sage(self):
        self.fakes.sage()
        providers.bind("sageattention")
        for backend, function in (
            ("SAGE_ATTN", "sageattn"),
            ("SAGE_ATTN_2_8_8", "sageattn_qk_int8_pv_fp8_cuda"),
            ("SAGE_ATTN_2_8_16", "sageattn_qk_int8_pv_fp16_cuda"),
        ):
            self.check(backend, self.tensors(), provider=None)
            self.assertEqual(self.fakes.calls[-1], (function, "NHD"))
        missing = self.reasons("SAGE_ATTN_2_8_8_SM90", self.tensors(), provider=None)
        self.assertIn("sageattn_qk_int8_pv_fp8_cuda_sm90", missing["package"]["got"])
        self.assertIn("causal", self.reasons("SAGE_ATTN", self.tensors(seq_q=30), provider=None, is_causal=True))
        self.assertIn("head_dim", self.reasons("SAGE_ATTN", self.tensors(dim=256), provider=None))
        report = fovea.torch.resolve(*self.tensors(), key=self.key("SAGE_ATTN"))
        self.assertTrue(report["lossy"])

    def test_torch_sdpa(self):
        (row,) = providers.bind("torch")
        self.assertEqual(row["version"].split("+")[0], torch.__version__.split("+")[0])
        q, k, v = self.tensors(dtype=torch.float32)
        key = self.key("TORCH_SDPA", provider="package")
        lengths = torch.tensor([40, 21])
        keys = torch.arange(40) < lengths[:, None]
        expected = torch.nn.functional.scaled_dot_product_attention(
            *(t.transpose(1, 2) for t in (q, k, v)), attn_mask=keys[:, None, None], enable_gqa=True
        ).transpose(1, 2)
        for arguments in (
            {"kv_lengths": lengths},
            {"mask": keys},
            {"mask": keys[:, None]},
            {"mask": torch.zeros(2, 1, 40, 40).masked_fill(~keys[:, None, None], float("-inf"))},
        ):
            out, receipt = fovea.torch.attention(q, k, v, key=key, return_receipt=True, **arguments)
            torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)
            self.assertTrue(receipt["provider"].startswith("package torch"))
        self.assertIn("lse", self.reasons("TORCH_SDPA", (q, k, v), return_lse=True))
        self.assertIn("window", self.reasons("TORCH_SDPA", (q, k, v), window=(2, 2)))
        self.assertIn("causal", self.reasons("TORCH_SDPA", (q[:, :9], k, v), is_causal=True))
        # Without provider the name keeps Fovea's own kernel, here one that is not for this machine.
        report = fovea.torch.resolve(q, k, v, key=self.key("TORCH_SDPA"))
        self.assertEqual(report["provider"], "fovea")

    def test_what_a_kernel_raises_becomes_an_error(self):
        self.fakes.cute()
        providers.bind("fa4")
        q, k, v = (t[0] for t in self.tensors())
        starts = torch.tensor([0, 40], dtype=torch.int32)
        with self.assertRaises(fovea.DeviceError) as caught:
            fovea.torch.attention(q, k, v, key=self.key("FLASH_ATTN_4"), cu_seqlens=starts, layout="packed")
        self.assertIn("not in this build", str(caught.exception))

    def test_binding_and_unbinding_take_effect_at_the_next_call(self):
        self.fakes.flash_attn()
        key = self.key("FLASH_ATTN_2", provider="package")
        tensors = self.tensors()
        for _ in range(2):
            with self.assertRaises(fovea.UnsupportedError):
                fovea.torch.attention(*tensors, key=key)
            providers.bind("flash_attn")
            self.assertEqual(providers.status("flash_attn")[0]["state"], "bound")
            fovea.torch.attention(*tensors, key=key)
            providers.unbind("flash_attn")
            self.assertEqual(providers.status("flash_attn")[0]["state"], "absent")


@needs_cuda
class RealPackages(unittest.TestCase):
    def tearDown(self):
        providers.unbind()

    def check(self, package, backend, dimensions, tolerance):
        (row,) = providers.bind(package)
        if row["state"] != "bound":
            self.skipTest(f"{package}: {row['cause']}")
        ran = 0
        for dim, dim_v in dimensions:
            for batch, seq_q, seq_kv in ((1, 256, 256), (2, 384, 1024)):
                torch.manual_seed(SEED)
                q = torch.randn(batch, seq_q, 4, dim, device="cuda", dtype=torch.bfloat16)
                k = torch.randn(batch, seq_kv, 4, dim, device="cuda", dtype=torch.bfloat16)
                v = torch.randn(batch, seq_kv, 4, dim_v, device="cuda", dtype=torch.bfloat16)
                config = {"default": {"backend": backend, "provider": "package"}}
                try:
                    out, receipt = fovea.torch.attention(q, k, v, config=config, return_receipt=True)
                except fovea.UnsupportedError as refused:
                    print(f"{backend} {dim}/{dim_v}: {refused}")
                    continue
                expected = torch.nn.functional.scaled_dot_product_attention(
                    *(t.float().transpose(1, 2) for t in (q, k, v))
                ).transpose(1, 2)
                torch.testing.assert_close(out.float(), expected, atol=tolerance, rtol=tolerance)
                self.assertIn(package, receipt["provider"])
                ran += 1
        self.assertGreater(ran, 0)

    def test_flash_attn_4(self):
        self.check("fa4", "FLASH_ATTN_4", DIMENSIONS, 1e-2)

    def test_flash_attn_4_compiled_and_against_the_package(self):
        (row,) = providers.bind("fa4")
        if row["state"] != "bound":
            self.skipTest(f"fa4: {row['cause']}")
        cute = importlib.import_module("flash_attn.cute")
        key = fovea.torch.resolve_key(backend="FLASH_ATTN_4")
        attend = torch.compile(
            lambda q, k, v: fovea.torch.attention(q, k, v, key=key), fullgraph=True, dynamic=True, backend="aot_eager"
        )
        for seq in (256, 512, 1024):
            torch.manual_seed(SEED)
            q, k, v = (torch.randn(1, seq, 4, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
            direct = cute.flash_attn_func(q, k, v)
            direct = direct[0] if isinstance(direct, tuple) else direct
            torch.testing.assert_close(attend(q, k, v), direct, atol=1e-2, rtol=1e-2)
        torch.library.opcheck(torch.ops.fovea.attention.default, (q, k, v), {"key": key})

    def test_flash_attn_3(self):
        self.check("flash_attn_3", "FLASH_ATTN_3", ((64, 64), (128, 128)), 1e-2)

    def test_flash_attn_2(self):
        self.check("flash_attn", "FLASH_ATTN_2", ((64, 64), (128, 128)), 1e-2)

    def test_torch_sdpa(self):
        self.check("torch", "TORCH_SDPA", ((64, 64), (128, 128)), 1e-2)

    def test_sage(self):
        self.check("sageattention", "SAGE_ATTN", ((64, 64), (128, 128)), 8e-2)


if __name__ == "__main__":
    unittest.main()
