"""The wheel and the editable install, built by scikit-build-core without a network.

They compile the library once more, with the flags of the build folder, which a compiler cache makes short.
"""

import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest
import zipfile

SOURCE = pathlib.Path(os.environ["TEST_SOURCE_DIR"])
BINARY = pathlib.Path(os.environ["TEST_BINARY_DIR"])
WORK = BINARY / "install-test" / "wheel"

PROBE = """
import fovea, importlib.metadata, json
library = fovea.load_library()
try:
    import numpy
    q = numpy.random.default_rng(1).standard_normal((1, 33, 2, 16)).astype("float32")
    path = fovea.attention(q, q, q, return_receipt=True)[1]["path"]
except ImportError:
    path = "cpu.none"
print(json.dumps({
    "library": library._name, "version": fovea.version(), "package": importlib.metadata.version("fovea-attention"),
    "module": fovea.__file__, "path": path, "explained": fovea.explain()["entries"][0]["backend"],
}))
"""


def missing():
    if importlib.util.find_spec("scikit_build_core") is None:
        return f"scikit-build-core is not importable by {sys.executable}"
    if importlib.util.find_spec("pip") is None or importlib.util.find_spec("venv") is None:
        return f"{sys.executable} has no pip or no venv"
    if shutil.which("ccache") is None:
        return "without ccache the wheel would compile the whole library again"
    return None


def cache_value(name):
    text = (BINARY / "CMakeCache.txt").read_text()
    return re.search(rf"^{name}:\w+=(.*)$", text, re.M).group(1)


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command} failed:\n{done.stdout}\n{done.stderr}")
    return done.stdout


@unittest.skipIf(missing(), missing())
class WheelTest(unittest.TestCase):
    @classmethod
    def build(cls, kind):
        """The file that pip's build hook makes; kind is wheel or editable."""
        folder = WORK / kind
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        names = ("CMAKE_C_COMPILER", "CMAKE_CXX_COMPILER", "CMAKE_BUILD_TYPE", "FOVEA_WERROR")
        settings = {f"cmake.define.{name}": cache_value(name) for name in names}
        settings["cmake.define.FOVEA_ENABLE_CUDA"] = "OFF"
        code = f"import scikit_build_core.build as b; b.build_{kind}({str(folder)!r}, {settings!r})"
        run(sys.executable, "-c", code, cwd=SOURCE)
        (file,) = folder.glob("*.whl")
        return file

    def install(self, file):
        """A fresh environment with the file and nothing else; returns its interpreter."""
        environment = file.parent / "venv"
        run(sys.executable, "-m", "venv", "--without-pip", str(environment))
        python = environment / "bin" / "python"
        run(sys.executable, "-m", "pip", "--python", str(python), "install", "--no-index", "--no-deps", str(file))
        return python

    def probe(self, python):
        # numpy, where the tests have it, so that an attention call runs too.
        environment = {key: value for key, value in os.environ.items() if not key.startswith("FOVEA_")}
        numpy = importlib.util.find_spec("numpy")
        if numpy is not None:
            environment["PYTHONPATH"] = str(pathlib.Path(numpy.origin).parents[1])
        return json.loads(run(str(python), "-c", PROBE, cwd=WORK, env=environment))

    def check(self, found, module, library):
        version = re.search(r"project\(\s*fovea\s+VERSION\s+([0-9.]+)", (SOURCE / "CMakeLists.txt").read_text())
        self.assertEqual(found["version"], version.group(1))
        self.assertEqual(found["package"], version.group(1))
        self.assertEqual(pathlib.Path(found["module"]), module)
        self.assertEqual(pathlib.Path(found["library"]), library)
        self.assertEqual(found["explained"], "FLASH_ATTN")
        self.assertTrue(found["path"].startswith("cpu."), found["path"])

    def test_wheel_holds_the_package_and_the_library(self):
        file = self.build("wheel")
        self.assertRegex(file.name, r"^fovea_attention-[0-9.]+-py3-none-linux_\w+\.whl$")
        with zipfile.ZipFile(file) as archive:
            names = set(archive.namelist())
        sources = {str(path.relative_to(SOURCE / "python")) for path in (SOURCE / "python/fovea").rglob("*.py")}
        expected = sources | {"fovea/py.typed", "fovea/libfovea.so"}
        self.assertEqual({name for name in names if ".dist-info/" not in name}, expected)
        self.assertTrue(any(name.endswith("licenses/LICENSE") for name in names))
        python = self.install(file)
        (package,) = (python.parents[1] / "lib").glob("python*/site-packages/fovea")
        self.check(self.probe(python), package / "__init__.py", package / "libfovea.so")

    def test_editable_install_runs_the_checkout(self):
        python = self.install(self.build("editable"))
        (package,) = (python.parents[1] / "lib").glob("python*/site-packages/fovea")
        self.check(self.probe(python), SOURCE / "python/fovea/__init__.py", package / "libfovea.so")


if __name__ == "__main__":
    unittest.main()
