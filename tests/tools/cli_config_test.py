"""fovea config, and how a configuration reaches the other verbs."""

import json
import unittest

from cli_support import USAGE, CliTest


class ConfigTest(CliTest):
    def print_json(self, *arguments, **keywords):
        document = self.succeed("config", "print", *arguments, "--format", "json", **keywords).json()
        self.assertEqual(set(document), {"schema", "valid", "entries", "config", "schedule"})
        self.assertEqual(document["schema"], "fovea.config/1")
        return document["config"]

    def test_prints_the_normalised_form(self):
        config = self.print_json("--config", '{"per_role": {"wan": {"cross": "sdpa"}}}')
        self.assertEqual(config["per_role"]["wan.cross"]["backend"], "TORCH_SDPA")

    def test_table_is_the_configuration_itself(self):
        text = self.succeed("config", "print", "--backend", "fa").out
        self.assertEqual(json.loads(text)["default"]["backend"], "FLASH_ATTN")

    def test_reads_a_file(self):
        path = self.folder / "attention.json"
        path.write_text('{"default": "FLASH_ATTN"}')
        self.assertEqual(self.print_json("--config", path)["default"]["backend"], "FLASH_ATTN")

    def test_flags_beat_the_text(self):
        config = self.print_json(
            "--config",
            '{"default": "TORCH_SDPA"}',
            "--config.default.backend",
            "FLASH_ATTN",
            "--config.per_role.cross.backend=REFERENCE",
        )
        self.assertEqual(config["default"]["backend"], "FLASH_ATTN")
        self.assertEqual(config["per_role"]["cross"]["backend"], "REFERENCE")

    def test_environment_only_without_a_default(self):
        environment = {"FOVEA_BACKEND": " Flash_Attn "}
        self.assertEqual(
            self.print_json(environment=environment)["default"]["backend"], "FLASH_ATTN"
        )
        self.assertEqual(
            self.print_json("--backend", "SDPA", environment=environment)["default"]["backend"],
            "TORCH_SDPA",
        )

    def test_check_counts_entries(self):
        outcome = self.succeed("config", "check", "--config", '{"default": "FA"}')
        self.assertEqual(outcome.out, "valid: 1 entry\n")

    def test_csv(self):
        lines = self.succeed("config", "print", "--backend", "FA", "--format", "csv").out.splitlines()
        self.assertEqual(lines[0], "entry,backend,strictness,spec")
        self.assertTrue(lines[1].startswith("default,FLASH_ATTN,require,"))


class ConfigErrorTest(CliTest):
    def test_action(self):
        self.fail_with(
            USAGE, "fovea config needs an action (accepted: print, check), not nothing", "config"
        )
        self.fail_with(
            USAGE, "fovea config needs an action (accepted: print, check), not 'show'", "config", "show"
        )

    def test_missing_file(self):
        self.fail_with(USAGE, "missing.json", "config", "check", "--config", "missing.json")

    def test_bad_json(self):
        self.fail_with(USAGE, "config", "config", "check", "--config", '{"default": ')

    def test_unknown_key_suggests(self):
        self.fail_with(
            USAGE,
            "did you mean 'per_role'?",
            "config",
            "check",
            "--config",
            '{"per_rol": {"self": "FA"}}',
        )

    def test_misspelt_backend_suggests(self):
        self.fail_with(
            USAGE, "did you mean 'FLASH_ATTN'?", "config", "check", "--backend", "FLASH_ATN"
        )

    def test_backend_conflicts_with_a_default(self):
        self.fail_with(
            USAGE,
            "default",
            "config",
            "check",
            "--backend",
            "FA",
            "--config",
            '{"default": "SDPA"}',
        )

    def test_wrong_type(self):
        self.fail_with(USAGE, "default", "config", "check", "--config", '{"default": 3}')

    def test_empty_backend(self):
        self.fail_with(
            USAGE, "--backend needs the name of a backend", "config", "check", "--backend", " "
        )


if __name__ == "__main__":
    unittest.main()
