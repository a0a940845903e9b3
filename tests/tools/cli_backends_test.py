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
    "assumed",
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
        self.assertEqual(
            lines[0], "backend,availability,support,built,provider,path,platforms,why not,install"
        )
        self.assertEqual(len(lines), 25)

    def test_availability_in_words(self):
        _, rows = self.backends()
        states = {name: row["availability"]["state"] for name, row in rows.items()}
        self.assertEqual(states["FLASH_ATTN"], "runs here")
        # A kernel that a described device could run is not said to run where it is not compiled.
        described = self.backends("--device", "h200")[1]["FLASH_ATTN_3"]
        self.assertNotEqual(described["support"], "unsupported")
        state = described["availability"]["state"]
        self.assertEqual(state, "runs here" if described["built"] else "not built")
        if not described["built"]:
            self.assertIn("rebuild with", described["availability"]["cause"])
        self.assertEqual(states["FLASH_ATTN_3"], "not for this device")
        _, rows = self.backends("--device", "h200")
        self.assertEqual(rows["SAGE_ATTN"]["availability"]["state"], "package missing")
        self.assertIn("pip install", rows["SAGE_ATTN"]["availability"]["install"])
        self.assertTrue(rows["SAGE_ATTN"]["availability"]["cause"])
        _, rows = self.backends("--platform", "cuda", "--facts", "sm=90,flashinfer=0.6.18")
        self.assertEqual(rows["FLASHINFER_ATTN"]["availability"]["state"], "package broken")
        self.assertIn("package broken", self.succeed(
            "backends", "--platform", "cuda", "--facts", "sm=90,flashinfer=0.6.18").out)

    def test_one_name(self):
        _, rows = self.backends("--backend", "fa3", "--device", "h200")
        self.assertEqual(list(rows), ["FLASH_ATTN_3"])
        self.fail_with(USAGE, "did you mean", "backends", "--backend", "FLASH_ATN")

    def test_options_print_the_ownership_table(self):
        document = self.succeed("backends", "--options", "--format", "json").json()
        self.assertEqual(document["schema"], "fovea.options/1")
        blocks = {block["name"]: block for block in document["blocks"]}
        self.assertEqual(
            {name: block["owners"] for name, block in blocks.items() if name is not None},
            {
                "quant": ["TRTLLM_ATTN", "FLASHINFER_ATTN"],
                "aiter_quant": ["AITER_QUANT_ATTN"],
                "skip_softmax": ["TRTLLM_ATTN", "FLASH_ATTN"],
                "block_sparse": ["RAINFUSION_ATTN", "BLOCK_SPARSE_ATTN", "SPARGE_ATTN"],
                "radial": ["RADIAL_ATTN"],
                "local_sparse": ["LOCAL_SPARSE_ATTN"],
            },
        )
        entry = {field["name"]: field for field in blocks[None]["fields"]}
        self.assertEqual(entry["fastvideo_vsa_topk"]["owners"], ["FASTVIDEO_VSA"])
        radial = {field["name"]: field for field in blocks["radial"]["fields"]}
        self.assertEqual(radial["dense_timesteps"]["default"], 40)
        self.assertEqual(radial["block_size"]["accepted"], "64 or 128")
        self.assertEqual(radial["decay_factor"]["type"], "number")
        self.assertTrue(all(field["help"] for block in blocks.values() for field in block["fields"]))
        table = self.succeed("backends", "--options").out
        self.assertIn("skip_softmax", table)
        self.assertIn("RAINFUSION_ATTN BLOCK_SPARSE_ATTN SPARGE_ATTN", table)
        lines = self.succeed("backends", "--options", "--format", "csv").out.splitlines()
        self.assertEqual(lines[0], "block,field,type,accepted,default,owners,help")

    def test_options_of_one_backend(self):
        document = self.succeed(
            "backends", "--options", "--backend", "RADIAL_ATTN", "--format", "json"
        ).json()
        self.assertEqual([block["name"] for block in document["blocks"]], [None, "radial"])
        names = [field["name"] for field in document["blocks"][0]["fields"]]
        self.assertNotIn("fastvideo_vsa_topk", names)
        self.fail_with(USAGE, "--options is the same on every device", "backends", "--options", "--device", "h200")

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
