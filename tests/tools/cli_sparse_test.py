"""Sparse patterns on the command line: check, bench, mask topk, explain and the examples."""

import os
import pathlib
import subprocess
import unittest
import xml.etree.ElementTree as ElementTree

from cli_support import DATA, SOURCE, UNSUPPORTED, USAGE, CliTest

EXAMPLES = pathlib.Path(os.environ["TEST_BINARY_DIR"]) / "examples" / "sparse"
RADIAL = "f32 b2 h2 s520 d16 lse=1 sparse=radial(frames=4,tokens=130,block=64)"


class SparseCheckTest(CliTest):
    def check(self, problem, *arguments):
        return self.succeed(
            "check", "--problem", problem, *arguments, "--format", "json"
        ).json()

    def test_every_pattern_runs_its_backend(self):
        for pattern, backend in [
            ("radial(frames=4,tokens=65,block=64)", "RADIAL_ATTN"),
            ("local(frames=4,tokens=65,block=64,window=1)", "LOCAL_SPARSE_ATTN"),
            ("random(density=0.4,q=64,kv=64,batch=2,heads=2)", "BLOCK_SPARSE_ATTN"),
            ("topk(sparsity=0.5,block=64)", "BLOCK_SPARSE_ATTN"),
        ]:
            report = self.check(f"bf16 b2 h2 s300 d16 lse=1 sparse={pattern}")
            self.assertEqual(report["receipt"]["backend"], backend)
            self.assertTrue(report["oracle"]["pass"] and report["oracle_lse"]["pass"], pattern)
            quality = report["quality"]
            self.assertEqual(quality["density"], report["receipt"]["density"])
            self.assertLessEqual(quality["recall_min"], quality["recall"] + 1e-6)
            self.assertLess(quality["recall"], 1 + 1e-4)
            self.assertGreater(quality["cosine"], 0.1)

    def test_every_block_on_loses_nothing(self):
        quality = self.check("f32 b1 h2 s300 d16 sparse=random(density=1)")["quality"]
        self.assertAlmostEqual(quality["recall_min"], 1, 5)
        self.assertEqual(quality["rel_l1"], 0)

    def test_other_backends_take_the_blocks(self):
        for backend in ["REFERENCE", "BLOCK_SPARSE_ATTN"]:
            report = self.check(RADIAL, "--backend", backend)
            self.assertEqual(report["receipt"]["backend"], backend)
            self.assertTrue(report["oracle"]["pass"])
        self.assertEqual(
            self.check("f32 b1 h1 s900 d8 sparse=topk", "--backend", "SPARGE_ATTN")["receipt"][
                "backend"
            ],
            "SPARGE_ATTN",
        )
        error = self.fail_with(
            UNSUPPORTED, "sparse", "check", "--problem", RADIAL, "--backend", "FLASH_ATTN"
        )
        self.assertEqual(error["reasons"][0]["code"], "sparse")

    def test_sweep_draws_a_curve(self):
        picture = self.folder / "curve.svg"
        reports = self.succeed(
            "check", "--problem", "f32 b1 h1 s2048 d16 sparse=radial(frames=8,block=64)",
            "--sweep", "decay=2,1,0.5", "--plot", picture, "--format", "json",
        ).json()
        densities = [report["quality"]["density"] for report in reports]
        self.assertEqual(densities, sorted(densities, reverse=True))
        self.assertIn("decay=0.5", reports[2]["problem"])
        texts = [text.text for text in ElementTree.parse(picture).getroot().findall(".//{*}text")]
        for label in ["mass kept", "cosine", "relative L1 error", "0.5"]:
            self.assertIn(label, texts)

    def test_given_tensors(self):
        reports = self.succeed(
            "check", "--input", DATA / "wan_t2v_attention.safetensors", "--prefix", "tap.attn.0.",
            "--sparse", "radial(frames=3,tokens=50,block=64)", "--format", "json",
        ).json()
        self.assertTrue(reports["oracle"]["pass"])
        self.assertEqual(reports["receipt"]["backend"], "RADIAL_ATTN")
        self.assertLess(reports["quality"]["density"], 1)
        self.assertGreater(reports["quality"]["recall"], 0.5)

    def test_flags_that_do_not_fit(self):
        self.fail_with(USAGE, "either --problem or --input", "check", "--problem", RADIAL,
                       "--input", "x")
        self.fail_with(USAGE, "--sweep needs PARAMETER=", "check", "--problem", RADIAL, "--sweep",
                       "decay")
        self.fail_with(USAGE, "--sweep needs a sparse pattern", "check", "--problem",
                       "f32 b1 h1 s8 d8", "--sweep", "decay=1")
        self.fail_with(USAGE, "--plot needs --sweep", "check", "--problem", RADIAL, "--plot", "x")
        self.fail_with(USAGE, "use random, radial, local or topk", "check", "--problem",
                       "f32 b1 h1 s8 d8 sparse=mask(most=1)")
        self.fail_with(USAGE, "radial needs frames", "check", "--problem",
                       "f32 b1 h1 s8 d8 sparse=radial")


class SparseBenchTest(CliTest):
    def test_dense_is_the_baseline(self):
        case = self.succeed(
            "bench", "--problem", RADIAL, "--repeat", 2, "--format", "json"
        ).json()["cases"][0]
        self.assertEqual(case["backend"], "RADIAL_ATTN")
        self.assertTrue(case["pass"])
        self.assertAlmostEqual(case["tflops_kept"], case["tflops"] * case["density"])
        (dense,) = case["baselines"]
        self.assertEqual(dense["name"], "dense")
        self.assertGreater(dense["memory_bytes"], 0)
        self.assertGreater(case["memory_bytes"], 0)


class TopkMaskTest(CliTest):
    PROBLEM = ["mask", "topk", "--problem", "f32 b2 h2 s500 sk=1500 d16", "--block", 64]

    def test_every_row_keeps_the_budget(self):
        report = self.succeed(*self.PROBLEM, "--sparsity", 0.6, "--format", "json").json()
        self.assertEqual((report["rows"], report["columns"]), (8, 24))
        self.assertEqual((report["row_min"], report["row_max"]), (16, 16))
        self.assertEqual(report["sparsity"], 0.6)
        self.assertIsNone(report["frames"])
        text = self.succeed(*self.PROBLEM, "--sparsity", 0.6).out
        self.assertEqual(text.splitlines(), report["mask"])
        other = self.succeed(*self.PROBLEM, "--sparsity", 0.6, "--head", 1).out
        self.assertNotEqual(text, other)

    def test_protected_keys_are_kept(self):
        lines = self.succeed(*self.PROBLEM, "--protected", 130).out.splitlines()
        for line in lines:
            self.assertTrue(line.startswith("###"))
            self.assertEqual(line.count("#"), 3 + 8)

    def test_flags_that_do_not_fit(self):
        self.fail_with(USAGE, "either --problem or --input", "mask", "topk")
        self.fail_with(USAGE, "the lengths come from", *self.PROBLEM, "--frames", 3)
        self.fail_with(USAGE, "--sparsity belongs to topk", "mask", "radial", "--frames", 3,
                       "--tokens-per-frame", 64, "--sparsity", 0.5)
        self.fail_with(USAGE, "--window belongs to local", *self.PROBLEM, "--window", 3)
        self.fail_with(USAGE, "there are 2 items and 2 heads", *self.PROBLEM, "--head", 2)


class SparseExampleTest(CliTest):
    def example(self, name, *arguments):
        process = subprocess.run(
            [EXAMPLES / f"fovea_sparse_{name}", *map(str, arguments)],
            cwd=SOURCE, capture_output=True, text=True, timeout=120,
        )
        self.assertEqual(process.returncode, 0, process.stdout + process.stderr)
        return process.stdout

    def test_the_configurations_of_the_guide(self):
        lines = self.example("guide").splitlines()
        self.assertIn("refused", lines[1])  # FLASH_ATTN_2 runs on CUDA
        self.assertIn("FLASH_ATTN", lines[3])
        self.assertIn("instead of RADIAL_ATTN", lines[3])
        self.assertIn("dense by schedule", lines[5])
        self.assertIn("ran: RADIAL_ATTN", lines[7])
        self.assertIn("density", lines[7])
        self.assertIn("refused", lines[9])

    def test_a_run_of_a_wan_shaped_model(self):
        out = self.example("wan_layer", 6, 64, 1, 3)
        # 40 steps of 3 layers; 28 steps of 2 layers are sparse.
        self.assertRegex(out, r"RADIAL_ATTN +56 calls, density 0\.\d+")
        self.assertRegex(out, r"FLASH_ATTN \(dense by schedule\) +64 calls, density 1\.0000")


if __name__ == "__main__":
    unittest.main()
