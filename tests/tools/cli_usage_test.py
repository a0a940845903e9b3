"""Help, usage errors, formats and the small verbs."""

import os
import pty
import shlex
import subprocess
import unittest

from cli_support import BINARY, SOURCE, USAGE, CliTest

VERBS = ["run", "check", "bench", "explain", "backends", "devices", "mask", "config", "version"]


def examples(text):
    """The command lines below "Example:"."""
    lines = text.split("Example:\n", 1)[1].splitlines()
    return [shlex.split(line) for line in lines if line.startswith("  fovea ")]


class HelpTest(CliTest):
    def test_overview_lists_every_verb_and_the_exit_codes(self):
        text = self.succeed("--help").out
        for verb in VERBS:
            self.assertRegex(text, rf"\n  {verb} +\S")
        self.assertIn("Exit codes: 0 ok", text)
        self.assertEqual(text, self.succeed("help").out)
        self.assertEqual(text, self.succeed("-h").out)

    def test_every_example_works(self):
        (self.folder / "examples").symlink_to(SOURCE / "examples")
        for verb in [[], *([verb] for verb in VERBS)]:
            found = examples(self.succeed(*verb, "--help").out)
            self.assertTrue(found, verb)
            for words in found:
                with self.subTest(words):
                    self.succeed(*words[1:], folder=self.folder)

    def test_help_wins_over_other_flags(self):
        self.assertIn("--prefix", self.succeed("run", "--input", "missing", "--help").out)


class UsageErrorTest(CliTest):
    def test_no_verb(self):
        outcome = self.fovea()
        self.assertEqual((outcome.code, outcome.out), (USAGE, ""))
        self.assertEqual(outcome.err, "error: fovea: no verb given; see 'fovea --help'\n")

    def test_unknown_verb_lists_verbs_and_suggests(self):
        self.fail_with(
            USAGE,
            "fovea: unknown verb 'explian' (accepted: run, check, bench, explain, backends, "
            "devices, mask, config, version); did you mean 'explain'?",
            "explian",
        )

    def test_unknown_flag_suggests(self):
        self.fail_with(
            USAGE,
            "fovea run: unknown option '--inptu'; see 'fovea run --help'; "
            "did you mean '--input'?",
            "run",
            "--inptu=x",
        )

    def test_unexpected_argument(self):
        self.fail_with(
            USAGE,
            "fovea version: unexpected argument 'now'; see 'fovea version --help'",
            "version",
            "now",
        )

    def test_flag_given_twice(self):
        self.fail_with(
            USAGE, "fovea run: --input is given more than once", "run", "--input", "a", "--input", "b"
        )

    def test_flag_without_its_value(self):
        self.fail_with(USAGE, "--input", "run", "--input")

    def test_numbers(self):
        self.fail_with(
            USAGE,
            "fovea run: --repeat needs a whole number, not 'five'",
            "run",
            "--repeat",
            "five",
        )
        self.fail_with(
            USAGE, "fovea run: --scale needs a number, not 'nan'", "run", "--scale", "nan"
        )

    def test_format(self):
        outcome = self.fovea("version", "--format", "jsn")
        self.assertEqual(outcome.code, USAGE)
        self.assertEqual(
            outcome.err,
            "error: --format 'jsn' is not a format (accepted: table, json, csv); "
            "did you mean 'json'?\n",
        )

    def test_log_level(self):
        self.fail_with(
            USAGE,
            "--log-level 'loud' is not a level (accepted: debug, info, warning, error, off)",
            "version",
            "--log-level",
            "loud",
        )

    def test_config_flags_need_a_value_and_a_verb_that_takes_them(self):
        outcome = self.fovea("config", "print", "--config.default.backend")
        self.assertEqual(outcome.code, USAGE)
        self.assertIn("--config.default.backend needs a value", outcome.err)
        self.fail_with(
            USAGE,
            "fovea version takes no configuration, so --config.default has no place here",
            "version",
            "--config.default",
            "FA2",
        )


class SmallVerbTest(CliTest):
    def test_version(self):
        document = self.succeed("version", "--format", "json").json()
        self.assertEqual(document["schema"], "fovea.version/1")
        self.assertRegex(document["version"], r"^\d+\.\d+\.\d+$")
        self.assertIn(document["version"], self.succeed("version").out)
        self.assertEqual(self.succeed("--version").out, self.succeed("version").out)

    def test_devices(self):
        document = self.succeed("devices", "--format", "json").json()
        self.assertEqual(document["schema"], "fovea.devices/1")
        device, *gpus = document["devices"]
        self.assertEqual(set(device), {"device", "platform", "isa", "threads", "facts"})
        self.assertEqual(device["device"], "cpu")
        self.assertEqual(device["facts"]["isa"], device["isa"])
        self.assertGreaterEqual(device["threads"], 1)
        for gpu in gpus:
            self.assertEqual(set(gpu), {"device", "platform", "memory_bytes", "facts"})
            index = [other for other in gpus if other["platform"] == gpu["platform"]].index(gpu)
            self.assertEqual(gpu["device"], f"{gpu['platform']}:{index}")
            if gpu["platform"] == "cuda":
                self.assertGreater(gpu["memory_bytes"], 2**30)

    def test_devices_follow_the_instruction_set_cap(self):
        document = self.succeed(
            "devices", "--format", "json", environment={"FOVEA_ISA": "generic"}
        ).json()
        self.assertEqual(document["devices"][0]["isa"], "generic")

    def test_presets(self):
        document = self.succeed("devices", "--presets", "--format", "json").json()
        names = [device["name"] for device in document["devices"]]
        for name in ["h100", "h200", "b200", "a100", "l40s", "rtx4090", "mi300x", "ascend910b", "cpu"]:
            self.assertIn(name, names)
        models = {model["name"]: model for model in document["models"]}
        for name in [
            "wan2.1-t2v-1.3b",
            "wan2.1-t2v-14b",
            "wan2.1-i2v-14b",
            "wan2.2-a14b",
            "wan2.2-ti2v-5b",
            "qwen-image",
            "z-image",
            "flashvsr",
        ]:
            self.assertIn(name, models)
        roles = {role["role"]: role for role in models["wan2.1-t2v-14b"]["roles"]}
        self.assertEqual(roles["wan.self"]["seq_q"], 75600)
        self.assertEqual(roles["wan.self"]["heads"], 40)
        for format in ["table", "csv"]:
            self.assertIn("h200", self.succeed("devices", "--presets", "--format", format).out)

    def test_tables_are_aligned(self):
        lines = self.succeed("devices", "--presets").out.splitlines()
        column = lines[0].index("platform")
        for line in lines[1:6]:
            self.assertEqual(line[column - 2 : column], "  ", line)
            self.assertNotEqual(line[column], " ", line)

    def test_no_colours_off_a_terminal(self):
        self.assertNotIn("\x1b", self.succeed("backends").out)


class TerminalTest(CliTest):
    """Standard output and standard error on a terminal."""

    def on_terminal(self, *arguments, environment):
        leader, follower = pty.openpty()
        process = subprocess.Popen(
            [BINARY, *arguments],
            cwd=SOURCE,
            env={"TERM": "xterm", "PATH": os.environ["PATH"], **environment},
            stdin=subprocess.DEVNULL,
            stdout=follower,
            stderr=follower,
        )
        os.close(follower)
        output = b""
        while True:
            try:
                piece = os.read(leader, 65536)
            except OSError:  # Linux: the other end is closed
                break
            if not piece:
                break
            output += piece
        os.close(leader)
        self.assertEqual(process.wait(timeout=120), 0)
        return output.decode()

    def test_colours(self):
        self.assertIn("\x1b[32msupported\x1b[0m", self.on_terminal("backends", environment={}))
        for environment in [{"NO_COLOR": "1"}, {"TERM": "dumb"}]:
            self.assertNotIn("\x1b", self.on_terminal("backends", environment=environment))

    def test_progress_leaves_nothing_behind(self):
        output = self.on_terminal(
            "check", "--problem", "f32 b1 h1 s9 d16", environment={"NO_COLOR": "1"}
        )
        progress, result = output.rsplit("\r\x1b[K", 1)
        self.assertIn("check 1/1: f32 b1 h1 s9 d16", progress)
        self.assertTrue(result.startswith("problem"))


if __name__ == "__main__":
    unittest.main()
