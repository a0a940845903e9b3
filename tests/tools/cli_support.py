"""What the tests of the command line share."""

import json
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile
import unittest

BINARY = pathlib.Path(os.environ["TEST_BINARY_DIR"]) / "fovea"
SOURCE = pathlib.Path(os.environ["TEST_SOURCE_DIR"])
DATA = SOURCE / "examples" / "data"

OK, COMPARISON_FAILED, USAGE, UNSUPPORTED, DEVICE, INTERNAL = range(6)


class Outcome:
    def __init__(self, process):
        self.code = process.returncode
        self.out = process.stdout
        self.err = process.stderr

    def json(self):
        return json.loads(self.out)


class CliTest(unittest.TestCase):
    """A test with a folder of its own and the program."""

    maxDiff = None

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="fovea-cli-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def fovea(self, *arguments, environment=None, folder=SOURCE):
        variables = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("FOVEA_") and name != "NO_COLOR"
        }
        variables.update({"OMP_WAIT_POLICY": "passive"})
        variables.update(environment or {})
        process = subprocess.run(
            [BINARY, *map(str, arguments)],
            cwd=folder,
            env=variables,
            capture_output=True,
            text=True,
            timeout=120,
        )
        return Outcome(process)

    def succeed(self, *arguments, **keywords):
        outcome = self.fovea(*arguments, **keywords)
        self.assertEqual(outcome.code, OK, outcome.err)
        return outcome

    def fail_with(self, code, message, *arguments, **keywords):
        """The exit code, the exact or partial message, and the same error as JSON."""
        outcome = self.fovea(*arguments, **keywords)
        self.assertEqual(outcome.code, code, outcome.out + outcome.err)
        self.assertEqual(outcome.out, "")
        self.assertIn(message, outcome.err)
        document = self.fovea(*arguments, "--format", "json", **keywords)
        self.assertEqual(document.code, code)
        error = document.json()["error"]
        self.assertEqual(set(error), {"code", "name", "message", "reasons"})
        self.assertIn(message, error["message"])
        return error


def write_safetensors(path, tensors, metadata=None):
    """tensors: name -> (type name, shape, bytes)."""
    header, offset, body = {}, 0, b""
    if metadata:
        header["__metadata__"] = metadata
    for name, (kind, shape, data) in tensors.items():
        header[name] = {
            "dtype": kind,
            "shape": shape,
            "data_offsets": [offset, offset + len(data)],
        }
        offset += len(data)
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def read_safetensors(path):
    """name -> (type name, shape, bytes)."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    return {
        name: (
            entry["dtype"],
            entry["shape"],
            data[8 + length + entry["data_offsets"][0] : 8 + length + entry["data_offsets"][1]],
        )
        for name, entry in header.items()
    }


def floats(values):
    return struct.pack(f"<{len(values)}f", *values)


def read_floats(data):
    return list(struct.unpack(f"<{len(data) // 4}f", data))
