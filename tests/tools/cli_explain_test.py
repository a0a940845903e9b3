"""fovea explain."""

import unittest

from cli_support import UNSUPPORTED, USAGE, CliTest

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
}


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
        self.assertLessEqual({"schema", "platform", "facts", "entries"}, set(document))
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
        self.fail_with(
            USAGE,
            "--platform cuda needs --facts or --device: nothing of it is probed here",
            "explain",
            "--platform",
            "cuda",
        )

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
