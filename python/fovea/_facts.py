"""What torch and the installed packages say of a device, as the facts that policies read."""

import importlib
import importlib.metadata
import os
from typing import Any

# Fact, module, distributions whose version counts, a symbol without which it is of no use, and the oldest and newest
# compute capability that any backend uses it on: elsewhere it is not imported. hub_kernels is not asked: whether the
# hub has a build takes a download.
_CUDA = (
    ("flash_attn", "flash_attn", ("flash-attn", "flash_attn"), None, 80, 999),
    ("flash_attn_3", "flash_attn_interface", ("flash-attn-3", "flash_attn_3", "flash-attn-interface"), None, 80, 90),
    ("fa4", "flash_attn.cute", ("flash-attn-4", "flash_attn_4"), "flash_attn_func", 90, 999),
    ("flashinfer", "flashinfer", ("flashinfer-python", "flashinfer"), None, 0, 999),
    ("sageattention", "sageattention", ("sageattention",), "sageattn", 80, 999),
    ("sageattn3", "sageattn3", ("sageattn3",), None, 100, 999),
    ("spas_sage_attn", "spas_sage_attn", ("spas-sage-attn", "spas_sage_attn"), None, 80, 90),
    ("sparse_sageattn", "sparse_sageattn", ("sparse-sageattn", "sparse_sageattn"), None, 80, 90),
    ("block_sparse_attn", "block_sparse_attn", ("block-sparse-attn", "block_sparse_attn"), None, 80, 999),
    ("tf_kernel", "tf_kernel", ("tf-kernel", "tf_kernel"), None, 80, 999),
    ("fastvideo_kernel", "fastvideo_kernel", ("fastvideo-kernel", "fastvideo_kernel"), None, 0, 999),
)
_SYMBOLS = (
    ("flashinfer_prefill", "BatchPrefillWithRaggedKVCacheWrapper"),
    ("trtllm", "trtllm_ragged_attention_deepseek"),
)
_ROCM = (("aiter", "aiter", ("amd-aiter", "aiter"), None),)
_NPU = (("mindiesd", "mindiesd", ("mindiesd",), None),)
_XPU = (("auto_round", "auto_round", ("auto-round-lib", "auto-round", "auto_round"), None),)
_MUSA = (("flash_attn", "flash_attn", ("flash-attn", "flash_attn"), None),)


_LONGEST_CAUSE = 200


def _broken(cause):
    """The fact of a package that is installed and of no use."""
    return f"broken: {' '.join(str(cause).split())[:_LONGEST_CAUSE]}"


def _module(name):
    """The module and why it failed: (module, None), (None, None) where it is not installed, (None, cause).

    Whatever a package does at its import, it is then absent.
    """
    try:
        return importlib.import_module(name), None
    except ModuleNotFoundError as error:
        # The package itself, or a part of it, is not there; else it lacks another one.
        missing = error.name is None or name == error.name or name.startswith(error.name + ".")
        return None, None if missing else str(error)
    except Exception as error:  # noqa: BLE001
        return None, f"{type(error).__name__}: {error}"


def _version(module, distributions):
    for name in distributions:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return str(getattr(module, "__version__", "") or "unknown")


def _packages(rows, sm=0):
    found = {}
    for fact, name, distributions, symbol, *capabilities in rows:
        if capabilities and not capabilities[0] <= sm <= capabilities[1]:
            continue
        module, cause = _module(name)
        if cause is not None:
            found[fact] = _broken(cause)
        elif module is not None:
            version = _version(module, distributions)
            whole = symbol is None or hasattr(module, symbol)
            found[fact] = version if whole else _broken(f"{name} {version} has no {symbol}")
    return found


def _symbols():
    package, _ = _module("flashinfer")
    if package is None:
        return {}
    part, cause = _module("flashinfer.prefill")
    absent = "0" if cause is None else _broken(f"flashinfer.prefill: {cause}")
    return {fact: "1" if any(hasattr(p, symbol) for p in (package, part)) else absent for fact, symbol in _SYMBOLS}


def _cuda(torch, index):
    properties = torch.cuda.get_device_properties(index)
    sm = properties.major * 10 + properties.minor
    facts = {"sm": sm, "name": properties.name, "cuda": torch.version.cuda}
    cudnn = torch.backends.cudnn.version()
    if cudnn:
        facts["cudnn"] = cudnn
    return {**facts, **_packages(_CUDA, sm), **_symbols()}


def _rocm(torch, index):
    properties = torch.cuda.get_device_properties(index)
    gfx = properties.gcnArchName.split(":")[0]
    return {"gfx": gfx, "name": properties.name, **_packages(_ROCM)}


def _npu(torch, index):
    facts = {"name": torch.npu.get_device_name(index), **_packages(_NPU)}
    if os.environ.get("MINDIE_SD_FA_TYPE") == "ascend_laser_attention":
        facts["laser"] = "1"
    return facts


def _xpu(torch, index):
    capability = torch.xpu.get_device_capability(index)
    facts = {"name": torch.xpu.get_device_name(index), "driver": capability.get("driver_version")}
    return {"arch": capability.get("architecture"), **facts, **_packages(_XPU)}


def _musa(torch, index):
    major, minor = torch.musa.get_device_capability(index)
    return {"cc": f"{major}.{minor}", "name": torch.musa.get_device_name(index), **_packages(_MUSA)}


# Torch's name of a device type, the package that adds it to torch, and what asks it.
_TYPES = (("cuda", None, _cuda), ("npu", "torch_npu", _npu), ("xpu", None, _xpu), ("musa", "torch_musa", _musa))


def _available(torch, kind, package):
    """Whether torch has a device of this kind, and what kept the package that adds it from its import."""
    cause = None
    if package is not None and not hasattr(torch, kind):
        _, cause = _module(package)
    part = getattr(torch, kind, None)
    return part is not None and part.is_available(), cause and f"{package}: {cause}"


def facts(device: Any = None) -> dict[str, Any]:
    """The platform and facts of a device of torch, for fovea.explain(config, **fovea.facts()).

    device: "cuda:1", "npu", "xpu", "musa", "cpu" or a torch.device; None takes the first that torch can use. Installed
    packages are imported; one that fails at its import or lacks what a call needs has the fact "broken: CAUSE", which
    explain repeats. Without torch, or without a device: the CPU. Raises ValueError, with the cause, for a device that
    torch has not. Tested with stand-ins for torch and the packages, never on a GPU.
    """
    torch, torch_fault = _module("torch")
    causes = [f"torch: {torch_fault}"] if torch_fault else []
    wanted, _, index = ("" if device is None else str(device)).partition(":")
    for kind, package, ask in _TYPES if torch is not None and wanted != "cpu" else ():
        if wanted not in ("", kind):
            continue
        available, cause = _available(torch, kind, package)
        causes += [cause] if cause else []
        if available:
            rocm = kind == "cuda" and getattr(torch.version, "hip", None)
            found = (_rocm if rocm else ask)(torch, int(index or 0))
            # The text form of facts separates them with commas.
            stated = {key: str(value).replace(",", " ") for key, value in found.items() if value not in (None, "")}
            return {"platform": "rocm" if rocm else kind, "facts": stated}
    if wanted not in ("", "cpu"):
        why = f" ({'; '.join(causes)})" if causes else ""
        raise ValueError(f"torch has no device '{device}' here{why}")
    return {"platform": "cpu"}
