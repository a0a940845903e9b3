"""fovea run."""

import csv
import io
import math
import shutil
import struct
import unittest

from cli_support import (
    COMPARISON_FAILED,
    DATA,
    OK,
    UNSUPPORTED,
    USAGE,
    CliTest,
    floats,
    read_floats,
    read_safetensors,
    write_safetensors,
)

WAN = DATA / "wan_t2v_attention.safetensors"
QWEN = DATA / "qwen_image_attention.safetensors"

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
    "compare",
    "outputs",
}
RECEIPT = {
    "backend",
    "provider",
    "path",
    "instance",
    "device",
    "isa",
    "compute",
    "padding",
    "copies",
    "density",
    "deterministic",
    "compilation_mode",
    "workspace_bytes",
    "fallback",
}
COMPARE = {
    "tensor",
    "max_abs",
    "rel_l1",
    "rel_l2",
    "cosine",
    "nonfinite_mismatches",
    "tolerance",
    "pass",
}


class RunTest(CliTest):
    def run_json(self, *arguments, code=OK, **keywords):
        outcome = self.fovea("run", *arguments, "--format", "json", **keywords)
        self.assertEqual(outcome.code, code, outcome.err)
        return outcome.json()

    def uniform(self, name="in.safetensors", **extra):
        """q = k = 0 and v[j] = j: the output is the mean index of the visible keys."""
        keys, queries = 8, 3
        path = self.folder / name
        tensors = {
            "q": ("F32", [1, queries, 1, 4], floats([0] * 4 * queries)),
            "k": ("F32", [1, keys, 1, 4], floats([0] * 4 * keys)),
            "v": ("F32", [1, keys, 1, 1], floats(range(keys))),
        }
        tensors.update(extra)
        write_safetensors(path, tensors)
        return path

    def assert_values(self, expected, *arguments):
        """The first output of a run, within a few roundings."""
        values = read_floats(self.output_of(*arguments)["out"][2])
        self.assertEqual(len(values), len(expected))
        for got, wanted in zip(values, expected):
            self.assertAlmostEqual(got, wanted, delta=1e-6 * max(1, abs(wanted)))

    def output_of(self, *arguments):
        path = self.folder / "out.safetensors"
        self.succeed("run", *arguments, "--output", path)
        return read_safetensors(path)

    def test_captured_call_agrees_with_the_model(self):
        document = self.run_json("--input", WAN, "--prefix", "tap.attn.0.", "--expect", "out")
        self.assertLessEqual(FIELDS, set(document))
        self.assertEqual(document["schema"], "fovea.run/1")
        self.assertEqual(document["role"], "self")
        self.assertIsNone(document["category"])
        self.assertEqual(document["source"], "platform default")
        self.assertIsNone(document["strictness"])
        self.assertTrue(document["problem"].startswith("f32 b2 h4 s150 d32"))
        self.assertEqual(set(document["time_ms"]), {"median", "min", "max", "runs"})
        self.assertEqual(document["time_ms"]["runs"], 5)
        self.assertLessEqual(RECEIPT, set(document["receipt"]))
        self.assertEqual(set(document["receipt"]["compute"]), {"qk", "pv", "accumulate"})
        self.assertEqual(set(document["receipt"]["padding"]), {"head_dim", "seq_kv"})
        self.assertEqual(document["receipt"]["backend"], "FLASH_ATTN")
        self.assertEqual(set(document["compare"]), COMPARE)
        self.assertEqual(document["compare"]["tensor"], "tap.attn.0.out")
        self.assertTrue(document["compare"]["pass"])
        self.assertLessEqual(document["compare"]["rel_l2"], 2e-6)
        self.assertEqual(
            document["outputs"], {"out": {"dtype": "f32", "shape": [2, 150, 4, 32]}, "lse": None}
        )

    def test_hole_in_a_padding_mask(self):
        document = self.run_json("--input", QWEN, "--prefix", "tap.attn.0.", "--expect", "out")
        self.assertTrue(document["compare"]["pass"])
        self.assertIn("mask=", document["problem"])

    def test_expected_tensor_without_the_prefix(self):
        path = self.folder / "in.safetensors"
        tensors = {f"a.{name}": data for name, data in read_safetensors(self.uniform()).items()}
        tensors["wanted"] = ("F32", [1, 3, 1, 1], floats([3.5] * 3))
        write_safetensors(path, tensors)
        document = self.run_json("--input", path, "--prefix", "a.", "--expect", "wanted")
        self.assertEqual(document["compare"]["tensor"], "wanted")

    def test_metadata(self):
        path = self.uniform()
        self.assert_values([1.5] * 3, "--input", path, "--metadata", '{"valid_kv_length": 4}')
        stated = self.folder / "metadata.json"
        stated.write_text('{"full_attn_spans": [[5, 6]]}')
        self.assert_values([2.5, 3.0, 3.5], "--input", path, "--metadata", stated)
        document = self.run_json("--input", path, "--metadata", '{"packed_padding": {"q_length": 2, "kv_length": 4}}')
        self.assertEqual(document["receipt"]["backend"], "FLASH_ATTN")
        self.fail_with(
            USAGE, "metadata: valid_length: unknown key", "run", "--input", path, "--metadata", '{"valid_length": 4}'
        )
        error = self.fail_with(
            USAGE, "valid_kv_length", "run", "--input", path, "--metadata", '{"valid_kv_length": 9}'
        )
        self.assertEqual(error["reasons"][0]["accepted"], "0..8")
        error = self.fail_with(
            UNSUPPORTED, "kv_cache_dtype", "run", "--input", path, "--metadata", '{"kv_cache_dtype": "fp8"}'
        )
        self.assertEqual(error["reasons"][0]["field"], "kv_cache_dtype")
        self.fail_with(
            USAGE,
            "metadata file 'nowhere.json': there is no such file",
            "run",
            "--input",
            path,
            "--metadata",
            "nowhere.json",
        )

    def test_output_file(self):
        tensors = self.output_of("--input", self.uniform(), "--lse")
        self.assertEqual(set(tensors), {"out", "lse"})
        self.assertEqual(tensors["out"][:2], ("F32", [1, 3, 1, 1]))
        for value in read_floats(tensors["out"][2]):
            self.assertAlmostEqual(value, 3.5, places=5)
        self.assertEqual(tensors["lse"][:2], ("F32", [1, 1, 3]))
        for value in read_floats(tensors["lse"][2]):
            self.assertAlmostEqual(value, math.log(8), places=6)
        self.assertEqual(set(self.output_of("--input", self.uniform())), {"out"})

    def test_causal_and_window(self):
        path = self.uniform()
        self.assert_values([2.5, 3.0, 3.5], "--input", path, "--causal")
        self.assert_values([6.0, 6.5, 7.0], "--input", path, "--window", "0,-1")
        self.assert_values([2.5, 3.0, 3.5], "--input", path, "--window", "-1,0")

    def test_key_lengths(self):
        path = self.uniform(kv_lengths=("I32", [1], struct.pack("<i", 3)))
        self.assert_values([1.0] * 3, "--input", path)

    def test_mask(self):
        path = self.uniform(mask=("BOOL", [1, 8], bytes([0, 1, 0, 1, 0, 0, 0, 0])))
        self.assert_values([2.0] * 3, "--input", path)

    def test_layout_bhsd(self):
        path = self.folder / "in.safetensors"
        write_safetensors(
            path,
            {
                "q": ("F32", [1, 1, 2, 4], floats([0] * 8)),
                "k": ("F32", [1, 1, 5, 4], floats([0] * 20)),
                "v": ("F32", [1, 1, 5, 1], floats(range(5))),
            },
        )
        self.assert_values([2.0] * 2, "--input", path, "--layout", "BNSD")
        tensors = self.output_of("--input", path, "--layout", "BNSD")
        self.assertEqual(tensors["out"][1], [1, 1, 2, 1])

    def test_packed_with_either_name_of_the_key_offsets(self):
        for name in ["cu_seqlens_kv", "cu_seqlens_k"]:
            path = self.folder / f"{name}.safetensors"
            offsets = struct.pack("<3i", 0, 2, 5)
            write_safetensors(
                path,
                {
                    "q": ("F32", [5, 1, 4], floats([0] * 20)),
                    "k": ("F32", [5, 1, 4], floats([0] * 20)),
                    "v": ("F32", [5, 1, 1], floats(range(5))),
                    "cu_seqlens_q": ("I32", [3], offsets),
                    name: ("I32", [3], offsets),
                },
            )
            self.assert_values([0.5, 0.5, 3.0, 3.0, 3.0], "--input", path)

    def test_scale_changes_the_result(self):
        arguments = ["--input", WAN, "--prefix", "tap.attn.0.", "--expect", "out"]
        self.assertFalse(
            self.run_json(*arguments, "--scale", "0.5", code=COMPARISON_FAILED)["compare"]["pass"]
        )

    def test_lse_is_compared(self):
        path = self.uniform(expected_lse=("F32", [1, 1, 3], floats([math.log(8)] * 3)))
        document = self.run_json("--input", path, "--expect-lse", "expected_lse")
        self.assertTrue(document["compare_lse"]["pass"])
        self.assertIsNone(document["compare"])
        path = self.uniform(expected_lse=("F32", [1, 1, 3], floats([2.0] * 3)))
        self.run_json("--input", path, "--expect-lse", "expected_lse", code=COMPARISON_FAILED)

    def test_non_finite_figures_are_strings(self):
        path = self.uniform(expected=("F32", [1, 3, 1, 1], floats([math.inf] * 3)))
        document = self.run_json("--input", path, "--expect", "expected", code=COMPARISON_FAILED)
        self.assertEqual(document["compare"]["nonfinite_mismatches"], 3)

    def test_tolerance(self):
        path = self.uniform(expected=("F32", [1, 3, 1, 1], floats([3.51] * 3)))
        arguments = ["--input", path, "--expect", "expected"]
        outcome = self.fovea("run", *arguments)
        self.assertEqual(outcome.code, COMPARISON_FAILED)
        self.assertIn("FAIL", outcome.out)
        self.assertEqual(
            self.run_json(*arguments, "--tolerance", "0.01")["compare"]["tolerance"], 0.01
        )

    def test_role_category_and_config(self):
        document = self.run_json(
            "--input",
            WAN,
            "--prefix",
            "tap.attn.1.",
            "--config",
            '{"per_role": {"cross": "SDPA"}}',
            "--role",
            "wan.cross.text",
            "--category",
            "cross",
            "--repeat",
            "1",
        )
        self.assertEqual(document["category"], "cross")
        self.assertEqual(document["receipt"]["backend"], "TORCH_SDPA")
        self.assertEqual(document["strictness"], "require")

    def test_fallback_stands_in_the_receipt(self):
        document = self.run_json(
            "--input",
            self.uniform(),
            "--config.default.backend",
            "CUDNN_ATTN",
            "--config.default.strictness",
            "prefer",
        )
        fallback = document["receipt"]["fallback"]
        self.assertEqual(fallback["from"], "CUDNN_ATTN")
        self.assertTrue(fallback["reasons"])
        self.assertEqual(document["receipt"]["backend"], "FLASH_ATTN")

    def test_csv(self):
        text = self.succeed("run", "--input", self.uniform(), "--format", "csv").out
        (row,) = csv.DictReader(io.StringIO(text))
        self.assertEqual(row["backend"], "FLASH_ATTN")
        self.assertEqual(row["pass"], "")

    def test_log_goes_to_standard_error(self):
        outcome = self.succeed(
            "run", "--input", self.uniform(), "--log-level", "debug", "--format", "json"
        )
        outcome.json()


class RunErrorTest(CliTest):
    def test_no_input(self):
        self.fail_with(USAGE, "fovea run needs --input", "run")

    def test_missing_file(self):
        self.fail_with(USAGE, "missing.safetensors", "run", "--input", "missing.safetensors")

    def test_not_a_safetensors_file(self):
        self.fail_with(USAGE, "LICENSE", "run", "--input", "LICENSE")

    def test_truncated_file(self):
        path = self.folder / "cut.safetensors"
        path.write_bytes(WAN.read_bytes()[:5000])
        self.fail_with(USAGE, "cut.safetensors", "run", "--input", path)

    def test_wrong_prefix_lists_the_prefixes(self):
        error = self.fail_with(USAGE, "no tensor 'q'", "run", "--input", WAN)
        self.assertIn("--prefix tap.attn.0.", error["message"])
        self.fail_with(USAGE, "no tensor 'tap.attn.7.q'", "run", "--input", WAN, "--prefix", "tap.attn.7.")

    def test_missing_expected_tensor(self):
        self.fail_with(
            USAGE,
            "no tensor 'tap.attn.0.ot' or 'ot'",
            "run",
            "--input",
            WAN,
            "--prefix",
            "tap.attn.0.",
            "--expect",
            "ot",
        )

    def test_shape_of_the_expected_tensor(self):
        self.fail_with(
            USAGE,
            "tap.attn.1.k",
            "run",
            "--input",
            WAN,
            "--prefix",
            "tap.attn.0.",
            "--expect",
            "tap.attn.1.k",
        )

    def test_wrong_shapes(self):
        path = self.folder / "in.safetensors"
        write_safetensors(
            path,
            {
                "q": ("F32", [1, 2, 1, 4], floats([0] * 8)),
                "k": ("F32", [1, 2, 1, 5], floats([0] * 10)),
                "v": ("F32", [1, 2, 1, 5], floats([0] * 10)),
            },
        )
        self.fail_with(USAGE, "k", "run", "--input", path)

    def test_wrong_types(self):
        path = self.folder / "in.safetensors"
        integers = struct.pack("<8i", *range(8))
        tensor = ("I32", [1, 2, 1, 4], integers)
        write_safetensors(path, {"q": tensor, "k": tensor, "v": tensor})
        self.fail_with(USAGE, "i32", "run", "--input", path)

    def test_values(self):
        arguments = ["run", "--input", WAN, "--prefix", "tap.attn.0."]
        self.fail_with(USAGE, "scale", *arguments, "--scale", "-1")
        self.fail_with(
            USAGE, "--window needs LEFT,RIGHT", *arguments, "--window", "3"
        )
        self.fail_with(USAGE, "--window needs LEFT,RIGHT", *arguments, "--window", "-2,0")
        self.fail_with(USAGE, "causal", *arguments, "--causal", "--window", "1,1")
        self.fail_with(
            USAGE,
            "--layout 'bsdh' is not a layout (accepted: bshd, bhsd, packed)",
            *arguments,
            "--layout",
            "bsdh",
        )
        self.fail_with(USAGE, "--repeat must be at least 1", *arguments, "--repeat", "0")
        self.fail_with(USAGE, "--tolerance", *arguments, "--expect", "out", "--tolerance", "-1")
        self.fail_with(USAGE, "--tolerance needs --expect", *arguments, "--tolerance", "1")

    def test_unsupported_backend(self):
        error = self.fail_with(
            UNSUPPORTED,
            "FLASH_ATTN_3",
            "run",
            "--input",
            WAN,
            "--prefix",
            "tap.attn.0.",
            "--backend",
            "FA3",
        )
        self.assertEqual(error["reasons"][0].keys() >= {"code", "field", "got", "message"}, True)

    def test_output_folder_does_not_exist(self):
        self.fail_with(
            USAGE,
            "missing-folder/out.safetensors",
            "run",
            "--input",
            WAN,
            "--prefix",
            "tap.attn.0.",
            "--output",
            "missing-folder/out.safetensors",
        )

    def test_output_must_not_replace_the_input(self):
        path = self.folder / "in.safetensors"
        shutil.copy(WAN, path)
        self.fail_with(
            USAGE,
            "--output is the input file",
            "run",
            "--input",
            path,
            "--prefix",
            "tap.attn.0.",
            "--output",
            path,
        )
        self.assertEqual(path.read_bytes(), WAN.read_bytes())


if __name__ == "__main__":
    unittest.main()
