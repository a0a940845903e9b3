"""Sparse attention of one request: the masks of a video's geometry, and where the denoising run stands."""

from __future__ import annotations

import ctypes as _c
import json as _json
from collections.abc import Iterable as _Iterable
from typing import Any as _Any

import fovea

from . import _capi

__all__ = ["BlockMask", "MaskMap", "SparseAttentionState"]


class MaskMap:
    """The masks of video_token_num tokens in num_frame equal frames; built on first use, shared by states.

    grid: (height, width) of a frame in blocks, for local windows. Thread-safe.
    """

    def __init__(self, video_token_num: int, num_frame: int, grid: tuple[int, int] | None = None) -> None:
        self.video_token_num, self.num_frame = int(video_token_num), int(num_frame)
        self.grid = None if grid is None else (int(grid[0]), int(grid[1]))
        self._library = fovea._lib()
        self._handle = _c.c_void_p()
        height, width = self.grid or (0, 0)
        fovea._call(
            self._library.fovea_mask_map_create,
            self.video_token_num,
            self.num_frame,
            height,
            width,
            _c.byref(self._handle),
        )

    def __del__(self):
        if getattr(self, "_handle", None):
            self._library.fovea_mask_map_free(self._handle)


class BlockMask:
    """For every block of queries the list of key blocks that it reads. Immutable.

    matrix: bytes-like [batch, heads, rows, columns], nonzero is on. block_q, block_kv: 64 or 128 tokens.
    """

    def __init__(
        self,
        matrix: bytes | bytearray | memoryview | _Iterable[int],
        seq_q: int,
        seq_kv: int,
        *,
        block_q: int = 128,
        block_kv: int = 128,
        batch: int = 1,
        heads: int = 1,
    ) -> None:
        matrix = bytes(matrix)
        shape = _capi.BlockShape(_c.sizeof(_capi.BlockShape), seq_q, seq_kv, block_q, block_kv, batch, heads)
        handle = _c.c_void_p()
        fovea._call(
            fovea._lib().fovea_block_mask_create, _c.byref(shape), matrix, len(matrix), _c.byref(handle)
        )
        self._take(handle)

    @classmethod
    def _from_handle(cls, handle):
        mask = cls.__new__(cls)
        mask._take(handle)
        return mask

    def _take(self, handle):
        self._library = fovea._lib()
        self._handle = handle
        self._shape = _capi.BlockShape(_c.sizeof(_capi.BlockShape))
        self._lists = tuple(_capi.Tensor() for _ in range(3))
        fovea._call(
            self._library.fovea_block_mask_lists,
            handle,
            _c.byref(self._shape),
            *(_c.byref(tensor) for tensor in self._lists),
        )

    def __del__(self):
        if getattr(self, "_handle", None):
            self._library.fovea_block_mask_free(self._handle)

    @property
    def block_q(self) -> int:
        return self._shape.block_q

    @property
    def block_kv(self) -> int:
        return self._shape.block_kv

    @property
    def density(self) -> float:
        """The share of blocks that are on."""
        return self._library.fovea_block_mask_density(self._handle)

    def counts(self) -> tuple[bytes, tuple[int, ...]]:
        """Bytes of int32 and their shape [batch, heads, rows]."""
        return self._bytes(self._lists[0])

    def indices(self) -> tuple[bytes, tuple[int, ...]]:
        """Bytes of int32 and their shape [batch, heads, rows, most]; places after a row's count hold -1."""
        return self._bytes(self._lists[1])

    @staticmethod
    def _bytes(tensor):
        shape = tuple(tensor.shape[: tensor.rank])
        count = 1
        for size in shape:
            count *= size
        return _c.string_at(tensor.data, count * tensor.dtype_bits // 8), shape


class SparseAttentionState:
    """Where one request stands in its denoising run, and which mask applies there.

    config: what the layers are configured with (JSON text, a mapping, or an object with to_json()), sparse for `role`
    and `category`. model_type: "wan" or "hunyuan". Updates and calls of one state must not overlap.

    `text` states the decision for the current step and layer, the geometry and the configuration, and nothing else:
    states of equal text make calls run alike. Compiled code reads it, so it recompiles when the decision changes and
    not at every step.
    """

    def __init__(
        self,
        config: _Any,
        mask_map: MaskMap,
        model_type: str = "wan",
        *,
        role: str = "self",
        category: str | None = None,
    ) -> None:
        if not isinstance(mask_map, MaskMap):
            raise fovea.ArgumentError(
                100, "invalid_argument", f"mask_map is of type {type(mask_map).__name__} (accepted: a MaskMap)"
            )
        handle = fovea._Config(config)
        self.mask_map = mask_map
        self._library = fovea._lib()
        self._handle = _c.c_void_p()
        fovea._call(
            self._library.fovea_sparse_state_create,
            handle._handle,
            fovea._text(role),
            fovea._text(category),
            mask_map._handle,
            fovea._text(model_type),
            _c.byref(self._handle),
        )
        self._stated = {
            "config": fovea._take_json(self._library.fovea_config_to_json, handle._handle),
            "role": role,
            "category": category,
            "model_type": model_type,
            "video_token_num": mask_map.video_token_num,
            "num_frame": mask_map.num_frame,
            "grid": mask_map.grid,
        }
        self._texts = {}
        self._decide()

    @classmethod
    def _from_text(cls, text):
        """A state whose decision is that of the text for good."""
        stated = _json.loads(text)
        mask_map = MaskMap(stated["video_token_num"], stated["num_frame"], stated["grid"])
        state = cls(
            _json.dumps(stated["config"]),
            mask_map,
            stated["model_type"],
            role=stated["role"],
            category=stated["category"],
        )
        fovea._call(state._library.fovea_sparse_state_fix, state._handle, stated["dense_cause"].encode())
        state._decide()
        return state

    def __del__(self):
        if getattr(self, "_handle", None):
            self._library.fovea_sparse_state_free(self._handle)

    def _decide(self):
        cause = self._library.fovea_sparse_state_dense_cause(self._handle).decode()
        if cause not in self._texts:
            self._texts[cause] = _json.dumps(
                {**self._stated, "dense_cause": cause}, sort_keys=True, separators=(",", ":")
            )
        self.text = self._texts[cause]

    def update(self, numeral_timestep: int | None = None, layer_idx: int | None = None) -> None:
        """Step 0 is the first denoising step, layer 0 the first block; what is not given stays."""
        for name, number in (("numeral_timestep", numeral_timestep), ("layer_idx", layer_idx)):
            if number is not None and number < 0:
                raise fovea.ArgumentError(100, "invalid_argument", f"{name} is {number} (accepted: 0 or more)")
        fovea._call(
            self._library.fovea_sparse_state_update,
            self._handle,
            -1 if numeral_timestep is None else int(numeral_timestep),
            -1 if layer_idx is None else int(layer_idx),
        )
        self._decide()

    def begin_run(self, steps: int, layers: int) -> None:
        """The numbers of the whole run: needed for end_step, and finds a schedule that is dense throughout."""
        fovea._call(self._library.fovea_sparse_state_begin_run, self._handle, int(steps), int(layers))
        self._decide()

    def should_use_dense(self) -> bool:
        """Whether this step and layer run dense."""
        return bool(self._library.fovea_sparse_state_should_use_dense(self._handle))

    def dense_cause(self) -> str:
        """Why they do: "first_steps", "last_steps", "first_layers", "skipped_layer", or "none"."""
        return self._library.fovea_sparse_state_dense_cause(self._handle).decode()

    def sparsity_type(self) -> str:
        """ "dense", "radial", "local" or "block_sparse"."""
        return self._library.fovea_sparse_state_sparsity_type(self._handle).decode()

    def dense_backend(self) -> str:
        """What runs at dense steps and layers."""
        return self._library.fovea_sparse_state_dense_backend(self._handle).decode()

    def _position(self):
        step, layer = _c.c_int64(), _c.c_int64()
        self._library.fovea_sparse_state_position(self._handle, _c.byref(step), _c.byref(layer))
        return step.value, layer.value

    @property
    def numeral_timestep(self) -> int:
        return self._position()[0]

    @property
    def layer_idx(self) -> int:
        return self._position()[1]

    def mask(self, seq_len: int) -> BlockMask:
        """The BlockMask of the sparse steps for the video's tokens and then text, seq_len in all."""
        handle = _c.c_void_p()
        fovea._call(self._library.fovea_sparse_state_mask, self._handle, int(seq_len), _c.byref(handle))
        return BlockMask._from_handle(handle)
