"""Fovea for PyTorch: attention on CPU and CUDA tensors, opaque to torch.compile.

    import fovea.torch
    out = fovea.torch.attention(q, k, v)                  # [B, S, H, D]
    out, receipt = fovea.torch.attention(q, k, v, return_receipt=True)
    print(receipt["backend"], receipt["path"])

Tensors are read where they lie, on torch's current stream; outputs and workspace come from torch's allocator. The call
is the operator fovea::attention, so it compiles with fullgraph=True and records into CUDA graphs. It has no backward.
"""

from __future__ import annotations

import ctypes as _c
import json as _json
from collections.abc import Iterable as _Iterable
from collections.abc import Mapping as _Mapping
from typing import Any as _Any

try:
    import torch
except ImportError as error:
    raise ImportError(f"fovea.torch needs PyTorch 2.6 or newer: pip install torch ({error})") from error

import fovea
from fovea import _capi
from fovea.sparse import BlockMask, MaskMap, SparseAttentionState

from . import _keys, _op
from ._op import record_calls

__all__ = [
    "Attention",
    "BlockMask",
    "MaskMap",
    "SparseAttentionState",
    "attention",
    "block_lists",
    "record_calls",
    "receipts",
    "resolve",
    "resolve_key",
]

_LAYOUTS = {
    "bshd": "bshd",
    "bsnd": "bshd",
    "bhsd": "bhsd",
    "bnsd": "bhsd",
    "packed": "packed",
    "thd": "packed",
}


def _layout(name, field):
    layout = _LAYOUTS.get(name) or _LAYOUTS.get(str(name).lower())
    if layout is None:
        raise fovea.ArgumentError(
            100,
            "invalid_argument",
            f"{field} '{name}' is not a layout; accepted: bshd (BSND), bhsd (BNSD), packed (THD)",
        )
    return layout


@torch.compiler.assume_constant_result
def resolve_key(
    config: _Any = None,
    backend: str | None = None,
    role: str = "self",
    category: str | None = None,
    threads: int = 0,
    platform: str | None = None,
    facts: _Mapping[str, _Any] | str | None = None,
) -> str:
    """The key of a configuration: text that states all of it, for `attention(..., key=key)`.

    config: JSON text, a mapping, a configuration of the guide's kind, or None; backend: shorthand for its default;
    role, category: which entry applies; threads: OpenMP threads of CPU calls, 0 for all. With neither config nor
    backend FOVEA_BACKEND is read, now. platform and facts (a mapping or "sm=90,fa4=4.0.0") describe the device that
    resolve() is to answer for, in place of the tensors' own. Errors in the configuration are raised here. A key owns
    no tensor. Thread-safe.
    """
    return _keys.make_key(config, backend, role, category, threads, platform, facts)


def _metadata_text(metadata):
    return metadata if isinstance(metadata, str) else _json.dumps(metadata, sort_keys=True)


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None = None,
    *,
    kv_lengths: torch.Tensor | None = None,
    cu_seqlens: torch.Tensor | None = None,
    cu_seqlens_q: torch.Tensor | None = None,
    cu_seqlens_kv: torch.Tensor | None = None,
    max_seqlen_q: int = 0,
    max_seqlen_kv: int = 0,
    config: _Any = None,
    backend: str | None = None,
    key: str | None = None,
    role: str = "self",
    category: str | None = None,
    layout: str = "bshd",
    output_layout: str | None = None,
    scale: float | None = None,
    is_causal: bool | None = None,
    window: tuple[int, int] | None = None,
    sparse_state: SparseAttentionState | None = None,
    block_counts: torch.Tensor | None = None,
    block_indices: torch.Tensor | None = None,
    block_partial: torch.Tensor | None = None,
    block_q: int = 128,
    block_kv: int = 128,
    metadata: _Mapping[str, _Any] | str | None = None,
    return_lse: bool = False,
    return_receipt: bool = False,
) -> _Any:
    """softmax(scale q k^T + mask) v, without gradients.

    q [B,Sq,Hq,D], k [B,Skv,Hkv,D], v [B,Skv,Hkv,Dv] in `layout` (bshd, bhsd, packed), f32, f16 or bf16, on the CPU or
    one CUDA device. mask: boolean (True = attend) or additive, [1|B,Skv], [1|B,1|Sq,Skv] or [1|B,1|Hq,1|Sq,Skv].
    kv_lengths [B]: keys of each item that count. cu_seqlens (int32 [N+1], or one for queries and one for keys): the
    documents of packed tensors; on a GPU with max_seqlen_q and max_seqlen_kv. config, backend, role, category: what is
    to run, as in resolve_key; or its result as `key`. window: (left, right), -1 for unbounded. block_counts,
    block_indices, block_partial: the key blocks of every block of queries. metadata: what is known of the mask, a
    mapping (docs/metadata.md).

    Returns out, contiguous [B,Sq,Hq,Dv] in `output_layout` (default: layout), or a tuple (out[, lse][, receipt]) with
    lse float32 [B,Hq,Sq], packed [Hq,Tq]. A receipt cannot be returned from compiled code; see record_calls.
    """
    if key is None:
        key = resolve_key(config, backend, role, category)
    if torch.is_grad_enabled():
        _op.refuse_gradients(q, k, v, mask)
    # An argument that is not passed costs an eager call nothing.
    given = {"key": key}
    if layout != "bshd" or output_layout is not None:
        given["layout"] = layout = _layout(layout, "layout")
        given["output_layout"] = layout if output_layout is None else _layout(output_layout, "output_layout")
    if mask is not None:
        given["mask"] = mask
    if kv_lengths is not None:
        given["kv_lengths"] = kv_lengths
    if cu_seqlens is not None or cu_seqlens_q is not None or cu_seqlens_kv is not None:
        given["cu_seqlens_q"] = cu_seqlens if cu_seqlens_q is None else cu_seqlens_q
        given["cu_seqlens_kv"] = cu_seqlens if cu_seqlens_kv is None else cu_seqlens_kv
        given["max_seqlen_q"] = max_seqlen_q
        given["max_seqlen_kv"] = max_seqlen_kv
    if block_counts is not None or block_indices is not None:
        given["block_counts"] = block_counts
        given["block_indices"] = block_indices
        given["block_partial"] = block_partial
        given["block_q"] = block_q
        given["block_kv"] = block_kv
    if scale is not None:
        given["scale"] = scale
    if is_causal is not None:
        given["is_causal"] = is_causal
    if window is not None:
        given["window_left"], given["window_right"] = window
    if sparse_state is not None:
        given["sparse"] = _op.state_text(sparse_state)
    if metadata is not None:
        given["metadata"] = _metadata_text(metadata)
    if return_lse:
        given["return_lse"] = True
    if return_receipt:
        with record_calls() as calls:
            out, lse = _op.call(q, k, v, **given)
        receipt = calls[-1]["receipt"]
        return (out, lse, receipt) if return_lse else (out, receipt)
    out, lse = (_op.op if torch.compiler.is_compiling() else _op.call)(q, k, v, **given)
    return (out, lse) if return_lse else out


def attend_jointly(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    joint_q: torch.Tensor,
    joint_k: torch.Tensor,
    joint_v: torch.Tensor,
    mask: torch.Tensor | None = None,
    *,
    joint_mask: torch.Tensor | None = None,
    strategy: str = "front",
    layout: str = "bshd",
    output_layout: str | None = None,
    **arguments: _Any,
) -> _Any:
    """Attention over the tokens of a call and a second stream of tokens, such as text, joined into one sequence.

    joint_q, joint_k, joint_v: as q, k and v but for their number of tokens; strategy: "front" puts them before those of
    the call, "rear" behind them. The other arguments are those of attention() and are about the joined sequence: masks
    and lengths cover all its keys, causal, windows and metadata count its positions. With joint_mask, [1|B,Sj], key
    padding of the joint tokens, mask is that of the call's own keys, [1|B,S] of the same type, or None: a stream
    without a mask is seen whole. On the CPU and on CUDA; joining copies q, k and v. Returns what attention() returns,
    with out as a pair (out, joint_out) of views.
    """
    layout = _layout(layout, "layout")
    output_layout = layout if output_layout is None else _layout(output_layout, "output_layout")
    if layout == "packed" or strategy not in ("front", "rear"):
        field, got, accepted = ("layout", layout, "bshd, bhsd") if layout == "packed" else (
            "strategy", strategy, "front, rear"
        )  # fmt: skip
        remedy = "put the joint tokens into the documents" if layout == "packed" else "name one of them"
        reason = fovea.Reason("packed" if layout == "packed" else "metadata", field, str(got), accepted, remedy, "")
        message = f"joint attention: {field} {got} is not supported (accepted: {accepted}), {remedy}"
        kind = fovea.UnsupportedError if layout == "packed" else fovea.ArgumentError
        raise kind(200 if layout == "packed" else 100, "unsupported", message, [reason])
    axis = 2 if layout == "bhsd" else 1

    def join(own, joint, name):
        same = own.dim() == joint.dim() == 4 and own.dtype == joint.dtype and own.device == joint.device
        if not same or any(own.shape[i] != joint.shape[i] for i in range(4) if i != axis):
            raise fovea.ArgumentError(
                100, "invalid_argument", f"joint {name} {tuple(joint.shape)} does not fit {name} {tuple(own.shape)}: "
                "type, device and every axis but the sequence are the same",
            )  # fmt: skip
        return torch.cat((joint, own) if strategy == "front" else (own, joint), axis)

    def join_masks(own, joint):
        if own is None:
            shown = 0 if joint.is_floating_point() else 1
            own = torch.full((1, k.shape[axis]), shown, dtype=joint.dtype, device=joint.device)
        for name, mask, keys in (("mask", own, k.shape[axis]), ("joint mask", joint, joint_k.shape[axis])):
            if mask.dim() != 2 or mask.shape[0] not in (1, k.shape[0]) or mask.shape[1] != keys or (
                mask.dtype != joint.dtype or mask.device != joint.device
            ):  # fmt: skip
                raise fovea.ArgumentError(
                    100, "invalid_argument", f"{name} {tuple(mask.shape)} does not fit beside a joint mask: rows of "
                    f"{keys} keys, one or {k.shape[0]}, both masks of one type on one device",
                )  # fmt: skip
        rows = max(own.shape[0], joint.shape[0])
        own, joint = own.expand(rows, -1), joint.expand(rows, -1)
        return torch.cat((joint, own) if strategy == "front" else (own, joint), 1)

    if joint_mask is not None:
        mask = join_masks(mask, joint_mask)
    given = {"layout": layout, "output_layout": output_layout, **arguments}
    result = attention(join(q, joint_q, "q"), join(k, joint_k, "k"), join(v, joint_v, "v"), mask, **given)
    out, *rest = result if isinstance(result, tuple) else (result,)
    axis_out = 2 if output_layout == "bhsd" else 1
    sizes = [joint_q.shape[axis], q.shape[axis]]
    first, second = out.split(sizes if strategy == "front" else sizes[::-1], axis_out)
    pair = (second, first) if strategy == "front" else (first, second)
    return (pair, *rest) if rest else pair


def block_lists(mask: BlockMask, device: torch.device | str = "cpu") -> dict[str, _Any]:
    """The lists of a BlockMask as tensors: arguments for attention(..., **block_lists(mask, device))."""

    def tensor(bytes_and_shape):
        data, shape = bytes_and_shape
        return torch.frombuffer(bytearray(data), dtype=torch.int32).reshape(shape).to(device)

    return {
        "block_counts": tensor(mask.counts()),
        "block_indices": tensor(mask.indices()),
        "block_q": mask.block_q,
        "block_kv": mask.block_kv,
    }


def resolve(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None = None,
    *,
    kv_lengths: torch.Tensor | None = None,
    cu_seqlens: torch.Tensor | None = None,
    cu_seqlens_q: torch.Tensor | None = None,
    cu_seqlens_kv: torch.Tensor | None = None,
    max_seqlen_q: int = 0,
    max_seqlen_kv: int = 0,
    config: _Any = None,
    backend: str | None = None,
    key: str | None = None,
    role: str = "self",
    category: str | None = None,
    layout: str = "bshd",
    output_layout: str | None = None,
    scale: float | None = None,
    is_causal: bool | None = None,
    window: tuple[int, int] | None = None,
    sparse_state: SparseAttentionState | None = None,
    block_counts: torch.Tensor | None = None,
    block_indices: torch.Tensor | None = None,
    block_partial: torch.Tensor | None = None,
    block_q: int = 128,
    block_kv: int = 128,
    metadata: _Mapping[str, _Any] | str | None = None,
    return_lse: bool = False,
    parallel_strategy: str | None = None,
    outer_boundaries: _Iterable[str] | str | None = None,
    paged_kv: bool = False,
    kv_cache_dtype: str | None = None,
    require_fullgraph: bool = False,
) -> dict[str, _Any]:
    """What attention() would run with these arguments, without running it: the report of docs/execution.md as a dict.

    {"backend", "provider", "path", "instance", "support", "compilation_mode", "reasons", "requested", ...} for the
    device of the tensors. parallel_strategy, outer_boundaries, paged_kv, kv_cache_dtype: what the host engine declares
    around the call; require_fullgraph is answered in "requested". Reads no tensor values. Not for compiled code.
    """
    if key is None:
        key = resolve_key(config, backend, role, category)
    layout = _layout(layout, "layout")
    output_layout = layout if output_layout is None else _layout(output_layout, "output_layout")
    cu_seqlens_q = cu_seqlens if cu_seqlens_q is None else cu_seqlens_q
    cu_seqlens_kv = cu_seqlens if cu_seqlens_kv is None else cu_seqlens_kv
    left, right = (-1, -1) if window is None else window
    call = _op.fill_call(
        q, k, v,
        (mask, kv_lengths, cu_seqlens_q, cu_seqlens_kv, block_counts, block_indices, block_partial),
        layout, output_layout, scale, is_causal, left, right, max_seqlen_q, max_seqlen_kv, block_q, block_kv,
    )  # fmt: skip
    if sparse_state is not None:
        _op.state_text(sparse_state)
        call.sparse_state = sparse_state._handle
    if return_lse:
        _, shape = _op.output_shapes(q, v, layout, output_layout)
        lse = q.new_empty(shape, dtype=torch.float32)
        _op.describe(call.lse, lse, "lse")
        call.lse.data = lse.data_ptr()
    stated = None if metadata is None else _keys.metadata(_metadata_text(metadata))
    if stated is not None:
        call.metadata = stated.handle
    around = _capi.Surroundings(
        struct_size=_c.sizeof(_capi.Surroundings),
        parallel_strategy=fovea._text(parallel_strategy),
        outer_boundaries=fovea._text(outer_boundaries),
        paged_kv=paged_kv,
        kv_cache_dtype=fovea._text(kv_cache_dtype),
        require_fullgraph=require_fullgraph,
    )
    layer = _keys.layer(key)
    return fovea._take_json(fovea._lib().fovea_attention_resolve, layer.handle, _c.byref(call), _c.byref(around))


def __getattr__(name):
    # The guide's names; its attention() has arguments of its own and stays there.
    if name in ("AttentionConfig", "AttnImplType", "SparseAttentionConfig") or name.endswith("_AVAILABLE"):
        from . import guide

        return getattr(guide, name)
    raise AttributeError(f"module 'fovea.torch' has no attribute '{name}'")


def receipts(key: str) -> list[dict[str, _Any]]:
    """[{"problem", "receipt"}]: what was planned so far in this process for the calls of a key, in order."""
    return _keys.receipts(key)


class Attention(torch.nn.Module):
    """An attention layer without parameters: resolves its configuration once, then calls attention() with it.

    Arguments as in attention(). Layers of equal configuration share one key, so a compiled model has one graph for
    them.
    """

    def __init__(
        self,
        config: _Any = None,
        *,
        backend: str | None = None,
        key: str | None = None,
        role: str = "self",
        category: str | None = None,
        layout: str = "bshd",
        output_layout: str | None = None,
        scale: float | None = None,
        is_causal: bool | None = None,
        window: tuple[int, int] | None = None,
        threads: int = 0,
    ) -> None:
        super().__init__()
        self.key = resolve_key(config, backend, role, category, threads) if key is None else key
        options = {
            "layout": _layout(layout, "layout"),
            "output_layout": None if output_layout is None else _layout(output_layout, "output_layout"),
            "scale": scale,
            "is_causal": is_causal,
            "window": window,
        }
        self.options = {name: value for name, value in options.items() if value is not None}

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None, **arguments: _Any
    ) -> _Any:
        return attention(q, k, v, mask, key=self.key, **{**self.options, **arguments})

    def resolve(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None, **arguments: _Any
    ) -> dict[str, _Any]:
        """As fovea.torch.resolve."""
        return resolve(q, k, v, mask, key=self.key, **{**self.options, **arguments})

    def receipts(self) -> list[dict[str, _Any]]:
        """As fovea.torch.receipts: those of every layer with this layer's key."""
        return receipts(self.key)

    def extra_repr(self) -> str:
        return ", ".join([f"key={self.key}", *(f"{name}={value!r}" for name, value in self.options.items())])
