"""The operator fovea::attention: schema, fake, and the run on CPU and CUDA tensors.

A run reads the tensors where they lie, on torch's current stream, and takes outputs and workspace from torch's
allocator. What depends on shapes, types and options alone is prepared once per thread (PreparedCall); a later call of
the same kind fills in addresses and runs the plan.
"""

from __future__ import annotations

import contextlib
import ctypes as c
import json
import threading
from collections.abc import Iterator
from typing import Any

import torch

import fovea
from fovea import _capi
from fovea.sparse import SparseAttentionState

from . import _keys

SCHEMA = (
    "attention(Tensor q, Tensor k, Tensor v, Tensor? mask=None, Tensor? kv_lengths=None, Tensor? cu_seqlens_q=None, "
    "Tensor? cu_seqlens_kv=None, Tensor? block_counts=None, Tensor? block_indices=None, Tensor? block_partial=None, "
    "*, str key='', str layout='bshd', str output_layout='bshd', float? scale=None, bool? is_causal=None, "
    "int window_left=-1, int window_right=-1, SymInt max_seqlen_q=0, SymInt max_seqlen_kv=0, int block_q=128, "
    "int block_kv=128, str metadata='', str sparse='', bool return_lse=False) -> (Tensor out, Tensor lse)"
)

_DTYPES = {
    torch.float32: (2, 32),
    torch.float16: (2, 16),
    torch.bfloat16: (4, 16),
    torch.float64: (2, 64),
    torch.bool: (6, 8),
    torch.uint8: (1, 8),
    torch.int32: (0, 32),
    torch.int64: (0, 64),
}
_RANKS = {"bshd": 4, "bhsd": 4, "packed": 3}
_WORKSPACE_ALIGNMENT = 256
_MOST_CALLS = 1024
_MOST_KEPT_BYTES = 1 << 16

_OPTIONAL = (
    "mask",
    "kv_lengths",
    "cu_seqlens_q",
    "cu_seqlens_kv",
    "block_counts",
    "block_indices",
    "block_partial",
)


def _argument_error(message):
    return fovea.ArgumentError(100, "invalid_argument", message)


def state_text(state):
    """What a sparse state decides, as the operator takes it."""
    if not isinstance(state, SparseAttentionState):
        raise _argument_error(f"sparse_state is of type {type(state).__name__} (accepted: a SparseAttentionState)")
    return state.text


def refuse_other_types(given):
    """ArgumentError for the first argument that ought to be a tensor and is not."""
    for name in ("q", "k", "v", *_OPTIONAL):
        value = given.get(name)
        if not isinstance(value, torch.Tensor) and (value is not None or name in "qkv"):
            kind, accepted = type(value).__name__, "a torch.Tensor; fovea.attention takes other arrays"
            raise _argument_error(f"{name} is of type {kind} (accepted: {accepted})")


def _explain(given):
    """ArgumentError for an argument whose type made a call fail, if there is one."""
    refuse_other_types(given)
    for name, convert, accepted in (("scale", c.c_double, "a number"), ("is_causal", c.c_int32, "True or False")):
        try:
            if given.get(name) is not None:
                convert(given[name])
        except (TypeError, ValueError) as error:
            raise _argument_error(f"{name} is of type {type(given[name]).__name__} (accepted: {accepted})") from error


def refuse_gradients(*tensors):
    """UnsupportedError when autograd would have to record the call."""
    for tensor in tensors:
        if tensor is not None and getattr(tensor, "requires_grad", False):
            reason = fovea.Reason(
                "compilation",
                "requires_grad",
                "an input that requires a gradient",
                "inputs without, or a call under torch.no_grad()",
                "run the model under torch.no_grad() or torch.inference_mode()",
                "fovea is for inference and has no backward",
            )
            message = (
                "fovea::attention has no backward: an input requires a gradient and grad mode is on; run the model "
                "under torch.no_grad() or torch.inference_mode()"
            )
            raise fovea.UnsupportedError(200, "unsupported", message, [reason])


def _sizes(layout, shape):
    """(batch, seq, heads, head_dim); packed has no batch."""
    if layout == "bhsd":
        return shape[0], shape[2], shape[1], shape[3]
    if layout == "packed":
        return None, *shape
    return tuple(shape)


def output_shapes(q, v, layout, output_layout):
    """The shapes of out and lse: batch, sequence and heads of q, head size of v."""
    rank = _RANKS.get(layout)
    if rank is None or q.dim() != rank or v.dim() != rank:
        raise _argument_error(
            f"q has {q.dim()} and v {v.dim()} dimensions in layout '{layout}' "
            "(accepted: 4 in bshd and bhsd, 3 in packed)"
        )
    batch, seq, heads, _ = _sizes(layout, q.shape)
    dim_v = v.shape[-1]
    if layout == "packed":
        return (seq, heads, dim_v), (heads, seq)
    if output_layout == "bhsd":
        return (batch, heads, seq, dim_v), (batch, heads, seq)
    return (batch, seq, heads, dim_v), (batch, heads, seq)


def _fake(
    q,
    k,
    v,
    mask=None,
    kv_lengths=None,
    cu_seqlens_q=None,
    cu_seqlens_kv=None,
    block_counts=None,
    block_indices=None,
    block_partial=None,
    *,
    key="",
    layout="bshd",
    output_layout="bshd",
    scale=None,
    is_causal=None,
    window_left=-1,
    window_right=-1,
    max_seqlen_q=0,
    max_seqlen_kv=0,
    block_q=128,
    block_kv=128,
    metadata="",
    sparse="",
    return_lse=False,
):
    # Kernels are chosen by head sizes: a graph has them as constants, whatever else is dynamic.
    for tensor in (q, k, v):
        int(tensor.shape[-1])
    out, lse = output_shapes(q, v, layout, output_layout)
    return q.new_empty(out), q.new_empty(lse if return_lse else (0,), dtype=torch.float32)


def describe(to, tensor, name):
    """Fills a C tensor with everything but the address."""
    dtype = _DTYPES.get(tensor.dtype)
    if dtype is None:
        raise _argument_error(
            f"{name} has dtype {tensor.dtype} (accepted: {', '.join(str(d)[6:] for d in _DTYPES)})"
        )
    if not 1 <= tensor.dim() <= 5:
        raise _argument_error(f"{name} has {tensor.dim()} dimensions (accepted: 1 to 5)")
    if not (tensor.is_cpu or tensor.is_cuda):
        raise _argument_error(f"{name} is on device {tensor.device} (accepted: the CPU, a CUDA device)")
    to.device_type = 2 if tensor.is_cuda else 1
    to.device_index = tensor.get_device() if tensor.is_cuda else 0
    to.dtype_code, to.dtype_bits = dtype
    to.dtype_lanes = 1
    to.rank = tensor.dim()
    for axis, (size, stride) in enumerate(zip(tensor.shape, tensor.stride())):
        to.shape[axis] = size
        to.stride[axis] = stride


def fill_call(
    q,
    k,
    v,
    optional,
    layout,
    output_layout,
    scale,
    is_causal,
    window_left,
    window_right,
    max_seqlen_q,
    max_seqlen_kv,
    block_q,
    block_kv,
):
    """A C call with the inputs and options; outputs are absent."""
    refuse_other_types({"q": q, "k": k, "v": v, **dict(zip(_OPTIONAL, optional))})
    call = _capi.Call(struct_size=c.sizeof(_capi.Call))
    for name, tensor in (("q", q), ("k", k), ("v", v), *zip(_OPTIONAL, optional)):
        if tensor is not None:
            to = getattr(call, name)
            describe(to, tensor, name)
            to.data = tensor.data_ptr()
    call.input_layout, call.output_layout = layout.encode(), output_layout.encode()
    if scale is not None:
        call.scale, call.has_scale = scale, 1
    if is_causal is not None:
        call.is_causal, call.has_is_causal = is_causal, 1
    call.window_left, call.window_right = window_left, window_right
    call.max_seqlen_q, call.max_seqlen_kv = max_seqlen_q, max_seqlen_kv
    call.block_q, call.block_kv = block_q, block_kv
    return call


def _cpu_workspace(size):
    # torch aligns CPU memory to 64 bytes.
    return torch.empty(size + _WORKSPACE_ALIGNMENT, dtype=torch.uint8, device="cpu")


def _aligned(memory):
    address = memory.data_ptr()
    return address + -address % _WORKSPACE_ALIGNMENT


class PreparedCall:
    """The plan and the C structure of calls of one kind, for one thread."""

    def __init__(self, layer, call, metadata, state, q, out_shape, lse_shape):
        dtype, device = q.dtype, q.device
        self.layer = layer
        self.lib = layer.lib
        self.call = call
        self.pointed_to = metadata, state
        if metadata is not None:
            call.metadata = metadata.handle
        if state is not None:
            call.sparse_state = state._handle
        self.out_shape, self.lse_shape = out_shape, lse_shape
        self.views = (call.q, call.k, call.v, call.out)
        self.optional_views = tuple(getattr(call, name) for name in _OPTIONAL)
        self.reference = c.byref(call)
        self.error = c.c_void_p()
        self.error_reference = c.byref(self.error)
        self.plan = c.c_void_p()
        out = torch.empty(out_shape, dtype=dtype, device=device)
        # Then out is allocated as the cheaper empty_like(q).
        self.out_is_like_q = out.shape == q.shape and out.stride() == q.stride()
        describe(call.out, out, "out")
        call.out.data = out.data_ptr()
        if lse_shape is not None:
            lse = torch.empty(lse_shape, dtype=torch.float32, device=device)
            describe(call.lse, lse, "lse")
            call.lse.data = lse.data_ptr()
        fovea._call(self.lib.fovea_attention_plan, layer.handle, self.reference, c.byref(self.plan))
        self.workspace_bytes = self.lib.fovea_plan_workspace_bytes(self.plan)
        # A small one on the CPU is kept: calls of one thread follow each other.
        self.workspace = None
        if device.type == "cpu" and 0 < self.workspace_bytes <= _MOST_KEPT_BYTES:
            self.workspace_memory = _cpu_workspace(self.workspace_bytes)
            self.workspace = _aligned(self.workspace_memory)
        self.run_plan = self.lib.fovea_plan_run
        text = c.c_void_p()
        fovea._call(self.lib.fovea_plan_problem, self.plan, c.byref(text))
        self.problem = c.string_at(text).decode()
        self.lib.fovea_string_free(text)
        receipt = c.c_void_p()
        fovea._call(self.lib.fovea_plan_receipt, self.plan, c.byref(receipt))
        self.receipt = json.loads(self.lib.fovea_receipt_json(receipt))
        self.lib.fovea_receipt_free(receipt)
        _keys.note_receipt(layer, self.problem, self.receipt)

    def __del__(self):
        if getattr(self, "plan", None):
            self.lib.fovea_plan_free(self.plan)


class _Local(threading.local):
    """What a thread keeps: prepared calls, and where it records what runs."""

    def __init__(self):
        self.calls = {}
        self.generation = -1
        self.recorder = None


_local = _Local()
_current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)


def _stream(index):
    if _current_stream is not None:
        return _current_stream(index)
    return torch.cuda.current_stream(index).cuda_stream


@contextlib.contextmanager
def record_calls() -> Iterator[list[dict[str, Any]]]:
    """Collects {"problem", "receipt"} of every call that this thread runs inside, compiled code included.

    Replays of a CUDA graph run no host code and are not seen.
    """
    outer = _local.recorder
    _local.recorder = calls = []
    try:
        yield calls
    finally:
        _local.recorder = outer
        if outer is not None:
            outer.extend(calls)


def _longest(cu_seqlens):
    """The longest document, from boundaries on the CPU."""
    if cu_seqlens.numel() < 2:
        return 0
    return max(0, int((cu_seqlens[1:] - cu_seqlens[:-1]).max()))


def _run(
    q,
    k,
    v,
    mask=None,
    kv_lengths=None,
    cu_seqlens_q=None,
    cu_seqlens_kv=None,
    block_counts=None,
    block_indices=None,
    block_partial=None,
    *,
    key="",
    layout="bshd",
    output_layout="bshd",
    scale=None,
    is_causal=None,
    window_left=-1,
    window_right=-1,
    max_seqlen_q=0,
    max_seqlen_kv=0,
    block_q=128,
    block_kv=128,
    metadata="",
    sparse="",
    return_lse=False,
    eager=False,
):
    if torch.is_grad_enabled():
        refuse_gradients(q, k, v, mask)
    local = _local
    if local.generation != fovea._generation:
        local.calls.clear()
        local.generation = fovea._generation
    index = q.get_device()
    optional = None
    if (
        mask is not None
        or kv_lengths is not None
        or cu_seqlens_q is not None
        or cu_seqlens_kv is not None
        or block_counts is not None
        or block_indices is not None
        or block_partial is not None
    ):
        optional = (mask, kv_lengths, cu_seqlens_q, cu_seqlens_kv, block_counts, block_indices, block_partial)
        if index < 0 and layout == "packed":
            # Plans depend on the longest document.
            if cu_seqlens_q is not None and not max_seqlen_q and not cu_seqlens_q.is_cuda:
                max_seqlen_q = _longest(cu_seqlens_q)
            if cu_seqlens_kv is not None and not max_seqlen_kv and not cu_seqlens_kv.is_cuda:
                max_seqlen_kv = _longest(cu_seqlens_kv)
    q_address, k_address, v_address = q.data_ptr(), k.data_ptr(), v.data_ptr()
    low_bits = (q_address | k_address | v_address) & 63
    kind = (
        key,
        q.shape,
        k.shape,
        v.shape,
        q.stride(),
        k.stride(),
        v.stride(),
        q.dtype,
        k.dtype,
        v.dtype,
        index,
        k.get_device(),
        v.get_device(),
        low_bits & -low_bits,
        layout,
        output_layout,
        scale,
        is_causal,
        window_left,
        window_right,
        return_lse,
        max_seqlen_q,
        max_seqlen_kv,
        metadata,
        sparse,
        None
        if optional is None
        else (
            block_q,
            block_kv,
            *(t if t is None else (t.shape, t.stride(), t.dtype, t.get_device()) for t in optional),
        ),
    )
    prepared = local.calls.get(kind)
    if prepared is None:
        prepared = _prepare(
            q, k, v, optional or (None,) * 7, key, layout, output_layout, scale, is_causal, window_left, window_right,
            max_seqlen_q, max_seqlen_kv, block_q, block_kv, metadata, sparse, return_lse,
        )  # fmt: skip
        if len(local.calls) >= _MOST_CALLS:
            local.calls.clear()
        local.calls[kind] = prepared
    out = torch.empty_like(q) if prepared.out_is_like_q else q.new_empty(prepared.out_shape)
    to_q, to_k, to_v, to_out = prepared.views
    to_q.data, to_k.data, to_v.data, to_out.data = q_address, k_address, v_address, out.data_ptr()
    if return_lse:
        lse = q.new_empty(prepared.lse_shape, dtype=torch.float32)
        prepared.call.lse.data = lse.data_ptr()
    else:
        # An operator returns a tensor for every output.
        lse = None if eager else q.new_empty((0,), dtype=torch.float32)
    if optional is not None:
        for view, tensor in zip(prepared.optional_views, optional):
            if tensor is not None:
                view.data = tensor.data_ptr()
    workspace = prepared.workspace
    if index >= 0:
        prepared.call.stream = _stream(index)
        if prepared.workspace_bytes:
            memory = q.new_empty((prepared.workspace_bytes,), dtype=torch.uint8)
            workspace = memory.data_ptr()
    elif prepared.workspace_bytes and workspace is None:
        memory = _cpu_workspace(prepared.workspace_bytes)
        workspace = _aligned(memory)
    code = prepared.run_plan(
        prepared.plan, prepared.reference, workspace, prepared.workspace_bytes, prepared.error_reference
    )
    if code:
        fovea._check(code, prepared.error)
    if local.recorder is not None:
        local.recorder.append({"problem": prepared.problem, "receipt": prepared.receipt})
    return out, lse


def _prepare(
    q, k, v, optional, key, layout, output_layout, scale, is_causal, window_left, window_right, max_seqlen_q,
    max_seqlen_kv, block_q, block_kv, metadata, sparse, return_lse,
):  # fmt: skip
    layer = _keys.layer(key)
    out_shape, lse_shape = output_shapes(q, v, layout, output_layout)
    call = fill_call(
        q, k, v, optional, layout, output_layout, scale, is_causal, window_left, window_right, max_seqlen_q,
        max_seqlen_kv, block_q, block_kv,
    )  # fmt: skip
    return PreparedCall(
        layer, call, _keys.metadata(metadata), _keys.sparse_state(sparse), q, out_shape,
        lse_shape if return_lse else None,
    )  # fmt: skip


# Owns the registrations; they last as long as the module.
_library = torch.library.Library("fovea", "FRAGMENT")
_library.define(SCHEMA, tags=(torch.Tag.pt2_compliant_tag,))
_library.impl("attention", _run, "CPU")
_library.impl("attention", _run, "CUDA")
torch.library.register_fake("fovea::attention", _fake, lib=_library)

op = torch.ops.fovea.attention.default

_Tensor = torch.Tensor
_modes = torch._C._len_torch_dispatch_stack
_transform = torch._C._functorch.peek_interpreter_stack
_tracing = torch._C._get_tracing_state
_profiling = torch._C._autograd._profiler_enabled


def call(q, k, v, **given):
    """The operator. An eager call on plain tensors, that nothing watches, saves the way through the dispatcher.

    Without return_lse the second result means nothing.
    """
    if (
        type(q) is _Tensor
        and type(k) is _Tensor
        and type(v) is _Tensor
        and (q.is_cpu or q.is_cuda)
        and not _modes()
        and _transform() is None
        and _tracing() is None
        and not _profiling()
    ):
        try:
            return _run(q, k, v, eager=True, **given)
        except (AttributeError, TypeError):
            _explain({"q": q, "k": k, "v": v, **given})
            raise
    refuse_other_types({"q": q, "k": k, "v": v, **given})
    return op(q, k, v, **given)
