"""The program with examples/plugin in FOVEA_PLUGIN_PATH."""

import os
import pathlib
import unittest

from cli_support import UNSUPPORTED, USAGE, CliTest

FOLDER = pathlib.Path(os.environ["TEST_BINARY_DIR"]) / "plugin-example"
PLUGIN = {"FOVEA_PLUGIN_PATH": str(FOLDER)}
ENTRY = '{"default": {"backend": "NAIVE_ATTN", "extra": {"NAIVE_ATTN": {%s}}}}'


class PluginTest(CliTest):
    def test_its_backend_is_listed_and_runs(self):
        document = self.succeed("backends", "--format", "json", environment=PLUGIN).json()
        row = {row["name"]: row for row in document["backends"]}["NAIVE_ATTN"]
        self.assertEqual(row["availability"]["state"], "runs here")
        self.assertEqual(row["support"], "unmigrated")
        check = self.succeed(
            "check", "--backend", "NAIVE_ATTN", "--problem", "f32 b1 h2 s17 d8 lse=1", environment=PLUGIN
        )
        self.assertIn("cpu.naive", check.out)
        without = self.fovea("explain", "--backend", "NAIVE_ATTN")
        self.assertEqual(without.code, USAGE)

    def test_its_options_are_in_the_ownership_table(self):
        document = self.succeed("backends", "--options", "--format", "json", environment=PLUGIN).json()
        block = {block["name"]: block for block in document["blocks"]}["extra.NAIVE_ATTN"]
        self.assertEqual(block["owners"], ["NAIVE_ATTN"])
        (field,) = block["fields"]
        self.assertEqual(
            (field["name"], field["type"], field["accepted"], field["default"]),
            ("accumulate", "choice", "one of f64, f32", "f64"),
        )

    def test_options_are_checked(self):
        good = self.succeed("config", "print", "--config", ENTRY % '"accumulate": "f32"', environment=PLUGIN)
        self.assertIn('"accumulate"', good.out)
        flag = self.succeed(
            "explain", "--backend", "NAIVE_ATTN", "--config.default.extra.NAIVE_ATTN.accumulate", "f32",
            "--problem", "f32 b1 h1 s4 d8", environment=PLUGIN,
        )  # fmt: skip
        self.assertIn("cpu.naive", flag.out)
        for wrong, message in (
            ('"acumulate": "f32"', "did you mean 'accumulate'"),
            ('"accumulate": "f16"', "one of f64, f32"),
        ):
            self.fail_with(USAGE, message, "config", "check", "--config", ENTRY % wrong, environment=PLUGIN)

    def test_where_no_record_counts_none_is_asked_for(self):
        document = self.succeed(
            "explain", "--backend", "NAIVE_ATTN", "--problem", "f32 b1 h1 s4 d8", "--format", "json",
            environment=PLUGIN,
        ).json()  # fmt: skip
        (reason,) = document["entries"][0]["reasons"]
        command = "fovea check --backend NAIVE_ATTN --device cpu --problem 'f32 b1 h1 s4 d8'"
        self.assertEqual(reason["remedy"], f"compare it with {command}")
        self.succeed(
            "check", "--backend", "NAIVE_ATTN", "--device", "cpu", "--problem", "f32 b1 h1 s4 d8", environment=PLUGIN
        )

    def test_its_platform_is_judged(self):
        document = self.succeed(
            "explain", "--platform", "toy", "--facts", "memory=64", "--problem", "f32 b1 h1 s4 d8",
            "--format", "json", environment=PLUGIN,
        ).json()  # fmt: skip
        self.assertEqual(document["platform"], "toy")
        (entry,) = document["entries"]
        self.assertEqual((entry["backend"], entry["source"]), ("NAIVE_ATTN", "platform default"))
        self.assertIsNone(entry["promote"])
        self.assertEqual(entry["reasons"][0]["got"], "cpu.naive, which plugin naive 1.0 does not call verified")
        self.assertEqual(entry["reasons"][0]["remedy"], "compare it in the host program")
        refused = self.fovea(
            "explain", "--platform", "toy", "--facts", "memory=64", "--backend", "FA", environment=PLUGIN
        )
        self.assertEqual(refused.code, UNSUPPORTED)
        self.assertIn("NAIVE_ATTN only", refused.out)
        self.fail_with(
            USAGE, "required key 'memory'", "explain", "--platform", "toy", "--facts", "", environment=PLUGIN
        )
        self.fail_with(USAGE, "unknown platform 'toy'", "explain", "--platform", "toy", "--facts", "")

    def test_a_plugin_that_does_not_load_is_a_warning(self):
        (self.folder / "libfovea-backend-broken.so").write_text("no library")
        outcome = self.succeed("backends", environment={"FOVEA_PLUGIN_PATH": str(self.folder)})
        self.assertIn("does not load", outcome.err)


if __name__ == "__main__":
    unittest.main()
