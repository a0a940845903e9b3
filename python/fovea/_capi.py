"""The C interface (include/fovea/c_api.h) in ctypes."""

import ctypes as c
import pathlib
import sys

FOVEA_C_API_VERSION = 1


class Tensor(c.Structure):
    _fields_ = [
        ("data", c.c_void_p),
        ("device_type", c.c_int32),
        ("device_index", c.c_int32),
        ("dtype_code", c.c_uint8),
        ("dtype_bits", c.c_uint8),
        ("dtype_lanes", c.c_uint16),
        ("rank", c.c_int32),
        ("shape", c.c_int64 * 5),
        ("stride", c.c_int64 * 5),
    ]


class Reason(c.Structure):
    _fields_ = [(name, c.c_char_p) for name in ("code", "field", "got", "accepted", "remedy", "message")]


class LayerOptions(c.Structure):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("role", c.c_char_p),
        ("category", c.c_char_p),
        ("heads_q", c.c_int64),
        ("heads_kv", c.c_int64),
        ("head_dim", c.c_int64),
        ("dim_v", c.c_int64),
        ("mask_free", c.c_int32),
        ("threads", c.c_int32),
        ("platform", c.c_char_p),
        ("facts", c.c_char_p),
        ("name", c.c_char_p),
        ("calibration", c.c_char_p),
    ]


class Call(c.Structure):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("q", Tensor),
        ("k", Tensor),
        ("v", Tensor),
        ("out", Tensor),
        ("lse", Tensor),
        ("mask", Tensor),
        ("kv_lengths", Tensor),
        ("cu_seqlens_q", Tensor),
        ("cu_seqlens_kv", Tensor),
        ("input_layout", c.c_char_p),
        ("output_layout", c.c_char_p),
        ("scale", c.c_double),
        ("has_scale", c.c_int32),
        ("is_causal", c.c_int32),
        ("has_is_causal", c.c_int32),
        ("window_left", c.c_int64),
        ("window_right", c.c_int64),
        ("max_seqlen_q", c.c_int64),
        ("max_seqlen_kv", c.c_int64),
        ("stream", c.c_void_p),
        ("metadata", c.c_void_p),
        ("block_counts", Tensor),
        ("block_indices", Tensor),
        ("block_partial", Tensor),
        ("block_q", c.c_int32),
        ("block_kv", c.c_int32),
        ("block_mask", c.c_void_p),
        ("sparse_state", c.c_void_p),
        ("timestep", c.c_double),
        ("has_timestep", c.c_int32),
    ]


class Surroundings(c.Structure):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("parallel_strategy", c.c_char_p),
        ("outer_boundaries", c.c_char_p),
        ("paged_kv", c.c_int32),
        ("kv_cache_dtype", c.c_char_p),
        ("require_fullgraph", c.c_int32),
    ]


class ExplainOptions(c.Structure):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("device", c.c_char_p),
        ("platform", c.c_char_p),
        ("facts", c.c_char_p),
        ("role", c.c_char_p),
        ("category", c.c_char_p),
        ("problem", c.c_char_p),
        ("model", c.c_char_p),
        ("height", c.c_int64),
        ("width", c.c_int64),
        ("frames", c.c_int64),
        ("dtype", c.c_char_p),
        ("mask_free", c.c_int32),
        ("steps", c.c_int64),
        ("layers", c.c_int64),
        ("schedule", c.c_char_p),
        ("sigmas", c.POINTER(c.c_double)),
        ("sigma_count", c.c_size_t),
        ("calibration", c.c_char_p),
        ("layer_name", c.c_char_p),
    ]


class BlockShape(c.Structure):
    _fields_ = [
        ("struct_size", c.c_size_t),
        ("seq_q", c.c_int64),
        ("seq_kv", c.c_int64),
        ("block_q", c.c_int32),
        ("block_kv", c.c_int32),
        ("batch", c.c_int64),
        ("heads", c.c_int64),
    ]


_P = c.c_void_p
_PP = c.POINTER(c.c_void_p)
_S = c.c_char_p
_CALL = c.POINTER(Call)
_TENSOR = c.POINTER(Tensor)

_SIGNATURES = {
    "fovea_version": (_S, []),
    "fovea_c_api_version": (c.c_int32, []),
    "fovea_error_code": (c.c_int32, [_P]),
    "fovea_error_code_name": (_S, [c.c_int32]),
    "fovea_error_message": (_S, [_P]),
    "fovea_error_reason_count": (c.c_size_t, [_P]),
    "fovea_error_reason": (Reason, [_P, c.c_size_t]),
    "fovea_error_free": (None, [_P]),
    "fovea_string_free": (None, [_P]),
    "fovea_config_create": (c.c_int32, [_S, _S, c.c_int32, _PP, _PP]),
    "fovea_config_to_json": (c.c_int32, [_P, _PP, _PP]),
    "fovea_config_free": (None, [_P]),
    "fovea_attention_create": (c.c_int32, [c.POINTER(LayerOptions), _P, _PP, _PP]),
    "fovea_attention_free": (None, [_P]),
    "fovea_output_spec": (c.c_int32, [c.POINTER(Call), c.POINTER(Tensor), c.POINTER(Tensor), _PP]),
    "fovea_attention_run": (c.c_int32, [_P, c.POINTER(Call), _PP, _PP]),
    "fovea_attention_plan": (c.c_int32, [_P, _CALL, _PP, _PP]),
    "fovea_plan_workspace_bytes": (c.c_size_t, [_P]),
    "fovea_plan_run": (c.c_int32, [_P, _CALL, _P, c.c_size_t, _PP]),
    "fovea_plan_receipt": (c.c_int32, [_P, _PP, _PP]),
    "fovea_plan_problem": (c.c_int32, [_P, _PP, _PP]),
    "fovea_plan_free": (None, [_P]),
    "fovea_metadata_create": (c.c_int32, [_S, _PP, _PP]),
    "fovea_metadata_free": (None, [_P]),
    "fovea_attention_resolve": (c.c_int32, [_P, _CALL, c.POINTER(Surroundings), _PP, _PP]),
    "fovea_mask_map_create": (c.c_int32, [c.c_int64, c.c_int64, c.c_int64, c.c_int64, _PP, _PP]),
    "fovea_mask_map_free": (None, [_P]),
    "fovea_sparse_state_create": (c.c_int32, [_P, _S, _S, _P, _S, _PP, _PP]),
    "fovea_sparse_state_free": (None, [_P]),
    "fovea_sparse_state_update": (c.c_int32, [_P, c.c_int64, c.c_int64, _PP]),
    "fovea_sparse_state_begin_run": (c.c_int32, [_P, c.c_int64, c.c_int64, _PP]),
    "fovea_sparse_state_position": (None, [_P, c.POINTER(c.c_int64), c.POINTER(c.c_int64)]),
    "fovea_sparse_state_fix": (c.c_int32, [_P, _S, _PP]),
    "fovea_sparse_state_should_use_dense": (c.c_int32, [_P]),
    "fovea_sparse_state_dense_cause": (_S, [_P]),
    "fovea_sparse_state_sparsity_type": (_S, [_P]),
    "fovea_sparse_state_dense_backend": (_S, [_P]),
    "fovea_sparse_state_mask": (c.c_int32, [_P, c.c_int64, _PP, _PP]),
    "fovea_block_mask_create": (c.c_int32, [c.POINTER(BlockShape), _P, c.c_size_t, _PP, _PP]),
    "fovea_block_mask_lists": (c.c_int32, [_P, c.POINTER(BlockShape), _TENSOR, _TENSOR, _TENSOR, _PP]),
    "fovea_block_mask_density": (c.c_double, [_P]),
    "fovea_block_mask_free": (None, [_P]),
    "fovea_receipt_json": (_S, [_P]),
    "fovea_receipt_free": (None, [_P]),
    "fovea_explain_with": (c.c_int32, [_P, c.POINTER(ExplainOptions), _PP, _PP]),
    "fovea_bind_package": (c.c_int32, [_P, _PP]),
    "fovea_unbind_package": (None, [_S]),
    "fovea_validate_path": (c.c_int32, [_P, _P, _PP, _PP]),
    "fovea_availability": (c.c_int32, [_S, _PP, _PP]),
    "fovea_load_plugin": (c.c_int32, [_S, _PP, _PP]),
    "fovea_load_plugins_from_environment": (c.c_int32, [_PP, _PP]),
}


def _candidates():
    # Inside the package; an editable install has two folders, the checkout's and the installed one.
    for folder in sys.modules[__package__].__path__:
        yield pathlib.Path(folder) / "libfovea.so"
    yield pathlib.Path(__file__).resolve().parents[2] / "build" / "libfovea.so"  # a checkout after ./dev build
    yield "libfovea.so"  # the system's search path


def load(path=None):
    """Loads libfovea. Raises ImportError that lists the places tried."""
    tried = []
    for candidate in [path] if path is not None else _candidates():
        try:
            library = c.CDLL(str(candidate))
        except OSError as error:
            tried.append(f"{candidate}: {error}")
            continue
        missing = [name for name in _SIGNATURES if not hasattr(library, name)]
        if missing:
            raise ImportError(f"{candidate} is another version of the library: it has no {', '.join(missing)}")
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, name)
            function.restype = result
            function.argtypes = arguments
        found = library.fovea_c_api_version()
        if found != FOVEA_C_API_VERSION:
            raise ImportError(f"{candidate} has C interface version {found}, this module needs {FOVEA_C_API_VERSION}")
        return library
    raise ImportError(
        "libfovea.so was not found; install the wheel, build it with ./dev build, or call fovea.load_library(path). "
        "Tried:\n  "
        + "\n  ".join(tried)
    )
