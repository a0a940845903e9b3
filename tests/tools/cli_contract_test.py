"""fovea check --contract: the validation run and its record."""

import json
import pathlib
import subprocess
import sys
import unittest

from cli_support import SOURCE, UNSUPPORTED, USAGE, CliTest

KINDS = {"dense", "key padding", "unequal lengths", "packed", "replay"}
CASE = {
    "kind",
    "problem",
    "ran",
    "path",
    "instance",
    "max_abs",
    "rel_l2",
    "lse_max_abs",
    "outside",
    "form",
    "finite",
    "inputs_unchanged",
    "pass",
}


class ContractTest(CliTest):
    def test_a_run_writes_a_record_that_counts(self):
        file = self.folder / "record.json"
        document = self.succeed(
            "check", "--contract", "--backend", "FLASH_ATTN", "--device", "cpu", "--record", file,
            "--format", "json",
        ).json()  # fmt: skip
        self.assertEqual(document, json.loads(file.read_text()))
        self.assertEqual(document["schema"], "fovea.validation/1")
        self.assertEqual(document["backend"], "FLASH_ATTN")
        self.assertTrue(document["path"].startswith("cpu."))
        self.assertEqual((document["platform"], document["device_class"]), ("cpu", "cpu"))
        for key in ("device", "compiler", "fovea", "date", "facts"):
            self.assertTrue(document[key], key)
        self.assertTrue(document["pass"])
        self.assertFalse(document["captured"])
        self.assertEqual({case["kind"] for case in document["cases"]}, KINDS)
        heads = set()
        for case in document["cases"]:
            self.assertEqual(set(case), CASE)
            self.assertTrue(case["pass"], case)
            self.assertEqual(case["outside"], 0)
            heads |= {word for word in case["problem"].split() if word.startswith(("d", "dv="))}
        self.assertLessEqual({"d32", "d64", "d80", "dv=48", "d192", "dv=128", "d256"}, heads)
        self.check_record(document)

    def check_record(self, document):
        """The script that admits records takes this one, and not when a case failed."""
        sys.path.insert(0, str(SOURCE / "scripts"))
        import check_validation  # noqa: PLC0415

        name = f"{document['path']}-cpu.json"
        self.assertEqual(check_validation.faults(name, json.dumps(document)), [])
        document["cases"][0]["pass"] = False
        self.assertTrue(check_validation.faults(name, json.dumps(document)))

    def test_the_reference_refuses_nothing_either(self):
        table = self.succeed("check", "--contract", "--backend", "REFERENCE").out
        self.assertIn("0 failed, 0 refused", table)

    def test_a_backend_that_cannot_run_leaves_no_figures(self):
        outcome = self.fovea("check", "--contract", "--backend", "FLASH_ATTN_3")
        self.assertEqual(outcome.code, UNSUPPORTED)
        self.assertIn("0 passed, 0 failed", outcome.out)
        self.assertIn("refused: ", outcome.out)

    def test_errors(self):
        self.fail_with(
            USAGE, "--contract has problems of its own", "check", "--contract", "--problem", "f32 b1 h1 s1 d64"
        )
        self.fail_with(USAGE, "--record needs --contract", "check", "--record", "x.json")
        self.fail_with(USAGE, "accepted", "check", "--contract", "--device", "npu")
        missing = self.folder / "no" / "record.json"
        self.fail_with(
            USAGE, "cannot be written", "check", "--contract", "--backend", "FA3", "--record", missing
        )


class RecordsTest(unittest.TestCase):
    def test_the_committed_records_count(self):
        script = pathlib.Path(SOURCE) / "scripts" / "check_validation.py"
        result = subprocess.run([sys.executable, script], capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)


if __name__ == "__main__":
    unittest.main()
