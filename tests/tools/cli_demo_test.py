"""The main job and its picture."""

import base64
import os
import pathlib
import re
import subprocess
import unittest
import xml.etree.ElementTree as ElementTree
import zlib

from cli_support import DATA, SOURCE, CliTest

DEMO = pathlib.Path(os.environ["TEST_BINARY_DIR"]) / "examples" / "demo" / "fovea_demo"


class DemoTest(CliTest):
    def demo(self, *arguments):
        return subprocess.run(
            [DEMO, *arguments], cwd=SOURCE, capture_output=True, text=True, timeout=120
        )

    def test_every_role_agrees_and_is_drawn(self):
        picture = self.folder / "attention.svg"
        outcome = self.demo("examples/demo/attention.json", DATA, picture)
        self.assertEqual(outcome.returncode, 0, outcome.stdout + outcome.stderr)
        for role in ["wan.self", "wan.cross.text", "qwen.joint", "zimage.joint"]:
            self.assertRegex(outcome.stdout, rf"\n{re.escape(role)} .*pass\n")
        self.assertIn("fallback from CUDNN_ATTN: ", outcome.stdout)
        self.assertIn("attention_config.default", outcome.stdout)
        root = ElementTree.parse(picture).getroot()
        images = [image.get("href") for image in root.findall(".//{*}image")]
        self.assertEqual(len(images), 10)
        for image in images:
            png = base64.b64decode(image.removeprefix("data:image/png;base64,"))
            self.check_png(png)
        self.assertNotIn("http", picture.read_text().replace("http://www.w3.org/2000/svg", ""))

    def check_png(self, png):
        self.assertEqual(png[:8], b"\x89PNG\r\n\x1a\n")
        at, data, size = 8, b"", None
        while at < len(png):
            length = int.from_bytes(png[at : at + 4], "big")
            kind, body = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
            stored = int.from_bytes(png[at + 8 + length : at + 12 + length], "big")
            self.assertEqual(stored, zlib.crc32(kind + body))
            if kind == b"IHDR":
                size = int.from_bytes(body[:4], "big"), int.from_bytes(body[4:8], "big")
            if kind == b"IDAT":
                data += body
            at += 12 + length
        self.assertEqual(len(zlib.decompress(data)), size[1] * (size[0] + 1))

    def test_refused_requirement(self):
        path = self.folder / "attention.json"
        path.write_text('{"default": "FLASH_ATTN_3"}')
        outcome = self.demo(path, DATA, self.folder / "a.svg")
        self.assertEqual(outcome.returncode, 2)
        self.assertIn("FLASH_ATTN_3", outcome.stderr)

    def test_usage(self):
        self.assertEqual(self.demo().returncode, 2)


if __name__ == "__main__":
    unittest.main()
