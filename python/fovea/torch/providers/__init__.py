"""Attention kernels of other Python packages behind Fovea's names.

    import fovea.torch.providers
    for row in fovea.torch.providers.bind():
        print(row["package"], row["state"], row["version"] or row["install"])
    fovea.torch.attention(q, k, v, config={"default": {"backend": "FLASH_ATTN_2", "provider": "package"}})

bind() imports the packages that are installed and hands their kernels to the library. A name that Fovea has a kernel of
its own for runs the package where the configuration says provider "package"; the others run it when they are chosen.
Fovea decides, checks and reports; the package computes, on the caller's tensors and stream, without copies of inputs.
Where a package cannot write into given memory its result is copied once into the output.
"""

from __future__ import annotations

import ctypes as _c
import importlib
import importlib.metadata
import threading
import traceback
from collections.abc import Mapping as _Mapping
from typing import Any as _Any

import torch as _torch

import fovea
from fovea import _plugin, _tensors

from . import aiter, cute, flash, mindie, sage, sdpa
from .provider import Provider

__all__ = ["Provider", "bind", "register", "status", "unbind"]

# In the order in which bind() takes them.
PROVIDERS = {
    provider.package: provider
    for provider in (
        sdpa.Sdpa(), flash.Flash2(), flash.Flash3(), cute.Flash4(), sage.Sage(), aiter.Aiter(), mindie.MindIE()
    )
}
_INVALID, _UNSUPPORTED, _FAILED = 100, 200, 300
_lock = threading.Lock()
# What the library points to, by package.
_bound = {}


def _version(provider, module):
    for name in provider.distributions:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return str(getattr(module, "__version__", ""))


def _known(packages):
    unknown = [name for name in packages if name not in PROVIDERS]
    if unknown:
        raise fovea.ArgumentError(
            _INVALID, "invalid_argument", f"no provider {', '.join(unknown)} (accepted: {', '.join(PROVIDERS)})"
        )
    return [PROVIDERS[name] for name in packages or PROVIDERS]


def _row(provider, state, version="", cause=""):
    return {
        "package": provider.package,
        "backends": list(provider.backends),
        "state": state,
        "version": version,
        "cause": cause,
        "install": "" if state == "bound" else provider.install,
    }


def bind(*packages: str, records: _Mapping[str, _Any] | None = None) -> list[dict[str, _Any]]:
    """Binds the packages, all known ones when none is named, as far as they import.

    records: {package: file}, records of hardware validations of these packages beside the committed ones, as
    `python3 -m fovea.check` writes them; on an accelerator a path counts as supported only with one of its version and
    kind of device (docs/validation). ArgumentError when a file is no record or does not count. Returns the rows of
    status() for them: "state" is "bound", or "absent" with the cause and the line that installs it. Binding again takes
    the module that is importable then. Thread-safe.
    """
    rows = []
    for provider in _known(packages):
        try:
            module = importlib.import_module(provider.module)
            provider.check(module)
        except Exception as error:  # noqa: BLE001 - whatever a package does at its import is its state
            unbind(provider.package)
            rows.append(_row(provider, "absent", cause=f"{type(error).__name__}: {error}"))
            continue
        version = _version(provider, module)
        _bind(provider, module, version, (records or {}).get(provider.package))
        rows.append(_row(provider, "bound", version))
    return rows


def register(provider: Provider) -> None:
    """Makes a Provider of the caller's known to bind() and to `python3 -m fovea.check`; replaces one of its package."""
    if not isinstance(provider, Provider) or not provider.package or not provider.backends:
        raise fovea.ArgumentError(
            _INVALID, "invalid_argument", f"{provider!r} is no Provider with a package and the backends that it serves"
        )
    with _lock:
        PROVIDERS[provider.package] = provider


def status(*packages: str) -> list[dict[str, _Any]]:
    """What bind() has done so far: [{"package", "backends", "state", "version", "cause", "install"}]."""
    with _lock:
        bound = dict(_bound)
    return [
        _row(p, "bound", bound[p.package].version) if p.package in bound else _row(p, "absent", cause="not bound")
        for p in _known(packages)
    ]


def unbind(*packages: str) -> None:
    """Takes the packages' kernels back; no effect on those that are not bound. No call of them may be running."""
    for provider in _known(packages):
        with _lock:
            kernel = _bound.pop(provider.package, None)
        if kernel is not None:
            fovea._lib().fovea_unbind_package(provider.package.encode())
    fovea._invalidate()


def _bind(provider, module, version, record):
    kernel = _Kernel(provider, module, version, record)
    fovea._call(fovea._lib().fovea_bind_package, _c.byref(kernel.package))
    with _lock:
        _bound[provider.package] = kernel
    fovea._invalidate()


class Call:
    """One call for a package: tensors of torch over the caller's memory, and the numbers of the problem."""

    def __init__(self, wire):
        run, problem = wire.run.contents, wire.problem.contents
        self.backend = wire.backend_name.decode()
        self.path = wire.path.decode()
        self.valid_queries = wire.valid_queries
        self.problem = problem
        self.layout = _plugin.LAYOUTS[problem.layout]
        self.out_layout = _plugin.LAYOUTS[problem.out_layout]
        self.scale = problem.scale
        self.causal = bool(problem.causal)
        self.window = (problem.window_left, 0 if problem.causal else problem.window_right)
        for name in ("q", "k", "v", "out", "lse", "mask", "kv_lengths", "cu_seqlens_q", "cu_seqlens_kv"):
            tensor = getattr(run, name)
            setattr(self, name, _torch.from_dlpack(_tensors.Borrowed(tensor)) if tensor.rank else None)

    def bshd(self):
        """q, k, v as [B,S,H,D]."""
        return [t.transpose(1, 2) if self.layout == "bhsd" else t for t in (self.q, self.k, self.v)]

    def bhsd(self):
        """q, k, v as [B,H,S,D]."""
        return [t.transpose(1, 2) if self.layout == "bshd" else t for t in (self.q, self.k, self.v)]

    def give(self, out, lse=None, *, layout):
        """Puts a package's result, in `layout`, where the caller wants it."""
        if out.data_ptr() != self.out.data_ptr():
            moved = layout != self.out_layout and "packed" not in (layout, self.out_layout)
            self.out.copy_(out.transpose(1, 2) if moved else out)
        if self.lse is not None:
            if lse is None:
                raise RuntimeError("the package returned no log-sum-exp")
            self.lse.copy_(lse[..., : self.lse.shape[-1]])


class _Kernel:
    """The C structure of a provider and the functions that it points to."""

    def __init__(self, provider, module, version, record):
        self.provider, self.module, self.version = provider, module, version
        self.functions = (
            _plugin.RunFunction(self._run),
            _plugin.RefuseFunction(self._refuse),
            _plugin.DimsFunction(self._validate) if provider.validator(module) else _plugin.DimsFunction(),
        )
        self.validator = provider.validator(module)
        self.package = _plugin.Package(
            struct_size=_c.sizeof(_plugin.Package),
            package=provider.package.encode(),
            version=version.encode(),
            run=self.functions[0],
            refuse=self.functions[1],
            validate_dims=self.functions[2],
            validation_record=None if record is None else str(record).encode(),
        )

    def _run(self, _, wire, sink):
        try:
            call = Call(wire.contents)
            stream = wire.contents.run.contents.stream or 0
            with _torch.no_grad(), _on_stream(call.q, stream):
                self.provider.run(self.module, call)
            return 0
        except fovea.UnsupportedError as error:
            _plugin.set_message(sink, str(error))
            return _UNSUPPORTED
        except BaseException:  # noqa: BLE001 - nothing may leave a callback
            _plugin.set_message(sink, traceback.format_exc(limit=4))
            return _FAILED

    def _refuse(self, _, backend, problem, sink):
        try:
            for reason in self.provider.refusals(self.module, backend.decode(), problem.contents):
                _plugin.add_reason(sink, *reason)
        except BaseException as error:  # noqa: BLE001
            _plugin.add_reason(
                sink, "plugin", self.provider.package, f"{type(error).__name__}: {error}", "an answer", "report it"
            )

    def _validate(self, _, head_dim, dim_v, alignment, sink):
        try:
            self.validator(head_dim, dim_v, alignment)
            return 0
        except BaseException as error:  # noqa: BLE001 - a rule refuses by raising
            _plugin.set_message(sink, str(error) or type(error).__name__)
            return _UNSUPPORTED


class _on_stream:
    """Makes `stream` torch's current one and its device the current device, unless they are."""

    def __init__(self, tensor, stream):
        self.guard = None
        if tensor.is_cuda and (
            _torch.cuda.current_device() != tensor.get_device()
            or _torch.cuda.current_stream(tensor.device).cuda_stream != stream
        ):
            self.guard = _torch.cuda.stream(_torch.cuda.ExternalStream(stream, device=tensor.device))

    def __enter__(self):
        if self.guard is not None:
            self.guard.__enter__()

    def __exit__(self, *error):
        if self.guard is not None:
            self.guard.__exit__(*error)
