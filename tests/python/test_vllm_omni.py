"""fovea.vllm_omni against vLLM-Omni where it is installed, else against a stand-in of its interface.

VLLM_OMNI_WHEEL names a wheel of vllm-omni that is not installed; then its registry, base classes, selector and SDPA
backend are its own, and what they import of vLLM is stood in for.
"""

import importlib.util
import os
import pathlib
import sys
import tempfile
import types
import unittest
import unittest.mock
import zipfile

SOURCE = pathlib.Path(os.environ.get("TEST_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
BINARY = pathlib.Path(os.environ.get("TEST_BINARY_DIR", SOURCE / "build"))
WHEEL = os.environ.get("VLLM_OMNI_WHEEL")
sys.path[:0] = [str(SOURCE / "python"), str(SOURCE / "tests" / "python")]

import fovea  # noqa: E402

fovea.load_library(BINARY / "libfovea.so")

if importlib.util.find_spec("torch") is None:
    raise unittest.SkipTest(f"torch is not installed for {sys.executable}")

import torch  # noqa: E402
from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402

import graph_counts  # noqa: E402
import vllm_omni_stand_in as stand_in  # noqa: E402

unpacked = None
if WHEEL:
    unpacked = tempfile.TemporaryDirectory()
    with zipfile.ZipFile(WHEEL) as archive:
        names = [name for name in archive.namelist() if name.startswith("vllm_omni/diffusion/attention/")]
        archive.extractall(unpacked.name, names)
absent = stand_in.use_installed() if not WHEEL else "VLLM_OMNI_WHEEL takes its place"
if absent:
    stand_in.install(pathlib.Path(unpacked.name) if unpacked else None)
print("vllm_omni:", "files of a wheel" if WHEEL else "a stand-in" if absent else "the installed package")

from vllm_omni.diffusion.attention.backends import abstract, registry  # noqa: E402

import fovea.vllm_omni as backend  # noqa: E402

FLASH = registry.DiffusionAttentionBackendEnum.FLASH_ATTN
SEED = 20260803
TOLERANCE = 2e-6  # float32, tests/support/tolerance.hpp


def oracle(q, k, v, keep=None, scale=None):
    """softmax in float64 with an explicit mask of [B|1,H|1,Sq,Skv], True where a key is seen; [B,S,H,D]."""
    q, k, v = (t.double().transpose(1, 2) for t in (q, k, v))
    k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], 1) for t in (k, v))
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if keep is not None:
        scores = scores.masked_fill(~keep, -float("inf"))
    return (torch.softmax(scores, -1) @ v).transpose(1, 2)


def relative(found, expected):
    return float((found - expected).norm() / expected.norm())


class Case(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        graph_counts.start()
        generator = torch.Generator().manual_seed(SEED)
        self.q = torch.randn(2, 11, 4, 16, generator=generator)
        self.k, self.v = (torch.randn(2, 11, 2, 16, generator=generator) for _ in range(2))
        self.addCleanup(backend.register)
        backend.register()

    def impl(self, **options):
        return FLASH.get_class().get_impl_cls()(4, 16, 16**-0.5, num_kv_heads=2, **options)

    def metadata(self, **fields):
        return abstract.AttentionMetadata(**fields)


class InterfaceTest(Case):
    def test_registry_leads_to_the_class(self):
        self.assertEqual(FLASH.get_path(), backend.CLASS_PATH)
        self.assertIs(FLASH.get_class(), backend.FoveaBackend)
        registry.register_diffusion_backend(registry.DiffusionAttentionBackendEnum.TORCH_SDPA, backend.CLASS_PATH)
        self.assertIs(registry.DiffusionAttentionBackendEnum.TORCH_SDPA.get_class(), backend.FoveaBackend)

    def test_facts_of_the_class(self):
        found = FLASH.get_class()
        self.assertTrue(issubclass(found, abstract.AttentionBackend))
        self.assertTrue(issubclass(found.get_impl_cls(), abstract.AttentionImpl))
        self.assertEqual(found.get_name(), "FOVEA")
        self.assertIs(found.get_metadata_cls(), abstract.AttentionMetadata)
        self.assertTrue(found.supports_attention_mask())
        self.assertTrue(found.supports_piecewise_spans and found.supports_prefix_kv_slicing)
        self.assertTrue(found.supports_packed_mask_free() and found.supports_multi_doc_packed_varlen())
        self.assertFalse(found.supports_paged_kv or found.accept_output_buffer)
        self.assertTrue(all(found.supports_head_size(size) for size in (12, 64, 128, 256)))
        self.assertNotIn("rocm", found.supported_platforms)
        found.validate_available()
        self.assertTrue(found.get_impl_cls().supports_kv_cache_dtype(None, "cuda"))
        self.assertFalse(found.get_impl_cls().supports_kv_cache_dtype("fp8", "cuda"))

    @unittest.skipUnless(WHEEL or not absent, "the selector is vllm-omni's own, which is neither installed nor a wheel")
    def test_selector_of_vllm_omni_loads_the_class(self):
        from vllm_omni.diffusion.attention import selector

        found = selector._load_backend_cls(FLASH.get_path())
        self.assertIs(found, backend.FoveaBackend)

    def test_wrong_arguments(self):
        with self.assertRaisesRegex(ValueError, "topk"):
            self.impl(backend_kwargs={"topk": 3})
        with self.assertRaises((ValueError, KeyError)):
            backend.register(names=["NO_SUCH_NAME"])
        with self.assertRaises(fovea.ArgumentError):
            backend.register({"default": "FLASH"})

    def test_platforms(self):
        impl = self.impl()
        self.addCleanup(setattr, stand_in.PLATFORM, "name", "unspecified")
        asked = unittest.mock.patch.object(abstract, "current_omni_platform", stand_in.PLATFORM, create=True)
        asked.start()
        self.addCleanup(asked.stop)
        meta = [t.to("meta") for t in (self.q, self.k, self.v)]
        for platform in ("rocm", "npu", "musa"):
            stand_in.PLATFORM.name = platform
            with self.subTest(platform), self.assertRaises(NotImplementedError):
                impl.forward(*meta)
            self.assertLess(relative(impl.forward(self.q, self.k, self.v), oracle(self.q, self.k, self.v)), TOLERANCE)


class RolesTest(Case):
    def test_roles_of_layers(self):
        backend.register({"default": "FLASH_ATTN", "per_role": {"cross": "REFERENCE", "ltx2.connector": "REFERENCE"}})
        expected = {"self": "FLASH_ATTN", "cross": "REFERENCE", "ltx2.connector": "REFERENCE", "ltx2.a": "FLASH_ATTN"}
        for role, name in expected.items():
            with self.subTest(role):
                impl = self.impl(role=role, backend_explicit=True)
                impl.forward(self.q, self.k, self.v)
                self.assertEqual({each["receipt"]["backend"] for each in impl.receipts()}, {name})
        self.assertEqual(self.impl(role="ltx2.a", role_category="cross").key.count("cross"), 2)


class ForwardTest(Case):
    def check(self, found, keep, q=None, k=None, v=None):
        expected = oracle(self.q if q is None else q, self.k if k is None else k, self.v if v is None else v, keep)
        self.assertLess(relative(found, expected), TOLERANCE)
        return expected

    def test_dense_causal_and_scaled(self):
        self.check(self.impl().forward(self.q, self.k, self.v), None)
        self.check(self.impl(causal=True).forward(self.q, self.k, self.v), torch.ones(11, 11).tril().bool()[None, None])
        impl = FLASH.get_class().get_impl_cls()(4, 16, 0.7)
        self.assertLess(
            relative(impl.forward(self.q, self.k, self.v), oracle(self.q, self.k, self.v, scale=0.7)), TOLERANCE
        )

    def test_masks(self):
        keys = torch.arange(11) < torch.tensor([[9], [4]])
        full = torch.rand(2, 4, 11, 11, generator=torch.Generator().manual_seed(SEED)) < 0.6
        full[..., 0] = True
        forms = {
            "keys": (keys, keys[:, None, None]),
            "keys as numbers": (keys.long(), keys[:, None, None]),
            "four axes": (full, full),
            "queries and keys": (full[0, 0], full[0, 0][None, None]),
        }
        for name, (mask, keep) in forms.items():
            for mode in (None, "padding", "arbitrary"):
                with self.subTest(f"{name}, {mode}"):
                    extra = {} if mode is None else {"attention_mask_mode": mode}
                    metadata = self.metadata(attn_mask=mask, extra=extra)
                    self.check(self.impl().forward(self.q, self.k, self.v, metadata), keep)
        noop = self.metadata(attn_mask=keys, extra={"attention_mask_mode": "none"})
        self.check(self.impl().forward(self.q, self.k, self.v, noop), None)
        with self.assertRaisesRegex(ValueError, "attention_mask_mode"):
            wrong = self.metadata(attn_mask=keys, extra={"attention_mask_mode": "unknown"})
            self.impl().forward(self.q, self.k, self.v, wrong)
        with self.assertRaisesRegex(ValueError, "shape"):
            self.impl().forward(self.q, self.k, self.v, self.metadata(attn_mask=full[:, 0]))

    def test_masked_keys_may_hold_anything(self):
        keys = torch.arange(11) < torch.tensor([[9], [4]])
        poisoned = [torch.where(keys[..., None, None], t, float("nan")) for t in (self.k, self.v)]
        found = self.impl().forward(self.q, *poisoned, self.metadata(attn_mask=keys))
        self.check(found, keys[:, None, None])

    def test_valid_prefix_of_the_keys(self):
        poisoned = [t.clone() for t in (self.k, self.v)]
        for t in poisoned:
            t[:, 7:] = float("nan")
        found = self.impl().forward(self.q, *poisoned, self.metadata(extra={"valid_kv_length": 7}))
        self.check(found, None, k=self.k[:, :7], v=self.v[:, :7])
        with self.assertRaises(ValueError):
            self.impl().forward(self.q, self.k, self.v, self.metadata(extra={"valid_kv_length": 12}))

    def test_packed_documents_see_themselves_only(self):
        q, k, v = (t[:1] for t in (self.q, self.k, self.v))
        bounds = torch.tensor([0, 3, 9, 11], dtype=torch.int32)
        extra = {"cu_seqlens_q": bounds, "cu_seqlens_k": bounds, "max_seqlen_q": 6, "max_seqlen_k": 6}
        found = self.impl().forward(q, k, v, self.metadata(extra=extra))
        of = torch.bucketize(torch.arange(11), bounds[1:].long(), right=True)
        self.check(found, (of[:, None] == of[None, :])[None, None], q, k, v)
        with self.assertRaisesRegex(ValueError, "max_seqlen_k"):
            self.impl().forward(q, k, v, self.metadata(extra={**extra, "max_seqlen_k": None}))
        with self.assertRaisesRegex(ValueError, "one row"):
            self.impl().forward(self.q, self.k, self.v, self.metadata(extra=extra))

    def test_packed_padding(self):
        q, k, v = (t[:1].clone() for t in (self.q, self.k, self.v))
        for t in (q, k, v):
            t[:, 8:] = float("nan")
        lengths = torch.tensor([0, 8], dtype=torch.int32)
        packed = abstract.PackedPaddingMetadata(q_length=8, kv_length=8, cu_seqlens_q=lengths, cu_seqlens_k=lengths)
        found = self.impl().forward(q, k, v, self.metadata(packed_padding=packed))
        self.assertEqual(tuple(found.shape), (1, 11, 4, 16))
        self.check(found[:, :8], None, q[:, :8], k[:, :8], v[:, :8])
        self.assertTrue((found[:, 8:] == 0).all())

    def test_spans_are_full_and_the_rest_causal(self):
        keep = torch.ones(11, 11).tril().bool()
        keep[2:5, :5] = True
        keep[7:10, :10] = True
        spans = [[(2, 5), (7, 10)]] * 2
        impl = self.impl(causal=True)
        self.check(impl.forward(self.q, self.k, self.v, self.metadata(full_attn_spans=spans)), keep[None, None])
        causal = torch.ones(11, 11).tril().bool()[None, None]
        for none in ([], [[]] * 2):
            self.check(impl.forward(self.q, self.k, self.v, self.metadata(full_attn_spans=none)), causal)
        mixed = self.metadata(full_attn_spans=[[(2, 5), (7, 10)], [[2, 5], [7, 10]]])
        self.check(impl.forward(self.q, self.k, self.v, mixed), keep[None, None])
        ranges = (abstract.QueryRange(local_start=0, local_end=6, global_start=3),)
        shard = self.metadata(full_attn_spans=spans, query_ranges=ranges)
        self.check(impl.forward(self.q[:, 3:9], self.k, self.v, shard), keep[None, None, 3:9], q=self.q[:, 3:9])
        mask = self.metadata(full_attn_spans=spans, attn_mask=keep[None, None].expand(2, 1, 11, 11))
        self.check(impl.forward(self.q, self.k, self.v, mask), keep[None, None])
        packed = self.metadata(full_attn_spans=spans, extra={"cu_seqlens_q": torch.tensor([0, 11]), "max_seqlen_q": 11})
        self.check(impl.forward(self.q, self.k, self.v, packed), keep[None, None])
        with self.assertRaisesRegex(ValueError, "differ"):
            impl.forward(self.q, self.k, self.v, self.metadata(full_attn_spans=[[(2, 5)], [(1, 5)]]))

    def test_stored_types_are_refused_and_unknown_extras_ignored(self):
        with self.assertRaisesRegex(ValueError, "fp8"):
            self.impl().forward(self.q, self.k, self.v, self.metadata(extra={"kv_cache_dtype": "fp8"}))
        for own in ("auto", "float"):
            extra = {"kv_cache_dtype": own, "something": 3}
            self.check(self.impl().forward(self.q, self.k, self.v, self.metadata(extra=extra)), None)

    def test_compiled(self):
        impl = self.impl()
        counter = CompileCounterWithBackend("eager")
        compiled = torch.compile(impl.forward, backend=counter, fullgraph=True, dynamic=True)
        for length in (11, 9, 7):
            q, k, v = (t[:, :length].clone() for t in (self.q, self.k, self.v))
            self.check(compiled(q, k, v), None, q, k, v)
        self.assertEqual(graph_counts.state(self, 3, counter), (1, 0, 0))


@unittest.skipIf(absent, f"vllm_omni: {absent}")
class InstalledTest(Case):
    """vLLM-Omni's own layer, and its selector with the answer that every platform gives: the path of a name."""

    def layer(self, **options):
        from vllm_omni.diffusion.attention.layer import Attention
        from vllm_omni.platforms import current_omni_platform

        def select(cls, selected_backend=None, head_size=0, allow_trtllm_default=False):
            return FLASH.get_path()

        with unittest.mock.patch.object(
            type(current_omni_platform), "get_diffusion_attn_backend_cls", classmethod(select)
        ):
            layer = Attention(num_heads=4, head_size=16, causal=False, softmax_scale=0.25, num_kv_heads=2, **options)
        self.assertIs(layer.attn_backend, backend.FoveaBackend)
        self.assertEqual(layer.backend_pref, "FOVEA")
        return layer

    def test_a_layer_runs_fovea_by_its_role(self):
        backend.register({"default": "FLASH_ATTN", "per_role": {"cross": "REFERENCE"}})
        keys = torch.arange(11) < torch.tensor([[9], [4]])
        for role, name in (("self", "FLASH_ATTN"), ("cross.text", "REFERENCE")):
            layer = self.layer(role=role, prefix="blocks.0.attn")
            for metadata, keep in ((None, None), (self.metadata(attn_mask=keys), keys[:, None, None])):
                with self.subTest(role, masked=keep is not None):
                    found = layer(self.q, self.k, self.v, metadata)
                    self.assertLess(relative(found, oracle(self.q, self.k, self.v, keep)), TOLERANCE)
            self.assertEqual({row["receipt"]["backend"] for row in layer.attention.receipts()}, {name})

    def test_a_compiled_layer_is_one_graph(self):
        layer = self.layer()
        counter = CompileCounterWithBackend("eager")
        compiled = torch.compile(layer, backend=counter, fullgraph=True, dynamic=True)
        with torch.no_grad():
            for length in (11, 9, 7):
                q, k, v = (t[:, :length].clone() for t in (self.q, self.k, self.v))
                self.assertLess(relative(compiled(q, k, v), oracle(q, k, v)), TOLERANCE)
        self.assertEqual(graph_counts.state(self, 3, counter), (1, 0, 0))


class ContractTest(Case):
    def ask(self, impl=None, **fields):
        context = stand_in.ExecutionContext(**{"platform": "cuda", **fields})
        if impl is None:
            return backend.FoveaBackend.resolve_capabilities(context)
        return impl.resolve_execution_path(context, self.q, self.k, self.v)

    def test_before_a_layer_exists(self):
        found = self.ask()
        self.assertIsInstance(found, stand_in.ExecutionPathResult)
        self.assertEqual((found.backend, found.support.status), ("FOVEA", stand_in.SupportStatus.UNMIGRATED))
        self.assertIs(found.compilation_mode, stand_in.CompilationMode.EAGER_ONLY)
        refused = {"npu": {"platform": "npu"}, "paged": {"paged_kv": True}, "fp8": {"kv_cache_dtype": "fp8"}}
        for word, fields in refused.items():
            found = self.ask(**fields)
            self.assertIs(found.support.status, stand_in.SupportStatus.UNSUPPORTED)
            self.assertIn(word, found.support.reason)

    def test_of_a_layer(self):
        found = self.ask(self.impl(), require_fullgraph=True)
        self.assertIs(found.support.status, stand_in.SupportStatus.SUPPORTED)
        self.assertIs(found.compilation_mode, stand_in.CompilationMode.CUSTOM_OP)
        self.assertTrue(found.path.startswith("cpu."))
        refused = self.ask(self.impl(), paged_kv=True)
        self.assertIsNot(refused.support.status, stand_in.SupportStatus.SUPPORTED)
        outer = self.ask(self.impl(), outer_boundaries=frozenset({stand_in.Mode.hsdp}))
        self.assertIsNot(outer.support.status, stand_in.SupportStatus.SUPPORTED)
        backend.register(backend="TRTLLM_ATTN")
        found = self.ask(self.impl())
        self.assertIs(found.support.status, stand_in.SupportStatus.UNSUPPORTED)
        self.assertIn("TRTLLM_ATTN", found.support.reason)

    def test_without_types_of_the_contract(self):
        context = types.SimpleNamespace(platform="cuda")
        found = backend.FoveaBackend.resolve_capabilities(context)
        self.assertEqual((found.support.status, found.compilation_mode), ("unmigrated", "eager_only"))


if __name__ == "__main__":
    unittest.main()
