"""fovea check --contract: the validation run and its record."""

import json
import os
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
        self.assertLessEqual({"d32", "d64", "d80", "dv=48", "d96", "d128", "d192", "dv=128", "d256"}, heads)
        self.check_record(document)

    def test_sparse_names_run_sparse_cases(self):
        for backend, patterns in (
            ("RADIAL_ATTN", {"radial"}),
            ("LOCAL_SPARSE_ATTN", {"local window"}),
            ("BLOCK_SPARSE_ATTN", {"radial", "local window", "block lists", "top-k"}),
            ("SPARGE_ATTN", {"top-k"}),
        ):
            with self.subTest(backend=backend):
                document = self.succeed(
                    "check", "--contract", "--backend", backend, "--format", "json"
                ).json()  # fmt: skip
                self.assertEqual(document["backend"], backend)
                self.assertTrue(document["pass"])
                kinds = set()
                for case in document["cases"]:
                    self.assertTrue(case["ran"], case)
                    self.assertTrue(case["pass"], case)
                    self.assertTrue(case["finite"] and case["form"] and case["inputs_unchanged"], case)
                    self.assertIn("sparse=", case["problem"])
                    kinds.add(case["kind"])
                wanted = {"replay"}
                for pattern in patterns:
                    wanted |= {pattern, f"{pattern} key padding"}
                    if pattern in ("block lists", "top-k"):
                        wanted.add(f"{pattern} unequal lengths")
                self.assertEqual(kinds, wanted)

    def check_record(self, document):
        """The script that admits records takes this one, and not when a case failed."""
        sys.path.insert(0, str(SOURCE / "scripts"))
        import check_validation  # noqa: PLC0415

        name = "FLASH_ATTN-cpu.json"
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
        error = self.fail_with(UNSUPPORTED, "fovea_device_access", "check", "--contract", "--device", "npu")
        self.assertIn("python3 -m fovea.check", error["reasons"][0]["remedy"])
        accepted = "(accepted: cpu, cuda[:N], rocm[:N], npu[:N], xpu[:N], musa[:N], or one that a plugin adds)"
        for device in ("npu:one", "tpu", "cpu:5", "cpu:0", "cuda:x", "cuda:-1", "cpux", ""):
            message = f"device '{device}' is none to validate on {accepted}"
            self.fail_with(USAGE, message, "check", "--contract", "--device", device)
        missing = self.folder / "no" / "record.json"
        self.fail_with(
            USAGE, "cannot be written", "check", "--contract", "--backend", "FA3", "--record", missing
        )


class ExplainRecordTest(CliTest):
    """What explain says of the committed records."""

    def entry(self, *arguments):
        (entry,) = self.succeed("explain", *arguments, "--format", "json").json()["entries"]
        return entry

    def test_what_no_run_holds_is_not_to_be_validated(self):
        arguments = ("--device", "h200", "--backend", "FLASH_ATTN", "--problem", "f16 b1 h2 s64 d128")
        entry = self.entry(*arguments)
        self.assertEqual((entry["support"], entry["promote"]), ("unmigrated", None))
        command = "fovea check --backend FLASH_ATTN --device cuda --problem 'f16 b1 h2 s64 d128'"
        self.assertEqual(entry["reasons"][0]["remedy"], f"compare it with {command}")
        self.assertIn(command, self.succeed("explain", *arguments).out)

    def test_a_record_of_another_version_is_named(self):
        arguments = ("--device", "h200", "--backend", "CUDNN_ATTN", "--problem", "bf16 b1 h2 s64 d128")
        self.assertEqual(self.entry(*arguments)["support"], "supported")
        out = self.succeed("explain", *arguments, "--facts", "CUDNN=9.14").out
        self.assertIn("its validation record is of cudnn 9.19.0, not of 9.14", out)

    def test_a_record_without_the_rule_asks_for_the_kernel(self):
        out = self.succeed(
            "explain", "--backend", "FLASH_ATTN_4", "--device", "h200", "--facts", "fa4=4.0.0b36",
            "--problem", "bf16 b1 h24 s4096 d128",
        ).out  # fmt: skip
        self.assertIn("bind the package's kernel", out)
        self.assertNotIn("fovea.check", out)


class DoubleTest(CliTest):
    """Devices that are not here, through a plugin: its memory and its kernels."""

    def contract(self, device, **environment):
        folder = pathlib.Path(os.environ["TEST_BINARY_DIR"]) / "tests" / "plugin" / "device_double"
        file = self.folder / "record.json"
        outcome = self.fovea(
            "check", "--contract", "--backend", "FLASH_ATTN", "--device", device, "--record", file,
            environment={"FOVEA_PLUGIN_PATH": str(folder), **environment},
        )  # fmt: skip
        self.assertEqual(outcome.code, 0, outcome.out + outcome.err)
        record = json.loads(file.read_text())
        paths = {}
        for case in record["cases"]:
            if case["ran"]:
                self.assertTrue(case["pass"], case)
                paths.setdefault(case["path"], set()).add(case["kind"])
        return record, paths

    def test_npu(self):
        record, paths = self.contract("npu")
        self.assertEqual(record["provider"], "package mindiesd 3.1.0")
        self.assertEqual((record["platform"], record["device"], record["driver"]), ("npu", "double of an NPU", "1.2.3"))
        self.assertFalse(record["captured"])
        self.assertEqual(
            paths,
            {
                "npu_dense": {"dense", "unequal lengths", "replay"},
                "npu_masked": {"key padding", "unequal lengths", "replay"},
                "npu_packed_varlen": {"packed", "replay"},
            },
        )

    def test_npu_with_laser_attention(self):
        record, paths = self.contract("npu:0", DOUBLE_LASER="1")
        self.assertEqual(paths["npu_prefix_kv_slice"], {"packed", "replay"})
        self.assertTrue(all(case["packed_padding"]["kv_length"] for case in record["cases"]
                            if case["path"] == "npu_prefix_kv_slice"))  # fmt: skip

    def test_rocm(self):
        record, paths = self.contract("rocm")
        self.assertEqual((record["device_class"], record["captured"]), ("gfx942", True))
        self.assertEqual(set(paths), {"rocm_dense", "rocm_masked_varlen", "rocm_packed_varlen"})

    def test_what_the_access_refuses_is_an_error(self):
        folder = pathlib.Path(os.environ["TEST_BINARY_DIR"]) / "tests" / "plugin" / "device_double"
        outcome = self.fovea(
            "check", "--contract", "--device", "npu:1", environment={"FOVEA_PLUGIN_PATH": str(folder)}
        )
        self.assertEqual(outcome.code, 4)
        self.assertIn("there is one device", outcome.err)

    def test_every_printed_command_is_one_that_is_understood(self):
        """Each command that explain prints for the presets starts, and ends for lack of the device only."""
        commands = set()
        for device in ("h200", "b200", "mi300x", "ascend910b"):
            for backend in ("FLASH_ATTN", "FLASH_ATTN_3", "CUDNN_ATTN", "RADIAL_ATTN", "TORCH_SDPA"):
                entry = self.fovea(
                    "explain", "--device", device, "--backend", backend, "--problem", "bf16 b1 h2 s64 d64 mask=causal",
                    "--format", "json",
                ).json()["entries"][0]  # fmt: skip
                if entry["promote"]:
                    commands.add(entry["promote"])
        self.assertGreater(len(commands), 4)
        for command in sorted(commands):
            words = command.split()
            if words[0] != "fovea":
                self.assertEqual(words[:3], ["python3", "-m", "fovea.check"])
                continue
            outcome = self.fovea(*words[1:], folder=self.folder)
            if outcome.code not in (0, 1):
                self.assertIn(outcome.code, (UNSUPPORTED, 4), command + outcome.err)


class RecordsTest(unittest.TestCase):
    def test_the_committed_records_count(self):
        script = pathlib.Path(SOURCE) / "scripts" / "check_validation.py"
        result = subprocess.run([sys.executable, script], capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)


if __name__ == "__main__":
    unittest.main()
