"""Fovea: attention for diffusion transformers, from Python.

    import fovea, numpy
    q = k = v = numpy.random.randn(1, 128, 4, 64).astype("float32")
    out, receipt = fovea.attention(q, k, v, backend="FLASH_ATTN", return_receipt=True)
    print(receipt["path"])

Tensors are numpy arrays or anything with __dlpack__ on the CPU; the result is of the kind of q. Errors are typed
(see fovea.errors) and carry the refusal's reasons as data.
"""

from __future__ import annotations

import ctypes as _c
import json as _json
import os as _os
import threading as _threading
from collections.abc import Mapping as _Mapping
from collections.abc import Sequence as _Sequence
from typing import Any as _Any

from . import _capi, _tensors
from ._facts import facts
from .errors import (
    ArgumentError,
    CommunicationError,
    DeviceError,
    FoveaError,
    InternalError,
    Reason,
    ResourceError,
    UnsupportedError,
)
from .errors import class_for as _class_for

__all__ = [
    "ArgumentError",
    "Attention",
    "BlockMask",
    "CommunicationError",
    "DeviceError",
    "FoveaError",
    "InternalError",
    "MaskMap",
    "Reason",
    "ResourceError",
    "SparseAttentionState",
    "UnsupportedError",
    "attention",
    "availability",
    "explain",
    "facts",
    "load_library",
    "load_plugin",
    "load_plugins_from_environment",
    "version",
]

_library = None
_lock = _threading.Lock()
# Counts what makes earlier plans stale: another library, other backends behind the names.
_generation = 0


def _invalidate():
    global _generation
    with _lock:
        _generation += 1


def load_library(path: str | _os.PathLike[str] | None = None) -> _c.CDLL:
    """Loads libfovea from `path`, or from the package, a checkout's build folder or the system. Done on first use."""
    global _library, _generation
    with _lock:
        if _library is None or path is not None:
            _library = _capi.load(path)
            _generation += 1
    return _library


def _lib():
    return _library if _library is not None else load_library()


def _text(value):
    return None if value is None else str(value).encode()


def _check(code, error):
    if code == 0:
        return
    lib = _lib()
    reasons = []
    for index in range(lib.fovea_error_reason_count(error)):
        raw = lib.fovea_error_reason(error, index)
        reasons.append(Reason(*(getattr(raw, field).decode() for field, _ in _capi.Reason._fields_)))
    message = lib.fovea_error_message(error).decode() or "out of memory"
    name = lib.fovea_error_code_name(code).decode()
    lib.fovea_error_free(error)
    raise _class_for(code)(code, name, message, reasons)


def _call(function, *arguments):
    error = _c.c_void_p()
    _check(function(*arguments, _c.byref(error)), error)


def _take_json(function, *arguments):
    text = _c.c_void_p()
    _call(function, *arguments, _c.byref(text))
    try:
        return _json.loads(_c.string_at(text))
    finally:
        _lib().fovea_string_free(text)


def _config_text(config):
    if config is None or isinstance(config, str):
        return config
    if hasattr(config, "to_json"):
        return config.to_json()
    try:
        return _json.dumps(config)
    except (TypeError, ValueError) as error:
        message = (
            f"config of type {type(config).__name__}: {error} "
            "(accepted: JSON text, a mapping of plain values, or an object with to_json)"
        )
        raise ArgumentError(110, "invalid_config", message) from error


class _Config:
    """An AttentionConfig handle. `config` is JSON text, a mapping, an object with to_json(), or None."""

    def __init__(self, config=None, backend=None):
        self._handle = _c.c_void_p()
        config = _config_text(config)
        # The environment belongs to a call that configures nothing.
        use_environment = config is None and backend is None
        _call(_lib().fovea_config_create, _text(config), _text(backend), use_environment, _c.byref(self._handle))

    def __del__(self):
        if self._handle:
            _lib().fovea_config_free(self._handle)


class _Metadata:
    """A fovea_metadata handle. `metadata` is JSON text, a mapping or None."""

    def __init__(self, metadata=None):
        self._handle = _c.c_void_p()
        if metadata is None:
            return
        if not isinstance(metadata, str):
            metadata = _json.dumps(metadata)
        _call(_lib().fovea_metadata_create, _text(metadata), _c.byref(self._handle))

    def __del__(self):
        if self._handle:
            _lib().fovea_metadata_free(self._handle)


class Attention:
    """One attention layer: built once, called many times, from any thread.

    role, category: which entry of the configuration applies. config: JSON text or a mapping; backend: shorthand for
    its default. heads_q, heads_kv, head_dim, dim_v: checked on every call when given. threads: OpenMP threads, 0 for
    all. name, calibration: for skip_softmax with a target_sparsity, the layer's name in the checkpoint and the
    checkpoint's calibration, JSON text or a mapping (docs/config.md).
    """

    def __init__(
        self,
        config: _Mapping[str, _Any] | str | None = None,
        *,
        backend: str | None = None,
        role: str = "self",
        category: str | None = None,
        heads_q: int = 0,
        heads_kv: int = 0,
        head_dim: int = 0,
        dim_v: int = 0,
        mask_free: bool = False,
        threads: int = 0,
        name: str | None = None,
        calibration: _Mapping[str, _Any] | str | None = None,
    ) -> None:
        self._handle = _c.c_void_p()
        if calibration is not None and not isinstance(calibration, str):
            calibration = _json.dumps(calibration)
        handle = _Config(config, backend)
        options = _capi.LayerOptions(
            _c.sizeof(_capi.LayerOptions),
            _text(role),
            _text(category),
            heads_q,
            heads_kv,
            head_dim,
            dim_v,
            mask_free,
            threads,
            None,
            None,
            _text(name),
            _text(calibration),
        )
        _call(_lib().fovea_attention_create, _c.byref(options), handle._handle, _c.byref(self._handle))

    def __del__(self):
        if getattr(self, "_handle", None):
            _lib().fovea_attention_free(self._handle)

    @staticmethod
    def _make_call(
        q: _Any,
        k: _Any,
        v: _Any,
        mask: _Any = None,
        *,
        kv_lengths: _Any = None,
        cu_seqlens_q: _Any = None,
        cu_seqlens_kv: _Any = None,
        layout: str = "bshd",
        output_layout: str | None = None,
        scale: float | None = None,
        is_causal: bool | None = None,
        window: tuple[int, int] | None = None,
        sparse_state: _Any = None,
        timestep: float | None = None,
        metadata: _Mapping[str, _Any] | str | None = None,
    ) -> _Any:
        """The fovea_call of these arguments, and what must live as long as it."""
        call = _capi.Call(struct_size=_c.sizeof(_capi.Call), window_left=-1, window_right=-1)
        given = {
            "q": q,
            "k": k,
            "v": v,
            "mask": mask,
            "kv_lengths": kv_lengths,
            "cu_seqlens_q": cu_seqlens_q,
            "cu_seqlens_kv": cu_seqlens_kv,
        }
        owners = []
        for name, value in given.items():
            tensor, owner = _tensors.view(value, name)
            setattr(call, name, tensor)
            owners.append(owner)
        call.input_layout = _text(layout)
        call.output_layout = _text(output_layout)
        if scale is not None:
            call.scale, call.has_scale = scale, 1
        if is_causal is not None:
            call.is_causal, call.has_is_causal = bool(is_causal), 1
        if window is not None:
            call.window_left, call.window_right = window
        if sparse_state is not None:
            call.sparse_state = sparse_state._handle
            owners.append(sparse_state)
        if timestep is not None:
            call.timestep, call.has_timestep = timestep, 1
        stated = _Metadata(metadata)
        call.metadata = stated._handle.value
        owners.append(stated)
        return call, owners

    def __call__(
        self,
        q: _Any,
        k: _Any,
        v: _Any,
        mask: _Any = None,
        *,
        return_lse: bool = False,
        return_receipt: bool = False,
        **options: _Any,
    ) -> _Any:
        """q [B,Sq,Hq,D], k [B,Skv,Hkv,D], v [B,Skv,Hkv,Dv] in `layout`; out [B,Sq,Hq,Dv] of q's kind and dtype.

        mask: boolean (True = attend) or additive, [1|B,Skv], [1|B,1|Sq,Skv] or [1|B,1|Hq,1|Sq,Skv]. Options:
        kv_lengths, cu_seqlens_q, cu_seqlens_kv; layout ("bshd"), output_layout, scale, is_causal; window: (left,
        right), -1 for unbounded; metadata: a mapping or JSON text of what is known of masks and lengths
        (docs/metadata.md); sparse_state: a SparseAttentionState, for layers whose backend is sparse; timestep: in
        [0, 1], 1 for pure noise, which the gate of skip_softmax reads. Returns out, or a tuple (out[, lse][, receipt])
        with what was asked for.
        """
        call, owners = self._make_call(q, k, v, mask, **options)
        lib = _lib()
        out_spec, lse_spec = _capi.Tensor(), _capi.Tensor()
        _call(lib.fovea_output_spec, _c.byref(call), _c.byref(out_spec), _c.byref(lse_spec))
        call.out, finish_out = _tensors.allocate(out_spec, q)
        finish_lse = None
        if return_lse:
            call.lse, finish_lse = _tensors.allocate(lse_spec, q)
        receipt = _c.c_void_p()
        _call(lib.fovea_attention_run, self._handle, _c.byref(call), _c.byref(receipt))
        try:
            report = _json.loads(lib.fovea_receipt_json(receipt)) if return_receipt else None
        finally:
            lib.fovea_receipt_free(receipt)
        results = [finish_out()]
        if finish_lse is not None:
            results.append(finish_lse())
        if return_receipt:
            results.append(report)
        return results[0] if len(results) == 1 else tuple(results)

    def resolve(
        self,
        q: _Any,
        k: _Any,
        v: _Any,
        mask: _Any = None,
        *,
        parallel_strategy: str | None = None,
        outer_boundaries: tuple[str, ...] = (),
        paged_kv: bool = False,
        kv_cache_dtype: str | None = None,
        require_fullgraph: bool = False,
        **options: _Any,
    ) -> _Any:
        """The report of the execution contract (docs/execution.md) for a call, as a dict; nothing runs.

        The tensors and options are those of a call; values are not read. parallel_strategy, outer_boundaries (a
        sequence), paged_kv with its kv_cache_dtype: what the host engine declares. "requested" answers
        require_fullgraph.
        """
        call, owners = self._make_call(q, k, v, mask, **options)
        surroundings = _capi.Surroundings(
            _c.sizeof(_capi.Surroundings),
            _text(parallel_strategy),
            _text(",".join(outer_boundaries) or None),
            paged_kv,
            _text(kv_cache_dtype),
            require_fullgraph,
        )
        return _take_json(_lib().fovea_attention_resolve, self._handle, _c.byref(call), _c.byref(surroundings))


def attention(
    q: _Any,
    k: _Any,
    v: _Any,
    mask: _Any = None,
    *,
    config: _Mapping[str, _Any] | str | None = None,
    backend: str | None = None,
    role: str = "self",
    category: str | None = None,
    threads: int = 0,
    **options: _Any,
) -> _Any:
    """One call without keeping a layer; see Attention for the arguments."""
    layer = Attention(config, backend=backend, role=role, category=category, threads=threads)
    return layer(q, k, v, mask, **options)


def explain(
    config: _Mapping[str, _Any] | str | None = None,
    *,
    backend: str | None = None,
    device: str | None = None,
    platform: str | None = None,
    facts: _Mapping[str, _Any] | str | None = None,
    role: str | None = None,
    category: str | None = None,
    problem: str | None = None,
    model: _Mapping[str, _Any] | str | None = None,
    size: tuple[int, int] | None = None,
    frames: int | None = None,
    dtype: str | None = None,
    mask_free: bool = False,
    steps: int | None = None,
    layers: int | None = None,
    schedule: _Mapping[str, _Any] | str | None = None,
    sigmas: _Sequence[float] | None = None,
) -> dict[str, _Any]:
    """What a configuration would run and why (fovea.explain/1 as a dict), on this CPU or a described device.

    device: a preset such as "h200", which facts change, or "cuda:0"; or platform and facts. model: a preset such as
    "wan2.1-t2v-14b", or a description (docs/presets.md), whose roles, layers and steps are explained; size: (height,
    width) in pixels, frames and dtype are of the model. With steps and layers, the numbers of a run, there is an entry
    for every range of both that runs alike; schedule is a mapping or JSON text as in docs/config.md. sigmas, the noise
    level of every step, are needed for sigma windows. The answer is that of `fovea explain --format json`.
    """
    handle = _Config(config, backend)
    if isinstance(facts, dict):
        facts = ",".join(f"{key}={value}" for key, value in facts.items())
    if model is None and (layers is not None or schedule is not None or sigmas is not None) and steps is None:
        raise TypeError("explain: layers, schedule and sigmas need steps, or a model")
    if sigmas is not None and steps is not None and len(sigmas) != steps:
        raise ValueError(f"explain: {steps} steps need as many sigmas, not {len(sigmas)}")
    if (steps is not None and steps < 1) or (layers is not None and layers < 1):
        message = f"explain: steps and layers are at least 1, not {steps} and {layers}"
        raise ArgumentError(100, "invalid_argument", message)
    given = _capi.ExplainOptions(
        struct_size=_c.sizeof(_capi.ExplainOptions),
        device=_text(device),
        platform=_text(platform),
        facts=_text(facts),
        role=_text(role),
        category=_text(category),
        problem=_text(problem),
        model=_text(model if model is None or isinstance(model, str) else _json.dumps(model)),
        frames=frames or 0,
        dtype=_text(dtype),
        mask_free=mask_free,
        steps=steps or 0,
        layers=layers or 0,
        schedule=_text(schedule if schedule is None or isinstance(schedule, str) else _json.dumps(schedule)),
    )
    if size is not None:
        given.height, given.width = size
    if sigmas is not None:
        given.sigmas, given.sigma_count = (_c.c_double * max(len(sigmas), 1))(*sigmas), len(sigmas)
    return _take_json(_lib().fovea_explain_with, handle._handle, _c.byref(given))


def availability(backend: str) -> dict[str, _Any]:
    """Whether a backend runs on this machine, with the cause and what to install when it does not."""
    return _take_json(_lib().fovea_availability, _text(backend))


def load_plugin(file: str | _os.PathLike[str]) -> dict[str, _Any]:
    """Loads a shared library of backends or platforms and puts its backends behind their names.

    Returns {"file", "name", "version", "platforms", "backends": [{"path", "name", "replaced"}]}. Runs the plugin's
    code, which stays loaded. Raises ArgumentError without such a file, UnsupportedError for a plugin that is wrong.
    """
    try:
        return _take_json(_lib().fovea_load_plugin, _os.fsencode(file))
    finally:
        _invalidate()


def load_plugins_from_environment() -> dict[str, _Any]:
    """Loads the plugins in the folders of FOVEA_PLUGIN_PATH: {"loaded": [...], "failed": [messages]}."""
    try:
        return _take_json(_lib().fovea_load_plugins_from_environment)
    finally:
        _invalidate()


def __getattr__(name):
    if name == "__version__":
        return version()
    if name in ("BlockMask", "MaskMap", "SparseAttentionState"):
        from . import sparse

        return getattr(sparse, name)
    raise AttributeError(f"module 'fovea' has no attribute '{name}'")


def version() -> str:
    """The library's version."""
    return _lib().fovea_version().decode()
