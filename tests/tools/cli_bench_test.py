"""fovea bench."""

import csv
import io
import unittest
import xml.etree.ElementTree as ElementTree

from cli_support import USAGE, UNSUPPORTED, CliTest

CASE = {
    "problem",
    "backend",
    "path",
    "median_ms",
    "p10_ms",
    "p90_ms",
    "runs",
    "tflops",
    "tflops_kept",
    "density", "memory_bytes", "peak_fraction",
    "rel_l2",
    "pass",
    "baselines",
}


class BenchTest(CliTest):
    def test_document(self):
        document = self.succeed(
            "bench",
            "--problem",
            "f32 b1 h2 s96 d32",
            "--problem",
            "bf16 b1 h2 s64 d64 mask=causal",
            "--repeat",
            "3",
            "--format",
            "json",
        ).json()
        self.assertEqual(set(document), {"schema", "device", "isa", "threads", "cases"})
        self.assertEqual(document["schema"], "fovea.bench/1")
        self.assertEqual(document["device"], "cpu")
        dense, causal = document["cases"]
        for case in document["cases"]:
            self.assertEqual(set(case), CASE)
            self.assertEqual(case["runs"], 3)
            self.assertTrue(case["pass"])
            self.assertLessEqual(case["p10_ms"], case["median_ms"])
            self.assertLessEqual(case["median_ms"], case["p90_ms"])
            for baseline in case["baselines"]:
                self.assertEqual(set(baseline), {"name", "version", "median_ms", "ratio", "memory_bytes"})
                self.assertAlmostEqual(
                    baseline["ratio"], baseline["median_ms"] / case["median_ms"], places=6
                )
        self.assertEqual(
            [baseline["name"] for baseline in dense["baselines"]],
            ["reference_float64", "materialised_softmax"],
        )
        self.assertEqual(
            [baseline["name"] for baseline in causal["baselines"]], ["reference_float64"]
        )
        flops = 4 * 2 * 96 * 96 * 32
        self.assertAlmostEqual(
            dense["tflops"], flops / dense["median_ms"] / 1e9, delta=dense["tflops"] * 1e-6
        )

    def test_baselines_can_be_left_out(self):
        document = self.succeed(
            "bench",
            "--problem",
            "f32 b1 h1 s32 d16",
            "--no-baselines",
            "--repeat",
            "1",
            "--format",
            "json",
        ).json()
        self.assertEqual(document["cases"][0]["baselines"], [])

    def test_plot(self):
        path = self.folder / "bench.svg"
        self.succeed("bench", "--problem", "f32 b1 h2 s96 d32", "--repeat", "3", "--plot", path)
        root = ElementTree.parse(path).getroot()
        words = "\n".join(element.text or "" for element in root.findall(".//{*}text"))
        self.assertIn("f32 b1 h2 s96 d32", words)
        self.assertIn("materialised_softmax", words)
        for bar in root.findall(".//{*}rect"):
            self.assertGreaterEqual(float(bar.get("width")), 0)
            self.assertLessEqual(float(bar.get("x")) + float(bar.get("width")), 900)

    def test_roofline(self):
        path = self.folder / "roofline.svg"
        problems = ["--problem", "f32 b1 h2 s96 d32", "--problem", "f32 b1 h1 s64 d16 sk=7"]
        self.succeed("bench", *problems, "--repeat", "3", "--no-baselines", "--roofline", path)
        root = ElementTree.parse(path).getroot()
        words = "\n".join(element.text or "" for element in root.findall(".//{*}text"))
        for problem in problems[1::2]:
            self.assertIn(problem, words)
        points = root.findall(".//{*}circle")
        self.assertEqual(len(points), 2)
        for point in points:
            self.assertTrue(130 <= float(point.get("cx")) <= 864)
            self.assertTrue(110 <= float(point.get("cy")) <= 490)

    def test_table_and_csv(self):
        arguments = ["bench", "--problem", "f32 b1 h1 s32 d16", "--repeat", "2"]
        self.assertIn("x materialised_softmax", self.succeed(*arguments).out)
        rows = list(csv.DictReader(io.StringIO(self.succeed(*arguments, "--format", "csv").out)))
        self.assertEqual(
            [row["baseline"] for row in rows], ["reference_float64", "materialised_softmax"]
        )

    def test_errors(self):
        self.fail_with(USAGE, "fovea bench needs --problem", "bench")
        self.fail_with(
            USAGE,
            "--repeat must be at least 1, not 0",
            "bench",
            "--problem",
            "f32 b1 h1 s32 d16",
            "--repeat",
            "0",
        )
        self.fail_with(
            USAGE,
            "cannot write 'missing-folder/a.svg': No such file or directory",
            "bench",
            "--problem",
            "f32 b1 h1 s32 d16",
            "--plot",
            "missing-folder/a.svg",
        )
        self.fail_with(
            UNSUPPORTED, "SAGE_ATTN_3", "bench", "--problem", "f32 b1 h1 s32 d16", "--backend", "SAGE_ATTN_3"
        )


if __name__ == "__main__":
    unittest.main()
