"""fovea.diffusers in tiny transformers, against diffusers' own attention."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import unittest
import unittest.mock
import warnings

SOURCE = pathlib.Path(os.environ.get("TEST_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
BINARY = pathlib.Path(os.environ.get("TEST_BINARY_DIR", SOURCE / "build"))
sys.path.insert(0, str(SOURCE / "python"))

import fovea  # noqa: E402

fovea.load_library(BINARY / "libfovea.so")

for package in ("torch", "diffusers"):
    if importlib.util.find_spec(package) is None:
        raise unittest.SkipTest(f"{package} is not installed for {sys.executable}")

import diffusers  # noqa: E402
import torch  # noqa: E402
import torch._dynamo  # noqa: E402
from diffusers.models.attention_dispatch import (  # noqa: E402
    AttentionBackendName,
    _AttentionBackendRegistry,
    attention_backend,
    dispatch_attention_fn,
)
from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402

import diffusers_models as models  # noqa: E402
import fovea.diffusers  # noqa: E402
import graph_counts  # noqa: E402
from fovea.diffusers import _dispatch  # noqa: E402

# Relative L2 of a whole model in float32: two roundings of attention's own 2e-6 (tests/support/tolerance.hpp) for each
# of two layers.
MODEL_TOLERANCE = 8e-6
diffusers.utils.logging.set_verbosity_error()


def relative(found, expected):
    return float((found - expected).norm() / expected.norm())


class Case(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        fovea.diffusers.register()
        self.addCleanup(fovea.diffusers.unregister)

    def assert_refused(self, field, call, *arguments, **options):
        with self.assertRaises(fovea.UnsupportedError) as caught:
            call(*arguments, **options)
        (reason,) = caught.exception.reasons
        self.assertEqual(reason.field, field)
        self.assertTrue(reason.got and reason.accepted and reason.remedy, reason)
        self.assertIn(reason.got, str(caught.exception))
        return reason

    def assert_same_as_native(self, model, arguments):
        expected = models.outputs(model, arguments)
        self.assertTrue(expected.isfinite().all())
        model.set_attention_backend("fovea")
        found = models.outputs(model, arguments)
        self.assertLess(relative(found, expected), MODEL_TOLERANCE)
        return fovea.diffusers.report(model)

    def roles(self, report):
        return {(row["module"], row["role"]): row for row in report}


class ModelTest(Case):
    def test_wan_text_to_video(self):
        report = self.assert_same_as_native(models.wan(), models.wan_inputs())
        rows = self.roles(report)
        self.assertEqual(
            set(rows),
            {
                (f"blocks.{block}.{name}", role)
                for block in (0, 1)
                for name, role in (("attn1", "wan.self"), ("attn2", "wan.cross.text"))
            },
        )
        for row in report:
            self.assertEqual((row["backend"], row["provider"]), ("FLASH_ATTN", "fovea"))
            self.assertEqual((row["calls"], row["by"]), (1, "module"))
            self.assertTrue(row["path"].startswith("cpu."))
            self.assertEqual(row["receipt"]["path"], row["path"])
        self.assertEqual(rows["blocks.0.attn1", "wan.self"]["problem"], "f32 b2 h2 s60 d12")
        self.assertEqual(rows["blocks.1.attn2", "wan.cross.text"]["problem"], "f32 b2 h2 s60 d12 sk=512")

    def test_wan_image_to_video_has_two_roles_in_one_module(self):
        report = self.assert_same_as_native(models.wan(image=True), models.wan_inputs(image=True))
        rows = self.roles(report)
        self.assertEqual(len(rows), 6)
        self.assertEqual(rows["blocks.0.attn2", "wan.cross.text"]["problem"], "f32 b2 h2 s60 d12 sk=512")
        self.assertEqual(rows["blocks.0.attn2", "wan.cross.image"]["problem"], "f32 b2 h2 s60 d12 sk=9")
        self.assertEqual(rows["blocks.0.attn2", "wan.cross.image"]["category"], "cross")

    def test_wan_with_a_timestep_per_token(self):
        report = self.assert_same_as_native(models.wan(), models.wan_inputs(per_token=True))
        self.assertEqual(len(report), 4)

    def test_qwen_image_with_texts_of_two_lengths(self):
        model, arguments = models.qwen(), models.qwen_inputs()
        report = self.assert_same_as_native(model, arguments)
        self.assertEqual({row["role"] for row in report}, {"qwen.joint"})
        self.assertIn("mask=bool", report[0]["problem"])
        # The mask counts: other padding changes nothing in the image, and no mask changes it.
        found = models.outputs(model, arguments)
        mask = arguments["encoder_hidden_states_mask"]
        other = torch.where(mask[..., None], arguments["encoder_hidden_states"], -7.0)
        self.assertTrue(torch.equal(models.outputs(model, {**arguments, "encoder_hidden_states": other}), found))
        unmasked = models.outputs(model, {**arguments, "encoder_hidden_states_mask": None})
        self.assertGreater(relative(unmasked, found), 1e-3)

    def test_qwen_image_without_a_mask(self):
        report = self.assert_same_as_native(models.qwen(), models.qwen_inputs(lengths=(5, 5)))
        self.assertEqual(report[0]["problem"], "f32 b2 h3 s25 d16")

    def test_z_image_with_items_of_two_sizes(self):
        report = self.assert_same_as_native(models.zimage(), models.zimage_inputs())
        roles = {row["module"]: row["role"] for row in report}
        self.assertEqual(
            roles,
            {
                "noise_refiner.0.attention": "zimage.noise_refiner",
                "context_refiner.0.attention": "zimage.context_refiner",
                "layers.0.attention": "zimage.joint",
                "layers.1.attention": "zimage.joint",
            },
        )
        self.assertTrue(any("mask=bool" in row["problem"] for row in report))

    def assert_as_near_as_native(self, make, arguments, device):
        """In bf16 on the device: as far from float32 on the CPU as diffusers' own attention, or a quarter more."""
        expected = models.outputs(make(), arguments)
        model = make().to(device=device, dtype=torch.bfloat16)
        arguments = {name: models.to(value, device, torch.bfloat16) for name, value in arguments.items()}
        native = relative(models.outputs(model, arguments).float().cpu(), expected)
        model.set_attention_backend("fovea")
        self.assertLess(relative(models.outputs(model, arguments).float().cpu(), expected), 1.25 * native)
        return fovea.diffusers.report(model)

    def test_half_precision(self):
        self.assert_as_near_as_native(models.wan, models.wan_inputs(), "cpu")

    @unittest.skipUnless(torch.cuda.is_available(), "no CUDA device")
    def test_on_a_gpu(self):
        cases = {
            "wan": (lambda: models.wan(image=True), models.wan_inputs(image=True)),
            "qwen": (models.qwen, models.qwen_inputs()),
            "z-image": (models.zimage, models.zimage_inputs()),
        }
        for name, (make, arguments) in cases.items():
            with self.subTest(name):
                report = self.assert_as_near_as_native(make, arguments, "cuda")
                self.assertTrue(all(row["path"].startswith("cuda.") for row in report))


class ConfigurationTest(Case):
    def ran(self, model):
        return {(row["role"], row["backend"]) for row in fovea.diffusers.report(model)}

    def test_roles_by_full_name_short_name_and_category(self):
        arguments = models.wan_inputs(image=True)
        for entry in ("wan.cross.image", "cross.image", "cross"):
            with self.subTest(entry):
                model = models.wan(image=True)
                expected = models.outputs(model, arguments)
                fovea.diffusers.configure(model, {"default": "FLASH_ATTN", "per_role": {entry: "REFERENCE"}})
                self.assertLess(relative(models.outputs(model, arguments), expected), MODEL_TOLERANCE)
                text = "REFERENCE" if entry == "cross" else "FLASH_ATTN"
                self.assertEqual(
                    dict(self.ran(model)),
                    {"wan.self": "FLASH_ATTN", "wan.cross.text": text, "wan.cross.image": "REFERENCE"},
                )

    def test_roles_can_be_stated(self):
        model, config = models.wan(), {"default": "FLASH_ATTN", "per_role": {"mine": "REFERENCE"}}
        fovea.diffusers.configure(model, config, roles={"blocks.0.attn1": "mine", "*.attn2": ("theirs", "cross")})
        models.outputs(model, models.wan_inputs())
        self.assertEqual(
            self.ran(model), {("mine", "REFERENCE"), ("theirs", "FLASH_ATTN"), ("wan.self", "FLASH_ATTN")}
        )

    def test_configured_model_keeps_its_configuration_and_others_do_not_have_it(self):
        first, second = models.wan(), models.wan()
        fovea.diffusers.configure(first, backend="REFERENCE")
        first.set_attention_backend("fovea")
        second.set_attention_backend("fovea")
        for model in (first, second):
            models.outputs(model, models.wan_inputs())
        self.assertEqual({backend for _, backend in self.ran(first)}, {"REFERENCE"})
        self.assertEqual({backend for _, backend in self.ran(second)}, {"FLASH_ATTN"})

    def test_registered_configuration(self):
        fovea.diffusers.register({"default": "FLASH_ATTN", "per_role": {"self": "REFERENCE"}})
        model = models.wan()
        model.set_attention_backend("fovea")
        models.outputs(model, models.wan_inputs())
        self.assertEqual(self.ran(model), {("wan.self", "REFERENCE"), ("wan.cross.text", "FLASH_ATTN")})

    def test_wrong_configurations(self):
        model = models.wan()
        with self.assertRaisesRegex(fovea.ArgumentError, "joint.*WanTransformer3DModel.*cross.text"):
            fovea.diffusers.configure(model, {"per_role": {"joint": "REFERENCE"}})
        with self.assertRaisesRegex(fovea.ArgumentError, "no attention module.*nothing"):
            fovea.diffusers.configure(model, roles={"nothing.*": "self"})
        with self.assertRaisesRegex(fovea.ArgumentError, "roles"):
            fovea.diffusers.configure(model, roles={"blocks.*": 3})
        with self.assertRaises(fovea.ArgumentError):
            fovea.diffusers.register({"default": "FLASH"})
        self.assertIsNone(model.blocks[0].attn1.processor._attention_backend)

    def test_refusal_of_the_backend_names_it(self):
        model = models.wan()
        fovea.diffusers.configure(model, backend="TRTLLM_ATTN")
        with self.assertRaisesRegex(fovea.UnsupportedError, "TRTLLM_ATTN"):
            models.outputs(model, models.wan_inputs())


class SwitchTest(Case):
    def test_context_manager_and_calls_of_no_model(self):
        model, arguments = models.wan(), models.wan_inputs()
        expected = models.outputs(model, arguments)
        with attention_backend("fovea"):
            found = models.outputs(model, arguments)
        self.assertLess(relative(found, expected), MODEL_TOLERANCE)
        rows = fovea.diffusers.report()
        self.assertEqual({row["role"] for row in rows}, {"unattached"})
        self.assertEqual(sum(row["calls"] for row in rows), 4)
        self.assert_refused("report", fovea.diffusers.report, model)
        self.assertTrue(torch.equal(models.outputs(model, arguments), expected))
        self.assertEqual(sum(row["calls"] for row in fovea.diffusers.report()), 4)

    def test_environment_variable(self):
        code = (
            "import json, fovea, os; fovea.load_library(os.environ['LIBRARY'])\n"
            "import fovea.diffusers; fovea.diffusers.register({'default': 'REFERENCE'})\n"
            "import diffusers_models as models\n"
            "models.outputs(models.wan(layers=1), models.wan_inputs())\n"
            "print(json.dumps([[row['backend'], row['calls']] for row in fovea.diffusers.report()]))\n"
        )
        environment = {
            **os.environ,
            "DIFFUSERS_ATTN_BACKEND": "fovea",
            "LIBRARY": str(BINARY / "libfovea.so"),
            "PYTHONPATH": os.pathsep.join([str(SOURCE / "python"), str(SOURCE / "tests/python"), *sys.path]),
        }
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout.splitlines()[-1]), [["REFERENCE", 1], ["REFERENCE", 1]])

    def test_other_backends_and_reset_end_it(self):
        model, arguments = models.wan(), models.wan_inputs()
        expected = models.outputs(model, arguments)
        for end in (lambda: model.set_attention_backend("native"), model.reset_attention_backend):
            model.set_attention_backend("fovea")
            self.assertTrue(model.blocks[0].attn1._forward_pre_hooks)
            end()
            self.assertFalse(model.blocks[0].attn1._forward_pre_hooks)
            self.assert_refused("report", fovea.diffusers.report, model)
            _AttentionBackendRegistry.set_active_backend(AttentionBackendName.NATIVE)
            self.assertTrue(torch.equal(models.outputs(model, arguments), expected))

    def test_names_of_the_enum(self):
        member = AttentionBackendName("fovea")
        self.assertIs(AttentionBackendName.FOVEA, member)
        self.assertIs(AttentionBackendName["FOVEA"], member)
        self.assertEqual(member, "fovea")
        models.wan().set_attention_backend("fovea")
        listed = [name for name in AttentionBackendName.__members__ if name.startswith("FOVEA")]
        self.assertEqual(listed, ["FOVEA"])
        fovea.diffusers.unregister()
        with self.assertRaises(ValueError):
            AttentionBackendName("fovea")
        self.assertFalse(hasattr(AttentionBackendName, "FOVEA"))
        self.assertFalse([name for name in _AttentionBackendRegistry._backends if "fovea" in name.value])
        with self.assertRaises(ValueError):
            models.wan().set_attention_backend("fovea")

    def test_shared_processors_and_models_out_of_reach(self):
        model = models.wan()
        model.blocks[0].attn2.processor = model.blocks[0].attn1.processor
        self.assert_refused("processor", model.set_attention_backend, "fovea")
        self.assertIsNone(model.blocks[1].attn1.processor._attention_backend)
        unet = diffusers.UNet2DConditionModel(
            block_out_channels=(4, 8),
            norm_num_groups=4,
            down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
            up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
            cross_attention_dim=8,
            attention_head_dim=2,
            layers_per_block=1,
        )
        self.assert_refused("model", unet.set_attention_backend, "fovea")

    def test_processor_past_the_dispatcher_is_reported(self):
        model = models.wan()

        class Own:
            def __call__(self, attn, hidden_states, *arguments, **options):
                return hidden_states

        model.blocks[1].attn1.processor = Own()
        model.set_attention_backend("fovea")
        models.outputs(model, models.wan_inputs())
        report = fovea.diffusers.report(model)
        (row,) = [row for row in report if row["module"] == "blocks.1.attn1"]
        self.assertIsNone(row["backend"])
        self.assertIn("not dispatched", row["note"])
        self.assertIn("not dispatched", str(report))

    def test_other_versions_of_diffusers(self):
        fovea.diffusers.unregister()
        with unittest.mock.patch.object(diffusers, "__version__", "9.9"), warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            fovea.diffusers.register()
        self.assertIn("tested with diffusers 0.42.1; this is 9.9", str(seen[0].message))
        fovea.diffusers.unregister()
        broken = unittest.mock.patch.object(_AttentionBackendRegistry, "_supported_arg_names", None)
        with unittest.mock.patch.object(diffusers, "__version__", "9.9"), broken:
            reason = self.assert_refused("diffusers", fovea.diffusers.register)
        self.assertEqual(reason.got, "9.9")
        self.assertIn(_dispatch.TESTED, reason.accepted)
        self.assertEqual(_dispatch.TESTED, "0.42.1")
        fovea.diffusers.register()


    def test_what_is_no_model_is_named(self):
        class Pipeline:
            transformer = models.wan()

        for call in (fovea.diffusers.configure, fovea.diffusers.report):
            with self.subTest(call.__name__), self.assertRaisesRegex(fovea.ArgumentError, "Pipeline.*pipe.transformer"):
                call(Pipeline())

    def test_without_diffusers(self):
        code = "import sys; sys.modules['diffusers'] = None; import fovea.diffusers; fovea.diffusers.register()"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE / "python"), *sys.path])}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        self.assertRegex(done.stderr, "\nImportError: fovea.diffusers needs diffusers: pip install diffusers==0.42.1")


class CallTest(Case):
    """Single calls of the dispatcher, in every form that its backends take."""

    def setUp(self):
        super().setUp()
        generator = torch.Generator().manual_seed(models.SEED)
        self.q = torch.randn(2, 6, 4, 16, generator=generator)
        self.k, self.v = (torch.randn(2, 9, 4, 16, generator=generator) for _ in range(2))
        self.keep = torch.rand(2, 4, 6, 9, generator=generator) < 0.7
        self.keep[..., 0] = True

    def both(self, q, k, v, **options):
        found = dispatch_attention_fn(q, k, v, backend=AttentionBackendName("fovea"), **options)
        return found, dispatch_attention_fn(q, k, v, backend=AttentionBackendName.NATIVE, **options)

    def assert_same(self, q, k, v, **options):
        found, expected = self.both(q, k, v, **options)
        self.assertLess(relative(found, expected), 2e-6)
        self.assertTrue(found.is_contiguous())

    def test_masks(self):
        keys = torch.arange(9) % torch.tensor([[2], [3]]) == 0
        forms = {
            "keys": keys,
            "one item's keys": keys[:1],
            "queries and keys": self.keep[0, 0],
            "four axes": self.keep,
            "broadcast heads": self.keep[:, :1],
            "broadcast queries": keys[:, None, None],
            "additive": torch.where(self.keep, 0.5, -3.0),
            "additive keys": torch.where(keys, 0.5, -3.0),
        }
        plain = self.both(self.q, self.k, self.v)[0]
        for name, mask in forms.items():
            with self.subTest(name):
                self.assert_same(self.q, self.k, self.v, attn_mask=mask)
                self.assertGreater(relative(self.both(self.q, self.k, self.v, attn_mask=mask)[0], plain), 1e-2)
        one_axis, one_row = (
            dispatch_attention_fn(self.q, self.k, self.v, mask, backend=AttentionBackendName("fovea"))
            for mask in (keys[0], keys[:1])
        )
        self.assertTrue(torch.equal(one_axis, one_row))
        call, name = dispatch_attention_fn, AttentionBackendName("fovea")
        self.assert_refused("attn_mask", call, self.q, self.k, self.v, attn_mask=self.keep[:, 0], backend=name)

    def test_scale_and_grouped_heads(self):
        self.assert_same(self.q, self.k, self.v, scale=0.3)
        self.assert_same(self.q, self.k[:, :, :2], self.v[:, :, :2], enable_gqa=True)
        call, name = dispatch_attention_fn, AttentionBackendName("fovea")
        self.assert_refused("enable_gqa", call, self.q, self.k[:, :, :2], self.v[:, :, :2], backend=name)

    def test_causal_counts_from_the_first_key_as_in_torch(self):
        self.assert_same(self.q, self.k[:, :6], self.v[:, :6], is_causal=True)
        self.assert_same(self.q, self.k, self.v, is_causal=True)
        call, name = dispatch_attention_fn, AttentionBackendName("fovea")
        self.assert_refused("is_causal", call, self.k, self.q, self.q, is_causal=True, backend=name)
        mask = self.keep[:, :, :, :6]
        self.assert_refused(
            "attn_mask", call, self.q, self.k[:, :6], self.v[:, :6], mask, is_causal=True, backend=name
        )

    def test_log_sum_exp(self):
        options = {"attention_kwargs": {"return_lse": True}, "backend": AttentionBackendName("fovea")}
        out, lse = dispatch_attention_fn(self.q, self.k, self.v, **options)
        scores = torch.einsum("bihd,bjhd->bihj", self.q.double(), self.k.double()) / 4
        self.assertEqual(tuple(lse.shape), (2, 6, 4))
        self.assertLess(float((lse - scores.logsumexp(-1)).abs().max()), 1e-5)

    def test_window(self):
        q, k, v = self.q, self.k[:, :6], self.v[:, :6]
        options = {"attention_kwargs": {"window_size": (1, 0)}, "backend": AttentionBackendName("fovea")}
        found = dispatch_attention_fn(q, k, v, **options)
        away = torch.arange(6)[None] - torch.arange(6)[:, None]
        expected = self.both(q, k, v, attn_mask=((away <= 0) & (away >= -1))[None, None])[1]
        self.assertLess(relative(found, expected), 2e-6)

    def test_refusals(self):
        name = AttentionBackendName("fovea")
        refusals = {
            "dropout_p": {"dropout_p": 0.1},
            "softcap": {"attention_kwargs": {"softcap": 30.0}},
            "alibi_slopes": {"attention_kwargs": {"alibi_slopes": self.q}},
            "block_mask": {"attention_kwargs": {"block_mask": self.q}},
            "parallel_config": {"parallel_config": object()},
        }
        for field, options in refusals.items():
            with self.subTest(field):
                self.assert_refused(field, dispatch_attention_fn, self.q, self.k, self.v, backend=name, **options)
        with self.assertRaisesRegex(fovea.UnsupportedError, "no_grad"):
            dispatch_attention_fn(self.q.clone().requires_grad_(), self.k, self.v, backend=name)

    def test_with_the_checks_of_the_dispatcher(self):
        with unittest.mock.patch.object(_AttentionBackendRegistry, "_checks_enabled", True):
            self.assert_same(self.q, self.k, self.v)


class CompileTest(Case):
    """The number of graphs: without graph breaks, and as many as with torch's own attention."""

    def graphs(self, make, compile_it, arguments, backend):
        """The compiled model's outputs, the model, and its numbers of graphs, graph breaks and recompilations."""
        torch._dynamo.reset()
        graph_counts.start()
        model = make()
        model.set_attention_backend(backend)
        counter = CompileCounterWithBackend("eager")
        compiled = compile_it(model, counter)
        found = [models.outputs(compiled, each) for each in arguments]
        name = f"{'.'.join(self.id().split('.')[-2:])} {type(model).__name__} {backend}"
        return found, model, graph_counts.state(name, len(arguments), counter)

    def check(self, make, compile_it, arguments, count):
        expected, _, native = self.graphs(make, compile_it, arguments, "native")
        found, model, graphs = self.graphs(make, compile_it, arguments, "fovea")
        for one, other in zip(found, expected):
            self.assertLess(relative(one, other), MODEL_TOLERANCE)
        # Some versions of torch compile a model's own shape arithmetic once more.
        self.assertEqual(graphs, native)
        self.assertEqual(graphs[1], 0)
        self.assertIn(graphs[0], (count, count + 1))
        report = fovea.diffusers.report(model)
        self.assertEqual({(row["by"], row["backend"], row["calls"]) for row in report}, {("role", "FLASH_ATTN", None)})
        self.assertIn("compiled", str(report))

    def whole(self, model, counter):
        return torch.compile(model, backend=counter, fullgraph=True, dynamic=True)

    def blocks(self, model, counter):
        model.compile_repeated_blocks(backend=counter, fullgraph=True, dynamic=True)
        return model

    def test_whole_model_is_one_graph_for_several_lengths(self):
        arguments = [models.wan_inputs(image=True, frames=frames) for frames in (3, 5, 7)]
        self.check(lambda: models.wan(image=True), self.whole, arguments, 1)

    def test_blocks_of_a_model_share_one_graph(self):
        arguments = [models.wan_inputs(frames=frames) for frames in (3, 5)]
        self.check(lambda: models.wan(layers=4), self.blocks, arguments, 1)
        arguments = [models.qwen_inputs(), models.qwen_inputs((9, 8))]
        self.check(lambda: models.qwen(layers=4), self.blocks, arguments, 1)

    def test_z_image_blocks_are_of_three_kinds(self):
        self.check(lambda: models.zimage(layers=4), self.blocks, [models.zimage_inputs()], 3)

    def test_inductor(self):
        model, arguments = models.wan(layers=1), models.wan_inputs()
        expected = models.outputs(model, arguments)
        model.set_attention_backend("fovea")
        model.compile_repeated_blocks(fullgraph=True)
        self.assertLess(relative(models.outputs(model, arguments), expected), MODEL_TOLERANCE)


if __name__ == "__main__":
    unittest.main()
