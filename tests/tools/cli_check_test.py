"""fovea check."""

import csv
import io
import unittest

from cli_support import DEVICE, UNSUPPORTED, USAGE, CliTest

FIELDS = {
    "schema",
    "role",
    "category",
    "source",
    "strictness",
    "problem",
    "threads",
    "time_ms",
    "tflops",
    "receipt",
    "oracle",
    "outputs",
    "seed",
    "oracle_rows",
}


class CheckTest(CliTest):
    def test_one_problem_is_one_object(self):
        document = self.succeed(
            "check", "--problem", "f32 b1 h2 s65 d32 lse=1 seed=7", "--format", "json"
        ).json()
        self.assertLessEqual(FIELDS, set(document))
        self.assertEqual(document["schema"], "fovea.check/1")
        self.assertEqual(document["seed"], 7)
        self.assertGreater(document["oracle_rows"], 0)
        self.assertEqual(document["problem"], "f32 b1 h2 s65 d32 lse=1 seed=7")
        self.assertTrue(document["oracle"]["pass"])
        self.assertEqual(document["oracle"]["tensor"], "out")
        self.assertLessEqual(document["oracle"]["rel_l2"], document["oracle"]["tolerance"])
        self.assertTrue(document["oracle_lse"]["pass"])
        self.assertEqual(document["outputs"]["out"], {"dtype": "f32", "shape": [1, 65, 2, 32]})
        self.assertEqual(document["outputs"]["lse"], {"dtype": "f32", "shape": [1, 2, 65]})

    def test_several_problems_are_an_array(self):
        document = self.succeed(
            "check",
            "--problem",
            "f32 b1 h1 s9 d16",
            "--problem",
            "bf16 b2 h4 s33 d64 hk=2 mask=causal",
            "--format",
            "json",
        ).json()
        self.assertEqual([entry["oracle"]["pass"] for entry in document], [True, True])
        self.assertIsNone(document[0]["outputs"]["lse"])

    def test_every_kind_of_problem(self):
        problems = [
            "f16 b2 h2 s40 d48 sk=17 mask=keys",
            "f32 b2 h2 s40 d48 mask=bool",
            "f32 b1 h2 s40 d48 mask=bias",
            "f32 b2 h2 s40 d24 kvlen=40,3 window=5,2",
            "f32 b1 h2 s30 d16 layout=packed docs=10:12,20:18 lse=1",
            "bf16 b1 h2 s40 d64 dv=32 layout=bhsd strides=bhsd_view",
            "f32 b1 h4 s21 d32 strides=fused_qkv",
            "f32 b1 h2 s5 d16 sk=0 lse=1",
        ]
        for problem in problems:
            with self.subTest(problem):
                outcome = self.fovea("check", "--problem", problem)
                self.assertEqual(outcome.code, 0, outcome.out + outcome.err)
                self.assertIn("pass", outcome.out)

    def test_backend_and_role(self):
        document = self.succeed(
            "check",
            "--problem",
            "f32 b1 h1 s9 d16",
            "--config",
            '{"per_role": {"cross": "REF"}}',
            "--role",
            "cross",
            "--format",
            "json",
        ).json()
        self.assertEqual(document["receipt"]["backend"], "REFERENCE")
        self.assertEqual(document["source"], "attention_config.per_role['cross']")
        self.assertEqual(document["strictness"], "require")

    def test_threads(self):
        document = self.succeed(
            "check", "--problem", "f32 b1 h1 s9 d16", "--threads", "1", "--format", "json"
        ).json()
        self.assertEqual(document["threads"], 1)

    def test_csv(self):
        text = self.succeed("check", "--problem", "f32 b1 h1 s9 d16", "--format", "csv").out
        (row,) = csv.DictReader(io.StringIO(text))
        self.assertEqual(row["problem"], "f32 b1 h1 s9 d16")
        self.assertEqual(row["pass"], "true")


class CheckErrorTest(CliTest):
    def test_no_problem(self):
        self.fail_with(USAGE, "fovea check needs --problem", "check")

    def test_bad_problems(self):
        for problem, message in [
            ("", "problem"),
            ("f32 b1 h1 s9", "d"),
            ("f32 b1 h1 s9 d16 msk=causal", "msk"),
            ("f32 b1 h1 s9 d16 d16", "column"),
            ("f32 b1 h3 s9 d16 hk=2", "heads_q"),
            ("f32 b1 h1 s9 d16 mask=causal window=0,4", "causal"),
        ]:
            with self.subTest(problem):
                self.fail_with(USAGE, message, "check", "--problem", problem)

    def test_unsupported(self):
        error = self.fail_with(
            UNSUPPORTED, "FLASH_ATTN_3", "check", "--problem", "f32 b1 h1 s9 d16", "--backend", "FA3"
        )
        self.assertTrue(error["reasons"])

    def test_no_memory(self):
        self.fail_with(
            DEVICE, "no memory for ", "check", "--problem", f"bf16 b1 h1 s1 d64 sk={2**40}"
        )

    def test_cuda_that_is_not_there(self):
        code, message = UNSUPPORTED, "--device cuda:99: this binary was built without CUDA"
        if self.succeed("version", "--format", "json").json()["cuda"]:
            code, message = DEVICE, "--device cuda:99: "
        error = self.fail_with(
            code, message, "check", "--problem", "f32 b1 h1 s9 d16", "--device", "cuda:99"
        )
        if code == DEVICE:
            self.assertRegex(error["message"], "NVIDIA driver|there is no cuda:99")

    def test_unknown_device(self):
        self.fail_with(USAGE, "tpu", "check", "--problem", "f32 b1 h1 s9 d16", "--device", "tpu")

    def test_threads(self):
        self.fail_with(
            USAGE,
            "--threads must be at least 0, not -2",
            "check",
            "--problem",
            "f32 b1 h1 s9 d16",
            "--threads",
            "-2",
        )


if __name__ == "__main__":
    unittest.main()
