"""The part of the plugin interface (include/fovea/plugin.h) that kernels of packages need, in ctypes."""

import ctypes as c

from ._capi import Tensor

LAYOUTS = ("bshd", "bhsd", "packed")
MASKS = ("none", "keys", "boolean", "bias")


class Dtype(c.Structure):
    _fields_ = [("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16)]


class Problem(c.Structure):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("text", c.c_char_p),
        ("dtype", Dtype),
        ("out_dtype", Dtype),
        *((name, c.c_int64) for name in ("batch", "heads_q", "heads_kv", "seq_q", "seq_kv", "head_dim", "dim_v")),
        *((name, c.c_int32) for name in ("layout", "out_layout", "causal", "lse")),
        ("window_left", c.c_int64),
        ("window_right", c.c_int64),
        ("scale", c.c_double),
        ("mask_kind", c.c_int32),
        ("mask_dtype", Dtype),
        *((name, c.c_int32) for name in ("mask_per_batch", "mask_per_head", "mask_per_query", "has_kv_lengths")),
        *((name, c.c_int64) for name in ("documents", "max_document_q", "max_document_kv")),
        *((name, c.c_int64 * 3) for name in ("q_strides", "k_strides", "v_strides")),
        ("alignment", c.c_int32),
        ("sparse_pattern", c.c_char_p),
    ]


class Run(c.Structure):
    _fields_ = [
        ("struct_size", c.c_size_t),
        *(
            (name, Tensor)
            for name in ("q", "k", "v", "out", "lse", "mask", "kv_lengths", "cu_seqlens_q", "cu_seqlens_kv")
        ),
        ("workspace", c.c_void_p),
        ("workspace_bytes", c.c_size_t),
        ("stream", c.c_void_p),
        ("host", c.c_void_p),
        ("workers", c.c_int32),
        ("parallel_for", c.c_void_p),
    ]


class PackageCall(c.Structure):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("backend_name", c.c_char_p),
        ("path", c.c_char_p),
        ("problem", c.POINTER(Problem)),
        ("run", c.POINTER(Run)),
        ("valid_queries", c.c_int64),
    ]


class Reason(c.Structure):
    _fields_ = [
        ("struct_size", c.c_size_t),
        *((name, c.c_char_p) for name in ("code", "field", "got", "accepted", "remedy")),
    ]


class Sink(c.Structure):
    pass


Sink._fields_ = [
    ("struct_size", c.c_size_t),
    ("host", c.c_void_p),
    ("add_reason", c.CFUNCTYPE(None, c.POINTER(Sink), c.POINTER(Reason))),
    ("set_message", c.CFUNCTYPE(None, c.POINTER(Sink), c.c_char_p)),
]

RunFunction = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.POINTER(PackageCall), c.POINTER(Sink))
DimsFunction = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.c_int64, c.c_int64, c.c_int64, c.POINTER(Sink))
RefuseFunction = c.CFUNCTYPE(None, c.c_void_p, c.c_char_p, c.POINTER(Problem), c.POINTER(Sink))


class Package(c.Structure):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("package", c.c_char_p),
        ("version", c.c_char_p),
        ("self", c.c_void_p),
        ("run", RunFunction),
        ("validate_dims", DimsFunction),
        ("refuse", RefuseFunction),
        ("validation_record", c.c_char_p),
    ]


class DeviceInfo(c.Structure):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("facts", c.c_char_p),
        ("name", c.c_char_p),
        ("driver", c.c_char_p),
        ("device_type", c.c_int32),
    ]


ABI_MAJOR, ABI_MINOR = 1, 2
COPY_TO_DEVICE, COPY_TO_HOST = 0, 1
_SINK = c.POINTER(Sink)
CapturedCall = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.c_void_p)
DescribeFunction = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.c_int32, c.POINTER(DeviceInfo), _SINK)
AllocateFunction = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.c_int32, c.c_uint64, c.POINTER(c.c_void_p), _SINK)
ReleaseFunction = c.CFUNCTYPE(None, c.c_void_p, c.c_int32, c.c_void_p)
CopyFunction = c.CFUNCTYPE(
    c.c_int32, c.c_void_p, c.c_int32, c.c_void_p, c.c_void_p, c.c_uint64, c.c_int32, _SINK
)
SynchroniseFunction = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.c_int32, _SINK)
CaptureFunction = c.CFUNCTYPE(
    c.c_int32, c.c_void_p, c.c_int32, CapturedCall, c.c_void_p, c.POINTER(c.c_void_p), _SINK
)
ReplayFunction = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.c_int32, c.c_void_p, _SINK)
StreamFunction = c.CFUNCTYPE(c.c_void_p, c.c_void_p, c.c_int32)


class DeviceAccess(c.Structure):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("abi_major", c.c_uint32),
        ("abi_minor", c.c_uint32),
        ("self", c.c_void_p),
        ("platform", c.c_char_p),
        ("describe", DescribeFunction),
        ("allocate", AllocateFunction),
        ("release", ReleaseFunction),
        ("copy", CopyFunction),
        ("synchronise", SynchroniseFunction),
        ("capture", CaptureFunction),
        ("replay", ReplayFunction),
        ("drop", ReleaseFunction),
        ("stream", StreamFunction),
    ]


class Software(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("name", c.c_char_p), ("version", c.c_char_p)]


ProgressFunction = c.CFUNCTYPE(None, c.c_void_p, c.c_uint64, c.c_uint64, c.c_char_p)


class ValidationOptions(c.Structure):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("device", c.c_char_p),
        ("access", c.POINTER(DeviceAccess)),
        ("role", c.c_char_p),
        ("category", c.c_char_p),
        ("threads", c.c_int32),
        ("software_count", c.c_size_t),
        ("software", c.POINTER(c.POINTER(Software))),
        ("progress", ProgressFunction),
        ("user", c.c_void_p),
    ]


def add_reason(sink, code, field, got, accepted, remedy):
    """One refusal through the sink; the texts are copied."""
    texts = (text.encode() for text in (code, field, got, accepted, remedy))
    sink.contents.add_reason(sink, c.byref(Reason(c.sizeof(Reason), *texts)))


def set_message(sink, text):
    """What went wrong, through the sink; copied."""
    sink.contents.set_message(sink, text.encode())
