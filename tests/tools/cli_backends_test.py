"""fovea backends."""

import unittest

from cli_support import USAGE, CliTest

ROW = {
    "name",
    "aliases",
    "platforms",
    "provider",
    "built",
    "available",
    "support",
    "path",
    "compilation_mode",
    "reasons",
}


class BackendsTest(CliTest):
    def backends(self, *arguments):
        document = self.succeed("backends", *arguments, "--format", "json").json()
        self.assertEqual(document["schema"], "fovea.backends/1")
        for row in document["backends"]:
            self.assertLessEqual(ROW, set(row))
            if row["support"] == "unsupported":
                self.assertTrue(row["reasons"], row["name"])
        return document, {row["name"]: row for row in document["backends"]}

    def test_every_name_once_with_its_aliases(self):
        document, rows = self.backends()
        self.assertIsNone(document["problem"])
        self.assertEqual(len(rows), len(document["backends"]))
        self.assertIn("SDPA", rows["TORCH_SDPA"]["aliases"])
        self.assertIn("FA3", rows["FLASH_ATTN_3"]["aliases"])
        self.assertIn("cpu", rows["REFERENCE"]["platforms"])
        self.assertIn("cuda", rows["FLASH_ATTN"]["platforms"])

    def test_this_machine(self):
        _, rows = self.backends("--problem", "f32 b1 h4 s64 d32 mask=causal")
        self.assertEqual(rows["FLASH_ATTN"]["support"], "supported")
        self.assertTrue(rows["FLASH_ATTN"]["available"])
        self.assertTrue(rows["FLASH_ATTN"]["path"].startswith("cpu."))
        self.assertEqual(rows["FLASH_ATTN_3"]["support"], "unsupported")
        self.assertFalse(rows["FLASH_ATTN_3"]["available"])

    def test_problem_is_printed_back(self):
        document, _ = self.backends("--device", "h200", "--problem", "bf16 d128 s4096 h24 b1")
        self.assertEqual(document["problem"], "bf16 b1 h24 s4096 d128")

    def test_dtype_and_head_size(self):
        _, rows = self.backends("--dtype", "bf16", "--head-size", "80")
        self.assertEqual(rows["FLASH_ATTN"]["support"], "supported")

    def test_table_and_csv(self):
        self.assertIn("FLASH_ATTN", self.succeed("backends").out)
        lines = self.succeed("backends", "--format", "csv").out.splitlines()
        self.assertEqual(lines[0], "backend,support,built,provider,path,platforms,why not")
        self.assertEqual(len(lines), 25)

    def test_errors(self):
        self.fail_with(USAGE, "column", "backends", "--problem", "f32 b1 h1 s1 d64 b2")
        self.fail_with(
            USAGE,
            "--problem states the type and the head size; leave --dtype and --head-dim out",
            "backends",
            "--problem",
            "f32 b1 h1 s1 d64",
            "--dtype",
            "f32",
        )


if __name__ == "__main__":
    unittest.main()
