"""Tensors of other libraries, in and out, without copies: numpy arrays and anything with __dlpack__ on the CPU."""

import ctypes as c
import sys

from . import _capi

_CPU = 1

# numpy dtype name -> DLPack (code, bits); bfloat16 is the ml_dtypes type.
_NUMPY_DTYPES = {
    "float64": (2, 64),
    "float32": (2, 32),
    "float16": (2, 16),
    "bfloat16": (4, 16),
    "bool": (6, 8),
    "uint8": (1, 8),
    "int32": (0, 32),
    "int64": (0, 64),
}


class _DLTensor(c.Structure):
    _fields_ = [
        ("data", c.c_void_p),
        ("device_type", c.c_int32),
        ("device_id", c.c_int32),
        ("ndim", c.c_int32),
        ("code", c.c_uint8),
        ("bits", c.c_uint8),
        ("lanes", c.c_uint16),
        ("shape", c.POINTER(c.c_int64)),
        ("strides", c.POINTER(c.c_int64)),
        ("byte_offset", c.c_uint64),
    ]


_Deleter = c.CFUNCTYPE(None, c.c_void_p)


class _DLManagedTensor(c.Structure):
    _fields_ = [("tensor", _DLTensor), ("manager", c.c_void_p), ("deleter", _Deleter)]


_capsule_pointer = c.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = c.c_void_p
_capsule_pointer.argtypes = [c.py_object, c.c_char_p]
_capsule_new = c.pythonapi.PyCapsule_New
_capsule_new.restype = c.py_object
_capsule_new.argtypes = [c.c_void_p, c.c_char_p, c.c_void_p]


def is_numpy(value):
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def view(value, name):
    """A C tensor over `value`'s memory and an object that keeps that memory alive."""
    if value is None:
        return _capi.Tensor(), None
    if is_numpy(value):
        return _numpy_view(value, name), value
    if hasattr(value, "__dlpack__"):
        return _dlpack_view(value, name)
    raise TypeError(f"{name} is a {type(value).__name__}; accepted: a numpy array or an object with __dlpack__")


def _check_rank(rank, name):
    if not 1 <= rank <= 5:
        raise ValueError(f"{name} has {rank} dimensions; accepted: 1 to 5")


def _numpy_view(array, name):
    dtype = _NUMPY_DTYPES.get(array.dtype.name)
    if dtype is None or not array.dtype.isnative:
        raise TypeError(f"{name} has dtype {array.dtype}; accepted: {', '.join(_NUMPY_DTYPES)}")
    _check_rank(array.ndim, name)
    tensor = _capi.Tensor(array.ctypes.data, _CPU, 0, dtype[0], dtype[1], 1, array.ndim)
    for axis in range(array.ndim):
        if array.strides[axis] % array.itemsize:
            raise ValueError(f"{name} has a stride that is not a whole number of elements; copy it first")
        tensor.shape[axis] = array.shape[axis]
        tensor.stride[axis] = array.strides[axis] // array.itemsize
    return tensor


def _dlpack_view(value, name):
    device = value.__dlpack_device__()[0]
    if int(device) != _CPU:
        raise ValueError(f"{name} lives on device type {int(device)}; this module takes CPU tensors")
    capsule = value.__dlpack__()
    managed = c.cast(_capsule_pointer(capsule, b"dltensor"), c.POINTER(_DLManagedTensor)).contents.tensor
    _check_rank(managed.ndim, name)
    tensor = _capi.Tensor(
        (managed.data or 0) + managed.byte_offset, _CPU, 0, managed.code, managed.bits, managed.lanes, managed.ndim
    )
    stride = 1
    for axis in reversed(range(managed.ndim)):
        tensor.shape[axis] = managed.shape[axis]
        tensor.stride[axis] = managed.strides[axis] if managed.strides else stride
        stride *= managed.shape[axis]
    return tensor, capsule


class Array:
    """CPU memory that hands itself out through __dlpack__ (for libraries other than numpy)."""

    def __init__(self, spec):
        self.shape = tuple(spec.shape[: spec.rank])
        self._dtype = (spec.dtype_code, spec.dtype_bits)
        count = 1
        for size in self.shape:
            count *= size
        size = count * spec.dtype_bits // 8
        self._memory = (c.c_uint8 * (size + 64))()
        address = c.addressof(self._memory)
        self.data = address + (-address) % 64

    def tensor(self):
        tensor = _capi.Tensor(self.data, _CPU, 0, *self._dtype, 1, len(self.shape))
        stride = 1
        for axis in reversed(range(len(self.shape))):
            tensor.shape[axis] = self.shape[axis]
            tensor.stride[axis] = stride
            stride *= self.shape[axis]
        return tensor

    def __dlpack_device__(self):
        return (_CPU, 0)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        rank = len(self.shape)
        managed = _DLManagedTensor()
        shape = (c.c_int64 * rank)(*self.shape)
        managed.tensor = _DLTensor(self.data, _CPU, 0, rank, *self._dtype, 1, shape, None, 0)
        return _export(managed, self, shape)


class Borrowed:
    """Memory of a C tensor that its owner keeps for the time of a call, handed on through __dlpack__."""

    def __init__(self, tensor):
        self._tensor = tensor

    def __dlpack_device__(self):
        return (self._tensor.device_type, self._tensor.device_index)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        tensor = self._tensor
        managed = _DLManagedTensor()
        shape = (c.c_int64 * tensor.rank)(*tensor.shape[: tensor.rank])
        strides = (c.c_int64 * tensor.rank)(*tensor.stride[: tensor.rank])
        managed.tensor = _DLTensor(
            tensor.data,
            tensor.device_type,
            tensor.device_index,
            tensor.rank,
            tensor.dtype_code,
            tensor.dtype_bits,
            tensor.dtype_lanes,
            shape,
            strides,
            0,
        )
        return _export(managed, shape, strides)


def _export(managed, *owned):
    """A capsule of a managed tensor; `owned` lives until its consumer is done."""
    key = c.addressof(managed)
    managed.deleter = _release
    _exported[key] = (managed, *owned)
    return _capsule_new(key, b"dltensor", c.cast(_destroy_capsule, c.c_void_p))


# What consumers of exported capsules still use, by the address of the managed tensor.
_exported = {}


@_Deleter
def _release(address):
    _exported.pop(address, None)


# A capsule that nobody consumed keeps its first name; then its memory is released with it.
@c.PYFUNCTYPE(None, c.c_void_p)
def _destroy_capsule(capsule):
    is_valid = c.pythonapi.PyCapsule_IsValid
    is_valid.argtypes = [c.c_void_p, c.c_char_p]
    if is_valid(capsule, b"dltensor"):
        pointer = c.pythonapi["PyCapsule_GetPointer"]
        pointer.restype, pointer.argtypes = c.c_void_p, [c.c_void_p, c.c_char_p]
        _release(pointer(capsule, b"dltensor"))


def allocate(spec, like):
    """Uninitialised memory of the kind of `like`: (object for the caller, its C tensor, finisher)."""
    if is_numpy(like):
        import numpy

        dtype = like.dtype
        if (spec.dtype_code, spec.dtype_bits) != _NUMPY_DTYPES[dtype.name]:
            dtype = numpy.dtype({(2, 32): "float32"}[(spec.dtype_code, spec.dtype_bits)])
        array = numpy.empty(tuple(spec.shape[: spec.rank]), dtype)
        return _numpy_view(array, "out"), lambda: array
    array = Array(spec)
    library = sys.modules.get(type(like).__module__.split(".")[0])
    from_dlpack = getattr(library, "from_dlpack", None)
    return array.tensor(), (lambda: from_dlpack(array)) if from_dlpack is not None else (lambda: array)
