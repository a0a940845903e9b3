"""The names of a common guide to attention in video pipelines, so that code written for it runs with changed imports.

    from fovea.torch.guide import AttentionConfig, AttnImplType, attention
    config = AttentionConfig.dense_attention(AttnImplType.FLASH_ATTN_2)
    out = attention(q, k, v, attention_config=config)      # [B, S, H, D]

NAME_AVAILABLE says whether a backend runs on this machine. What Fovea has no support for is refused by name when it is
asked for.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from typing import Any

import torch

import fovea
from fovea.sparse import MaskMap, SparseAttentionState

from . import attention as _attention
from . import resolve_key

__all__ = [
    "AttentionConfig",
    "AttnImplType",
    "MaskMap",
    "SparseAttentionConfig",
    "SparseAttentionState",
    "attention",
]

_AVAILABILITY = {
    "TORCH_SDPA_AVAILABLE": "TORCH_SDPA",
    "TORCH_CUDNN_AVAILABLE": "CUDNN_ATTN",
    "FLASH_ATTN_2_AVAILABLE": "FLASH_ATTN_2",
    "FLASH_ATTN_3_AVAILABLE": "FLASH_ATTN_3",
    "FLASH_ATTN_4_AVAILABLE": "FLASH_ATTN_4",
    "SAGE_ATTN_AVAILABLE": "SAGE_ATTN",
    "SPARGE_ATTN_AVAILABLE": "SPARGE_ATTN",
    "FLASHINFER_AVAILABLE": "FLASHINFER_ATTN",
    "RADIAL_ATTN_AVAILABLE": "RADIAL_ATTN",
    "LOCAL_SPARSE_ATTN_AVAILABLE": "LOCAL_SPARSE_ATTN",
}


_UNSUPPORTED = (
    "ParallelConfig",
    "create_device_mesh_from_config",
    "get_attention_strategy",
    "get_ring_group",
    "get_ring_world_size",
    "get_ulysses_group",
    "get_ulysses_world_size",
    "long_context_attention",
    "ulysses_gather_heads",
    "ulysses_scatter_heads",
)


def _refusal(name):
    def refuse(*_arguments, **_keywords):
        reason = fovea.Reason(
            "parallel", name, "a call", "attention on one device", "", "sequence parallelism has no Python interface"
        )
        message = f"{name} is not supported: sequence parallelism has no Python interface; attention on one device has"
        raise fovea.UnsupportedError(200, "unsupported", message, [reason])

    refuse.__name__ = name
    return refuse


def __getattr__(name):
    if name in _UNSUPPORTED:
        return _refusal(name)
    backend = _AVAILABILITY.get(name)
    if backend is None:
        raise AttributeError(f"module 'fovea.torch.guide' has no attribute '{name}'")
    return fovea.availability(backend)["state"] == "runs here"


def __dir__():
    return sorted([*__all__, *_AVAILABILITY, *_UNSUPPORTED])


class AttnImplType(enum.Enum):
    """What can be asked for; the same names as Fovea's backends."""

    TORCH_SDPA = enum.auto()
    TORCH_CUDNN = enum.auto()
    FLASH_ATTN_2 = enum.auto()
    FLASH_ATTN_3 = enum.auto()
    FLASH_ATTN_4 = enum.auto()
    SAGE_ATTN_2_8_8 = enum.auto()
    SAGE_ATTN_2_8_16 = enum.auto()
    SAGE_ATTN_2_8_8_SM90 = enum.auto()
    SPARGE_ATTN = enum.auto()
    RADIAL_ATTN = enum.auto()
    LOCAL_SPARSE_ATTN = enum.auto()


@dataclasses.dataclass(frozen=True)
class SparseAttentionConfig:
    """When and how sparse: docs/sparse."""

    sparse_impl: str | None = None
    dense_timesteps: int = 40
    dense_layers: int = 0
    decay_factor: float = 1.0
    local_window_size: int = 6
    block_size: int = 128
    use_sage_attention: bool = False

    def stated(self) -> dict[str, Any]:
        """The fields that are set, as a mapping."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}

    def to_json(self) -> str:
        """The configuration that it is the sparse half of, as JSON text; what a SparseAttentionState is made from."""
        if self.sparse_impl in (None, "none"):
            raise fovea.ArgumentError(
                110,
                "invalid_config",
                "sparse_config has no sparse_impl, so there is nothing to keep a state for (accepted: radial, local)",
            )
        implementation = "LOCAL_SPARSE_ATTN" if self.sparse_impl == "local" else "RADIAL_ATTN"
        return json.dumps({"attn_impl": implementation, "sparse_config": self.stated()})


@dataclasses.dataclass(frozen=True)
class AttentionConfig:
    """One configuration for every layer; checked when it is made. `key` is what calls use it by."""

    attn_impl: AttnImplType = AttnImplType.TORCH_SDPA
    sparse_config: SparseAttentionConfig | None = None
    scale: float | None = None
    dropout: float = 0.0
    is_causal: bool = False

    def __post_init__(self):
        object.__setattr__(self, "key", resolve_key(self.to_json()))

    def _stated(self):
        stated = {
            "attn_impl": self.attn_impl.name if isinstance(self.attn_impl, enum.Enum) else self.attn_impl,
            "scale": self.scale,
            "dropout": self.dropout,
            "is_causal": self.is_causal,
        }
        if self.sparse_config is not None:
            stated["sparse_config"] = self.sparse_config.stated()
        return {name: value for name, value in stated.items() if value is not None}

    def to_json(self) -> str:
        """The configuration as JSON text, which every part of Fovea takes."""
        return json.dumps(self._stated())

    @classmethod
    def dense_attention(cls, attn_impl: AttnImplType | str) -> AttentionConfig:
        """Dense attention by one implementation, or a refusal."""
        return cls(attn_impl=attn_impl)

    @classmethod
    def radial_attention(cls, **sparse: Any) -> AttentionConfig:
        """Radial attention; without a SparseAttentionState the dense backend runs and the receipt says so."""
        return _Preference(AttnImplType.RADIAL_ATTN, SparseAttentionConfig(**{"sparse_impl": "radial", **sparse}))

    @classmethod
    def local_sparse_attention(cls, **sparse: Any) -> AttentionConfig:
        """Attention to a window in space; else as radial_attention."""
        return _Preference(AttnImplType.LOCAL_SPARSE_ATTN, SparseAttentionConfig(**{"sparse_impl": "local", **sparse}))


class _Preference(AttentionConfig):
    """What the sparse factories make."""

    def to_json(self) -> str:
        stated = self._stated()
        del stated["dropout"]
        return json.dumps({"default": {**stated, "strictness": "prefer", "from_factory": True}})


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    attention_config: AttentionConfig | None = None,
    sparse_state: SparseAttentionState | None = None,
    input_layout: str = "BSND",
    output_layout: str = "BSND",
    attn_mask: torch.Tensor | None = None,
    **arguments: Any,
) -> Any:
    """Attention of q, k, v in input_layout (BSND or BNSD); out in output_layout, [B, S, H, D] unless told otherwise.

    attention_config: an AttentionConfig, or None for the platform's choice. arguments: those of fovea.torch.attention.
    """
    return _attention(
        q,
        k,
        v,
        attn_mask,
        key=resolve_key() if attention_config is None else attention_config.key,
        sparse_state=sparse_state,
        layout=input_layout,
        output_layout=output_layout,
        **arguments,
    )
