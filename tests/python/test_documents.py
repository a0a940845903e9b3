"""The Python examples of README.md and docs/diffusers.md run as they stand."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import unittest

SOURCE = pathlib.Path(os.environ.get("TEST_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
BINARY = pathlib.Path(os.environ.get("TEST_BINARY_DIR", SOURCE / "build"))
LOAD = f"import fovea; fovea.load_library({str(BINARY / 'libfovea.so')!r})\n"
PACKAGES = ("numpy", "torch", "diffusers")


def examples(file):
    """The python blocks of a document that import what they use."""
    text = (SOURCE / file).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    return [block for block in blocks if re.search(r"^import .*(numpy|torch)", block, re.M)]


class DocumentTest(unittest.TestCase):
    def run_example(self, block, *expected):
        missing = [name for name in PACKAGES if re.search(rf"^import .*\b{name}\b", block, re.M)]
        missing = [name for name in missing if importlib.util.find_spec(name) is None]
        if missing:
            self.skipTest(f"{', '.join(missing)} not installed for {sys.executable}")
        environment = {**os.environ, "PYTHONPATH": str(SOURCE / "python")}
        done = subprocess.run([sys.executable, "-c", LOAD + block], env=environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        for text in expected:
            self.assertIn(text, done.stdout)

    def test_there_are_three_in_the_readme(self):
        self.assertEqual(len(examples("README.md")), 3)

    def test_readme_numpy(self):
        self.run_example(examples("README.md")[0], "FLASH_ATTN cpu.", "TRTLLM_ATTN")

    def test_readme_torch(self):
        self.run_example(examples("README.md")[1], "FLASH_ATTN cpu.")

    def test_readme_diffusers(self):
        self.run_example(examples("README.md")[2], "wan.self", "wan.cross.text", "FLASH_ATTN by fovea")

    def test_diffusers_page(self):
        (example,) = examples("docs/diffusers.md")
        self.run_example(example, "wan.self", "blocks.0.attn1 cpu.")


if __name__ == "__main__":
    unittest.main()
