"""Kernels of packages behind Fovea's names, with stand-ins for the packages (test_torch_packages.py: real ones)."""

import importlib.machinery
import importlib.util
import json
import os
import sys
import tempfile
import types
import unittest

from torch_case import SOURCE, fovea, torch

from fovea.torch import providers

SEED = 20260802
HOPPER = {"sm": 90, "cuda": "13.0", "flash_attn": "2.8.3", "flash_attn_3": "3.0.0", "fa4": "4.0.0"}
HOPPER["sageattention"] = "2.2.0"
# A version of flash-attn-4 that there is none of.
CUTE = "4.0.0b0"
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

    def cute(self, rule=True, version="4.0.0b36"):
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
        parent.cute = self.module("flash_attn.cute", version, **members)
        parent.cute.interface = self.module("flash_attn.cute.interface", version)
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

    def sage_1(self):
        """Version 1: sageattn alone, keys centred in place, unknown keywords swallowed."""

        def sageattn(q, k, v, tensor_layout="HND", is_causal=False, sm_scale=None, smooth_k=True, **kwargs):
            self.calls.append(("sageattn", tensor_layout))
            if smooth_k:
                k -= k.mean(dim=1 if tensor_layout == "NHD" else 2, keepdim=True)
            moved = [t.transpose(1, 2) if tensor_layout == "HND" else t for t in (q, k, v)]
            out, _ = exact(*moved, sm_scale, is_causal)
            return out.transpose(1, 2) if tensor_layout == "HND" else out

        self.module("sageattention", "1.0.6", sageattn=sageattn)


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

    def key(self, backend, facts=HOPPER, **spec):
        config = {"default": {"backend": backend, **{name: value for name, value in spec.items() if value}}}
        return fovea.torch.resolve_key(config, platform="cuda", facts=facts)

    def cute(self, rule=True):
        """The fake CuTe package on a Hopper GPU, as a version that no committed record is of."""
        self.fakes.cute(rule, CUTE)
        provider = providers.PROVIDERS["fa4"]
        for name, value in (("capability", lambda: 9), ("distributions", ())):
            setattr(provider, name, value)
            self.addCleanup(provider.__dict__.pop, name, None)

    def record(self, **changes):
        """The file of a validation run of FLASH_ATTN_4 that never took place: what such a file does is tested."""
        head = {"schema": "fovea.validation/1", "backend": "FLASH_ATTN_4", "provider": f"package fa4 {CUTE}"}
        head.update(library=f"package fa4 {CUTE}", path="fa4_dense", platform="cuda", device_class="sm_90")
        head.update(device="a GPU", driver="1", compiler="GNU", fovea=fovea.version(), date="2026-01-01")
        cases = [
            {"kind": kind, "problem": f"bf16 b1 h2 s9 d{dim} dv={dim_v}", "path": "fa4_dense", "ran": True,
             "outside": 0, "pass": True}
            for kind in ("dense", "unequal lengths", "replay")
            for dim, dim_v in DIMENSIONS
        ]  # fmt: skip
        head.update({"atol": 0.01, "rtol": 0.01, "captured": True, "pass": True, "cases": cases, **changes})
        handle, name = tempfile.mkstemp(suffix=".json")
        self.addCleanup(os.remove, name)
        with os.fdopen(handle, "w") as stream:
            json.dump(head, stream)
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
        self.cute()
        (row,) = providers.bind("fa4", records={"fa4": self.record()})
        self.assertEqual(row["version"], CUTE)
        for dim, dim_v in DIMENSIONS:
            tensors = self.tensors(dim, dim_v)
            report = fovea.torch.resolve(*tensors, key=self.key("FLASH_ATTN_4"), require_fullgraph=True)
            self.assertEqual(
                (report["path"], report["support"], report["compilation_mode"]), ("fa4_dense", "supported", "custom_op")
            )
            self.assertEqual(report["requested"]["status"], "supported")
            receipt = self.check("FLASH_ATTN_4", tensors)
            self.assertEqual((receipt["path"], receipt["provider"]), ("fa4_dense", f"package fa4 {CUTE}"))
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
        self.cute()
        tensors = self.tensors()
        providers.bind("fa4")
        report = fovea.torch.resolve(*tensors, key=self.key("FLASH_ATTN_4"))
        self.assertEqual((report["path"], report["support"]), ("fa4_dense", "unmigrated"))
        self.cute(rule=False)
        providers.bind("fa4", records={"fa4": self.record()})
        report = fovea.torch.resolve(*tensors, key=self.key("FLASH_ATTN_4"))
        self.assertEqual((report["support"], report["compilation_mode"]), ("unmigrated", "eager_only"))

    def test_only_a_record_of_this_version_and_device_that_passed_counts(self):
        self.cute()
        tensors = self.tensors()
        # One that does not count leaves the committed record, which is of the real package's version.
        committed = json.loads((SOURCE / "docs/validation/FLASH_ATTN_4-fa4-sm_90.json").read_text())
        for said, changes in (
            ("is of package fa4 4.0.0a9", {"provider": "package fa4 4.0.0a9", "library": "package fa4 4.0.0a9"}),
            (f"is of {committed['library']}", {"device_class": "sm_100"}),
            (f"is of {committed['library']}", {"backend": "FLASH_ATTN"}),
        ):
            providers.bind("fa4", records={"fa4": self.record(**changes)})
            report = fovea.torch.resolve(*tensors, key=self.key("FLASH_ATTN_4"))
            self.assertEqual((report["path"], report["support"]), ("fa4_dense", "unmigrated"), changes)
            self.assertIn(said, json.dumps(report["reasons"]))
        for said, changes in (
            ("does not pass", {"pass": False}),
            ("is not of schema", {"schema": "fovea.run/1"}),
            ("not captured", {"captured": False}),
            ("lacks driver", {"driver": ""}),
        ):
            with self.assertRaisesRegex(fovea.ArgumentError, said):
                providers.bind("fa4", records={"fa4": self.record(**changes)})
        for file in (os.path.join(tempfile.gettempdir(), "no-such-record.json"), __file__):
            with self.assertRaises(fovea.ArgumentError):
                providers.bind("fa4", records={"fa4": file})

    def test_the_folder_of_another_package_is_no_package(self):
        self.fakes.cute()
        (row,) = providers.bind("flash_attn")
        self.assertEqual(row["state"], "absent")
        self.assertIn("flash_attn has no flash_attn_func, flash_attn_varlen_func: it is the folder", row["cause"])

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

    def test_sage_of_version_1(self):
        self.fakes.sage_1()
        (row,) = providers.bind("sageattention")
        self.assertEqual(row["version"], "1.0.6")
        tensors = self.tensors(seq_q=40, seq_kv=128)
        kept = [t.clone() for t in tensors]
        facts = {**HOPPER, "sageattention": "1.0.6"}
        key = self.key("SAGE_ATTN", facts=facts)
        for layout in ("bshd", "bhsd"):
            moved = [t.transpose(1, 2) if layout == "bhsd" else t for t in tensors]
            out = fovea.torch.attention(*moved, key=key, layout=layout, output_layout="bshd")
            torch.testing.assert_close(out, exact(*kept, 64**-0.5)[0], atol=1e-2, rtol=1e-2)
            self.assertTrue(all(torch.equal(a, b) for a, b in zip(tensors, kept)), "the package centres keys in place")

        def refused(backend, tensors, **arguments):
            report = fovea.torch.resolve(*tensors, key=self.key(backend, facts=facts), **arguments)
            self.assertEqual(report["support"], "unsupported")
            return {reason["code"]: reason for reason in report["reasons"]}

        self.assertEqual(refused("SAGE_ATTN", tensors, return_lse=True)["lse"]["accepted"], "not returned by version 1")
        self.assertIn("64, 96, 128", refused("SAGE_ATTN", self.tensors(80, seq_kv=128))["head_dim"]["accepted"])
        ragged = refused("SAGE_ATTN", self.tensors(seq_kv=90))["seq_limit"]
        self.assertEqual((ragged["got"], ragged["accepted"]), ("90", "multiples of 64 in version 1"))
        square = self.tensors(seq_q=192, seq_kv=192)
        self.assertIn("multiples of 128", refused("SAGE_ATTN", square, is_causal=True)["seq_limit"]["accepted"])
        self.assertIn("2.0", refused("SAGE_ATTN_2_8_16", tensors)["version"]["accepted"])
        self.assertIn("pv_fp16_cuda", self.reasons("SAGE_ATTN_2_8_16", tensors, provider=None)["package"]["got"])

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


if __name__ == "__main__":
    unittest.main()
