"""fovea.facts() with stand-ins for torch and the packages; no such device was at hand."""

import os
import pathlib
import sys
import types
import unittest
from unittest import mock

SOURCE = pathlib.Path(os.environ.get("TEST_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
BINARY = pathlib.Path(os.environ.get("TEST_BINARY_DIR", SOURCE / "build"))
sys.path.insert(0, str(SOURCE / "python"))

import fovea  # noqa: E402
from fovea import _facts  # noqa: E402

fovea.load_library(BINARY / "libfovea.so")

PACKAGES = {row[1] for rows in (_facts._CUDA, _facts._ROCM, _facts._NPU, _facts._XPU, _facts._MUSA) for row in rows}


def module(name, **members):
    made = types.ModuleType(name)
    made.__path__ = []
    for member, value in members.items():
        setattr(made, member, value)
    return made


def part(**members):
    return types.SimpleNamespace(is_available=lambda: True, **members)


def fake_torch(hip=None, **parts):
    version = types.SimpleNamespace(cuda=None if hip else "12.8", hip=hip)
    cudnn = types.SimpleNamespace(cudnn=types.SimpleNamespace(version=lambda: 91002))
    return module("torch", version=version, backends=cudnn, **parts)


def gpu(**properties):
    asked = []

    def get_device_properties(index):
        asked.append(index)
        return types.SimpleNamespace(**properties)

    return part(get_device_properties=get_device_properties, asked=asked)


class FactsTest(unittest.TestCase):
    def machine(self, torch, **packages):
        """Only these modules can be imported."""
        absent = dict.fromkeys(PACKAGES | {"flashinfer.prefill", "torch_npu", "torch_musa"})
        modules = {**absent, "torch": torch, **{name.replace("__", "."): value for name, value in packages.items()}}
        patch = mock.patch.dict(sys.modules, modules)
        patch.start()
        self.addCleanup(patch.stop)
        nothing = mock.patch.object(
            _facts.importlib.metadata, "version", side_effect=_facts.importlib.metadata.PackageNotFoundError
        )
        nothing.start()
        self.addCleanup(nothing.stop)

    def entry(self, stated, backend):
        (entry,) = fovea.explain(backend=backend, **stated)["entries"]
        return entry

    def test_without_torch_or_a_device_it_is_the_cpu(self):
        self.machine(None)
        self.assertEqual(fovea.facts(), {"platform": "cpu"})
        self.assertEqual(fovea.explain(**fovea.facts())["platform"], "cpu")
        with self.assertRaisesRegex(ValueError, "torch has no device 'cuda:0' here"):
            fovea.facts("cuda:0")
        self.machine(fake_torch())
        self.assertEqual(fovea.facts("cpu"), {"platform": "cpu"})
        with self.assertRaisesRegex(ValueError, "torch has no device 'xpu' here"):
            fovea.facts("xpu")

    def test_cuda_and_its_packages(self):
        cuda = gpu(major=10, minor=0, name="NVIDIA B200, 180 GB")
        broken = module("sageattention")  # without its function
        self.machine(
            fake_torch(cuda=cuda),
            flashinfer=module("flashinfer", __version__="0.6.18", BatchPrefillWithRaggedKVCacheWrapper=object),
            flash_attn=module("flash_attn"),
            sageattention=broken,
        )
        stated = fovea.facts("cuda:1")
        self.assertEqual(cuda.asked, [1])
        self.assertEqual(
            stated,
            {
                "platform": "cuda",
                "facts": {
                    "sm": "100",
                    "name": "NVIDIA B200  180 GB",
                    "cuda": "12.8",
                    "cudnn": "91002",
                    "flash_attn": "unknown",
                    "sageattention": "broken: sageattention unknown has no sageattn",
                    "flashinfer": "0.6.18",
                    "flashinfer_prefill": "1",
                    "trtllm": "0",
                },
            },
        )
        self.assertEqual(fovea.explain(**stated)["facts"]["cudnn"], "9.10.2")
        self.assertEqual(self.entry(stated, "FLASHINFER_ATTN")["support"], "unmigrated")
        (reason,) = self.entry(stated, "TRTLLM_ATTN")["reasons"]
        self.assertIn("without trtllm_ragged_attention_deepseek", reason["got"])
        (reason,) = self.entry(stated, "SAGE_ATTN_2_8_8")["reasons"]
        self.assertEqual(reason["got"], "installed but broken (sageattention unknown has no sageattn)")

    def test_a_package_of_no_use_on_the_device_is_not_imported(self):
        hopper = gpu(major=9, minor=0, name="NVIDIA H200")
        present = {name: module(name, __version__="1.0", sageattn=None) for name in ("sageattn3", "sageattention")}
        self.machine(fake_torch(cuda=hopper), **present)
        with mock.patch.object(_facts.importlib, "import_module", wraps=_facts.importlib.import_module) as imported:
            stated = fovea.facts()
        names = [call.args[0] for call in imported.call_args_list]
        self.assertIn("sageattention", names)
        self.assertNotIn("sageattn3", names)
        self.assertEqual(stated["facts"]["sageattention"], "1.0")
        self.assertNotIn("sageattn3", stated["facts"])

    def importing(self, **failures):
        """Imports that raise: by module ("." as "__"), or for all others but torch as `rest`."""
        found = {name.replace("__", "."): error for name, error in failures.items()}
        real = _facts.importlib.import_module

        def import_module(name):
            error = found.get(name, None if name == "torch" else found.get("rest"))
            if error is not None:
                raise error
            return real(name)

        patch = mock.patch.object(_facts.importlib, "import_module", side_effect=import_module)
        patch.start()
        self.addCleanup(patch.stop)

    def test_a_package_that_fails_at_its_import_is_absent_with_the_cause(self):
        self.machine(fake_torch(cuda=gpu(major=9, minor=0, name="NVIDIA H200")))
        self.importing(rest=OSError("libcudart.so.12:\n undefined symbol, sorry"))
        stated = fovea.facts()
        cause = "broken: OSError: libcudart.so.12: undefined symbol  sorry"
        self.assertEqual(stated["facts"]["sageattention"], cause)
        self.assertEqual(stated["facts"]["flashinfer"], cause)
        self.assertNotIn("sageattn3", stated["facts"])  # of no use on the device, so not imported
        for backend in ("SAGE_ATTN", "FLASHINFER_ATTN", "FLASH_ATTN_4"):
            entry = self.entry(stated, backend)
            self.assertEqual(entry["support"], "unsupported")
            self.assertIn("installed but broken (OSError: libcudart.so.12", entry["reasons"][0]["got"], backend)
        # What the project runs itself does not need them.
        self.assertEqual(self.entry(stated, None)["backend"], "FLASH_ATTN")

    def test_what_is_not_installed_is_no_fault(self):
        self.machine(fake_torch(cuda=gpu(major=9, minor=0, name="NVIDIA H200")))
        self.importing(
            flash_attn=ModuleNotFoundError("No module named 'einops'", name="einops"),
            flash_attn__cute=ModuleNotFoundError("No module named 'flash_attn.cute'", name="flash_attn.cute"),
            sageattention=ModuleNotFoundError("No module named 'sageattention'", name="sageattention"),
        )
        stated = fovea.facts()["facts"]
        self.assertEqual(stated["flash_attn"], "broken: No module named 'einops'")
        self.assertNotIn("fa4", stated)
        self.assertNotIn("sageattention", stated)

    def test_a_part_that_fails_says_why(self):
        whole = module("flashinfer", __version__="0.6.18", trtllm_ragged_attention_deepseek=object)
        self.machine(fake_torch(cuda=gpu(major=10, minor=0, name="NVIDIA B200")), flashinfer=whole)
        self.importing(flashinfer__prefill=RuntimeError("ninja is missing"))
        stated = fovea.facts()
        self.assertEqual(stated["facts"]["trtllm"], "1")
        (reason,) = self.entry(stated, "FLASHINFER_ATTN")["reasons"]
        self.assertIn("RuntimeError: ninja is missing", reason["got"])

    def test_a_device_that_torch_has_not_says_why(self):
        self.machine(fake_torch())
        self.importing(torch_npu=ImportError("libascendcl.so: cannot open"))
        with self.assertRaisesRegex(ValueError, r"no device 'npu' here \(torch_npu: ImportError: libascendcl.so"):
            fovea.facts("npu")

    def test_rocm(self):
        cuda = gpu(major=9, minor=4, name="AMD Instinct MI300X", gcnArchName="gfx942:sramecc+:xnack-")
        self.machine(fake_torch(hip="6.4", cuda=cuda), aiter=module("aiter", __version__="0.1.7"))
        stated = fovea.facts()
        self.assertEqual(
            stated, {"platform": "rocm", "facts": {"gfx": "gfx942", "name": "AMD Instinct MI300X", "aiter": "0.1.7"}}
        )
        self.assertEqual(self.entry(stated, None)["backend"], "FLASH_ATTN")

    def test_npu_which_its_package_adds_to_torch(self):
        torch = fake_torch()
        npu = part(get_device_name=lambda index: f"Ascend910B{index}")

        def importing(name):
            if name == "torch_npu":
                torch.npu = npu
                return module(name)
            if sys.modules.get(name) is None:
                raise ImportError(name)
            return sys.modules[name]

        self.machine(torch, mindiesd=module("mindiesd", __version__="3.1.0"))
        with mock.patch.object(_facts.importlib, "import_module", side_effect=importing):
            self.assertEqual(
                fovea.facts("npu:3"), {"platform": "npu", "facts": {"name": "Ascend910B3", "mindiesd": "3.1.0"}}
            )
            with mock.patch.dict(os.environ, {"MINDIE_SD_FA_TYPE": "ascend_laser_attention"}):
                stated = fovea.facts()
        self.assertEqual(stated["facts"]["laser"], "1")
        self.assertEqual(self.entry(stated, None)["backend"], "FLASH_ATTN")

    def test_xpu(self):
        xpu = part(
            get_device_capability=lambda index: {"architecture": 13136561920, "driver_version": "1.6.33578+38"},
            get_device_name=lambda index: "Intel(R) Data Center GPU Max 1550",
        )
        self.machine(fake_torch(xpu=xpu))
        stated = fovea.facts()
        self.assertEqual(stated["facts"]["arch"], "13136561920")
        self.assertEqual(self.entry(stated, None)["backend"], "TORCH_SDPA")

    def test_musa(self):
        musa = part(get_device_capability=lambda index: (3, 1), get_device_name=lambda index: "MTT S5000")
        self.machine(fake_torch(musa=musa), flash_attn=module("flash_attn", __version__="2.7"))
        stated = fovea.facts("musa")
        self.assertEqual(stated["facts"], {"cc": "3.1", "name": "MTT S5000", "flash_attn": "2.7"})
        self.assertEqual(self.entry(stated, None)["backend"], "FLASH_ATTN")


if __name__ == "__main__":
    unittest.main()
