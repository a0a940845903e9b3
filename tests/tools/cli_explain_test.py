"""fovea explain."""

import math
import unittest

from cli_support import DEVICE, SOURCE, UNSUPPORTED, USAGE, CliTest

ENTRY = {
    "role",
    "category",
    "layers",
    "steps",
    "backend",
    "provider",
    "source",
    "strictness",
    "spec",
    "path",
    "support",
    "built",
    "compilation_mode",
    "lossy",
    "density",
    "workspace_bytes",
    "comm_bytes",
    "reasons",
    "trail",
    "profile",
    "dense",
    "sparse",
    "promote",
    "skip_softmax",
    "assumed",
    "nearest",
}

RADIAL = '{"default": {"backend": "RADIAL_ATTN", "radial": {"dense_timesteps": %d, "dense_layers": %d}}}'
FACTS = ["--platform", "cuda", "--facts", "sm=90,flashinfer=0.6"]


class ExplainTest(CliTest):
    def explain(self, *arguments, code=None, **keywords):
        outcome = self.fovea("explain", *arguments, "--format", "json", **keywords)
        document = outcome.json()
        refused = [
            entry
            for entry in document["entries"]
            if entry["support"] == "unsupported" and entry["strictness"] != "prefer"
        ]
        self.assertEqual(outcome.code, UNSUPPORTED if refused else 0, outcome.err)
        if code is not None:
            self.assertEqual(outcome.code, code)
        self.assertEqual(document["schema"], "fovea.explain/1")
        self.assertLessEqual({"schema", "platform", "facts", "entries", "warnings"}, set(document))
        for entry in document["entries"]:
            self.assertLessEqual(ENTRY, set(entry))
            for step in entry["trail"]:
                self.assertEqual(set(step), {"backend", "verdict", "reasons"})
                self.assertIn(step["verdict"], ["selected", "rejected", "not_tried"])
        return document

    def test_nothing_configured_is_the_platform_default(self):
        document = self.explain()
        (entry,) = document["entries"]
        self.assertEqual(document["platform"], "cpu")
        self.assertEqual(entry["source"], "platform default")
        self.assertIsNone(entry["strictness"])
        self.assertIsNone(entry["spec"])
        self.assertEqual(entry["backend"], "FLASH_ATTN")
        self.assertEqual(entry["support"], "supported")
        self.assertTrue(entry["built"])

    def test_metadata_gives_the_normal_form(self):
        problem = "f32 b1 h2 s8 d16"
        document = self.explain("--problem", problem, "--metadata", '{"full_attn_spans": [[2, 5]]}')
        (entry,) = document["entries"]
        self.assertEqual(entry["problem"], problem + " pieces=2:2c,3:5,3:8c")
        self.assertEqual(entry["support"], "supported")
        document = self.explain("--problem", problem, "--metadata", '{"kv_cache_dtype": "fp8"}')
        self.assertEqual(document["entries"][0]["support"], "unsupported")
        self.fail_with(USAGE, "--metadata is about one call", "explain", "--metadata", "{}")
        self.fail_with(
            USAGE, "protected_kv_prefix", "explain", "--problem", problem, "--metadata", '{"protected_kv_prefix": 9}'
        )

    def test_the_threshold_of_a_calibrated_layer(self):
        config = '{"default": {"backend": "TRTLLM_ATTN", "skip_softmax": {"target_sparsity": 0.5}}}'
        device = ["--device", "b200", "--facts", "trtllm=1,flashinfer=0.6.18", "--problem", "bf16 b1 h2 s4096 d128"]
        calibration = self.folder / "config.json"
        calibration.write_text(
            """{"num_layers": 40, "sparse_attention_config": {"config_groups": {"group_0": {
               "algorithm": "skip_softmax", "ignore": ["blocks.0.attn1"],
               "threshold_scale_factor": {"formula": "a * exp(b * target_sparsity)",
                                          "coefficients": {"a": 1443.5, "b": 4.304}}}}}}"""
        )
        common = ["--config", config, *device]
        (entry,) = self.explain(*common, code=UNSUPPORTED)["entries"]
        self.assertEqual(entry["reasons"][0]["field"], "skip_softmax.target_sparsity")
        self.assertEqual(entry["skip_softmax"]["state"], "uncalibrated")
        layer = ["--calibration", calibration, "--layer-name"]
        (entry,) = self.explain(*common, *layer, "blocks.7.attn1", code=0)["entries"]
        factor = 1443.5 * math.exp(4.304 * 0.5)
        self.assertEqual(entry["skip_softmax"]["state"], "skips")
        self.assertAlmostEqual(entry["skip_softmax"]["factor"], factor, places=6)
        self.assertAlmostEqual(entry["skip_softmax"]["threshold"], factor / 4096, places=9)
        self.assertTrue(entry["lossy"])
        table = self.succeed("explain", *common, *layer, "blocks.7.attn1").out
        self.assertIn("default: skip_softmax skips, factor ", table)
        (entry,) = self.explain(*common, *layer, "transformer.blocks.0.attn1", code=0)["entries"]
        self.assertEqual(entry["skip_softmax"]["ignored_by"], "blocks.0.attn1")
        self.assertFalse(entry["lossy"])
        gated = config.replace("0.5}", '0.5, "disabled_until_timestep": 0.86}')
        run = ["--config", gated, *device, *layer, "blocks.7.attn1", "--steps", 3, "--layers", 2]
        states = [
            (entry["steps"], entry["skip_softmax"]["state"])
            for entry in self.explain(*run, "--sigmas", "1,0.9,0.4", code=0)["entries"]
        ]
        self.assertEqual(states, [("0-1", "gated"), ("2", "skips")])
        self.assertIn("skip_softmax gated in steps 0-1", self.succeed("explain", *run, "--sigmas", "1,0.9,0.4").out)
        (entry,) = self.explain(*run, code=0)["entries"]
        self.assertEqual(entry["skip_softmax"]["state"], "unknown_timestep")
        self.fail_with(USAGE, "give the 3 sigmas of the run, found 2", "explain", *run, "--sigmas", "1,0.9")
        self.fail_with(USAGE, "--calibration and --layer-name go together", "explain", *common, "--calibration", "{}")
        self.fail_with(
            USAGE, "calibration: the top level: holds no sparse_attention_config", "explain", *common, *layer[:1], "{}",
            "--layer-name", "x",
        )

    def test_files_are_called_by_what_they_are(self):
        length = ["--steps", 2, "--layers", 2]
        self.fail_with(USAGE, "schedule file 'no.json'", "explain", "--schedule", "no.json", *length)
        self.fail_with(
            USAGE, "request file 'no.json'", "explain", "--schedule", "{}", "--request", "no.json", *length
        )
        self.fail_with(USAGE, "config file 'no.json'", "explain", "--config", "no.json")

    def test_without_role_the_default_and_every_role(self):
        document = self.explain(
            "--config", '{"default": "SDPA", "per_role": {"cross": "FA", "joint": "REF"}}'
        )
        self.assertEqual(
            [(entry["role"], entry["backend"]) for entry in document["entries"]],
            [("default", "TORCH_SDPA"), ("cross", "FLASH_ATTN"), ("joint", "REFERENCE")],
        )
        self.assertEqual(document["entries"][1]["source"], "attention_config.per_role['cross']")

    def test_role_and_category(self):
        document = self.explain(
            "--config",
            '{"per_role": {"cross": "SDPA"}}',
            "--role",
            "wan.cross.text",
            "--category",
            "cross",
        )
        (entry,) = document["entries"]
        self.assertEqual(
            entry["source"], "attention_config.per_role['cross'] (role_category fallback)"
        )
        self.assertEqual(entry["category"], "cross")

    def test_model_lists_its_roles_with_problems(self):
        document = self.explain(
            "--model", "wan2.1-t2v-14b", "--device", "h200", "--steps", "40", "--backend", "FA"
        )
        entries = {entry["role"]: entry for entry in document["entries"]}
        self.assertEqual(set(entries), {"wan.self", "wan.cross.text"})
        entry = entries["wan.self"]
        self.assertEqual(entry["steps"], "0-39")
        self.assertEqual(entry["layers"], "0-39")
        self.assertEqual(entry["problem"], "bf16 b1 h40 s75600 d128")
        self.assertEqual(document["platform"], "cuda")
        self.assertEqual(document["facts"]["sm"], "90")

    def test_files_of_models_and_devices_are_read_like_presets(self):
        for model in ("wan2.1-i2v-14b", "flashvsr", "z-image"):
            for device in ("h200", "mi300x", "cpu"):
                files = (SOURCE / "data" / "models" / f"{model}.json", SOURCE / "data" / "devices" / f"{device}.json")
                self.assertEqual(
                    self.explain("--model", files[0], "--device", files[1]),
                    self.explain("--model", model, "--device", device),
                )
        text = (SOURCE / "data" / "devices" / "h200.json").read_text()
        self.assertEqual(self.explain("--device", text, "--facts", "sm=80")["facts"]["sm"], "80")
        self.assertEqual(self.explain("--device", text, "--facts", "sm=80")["facts"]["cuda"], "13.0")

    def test_what_is_wrong_with_a_file_is_said(self):
        cases = [
            ("--model", "./none", "model file './none': there is no such file; JSON text would start with '{'"),
            ("--model", "/", "model file '/': is a directory"),
            ("--model", "own", "flashvsr; a file is named by a path with a '/' or ending in .json"),
            ("--device", "own", "cpu; a file is named by a path with a '/' or ending in .json"),
            ("--device", "none.json", "device file 'none.json': there is no such file"),
            ("--device", '{"name": "x"}', "--device: 2 problems\n  the top level: lacks platform"),
            ("--model", '{"names": "x"', "--model: not valid JSON: the text ends too early"),
        ]
        for flag, value, message in cases:
            self.fail_with(USAGE, message, "explain", flag, value)
        file = self.folder / "box.json"
        file.write_text('{"name": "box", "platform": "cpu", "facts": {"ias": "avx2"}}')
        message = f"{file}: cpu facts: unknown key 'ias'; keys are isa; did you mean 'isa'?"
        self.fail_with(USAGE, message, "explain", "--device", file)
        self.fail_with(USAGE, message, "backends", "--device", file)

    def test_a_model_has_no_more_layers_than_it_states(self):
        entries = self.explain("--model", "z-image", "--device", "h200", "--layers", 10)["entries"]
        self.assertEqual([entry["layers"] for entry in entries], ["0-1", "0-1", "0-9"])
        run = ["explain", "--model", "wan2.1-t2v-14b", "--layers", 41]
        self.fail_with(USAGE, "--layers 41 is more than the 40 that a role of wan2.1-t2v-14b has", *run)

    def test_model_takes_a_size_and_a_type(self):
        document = self.explain(
            "--model", "wan2.1-t2v-1.3b", "--size", "480x832", "--frames", "81", "--dtype", "f32"
        )
        self.assertEqual(document["entries"][0]["problem"], "f32 b1 h12 s32760 d128")

    def test_a_refused_requirement_exits_with_3_and_prints_the_document(self):
        document = self.explain("--backend", "SAGE_ATTN_3", code=UNSUPPORTED)
        (entry,) = document["entries"]
        self.assertEqual(entry["support"], "unsupported")
        self.assertTrue(entry["reasons"])
        self.assertEqual(
            set(entry["reasons"][0]), {"code", "field", "got", "accepted", "message", "remedy"}
        )
        self.assertEqual(self.fovea("explain", "--backend", "SAGE_ATTN_3").code, UNSUPPORTED)

    def test_prefer_falls_through_with_the_reason_in_the_trail(self):
        document = self.explain(
            "--config", '{"default": {"backend": "SAGE_ATTN_3", "strictness": "prefer"}}'
        )
        (entry,) = document["entries"]
        self.assertEqual(entry["backend"], "FLASH_ATTN")
        self.assertEqual(entry["trail"][0]["backend"], "SAGE_ATTN_3")
        self.assertEqual(entry["trail"][0]["verdict"], "rejected")
        self.assertTrue(entry["trail"][0]["reasons"])
        table = self.succeed(
            "explain", "--config", '{"default": {"backend": "SAGE_ATTN_3", "strictness": "prefer"}}'
        ).out
        self.assertIn("default: SAGE_ATTN_3 rejected: ", table)

    def test_facts(self):
        document = self.explain("--platform", "cuda", "--facts", "sm=80,flash_attn=2.8.0")
        self.assertEqual(document["facts"], {"flash_attn": "2.8.0", "sm": "80"})
        document = self.explain("--platform", "cpu", "--facts", "")
        self.assertEqual(document["facts"], {})
        document = self.explain("--platform", "cpu", "--facts=")
        self.assertEqual(document["facts"], {})

    def test_facts_change_a_preset(self):
        before = self.explain("--device", "h200")["facts"]
        after = self.explain("--device", "h200", "--facts", "name=other")["facts"]
        self.assertEqual(after["name"], "other")
        self.assertEqual(
            {key: value for key, value in after.items() if key != "name"},
            {key: value for key, value in before.items() if key != "name"},
        )

    def test_csv(self):
        lines = self.succeed("explain", "--backend", "SDPA", "--format", "csv").out.splitlines()
        self.assertTrue(lines[0].startswith("role,category,layers,steps,backend,support"))
        self.assertIn("TORCH_SDPA", lines[1])


    def test_a_path_without_a_record_says_what_makes_one(self):
        arguments = ("explain", "--backend", "FLASH_ATTN_2", "--device", "a100", "--problem", "bf16 b1 h24 s4096 d128")
        command = "fovea check --contract --backend FLASH_ATTN_2 --device cuda --record FLASH_ATTN_2-sm_80.json"
        (entry,) = self.succeed(*arguments, "--format", "json").json()["entries"]
        self.assertEqual((entry["support"], entry["promote"]), ("unmigrated", command))
        self.assertIn(
            "FLASH_ATTN_2 runs unverified on sm_80: cuda.flash_sm80, without a validation record; "
            f"validate it with {command}",
            self.succeed(*arguments).out,
        )

    def test_a_refusal_names_what_can(self):
        problem = ["--problem", "bf16 b1 h2 s6400 d128 mask=causal"]
        for device, backend, nearest in (
            ("ascend910b", "RAINFUSION_ATTN", "FLASH_ATTN"),
            ("h200", "RADIAL_ATTN", "FLASH_ATTN"),
            ("b200", "TRTLLM_ATTN", "CUDNN_ATTN"),
        ):
            with self.subTest(backend=backend):
                arguments = ("explain", "--device", device, "--backend", backend, *problem)
                outcome = self.fovea(*arguments, "--format", "json")
                self.assertEqual(outcome.code, UNSUPPORTED)
                self.assertEqual(outcome.json()["entries"][0]["nearest"], nearest)
                self.assertIn(f"default: nearest that can: {nearest}", self.fovea(*arguments).out)
        self.assertIsNone(self.explain("--device", "h200", *problem)["entries"][0]["nearest"])


class ExplainScheduleTest(CliTest):
    def areas(self, *arguments, code=0):
        outcome = self.fovea("explain", *arguments, "--format", "json")
        self.assertEqual(outcome.code, code, outcome.err)
        self.document = outcome.json()
        return [
            (entry["role"], entry["layers"], entry["steps"], entry["backend"], entry["dense"])
            for entry in self.document["entries"]
        ]

    def test_dense_steps_and_layers_split_the_run(self):
        areas = self.areas("--config", RADIAL % (10, 2), *FACTS, "--steps", 40, "--layers", 30)
        self.assertEqual(
            areas,
            [
                ("default", "0-29", "0-9", "FLASH_ATTN", "first_steps"),
                ("default", "0-1", "10-39", "FLASH_ATTN", "first_layers"),
                ("default", "2-29", "10-39", "RADIAL_ATTN", None),
            ],
        )
        entry = self.document["entries"][2]
        self.assertEqual(entry["sparse"], {"on": 28 * 30, "of": 40 * 30})
        self.assertEqual((entry["support"], entry["promote"]), ("supported", None))
        self.assertEqual(self.document["entries"][0]["density"], 1.0)
        table = self.succeed(
            "explain", "--config", RADIAL % (10, 2), *FACTS, "--steps", 40, "--layers", 30
        ).out
        self.assertIn("default: sparse on 840 of 1200 steps x layers", table)
        self.assertIn("(dense: first_steps)", table)

    def test_a_model_states_its_steps_layers_and_density(self):
        areas = self.areas(
            "--model", "wan2.1-t2v-1.3b", *FACTS, "--steps", 50,
            "--config",
            '{"per_role": {"wan.self": {"backend": "RADIAL_ATTN", "radial": {"dense_timesteps": 12}}}}',
        )  # fmt: skip
        self.assertEqual(
            areas,
            [
                ("wan.self", "0-29", "0-11", "FLASH_ATTN", "first_steps"),
                ("wan.self", "0-29", "12-49", "RADIAL_ATTN", None),
                ("wan.cross.text", "0-29", "0-49", "FLASH_ATTN", None),
            ],
        )
        dense, sparse, cross = self.document["entries"]
        self.assertGreater(sparse["density"], 0.05)
        self.assertLess(sparse["density"], 0.9)
        self.assertIsNone(cross["sparse"])
        for entry in (dense, sparse, cross):
            self.assertIsInstance(entry["workspace_bytes"], int)

    def test_profiles_ranges_and_requests(self):
        schedule = self.folder / "schedule.json"
        schedule.write_text(
            '{"profiles": {"exact": "SDPA", "last": {"per_role": {"self": "FLASH_ATTN_3"}}},'
            ' "steps": [{"start": 0, "end": 2, "profile": "exact"}],'
            ' "layers": [{"start": 3, "end": null, "profile": "last"}]}'
        )
        common = ["--device", "h200", "--role", "self", "--steps", 4, "--layers", 5, "--schedule", schedule]
        outcome = self.fovea("explain", *common, "--backend", "FA", "--format", "json")
        entries = outcome.json()["entries"]
        self.assertEqual(
            [(e["layers"], e["steps"], e["profile"], e["source"]) for e in entries],
            [
                ("0-2", "0-1", "exact", "profile 'exact': attention_config.default"),
                ("3-4", "0-1", "last", "profile 'last': attention_config.per_role['self']"),
                ("0-2", "2-3", None, "attention_config.default"),
                ("3-4", "2-3", "last", "profile 'last': attention_config.per_role['self']"),
            ],
        )
        areas = self.areas(*common, "--backend", "FA", "--request", '{"steps": [], "layers": []}')
        self.assertEqual(areas, [("self", "0-4", "0-3", "FLASH_ATTN", None)])

    def test_sigmas(self):
        areas = self.areas(
            "--backend", "FA", "--steps", 3, "--layers", 1, "--sigmas", "1,0.5,0.25",
            "--schedule",
            '{"profiles": {"low": "SDPA"}, "sigma": [{"low": 0, "high": 0.5, "profile": "low"}]}',
        )  # fmt: skip
        self.assertEqual([a[2:4] for a in areas], [("0-1", "FLASH_ATTN"), ("2", "TORCH_SDPA")])

    def test_block_sparse_steps_and_layers(self):
        areas = self.areas(
            "--device", "ascend910b", "--steps", 6, "--layers", 4,
            "--config",
            '{"default": {"backend": "RAINFUSION_ATTN", "block_sparse":'
            ' {"start_step": 1, "end_step": 2, "skip_layers": "0,3", "sparsity": 0.75}}}',
        )  # fmt: skip
        self.assertEqual(
            [a[1:] for a in areas],
            [
                ("0-3", "0", "FLASH_ATTN", "first_steps"),
                ("0", "1-3", "FLASH_ATTN", "skipped_layer"),
                ("1-2", "1-3", "RAINFUSION_ATTN", None),
                ("3", "1-3", "FLASH_ATTN", "skipped_layer"),
                ("0-3", "4-5", "FLASH_ATTN", "last_steps"),
            ],
        )
        self.assertEqual(self.document["entries"][2]["density"], 0.25)

    def test_never_sparse_is_refused_or_warned_of_once(self):
        areas = self.areas(
            "--config", RADIAL % (40, 0), *FACTS, "--steps", 40, "--layers", 3, code=UNSUPPORTED
        )
        self.assertEqual(len(areas), 1)
        entry = self.document["entries"][0]
        self.assertEqual(entry["support"], "unsupported")
        self.assertEqual(entry["reasons"][0]["code"], "schedule")
        self.assertEqual(entry["sparse"], {"on": 0, "of": 120})
        prefer = '{"default": {"backend": "RADIAL_ATTN", "strictness": "prefer"}}'
        outcome = self.succeed(
            "explain", "--config", prefer, *FACTS, "--model", "wan2.1-t2v-14b", "--steps", 40
        )
        self.assertEqual(outcome.err.count("would run dense in every one"), 1, outcome.err)
        self.assertIn("wan.self: sparse on 0 of 1600 steps x layers", outcome.out)

    def test_errors(self):
        self.fail_with(
            USAGE, "--schedule needs --steps and --layers", "explain", "--schedule", '{"steps": []}'
        )
        self.fail_with(USAGE, "--request changes a schedule", "explain", "--request", "{}")
        self.fail_with(USAGE, "--layers needs --steps", "explain", "--layers", "3")
        self.fail_with(USAGE, "--sigmas needs numbers", "explain", "--steps", "2", "--sigmas", "1,x")
        self.fail_with(USAGE, "--sigmas needs --steps", "explain", "--sigmas", "1")
        self.fail_with(
            USAGE, "how many layers", "explain", "--config", RADIAL % (1, 1), *FACTS, "--steps", "4"
        )
        self.fail_with(
            USAGE,
            "there is no profile 'fst'",
            "explain",
            "--steps",
            "4",
            "--layers",
            "1",
            "--schedule",
            '{"profiles": {"fast": "FA"}, "steps": [{"start": 0, "end": 1, "profile": "fst"}]}',
        )
        self.fail_with(
            USAGE,
            "ranges are not clipped",
            "explain",
            "--steps",
            "4",
            "--layers",
            "1",
            "--schedule",
            '{"profiles": {"fast": "FA"}, "steps": [{"start": 0, "end": 5, "profile": "fast"}]}',
        )


class ExplainPolicyTest(CliTest):
    """Devices that are not here."""

    def entry(self, *arguments):
        outcome = self.fovea("explain", *arguments, "--format", "json")
        return outcome.code, outcome.json()["entries"][0]

    def test_blackwell_order_follows_the_facts(self):
        base = "sm=100,cuda=13.0"
        packages = "flashinfer=0.6.18,flashinfer_prefill=1,trtllm=1,cudnn=9.19,fa4=4.0"
        order = ["TRTLLM_ATTN", "CUDNN_ATTN", "FLASHINFER_ATTN", "FLASH_ATTN", "TORCH_SDPA"]
        _, entry = self.entry(
            "--platform", "cuda", "--facts", f"{base},{packages}", "--mask-free", "--head-dim", 128
        )
        self.assertEqual([step["backend"] for step in entry["trail"]], order)
        self.assertEqual(entry["backend"], "TRTLLM_ATTN")
        _, masked = self.entry("--platform", "cuda", "--facts", f"{base},{packages}", "--head-dim", 128)
        self.assertEqual(masked["trail"][0]["reasons"][0]["code"], "mask_free")
        _, preset = self.entry("--device", "b200", "--head-dim", 128)
        self.assertEqual([step["backend"] for step in preset["trail"]], order)

    def test_environment_is_named_as_the_source(self):
        outcome = self.fovea(
            "explain", "--format", "json", environment={"FOVEA_BACKEND": " sdpa "}
        )
        (entry,) = outcome.json()["entries"]
        self.assertEqual(entry["source"], "environment FOVEA_BACKEND")
        self.assertEqual(entry["backend"], "TORCH_SDPA")

    def test_vendor_paths_stay_unmigrated_and_name_the_command(self):
        for device, backend in (("mi300x", "FLASH_ATTN"), ("ascend910b", "FLASH_ATTN")):
            code, entry = self.entry("--device", device, "--backend", backend)
            self.assertEqual((code, entry["support"]), (0, "unmigrated"))
            self.assertIn("python3 -m fovea.check --contract --backend FLASH_ATTN", entry["promote"])
            table = self.fovea("explain", "--device", device, "--backend", backend).out
            self.assertIn("python3 -m fovea.check --contract --backend FLASH_ATTN", table)
            self.assertIn("without a validation record", table)


class ExplainErrorTest(CliTest):
    def test_unknown_fact_lists_the_facts(self):
        self.fail_with(USAGE, "flash_attn", "explain", "--platform", "cuda", "--facts", "sm=90,flsh=1")

    def test_missing_fact(self):
        self.fail_with(USAGE, "sm", "explain", "--platform", "cuda", "--facts", "")

    def test_unknown_device_lists_the_presets(self):
        self.fail_with(USAGE, "h200", "explain", "--device", "h20")

    def test_unknown_platform(self):
        self.fail_with(USAGE, "musa", "explain", "--platform", "tpu")

    def test_platform_without_facts(self):
        advice = "; describe one with --platform and --facts, or name a preset with --device"
        absent = "this machine has no musa:4096 (looked at /sys/bus/pci/devices)"
        self.fail_with(DEVICE, absent + advice, "explain", "--device", "musa:4096")
        self.fail_with(DEVICE, absent + advice, "backends", "--device", "MUSA:4096")
        for platform in ("musa", "npu"):
            outcome = self.fovea("explain", "--platform", platform)
            if outcome.code:
                message = self.fail_with(USAGE, advice, "explain", "--platform", platform)["message"]
                self.assertTrue(message.startswith(f"this machine has no {platform}:0 (looked at /"), message)
        for device in ("rocm:", "rocm:x", "npu:-1", "cuda:99999999999"):
            message = f"--device '{device}' needs a number after ':', such as {device.split(':')[0]}:0"
            self.fail_with(USAGE, message, "explain", "--device", device)
        message = "--device rocm is asked what it is; leave --platform out, or name a preset to change"
        self.fail_with(USAGE, message, "explain", "--device", "rocm", "--platform", "rocm")

    def test_what_an_answer_takes_for_granted_is_said(self):
        facts = ["--platform", "cuda", "--facts", "sm=100,fa4=4.0"]
        entry = self.fovea("explain", "--backend", "FA4", *facts, "--format", "json").json()["entries"][0]
        (assumed,) = entry["assumed"]
        self.assertEqual(
            (assumed["code"], assumed["field"], assumed["got"], assumed["accepted"]),
            ("assumed", "cuda", "not given", ">= 12.8"),
        )
        line = "FLASH_ATTN_4 takes for granted: cuda is not given (taken to be: >= 12.8), state cuda"
        self.assertIn("default: " + line, self.succeed("explain", "--backend", "FA4", *facts).out)
        self.assertIn(line, self.succeed("backends", "--backend", "FA4", *facts).out)
        (row,) = self.succeed("backends", "--backend", "FA4", *facts, "--format", "json").json()["backends"]
        self.assertEqual(row["assumed"], [assumed])
        stated = self.succeed("explain", "--backend", "FA4", *facts[:3], facts[3] + ",cuda=13.0")
        self.assertNotIn("takes for granted", stated.out)

    def test_facts_without_platform(self):
        self.fail_with(USAGE, "--facts needs --platform or --device", "explain", "--facts", "sm=90")

    def test_device_contradicts_platform(self):
        self.fail_with(
            USAGE,
            "--device h200 is on platform cuda, but --platform says rocm; leave one of them out",
            "explain",
            "--device",
            "h200",
            "--platform",
            "rocm",
        )

    def test_unknown_model_suggests(self):
        self.fail_with(USAGE, "did you mean 'qwen-image'?", "explain", "--model", "qwen-imag")

    def test_unknown_role_of_a_model(self):
        self.fail_with(
            USAGE,
            "--role 'wan.slf' is not a role of wan2.1-t2v-14b (it has: wan.self, wan.cross.text)",
            "explain",
            "--model",
            "wan2.1-t2v-14b",
            "--role",
            "wan.slf",
        )

    def test_problem_and_model(self):
        self.fail_with(
            USAGE,
            "--model states the problems; leave --problem and --head-dim out",
            "explain",
            "--model",
            "z-image",
            "--problem",
            "f32 b1 h1 s1 d64",
        )

    def test_size(self):
        self.fail_with(
            USAGE,
            "--size needs HEIGHTxWIDTH in pixels, e.g. 720x1280, not '720'",
            "explain",
            "--model",
            "z-image",
            "--size",
            "720",
        )
        self.fail_with(USAGE, "--size and --frames need --model", "explain", "--frames", "5")

    def test_dtype(self):
        self.fail_with(
            USAGE,
            "--dtype 'int8' is not a type of q, k and v (accepted: f32, f16, bf16)",
            "explain",
            "--dtype",
            "int8",
        )

    def test_bad_problem_names_the_position(self):
        self.fail_with(USAGE, "column 4", "explain", "--problem", "f32 q1 h1 s1 d64")

    def test_counts(self):
        self.fail_with(USAGE, "--steps must be at least 1, not 0", "explain", "--steps", "0")
        self.fail_with(USAGE, "--head-dim must be at least 1", "explain", "--head-size", "-1")


if __name__ == "__main__":
    unittest.main()
