"""The Python module on numpy arrays and on objects with __dlpack__."""

import json
import os
import pathlib
import subprocess
import sys
import threading
import unittest

SOURCE = pathlib.Path(os.environ.get("TEST_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
BINARY = pathlib.Path(os.environ.get("TEST_BINARY_DIR", SOURCE / "build"))
sys.path.insert(0, str(SOURCE / "python"))

import fovea  # noqa: E402

try:
    import numpy as np
except ImportError:
    np = None

fovea.load_library(BINARY / "libfovea.so")


def dense(q, k, v):
    """softmax(q k^T / sqrt(d)) v in float64, [B,S,H,D]."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = np.einsum("bihd,bjhd->bhij", q, k) / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    lse = np.log(weights.sum(-1)) + scores.max(-1)
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("bhij,bjhd->bihd", weights, v), lse


class OnlyDlpack:
    """An array that shows nothing but __dlpack__."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return (1, 0)


@unittest.skipIf(np is None, "numpy is not installed")
class AttentionTest(unittest.TestCase):
    def setUp(self):
        rng = np.random.default_rng(7)
        self.q, self.k, self.v = (rng.standard_normal((2, 50, 3, 16)).astype(np.float32) for _ in range(3))

    def test_matches_float64_softmax(self):
        out, lse, receipt = fovea.attention(self.q, self.k, self.v, return_lse=True, return_receipt=True)
        expected, expected_lse = dense(self.q, self.k, self.v)
        self.assertEqual(out.dtype, np.float32)
        self.assertLess(np.linalg.norm(out - expected) / np.linalg.norm(expected), 2e-6)
        self.assertLess(np.abs(lse - expected_lse).max(), 1e-5)
        self.assertEqual(receipt["backend"], "FLASH_ATTN")
        self.assertIsNone(receipt["fallback"])

    def test_strided_views_are_read_in_place(self):
        fused = np.concatenate([self.q, self.k, self.v], axis=-1)
        q, k, v = fused[..., :16], fused[..., 16:32], fused[..., 32:]
        out = fovea.attention(q, k, v)
        self.assertTrue(out.flags.c_contiguous)
        np.testing.assert_allclose(out, dense(self.q, self.k, self.v)[0], atol=2e-5)

    def test_half_precision_keeps_its_dtype(self):
        half = [x.astype(np.float16) for x in (self.q, self.k, self.v)]
        out = fovea.attention(*half)
        self.assertEqual(out.dtype, np.float16)
        np.testing.assert_allclose(out, dense(*half)[0], atol=4e-3)

    def test_layouts(self):
        moved = [np.ascontiguousarray(x.transpose(0, 2, 1, 3)) for x in (self.q, self.k, self.v)]
        out = fovea.attention(*moved, layout="BNSD", output_layout="bshd")
        np.testing.assert_allclose(out, dense(self.q, self.k, self.v)[0], atol=2e-5)

    def test_mask_and_lengths_agree(self):
        mask = np.ones((2, 50), bool)
        mask[1, 30:] = False
        self.v[1, 30:] = np.nan
        by_mask = fovea.attention(self.q, self.k, self.v, mask)
        by_length = fovea.attention(self.q, self.k, self.v, kv_lengths=np.array([50, 30], np.int32))
        self.assertTrue(np.isfinite(by_mask).all())
        np.testing.assert_allclose(by_mask, by_length, atol=1e-6)

    def test_dlpack_only_inputs_give_an_array_with_dlpack(self):
        out = fovea.attention(*(OnlyDlpack(x) for x in (self.q, self.k, self.v)))
        self.assertFalse(isinstance(out, np.ndarray))
        back = np.from_dlpack(out)
        np.testing.assert_allclose(back, dense(self.q, self.k, self.v)[0], atol=2e-5)
        del out
        self.assertTrue(np.isfinite(back).all(), "the consumer keeps the memory")

    def test_a_layer_is_reusable_from_threads(self):
        layer = fovea.Attention({"per_role": {"cross": "TORCH_SDPA"}}, role="cross", threads=1)
        expected = layer(self.q, self.k, self.v)
        results = []
        threads = [
            threading.Thread(target=lambda: results.append(layer(self.q, self.k, self.v))) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for result in results:
            np.testing.assert_array_equal(result, expected)

    def test_errors_are_typed_and_carry_reasons(self):
        wide = np.zeros((1, 4, 1, 600), np.float32)
        with self.assertRaises(fovea.UnsupportedError) as caught:
            fovea.attention(wide, wide, wide, backend="FLASH_ATTN")
        self.assertEqual(caught.exception.reasons[0].code, "head_dim")
        self.assertEqual(caught.exception.reasons[0].got, "600")
        with self.assertRaises(fovea.ArgumentError) as caught:
            fovea.attention(self.q, self.k, self.v, backend="FLASH_ATN")
        self.assertIn("FLASH_ATTN", str(caught.exception))
        with self.assertRaises(fovea.ArgumentError):
            fovea.attention(self.q, self.k[..., :8], self.v)
        with self.assertRaises(fovea.ArgumentError):
            fovea.attention(self.q, self.k, self.v.astype(np.float16))
        with self.assertRaises(TypeError):
            fovea.attention([1.0], self.k, self.v)
        with self.assertRaises(TypeError):
            fovea.attention(self.q, self.k, self.v, attn_maks=None)

    def test_metadata(self):
        layer = fovea.Attention()
        cut = layer(self.q, self.k[:, :20], self.v[:, :20])
        stated = layer(self.q, self.k, self.v, metadata={"valid_kv_length": 20})
        np.testing.assert_array_equal(stated, cut)
        np.testing.assert_array_equal(layer(self.q, self.k, self.v, metadata='{"valid_kv_length": 20}'), cut)
        mask = np.zeros((2, 50), bool)
        published = layer(self.q, self.k, self.v, mask, metadata={"mask_mode": "none"})
        np.testing.assert_array_equal(published, layer(self.q, self.k, self.v))
        with self.assertRaises(fovea.ArgumentError) as caught:
            layer(self.q, self.k, self.v, metadata={"joint_query": 1})
        self.assertIn("joint tensors are tensors", str(caught.exception))
        self.assertIn("protected_kv_prefix", caught.exception.reasons[0].accepted)
        with self.assertRaises(fovea.ArgumentError) as caught:
            layer(self.q, self.k, self.v, metadata={"valid_kv_length": 51})
        self.assertEqual(caught.exception.reasons[0].field, "valid_kv_length")
        with self.assertRaises(TypeError):
            layer(self.q, self.k, self.v, metadat={})

    def test_protected_keys_are_kept(self):
        config = {"default": {"backend": "SPARGE_ATTN", "block_sparse": {"sparsity": 0.9, "block_size": 64}}}
        q, k, v = (np.zeros((1, length, 1, 8), np.float32) for length in (8, 1280, 1280))
        q[..., 0] = 1
        k[..., 0] = np.arange(1280).reshape(1, 1280, 1) / 1280
        v[:, :64] = 1
        layer = fovea.Attention(config)
        self.assertEqual(layer(q, k, v, scale=0.01).max(), 0)
        out, receipt = layer(q, k, v, scale=0.01, metadata={"protected_kv_prefix": 1}, return_receipt=True)
        self.assertGreater(out.min(), 0)
        self.assertEqual(receipt["density"], 9 / 20)

    def test_resolve(self):
        layer = fovea.Attention()
        report = layer.resolve(self.q, self.k, self.v)
        self.assertEqual((report["backend"], report["support"]), ("FLASH_ATTN", "supported"))
        self.assertEqual(report["requested"], {"status": "supported", "reasons": []})
        ring = layer.resolve(self.q, self.k, self.v, parallel_strategy="ring", require_fullgraph=True)
        self.assertEqual((ring["support"], ring["parallel_strategy"]), ("unmigrated", "ring"))
        self.assertEqual(ring["requested"]["status"], "unsupported")
        sharded = layer.resolve(self.q, self.k, self.v, outer_boundaries=["hsdp"])
        self.assertEqual(sharded["support"], "unmigrated")
        stored = layer.resolve(self.q, self.k, self.v, metadata={"kv_cache_dtype": "fp8"})
        self.assertEqual(stored["support"], "unsupported")
        self.assertEqual(stored["reasons"][0]["field"], "kv_cache_dtype")
        wrong = layer.resolve(self.q, self.k, self.v, metadata={"valid_kv_length": 51})
        self.assertEqual((wrong["support"], wrong["path"]), ("unsupported", "contradiction"))
        with self.assertRaises(fovea.ArgumentError):
            layer.resolve(self.q, self.k, self.v, parallel_strategy="rong")

    def test_a_calibration_is_read_with_the_layer(self):
        group = {
            "algorithm": "skip_softmax",
            "threshold_scale_factor": {"formula": "a*exp(b*target_sparsity)", "coefficients": {"a": 2, "b": 3}},
        }
        fovea.Attention(name="blocks.0", calibration={"config_groups": {"group_0": group}})
        group["threshold_scale_factor"]["formula"] = "a*b"
        with self.assertRaises(fovea.ArgumentError) as caught:
            fovea.Attention(name="blocks.0", calibration={"config_groups": {"group_0": group}})
        self.assertIn("is not a formula known here", str(caught.exception))
    def test_a_sparse_state_decides(self):
        config = {"default": {"backend": "RADIAL_ATTN", "radial": {"dense_timesteps": 1, "block_size": 64}}}
        layer = fovea.Attention(config)
        state = fovea.SparseAttentionState(config, fovea.MaskMap(512, 4))
        q = np.random.default_rng(8).standard_normal((1, 512, 2, 16)).astype(np.float32)
        for step, backend in ((0, "FLASH_ATTN"), (1, "RADIAL_ATTN")):
            state.update(numeral_timestep=step)
            out, receipt = layer(q, q, q, sparse_state=state, return_receipt=True)
            self.assertEqual(receipt["backend"], backend)
            self.assertEqual(state.should_use_dense(), step == 0)
        with self.assertRaises(fovea.UnsupportedError):
            layer(q, q, q)
        with self.assertRaises(fovea.ArgumentError):
            fovea.BlockMask(bytes(3), 256, 256)

    def test_packed_documents(self):
        flat = [x.reshape(100, 3, 16) for x in (self.q, self.k, self.v)]
        cu = np.array([0, 50, 100], np.int32)
        out = fovea.attention(*flat, layout="packed", cu_seqlens_q=cu, cu_seqlens_kv=cu)
        np.testing.assert_allclose(out.reshape(2, 50, 3, 16), dense(self.q, self.k, self.v)[0], atol=2e-5)

    def test_a_timestep_is_stated_with_a_call(self):
        q = np.zeros((1, 4, 2, 16), np.float32)
        _, receipt = fovea.attention(q, q, q, timestep=0.5, return_receipt=True)
        self.assertIsNone(receipt["skip_softmax"])
        with self.assertRaisesRegex(fovea.ArgumentError, "timestep 500 is not supported"):
            fovea.attention(q, q, q, timestep=500)
        with self.assertRaisesRegex(fovea.ArgumentError, "timestep"):
            fovea.Attention().resolve(q, q, q, timestep=-1)


class ReportTest(unittest.TestCase):
    def test_facts_need_a_platform(self):
        with self.assertRaisesRegex(fovea.ArgumentError, "platform"):
            fovea.explain(facts={"sm": 90}, backend="FLASH_ATTN")

    def test_a_device_that_this_machine_lacks(self):
        with self.assertRaisesRegex(fovea.DeviceError, "this machine has no rocm:4096 .looked at /sys/class/kfd"):
            fovea.explain(platform="rocm:4096")
        with self.assertRaisesRegex(fovea.ArgumentError, "'rocm:x' needs a number after ':'"):
            fovea.explain(platform="rocm:x")

    def test_explain_answers_for_this_machine_and_for_another(self):
        here = fovea.explain(problem="f32 b1 h4 s128 d64")
        self.assertEqual(here["schema"], "fovea.explain/1")
        self.assertEqual(here["entries"][0]["backend"], "FLASH_ATTN")
        config = {"per_role": {"cross": "TRTLLM_ATTN"}}
        there = fovea.explain(config, platform="cuda", facts={"sm": 90, "cudnn": "9.19"}, role="cross")
        self.assertEqual(there["entries"][0]["support"], "unsupported")
        self.assertTrue(there["entries"][0]["reasons"])

    def test_explain_lays_out_a_run(self):
        config = {"default": {"backend": "RADIAL_ATTN", "radial": {"dense_timesteps": 2}}}
        there = fovea.explain(
            config, platform="cuda", facts={"sm": 90, "flashinfer": "0.6"}, role="self", steps=5, layers=3
        )
        areas = [(e["steps"], e["layers"], e["backend"]) for e in there["entries"]]
        self.assertEqual(areas, [("0-1", "0-2", "FLASH_ATTN"), ("2-4", "0-2", "RADIAL_ATTN")])
        schedule = {"profiles": {"exact": "SDPA"}, "steps": [{"start": 0, "end": 1, "profile": "exact"}]}
        here = fovea.explain(steps=2, layers=1, schedule=schedule)
        self.assertEqual([e["backend"] for e in here["entries"]], ["TORCH_SDPA", "FLASH_ATTN"])
        schedule = {"profiles": {"low": "SDPA"}, "sigma": [{"low": 0, "high": 0.5, "profile": "low"}]}
        here = fovea.explain(steps=3, layers=1, schedule=schedule, sigmas=[1.0, 0.5, 0.2])
        areas = [(e["steps"], e["backend"]) for e in here["entries"]]
        self.assertEqual(areas, [("0-1", "FLASH_ATTN"), ("2", "TORCH_SDPA")])
        with self.assertRaisesRegex(fovea.ArgumentError, "give the 3 sigmas of the run, found 0"):
            fovea.explain(steps=3, layers=1, schedule=schedule)
        with self.assertRaisesRegex(ValueError, "3 steps need as many sigmas, not 2"):
            fovea.explain(steps=3, layers=1, schedule=schedule, sigmas=[1.0, 0.5])
        with self.assertRaises(TypeError):
            fovea.explain(sigmas=[1.0])
        with self.assertRaises(fovea.ArgumentError):
            fovea.explain(steps=0, layers=1)
        with self.assertRaises(TypeError):
            fovea.explain(layers=2)

    def test_explain_knows_presets_of_devices(self):
        there = fovea.explain(device="H200", facts={"cudnn": "9.14.0"}, backend="CUDNN_ATTN",
                              problem="bf16 b1 h4 s256 d128")  # fmt: skip
        self.assertEqual((there["platform"], there["facts"]["sm"], there["facts"]["cudnn"]), ("cuda", "90", "9.14.0"))
        self.assertEqual(there["entries"][0]["support"], "unmigrated")  # the record is of another version
        there = fovea.explain(device="h200", backend="CUDNN_ATTN", problem="bf16 b1 h4 s256 d128")
        self.assertEqual(there["entries"][0]["support"], "supported")
        with self.assertRaisesRegex(fovea.FoveaError, "unknown device preset 'h2000'.*did you mean 'h200'"):
            fovea.explain(device="h2000")
        with self.assertRaisesRegex(fovea.ArgumentError, "either a device or a platform"):
            fovea.explain(device="h200", platform="cuda")
        with self.assertRaisesRegex(fovea.ArgumentError, "leave facts out, or name a preset"):
            fovea.explain(device="rocm:4096", facts={"gfx": "gfx942"})

    def test_explain_of_a_model_is_that_of_the_program(self):
        program = BINARY / "fovea"
        if not program.exists():
            self.skipTest("the program is not built")

        def printed(*flags):
            done = subprocess.run([program, "explain", "--format", "json", *flags], capture_output=True, check=False)
            self.assertIn(done.returncode, (0, 3), done.stderr)
            return json.loads(done.stdout)

        model = "wan2.1-t2v-14b"
        self.assertEqual(
            fovea.explain(model=model, device="h200"), printed("--model", model, "--device", "h200")
        )
        sparse = {"backend": "RADIAL_ATTN", "radial": {"dense_timesteps": 10}}
        config = {"default": sparse, "per_role": {"cross": "SDPA"}}
        sigmas = [1.0, 0.7, 0.3]
        schedule = {"profiles": {"low": "SDPA"}, "sigma": [{"low": 0, "high": 0.5, "profile": "low"}]}
        self.assertEqual(
            fovea.explain(config, model=model, device="h200", size=(480, 832), frames=33, dtype="f16", mask_free=True),
            printed("--model", model, "--device", "h200", "--size", "480x832", "--frames", "33", "--dtype", "f16",
                    "--mask-free", "--config", json.dumps(config)),
        )  # fmt: skip
        self.assertEqual(
            fovea.explain(model=model, device="b200", role="wan.self", category="video", steps=3, layers=2,
                          schedule=schedule, sigmas=sigmas),
            printed("--model", model, "--device", "b200", "--role", "wan.self", "--category", "video", "--steps", "3",
                    "--layers", "2", "--schedule", json.dumps(schedule), "--sigmas", "1.0,0.7,0.3"),
        )  # fmt: skip
        problem = "bf16 b1 h4 s256 d128"
        self.assertEqual(
            fovea.explain(config, problem=problem, device="mi300x"),
            printed("--problem", problem, "--device", "mi300x", "--config", json.dumps(config)),
        )
        described = json.loads((SOURCE / "data" / "models" / f"{model}.json").read_text())
        self.assertEqual(fovea.explain(model=described)["entries"][0]["role"], "wan.self")

    def test_explain_of_a_model_refuses_what_does_not_fit(self):
        for message, given in (
            ("unknown model preset 'wan2.1-t2v-15b'", {"model": "wan2.1-t2v-15b"}),
            ("either a problem or a model", {"model": "z-image", "problem": "f32 b1 h1 s1 d1"}),
            ("role 'wan.slf' is not a role of wan2.1-t2v-14b", {"model": "wan2.1-t2v-14b", "role": "wan.slf"}),
            ("layers 41 is more than the 40", {"model": "wan2.1-t2v-14b", "layers": 41}),
            ("dtype 'f8' is not a type", {"model": "z-image", "dtype": "f8"}),
            ("are those of a model", {"size": (720, 1280)}),
            ("found 1", {"model": "z-image", "sigmas": [1.0],
                         "schedule": {"profiles": {"a": "SDPA"}, "sigma": [{"low": 0, "high": 1, "profile": "a"}]}}),
        ):  # fmt: skip
            with self.subTest(message), self.assertRaisesRegex(fovea.FoveaError, message):
                fovea.explain(**given)

    def test_availability(self):
        self.assertEqual(fovea.availability("FLASH_ATTN")["state"], "runs here")
        elsewhere = fovea.availability("TRTLLM_ATTN")
        self.assertNotEqual(elsewhere["state"], "runs here")
        self.assertTrue(elsewhere["cause"])
        with self.assertRaises(fovea.ArgumentError):
            fovea.availability("NOPE")

    def test_plugins(self):
        plugin = BINARY / "plugin-example" / "libfovea-backend-naive.so"
        with self.assertRaises(fovea.ArgumentError):
            fovea.load_plugin("/nonexistent/plugin.so")
        with self.assertRaises(fovea.UnsupportedError) as raised:
            fovea.load_plugin(BINARY / "libfovea.so")
        self.assertIn("fovea_plugin_entry", str(raised.exception))
        if not plugin.exists():
            self.skipTest("examples/plugin is not built")
        loaded = fovea.load_plugin(plugin)
        self.assertEqual(loaded["name"], "naive")
        self.assertEqual(loaded["platforms"], ["toy"])
        self.assertEqual([backend["name"] for backend in loaded["backends"]], ["NAIVE_ATTN"])
        self.assertEqual(fovea.availability("NAIVE_ATTN")["state"], "runs here")
        there = fovea.explain(platform="toy", facts={"memory": 64}, problem="f32 b1 h1 s4 d8")
        self.assertEqual(there["entries"][0]["backend"], "NAIVE_ATTN")
        options = {"backend": "NAIVE_ATTN", "extra": {"NAIVE_ATTN": {"accumulate": "f16"}}}
        with self.assertRaises(fovea.ArgumentError):
            fovea.explain({"default": options})
        self.assertEqual(fovea.load_plugins_from_environment(), {"loaded": [], "failed": []})

    def test_version(self):
        self.assertRegex(fovea.version(), r"^\d+\.\d+\.\d+$")
        self.assertEqual(fovea.__version__, fovea.version())


class AbsentTest(unittest.TestCase):
    """What a module needs and is not there is named, with a line that installs it."""

    def test_modules_without_torch(self):
        for module in ("fovea.torch", "fovea.diffusers", "fovea.vllm_omni"):
            with self.subTest(module):
                code = f"import sys; sys.modules['torch'] = None; import {module}"
                environment = {**os.environ, "PYTHONPATH": str(SOURCE / "python")}
                done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn("\nImportError: fovea.torch needs PyTorch 2.6 or newer: pip install torch", done.stderr)

    def test_a_library_that_is_not_there(self):
        with self.assertRaises(ImportError) as caught:
            fovea._capi.load(BINARY / "no-such.so")
        self.assertRegex(str(caught.exception), "install the wheel.*fovea.load_library(.|\n)*no-such.so")


if __name__ == "__main__":
    unittest.main()
