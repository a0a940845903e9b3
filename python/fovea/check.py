"""The validation run of docs/validation for kernels of Python packages, on torch's memory.

    python3 -m fovea.check --contract --backend FLASH_ATTN_4 --device cuda --record FLASH_ATTN_4-fa4-sm_100.json

The cases, the oracle and the record are those of `fovea check --contract`; the package computes, bound by
fovea.torch.providers or by a module of the caller's (--import). Exit codes: 0 the record counts, 1 a case failed,
2 usage, 3 every case was refused, 4 device.
"""

from __future__ import annotations

import argparse
import ctypes as _c
import importlib
import importlib.metadata
import json
import os
import platform as _platform
import sys
import traceback
from typing import Any

import fovea
from fovea import _plugin

try:
    import torch

    from fovea.torch import providers
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    torch = providers = None  # main says so

__all__ = ["TorchMemory", "main", "validate"]

_OK, _FAILED, _USAGE, _UNSUPPORTED, _DEVICE, _INTERNAL = 0, 1, 2, 3, 4, 5
_DEVICE_ERROR = 300
# DLPack's number of torch's devices for each platform, and what torch calls them.
_PLATFORMS = {
    "cpu": (1, "cpu"),
    "cuda": (2, "cuda"),
    "rocm": (10, "cuda"),
    "npu": (12, "npu"),
    "xpu": (14, "xpu"),
    "musa": (12, "musa"),
}
_EXTENSIONS = {"npu": "torch_npu", "musa": "torch_musa"}
_DRIVER_FILES = {
    "rocm": "/sys/module/amdgpu/version",
    "npu": "/usr/local/Ascend/driver/version.info",
}


# Distributions that compile or drive kernels; those that are installed stand in the record.
_SOFTWARE = (
    "apache-tvm-ffi",
    "nvidia-cutlass-dsl",
    "quack-kernels",
    "torch-musa",
    "torch-npu",
    "triton",
)


class TorchMemory:
    """Memory and recordings of one torch device, as the validation run borrows them.

    platform: "cuda", "rocm", "npu", "xpu", "musa" or "cpu"; facts: of the device, as --facts takes them; device: what
    torch calls it. Recordings are CUDA graphs, on platform "cuda"; elsewhere calls are repeated. Not thread-safe.
    """

    def __init__(self, platform, facts, device, name, driver):
        self.platform, self.device = platform, torch.device(device)
        self.texts = facts.encode(), name.encode(), driver.encode()
        self.device_type = 1 if self.device.type == "cpu" else _PLATFORMS[platform][0]
        self.blocks, self.graphs = {}, {}
        captures = platform == "cuda" and self.device.type == "cuda"
        self.torch_stream = torch.cuda.Stream(self.device) if captures else None
        functions = {
            "describe": _plugin.DescribeFunction(self._describe),
            "allocate": _plugin.AllocateFunction(self._guarded(self._allocate)),
            "release": _plugin.ReleaseFunction(self._release),
            "copy": _plugin.CopyFunction(self._guarded(self._copy)),
            "synchronise": _plugin.SynchroniseFunction(self._guarded(self._synchronise)),
        }
        if captures:
            functions.update(
                capture=_plugin.CaptureFunction(self._guarded(self._capture)),
                replay=_plugin.ReplayFunction(self._guarded(self._replay)),
                drop=_plugin.ReleaseFunction(self._drop),
                stream=_plugin.StreamFunction(lambda _, index: self.torch_stream.cuda_stream),
            )
        self.access = _plugin.DeviceAccess(
            struct_size=_c.sizeof(_plugin.DeviceAccess),
            abi_major=_plugin.ABI_MAJOR,
            abi_minor=_plugin.ABI_MINOR,
            platform=platform.encode(),
            **functions,
        )

    @staticmethod
    def _guarded(entry):
        def call(_, index, *arguments):
            *arguments, sink = arguments
            try:
                return entry(*arguments) or 0
            except BaseException:  # noqa: BLE001 - nothing may leave a callback
                _plugin.set_message(sink, traceback.format_exc(limit=4))
                return _DEVICE_ERROR

        return call

    def _describe(self, _, index, info, sink):
        info.contents.facts, info.contents.name, info.contents.driver = self.texts
        info.contents.device_type = self.device_type
        return 0

    def _allocate(self, size, memory):
        block = torch.empty(size + 256, dtype=torch.uint8, device=self.device)
        address = block.data_ptr() + -block.data_ptr() % 256
        self.blocks[address] = block
        memory[0] = address

    def _release(self, _, index, memory):
        self.blocks.pop(memory, None)

    def _copy(self, to, source, size, direction):
        into = direction == _plugin.COPY_TO_DEVICE
        there, here = (to, source) if into else (source, to)
        host = torch.frombuffer((_c.c_char * size).from_address(here), dtype=torch.uint8)
        self._synchronise()
        for block in self.blocks.values():
            offset = there - block.data_ptr()
            if 0 <= offset and offset + size <= block.numel():
                part = block[offset : offset + size]
                (part.copy_(host) if into else host.copy_(part))
                self._synchronise()
                return
        raise ValueError("memory that was not allocated here")

    def _synchronise(self):
        if self.device.type != "cpu":
            getattr(torch, self.device.type).synchronize(self.device)

    def _capture(self, call, user, recording):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self.device), torch.cuda.graph(graph, stream=self.torch_stream):
            code = call(user, self.torch_stream.cuda_stream)
        recording[0] = max(self.graphs, default=0) + 1
        self.graphs[recording[0]] = graph
        return code

    def _replay(self, recording):
        with torch.cuda.stream(self.torch_stream):
            self.graphs[recording].replay()

    def _drop(self, _, index, recording):
        self.graphs.pop(recording, None)


def validate(
    backend: str,
    memory: TorchMemory,
    *,
    provider: str = "package",
    options: dict[str, Any] | None = None,
    threads: int = 0,
    progress: Any = None,
) -> dict[str, Any]:
    """The record (fovea.validation/1, docs/validation) of a run of `backend` on `memory`, as a dict.

    provider: "package", or "fovea" for this project's own kernel; options: more keys of the backend's entry
    (docs/config.md); progress: called with (done, total, problem). Errors are those of the layer; a refused case is
    part of the result.
    """
    entry = {"backend": backend, "provider": provider, **(options or {})}
    config = fovea._Config({"default": entry}, None)
    software = [("python", _platform.python_version()), ("torch", str(torch.__version__))]
    for distribution in _SOFTWARE:
        try:
            software.append((distribution, importlib.metadata.version(distribution)))
        except importlib.metadata.PackageNotFoundError:
            continue
    size = _c.sizeof(_plugin.Software)
    listed = [_c.pointer(_plugin.Software(size, name.encode(), version.encode())) for name, version in software]
    notify = _plugin.ProgressFunction() if progress is None else _plugin.ProgressFunction(
        lambda _, done, total, problem: progress(done, total, problem.decode())
    )  # fmt: skip
    arguments = _plugin.ValidationOptions(
        struct_size=_c.sizeof(_plugin.ValidationOptions),
        device=memory.platform.encode(),
        access=_c.pointer(memory.access),
        threads=threads,
        software_count=len(software),
        software=(_c.POINTER(_plugin.Software) * len(listed))(*listed),
        progress=notify,
    )
    return fovea._take_json(fovea._lib().fovea_validate_path, config._handle, _c.byref(arguments))


def _first_line(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.readline().strip()
    except OSError:
        return ""


def _nvidia_driver():
    """The NVIDIA driver's version, from its management library; empty where that does not say."""
    try:
        library = _c.CDLL("libnvidia-ml.so.1")
    except OSError:
        return ""
    text = _c.create_string_buffer(96)
    if library.nvmlInit_v2() != 0:
        return ""
    known = library.nvmlSystemGetDriverVersion(text, len(text)) == 0
    library.nvmlShutdown()
    return text.value.decode() if known else ""


def _describe(platform, index):
    """(facts, name, driver) of a device of this machine, as far as torch knows them."""
    driver = _nvidia_driver() if platform == "cuda" else _first_line(_DRIVER_FILES.get(platform, ""))
    driver = driver or "unknown"
    if platform == "cpu":
        return {}, _platform.processor() or "CPU", driver
    if platform == "cuda":
        major, minor = torch.cuda.get_device_capability(index)
        name = torch.cuda.get_device_name(index)
        facts = {"sm": 10 * major + minor, "cuda": torch.version.cuda, "name": name.replace(",", " ")}
        if torch.backends.cudnn.is_available():
            number = torch.backends.cudnn.version()
            facts["cudnn"] = f"{number // 10000}.{number // 100 % 100}.{number % 100}"
        return facts, name, driver
    if platform == "rocm":
        properties = torch.cuda.get_device_properties(index)
        return {"gfx": properties.gcnArchName.split(":")[0]}, properties.name, f"{driver}, HIP {torch.version.hip}"
    if platform == "npu":
        laser = os.environ.get("MINDIE_SD_FA_TYPE") == "ascend_laser_attention"
        return {"laser": 1} if laser else {}, torch.npu.get_device_name(index), driver
    if platform == "xpu":
        properties = torch.xpu.get_device_properties(index)
        return {"arch": getattr(properties, "architecture", "unknown")}, properties.name, properties.driver_version
    major, minor = torch.musa.get_device_capability(index)
    return {"cc": f"{major}.{minor}"}, torch.musa.get_device_name(index), driver


def _open(platform, index, given):
    """The memory of a device of this machine; _Missing when it is not here."""
    if platform in _EXTENSIONS:
        importlib.import_module(_EXTENSIONS[platform])
    kind = _PLATFORMS[platform][1]
    module = getattr(torch, kind, None)
    if kind != "cpu" and (module is None or not module.is_available() or index >= module.device_count()):
        raise _Missing(f"torch {torch.__version__} sees no {kind} device {index} here")
    if kind == "cuda" and (torch.version.hip is not None) != (platform == "rocm"):
        raise _Missing(f"this torch is built for {'ROCm' if torch.version.hip else 'CUDA'}, not for {platform}")
    facts, name, driver = _describe(platform, index)
    known = {row["package"]: row["version"] or "unknown" for row in providers.status() if row["state"] == "bound"}
    for package in ("flash_attn", "flash_attn_3", "fa4", "sageattention", "aiter", "mindiesd"):
        homes = {"aiter": "rocm", "mindiesd": "npu"}
        if package in known and homes.get(package, "cuda") == platform:
            facts[package] = known[package]
    if platform == "musa" and "flash_attn" in known:
        facts["flash_attn"] = known["flash_attn"]
    text = given if given is not None else ",".join(f"{key}={value}" for key, value in facts.items())
    return TorchMemory(platform, text, kind if kind == "cpu" else f"{kind}:{index}", name, driver)


class _Missing(Exception):
    """Why nothing can run here."""


def _bind(backend):
    """Binds every package that serves the name; _Missing when none does or imports."""
    name = fovea.availability(backend)["backend"]
    serving = [p for p, provider in providers.PROVIDERS.items() if name in provider.backends]
    if not serving:
        raise _Missing(
            f"fovea.torch.providers has no kernel for {backend}; pass --import MODULE, where MODULE registers one "
            "(docs/python.md)"
        )
    rows = providers.bind(*serving)
    if not any(row["state"] == "bound" for row in rows):
        absent = "; ".join(f"{row['package']}: {row['cause']} ({row['install']})" for row in rows)
        raise _Missing(f"no package that serves {backend} imports: {absent}")


def _table(record):
    rows = [("kind", "problem", "path", "rel_l2", "outside", "result")]
    for case in record["cases"]:
        if case["ran"]:
            result = "pass" if case["pass"] else "FAIL" + ": " * ("error" in case) + case.get("error", "").strip()
            figures = f"{float(case['rel_l2']):.1e}", str(case["outside"])
            rows.append((case["kind"], case["problem"], case["path"], *figures, result))
        else:
            rows.append((case["kind"], case["problem"], "-", "-", "-", f"refused: {case['reasons'][0]['message']}"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return "\n".join("  ".join([*(text.ljust(width) for text, width in zip(row, widths)), row[-1]]) for row in rows)


def _show(done, total, problem):
    print(f"\r\033[Kcontract {done + 1}/{total}: {problem}", end="", file=sys.stderr, flush=True)


def _parse(arguments):
    parser = argparse.ArgumentParser(prog="python3 -m fovea.check", description=__doc__.split("\n")[0])
    parser.add_argument("--contract", action="store_true", required=True, help="the validation run (docs/validation)")
    parser.add_argument("--backend", required=True, help="a backend's name, such as FLASH_ATTN_4")
    parser.add_argument("--device", default="cuda", help=f"{'|'.join(_PLATFORMS)}[:N] (cuda)")
    parser.add_argument("--record", metavar="F", help="write the record to this file")
    parser.add_argument("--provider", default="package", choices=("package", "fovea", "cudnn"))
    parser.add_argument("--import", dest="modules", metavar="MODULE", action="append", default=[],
                        help="import this first; it registers providers of its own")  # fmt: skip
    parser.add_argument("--facts", help="facts of the device, in place of those that torch knows")
    parser.add_argument("--options", default="{}", help="JSON: more keys of the backend's entry")
    parser.add_argument("--threads", type=int, default=0, help="threads of the oracle (all)")
    parser.add_argument("--format", default="table", choices=("table", "json"))
    given = parser.parse_args(arguments)
    platform, _, index = given.device.partition(":")
    if platform not in _PLATFORMS or not (index or "0").isdecimal():
        parser.error(f"--device {given.device} is not one of {', '.join(_PLATFORMS)}, with :N for device N")
    try:
        given.options = json.loads(given.options)
    except ValueError as error:
        parser.error(f"--options is not JSON: {error}")
    if not isinstance(given.options, dict):
        parser.error('--options is not a JSON map such as {"is_causal": false}')
    if given.record and not os.path.isdir(os.path.dirname(given.record) or "."):
        parser.error(f"--record {given.record}: no such folder")
    if given.record and os.path.isdir(given.record):
        parser.error(f"--record {given.record}: is a folder")
    return given, platform, int(index or 0)


def main(arguments: list[str] | None = None) -> int:
    """The program; returns its exit code."""
    given, platform, index = _parse(arguments)
    if torch is None:
        print("fovea.check: torch is not installed, and its memory is what the run works on; pip install torch, or run "
              "fovea check --contract for kernels of other than Python packages", file=sys.stderr)  # fmt: skip
        return _UNSUPPORTED
    progress = _show if sys.stderr.isatty() else None
    try:
        for module in given.modules:
            importlib.import_module(module)
        if given.provider == "package":
            _bind(given.backend)
        memory = _open(platform, index, given.facts)
        record = validate(
            given.backend, memory, provider=given.provider, options=given.options, threads=given.threads,
            progress=progress,
        )  # fmt: skip
    except (_Missing, ImportError) as error:
        print(f"fovea.check: {error}", file=sys.stderr)
        return _UNSUPPORTED
    except fovea.FoveaError as error:
        print(f"fovea.check: {error}", file=sys.stderr)
        groups = {1: _USAGE, 2: _UNSUPPORTED, 3: _DEVICE, 4: _DEVICE, 5: _DEVICE}
        return groups.get(error.code // 100, _INTERNAL)
    if progress is not None:
        print("\r\033[K", end="", file=sys.stderr)
    text = json.dumps(record, indent=2)
    print(text if given.format == "json" else _table(record))
    if given.record:
        with open(given.record, "w", encoding="utf-8") as stream:
            stream.write(text + "\n")
    if record["path"] is None:
        return _UNSUPPORTED
    return _OK if record["pass"] else _FAILED


if __name__ == "__main__":
    sys.exit(main())
