"""Fovea as an attention backend of vLLM-Omni's diffusion models.

    import fovea.vllm_omni
    fovea.vllm_omni.register()          # FLASH_ATTN now means fovea; in every process that runs the model

or, without a configuration, in vLLM-Omni's own words:

    register_diffusion_backend(DiffusionAttentionBackendEnum.FLASH_ATTN, "fovea.vllm_omni.FoveaBackend")

docs/vllm_omni.md says what of the interface is honoured and what is refused. Needs vllm_omni and torch.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import fovea
import fovea.torch

import torch

try:
    from vllm_omni.diffusion.attention.backends.abstract import AttentionBackend, AttentionImpl, AttentionMetadata
except ImportError as error:
    raise ImportError(
        f"fovea.vllm_omni needs vLLM-Omni and the version of vLLM that it is made for: pip install vllm-omni ({error})"
    ) from error

__all__ = ["CLASS_PATH", "FoveaBackend", "FoveaImpl", "register"]

CLASS_PATH = "fovea.vllm_omni.FoveaBackend"

_PACKED = ("cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k")
_MASK_MODES = ("none", "padding", "arbitrary")


@dataclasses.dataclass
class _Configuration:
    """What register() was given, for the layers that are built afterwards."""

    config: Mapping[str, Any] | str | None = None
    backend: str | None = None


_configuration = _Configuration()


def register(
    config: Mapping[str, Any] | str | None = None,
    *,
    backend: str | None = None,
    names: Iterable[str] = ("FLASH_ATTN",),
) -> None:
    """Puts fovea behind names of vLLM-Omni's enum of attention backends, for layers that are built from now on.

    names: members of DiffusionAttentionBackendEnum; choose the one that the platform selects by default, or that the
    configuration of vLLM-Omni names. config, backend: fovea's own configuration (docs/config.md), by the roles of
    vLLM-Omni's layers. Raises ArgumentError for a wrong configuration, ValueError for a name that does not exist.
    """
    from vllm_omni.diffusion.attention.backends.registry import (
        DiffusionAttentionBackendEnum,
        register_diffusion_backend,
    )

    members = [DiffusionAttentionBackendEnum[name] for name in names]
    fovea.torch.resolve_key(config, backend)
    _configuration.config, _configuration.backend = config, backend
    for member in members:
        register_diffusion_backend(member, CLASS_PATH)
    # The selector remembers what it resolved before.
    selector = sys.modules.get("vllm_omni.diffusion.attention.selector")
    clear = getattr(getattr(selector, "_cached_get_backend_cls", None), "cache_clear", None)
    if clear is not None:
        clear()


class FoveaBackend(AttentionBackend):
    """The class behind the name. Layers are FoveaImpl."""

    accept_output_buffer = False
    supports_piecewise_spans = True
    supports_paged_kv = False
    supports_prefix_kv_slicing = True
    supported_platforms = ("cuda", "oot", "unspecified")

    @classmethod
    def supports_packed_mask_free(cls) -> bool:
        return True

    @classmethod
    def supports_multi_doc_packed_varlen(cls) -> bool:
        return True

    @classmethod
    def validate_available(cls) -> None:
        """Raises ImportError, with what to install, when the library cannot be loaded."""
        fovea.load_library()

    @classmethod
    def supports_attention_mask(cls, attention_spec: object | None = None) -> bool:
        return True

    @staticmethod
    def get_name() -> str:
        return "FOVEA"

    @staticmethod
    def get_impl_cls() -> type[FoveaImpl]:
        return FoveaImpl

    @staticmethod
    def get_metadata_cls() -> type[AttentionMetadata]:
        return AttentionMetadata

    @staticmethod
    def get_builder_cls() -> Any:
        raise NotImplementedError("fovea takes metadata as it is; there is no builder")

    @staticmethod
    def get_supported_head_sizes() -> list[int]:
        """Empty, which means any: a layer whose head size no kernel takes is refused with reasons when it is built."""
        return []

    @classmethod
    def resolve_capabilities(cls, context: Any) -> Any:
        """What is known before a layer exists: unsupported for a reason, or unmigrated."""
        platform = getattr(context, "platform", None)
        reason = None
        if platform not in (None, "cpu", *cls.supported_platforms):
            reason = f"fovea runs on cuda and cpu, not on {platform}; select another backend"
        elif getattr(context, "paged_kv", False):
            reason = "fovea does not read paged keys and values; use FLASH_ATTN for paged layers"
        elif getattr(context, "kv_cache_dtype", None) not in (None, "auto", "float"):
            reason = f"fovea does not read keys and values stored as {context.kv_cache_dtype}; use 'auto'"
        return _result(context, "unresolved", "unmigrated" if reason is None else "unsupported", "eager_only", reason)


class FoveaImpl(AttentionImpl):
    """One attention layer. Its configuration is resolved here, outside compiled code; calls are fovea::attention."""

    def __init__(
        self,
        num_heads: int,
        head_size: int,
        softmax_scale: float,
        causal: bool = False,
        num_kv_heads: int | None = None,
        prefix: str = "",
        qkv_layout: str | None = None,
        backend_kwargs: dict[str, Any] | None = None,
        **extra_impl_args: Any,
    ) -> None:
        if backend_kwargs:
            raise ValueError(
                f"{prefix or 'attention'}: fovea takes its options from fovea.vllm_omni.register(config), "
                f"not from backend options ({', '.join(sorted(backend_kwargs))})"
            )
        self.num_heads = num_heads
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self.head_size = head_size
        self.softmax_scale = softmax_scale
        self.causal = causal
        self.prefix = prefix
        self.role = extra_impl_args.get("role") or "self"
        category = extra_impl_args.get("role_category") or self.role.partition(".")[0]
        self.key = fovea.torch.resolve_key(
            _configuration.config, _configuration.backend, role=self.role, category=category
        )

    def receipts(self) -> list[dict[str, Any]]:
        """[{"problem", "receipt"}]: what was planned for this layer's role and configuration."""
        return fovea.torch.receipts(self.key)

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_metadata: AttentionMetadata | None = None,
    ) -> torch.Tensor:
        """[B,Sq,H,D], [B,Skv,Hkv,D] twice, to [B,Sq,H,D]; by the platform, and on CPU tensors whatever it is."""
        if query.device.type == "cpu":
            return self.forward_cpu(query, key, value, attn_metadata)
        return super().forward(query, key, value, attn_metadata)

    def forward_cuda(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_metadata: AttentionMetadata | None = None,
    ) -> torch.Tensor:
        return self._run(query, key, value, attn_metadata)

    forward_cpu = forward_cuda

    def forward_hip(self, query: Any, key: Any, value: Any, attn_metadata: Any = None) -> torch.Tensor:
        raise NotImplementedError("fovea has no kernels for rocm; select another backend")

    def forward_musa(self, query: Any, key: Any, value: Any, attn_metadata: Any = None) -> torch.Tensor:
        raise NotImplementedError("fovea has no kernels for musa; select another backend")

    def _run(self, query: Any, key: Any, value: Any, metadata: Any) -> torch.Tensor:
        call = _Call(self, query, key, value, metadata)
        out = fovea.torch.attention(call.query, call.key, call.value, call.mask, **call.options)
        if call.packed:
            out = out.unsqueeze(0)
        if call.padding:
            out = torch.nn.functional.pad(out, (0, 0, 0, 0, 0, call.padding))
        return out

    def resolve_execution_path(self, context: Any, query: Any, key: Any, value: Any, attn_metadata: Any = None) -> Any:
        """What forward() would run with these tensors, whose values are not read; call it outside compiled code."""
        call = _Call(self, query, key, value, attn_metadata)
        strategy = getattr(context, "parallel_strategy", None)
        boundaries = [str(_word(boundary)) for boundary in getattr(context, "outer_boundaries", None) or ()]
        report = fovea.torch.resolve(
            call.query,
            call.key,
            call.value,
            call.mask,
            parallel_strategy=_word(strategy),
            outer_boundaries=",".join(sorted(boundaries)) or None,
            paged_kv=bool(getattr(context, "paged_kv", False)),
            kv_cache_dtype=getattr(context, "kv_cache_dtype", None),
            require_fullgraph=bool(getattr(context, "require_fullgraph", False)),
            **call.options,
        )
        messages = "; ".join(each["message"] for each in report["reasons"])
        reason = f"{report['backend']}: {messages}" if messages else None
        return _result(context, report["path"], report["support"], report["compilation_mode"], reason)


class _Call:
    """A call's tensors and options after the metadata, for forward() and for resolve_execution_path()."""

    def __init__(self, impl: FoveaImpl, query: Any, key: Any, value: Any, metadata: Any) -> None:
        extra = {} if metadata is None else metadata.extra
        mask = None if metadata is None else metadata.attn_mask
        spans = None if metadata is None else metadata.full_attn_spans
        packed = {name: extra[name] for name in _PACKED if extra.get(name) is not None}
        dtype = extra.get("kv_cache_dtype")
        if dtype not in (None, "auto", "float"):
            raise ValueError(
                f"fovea does not read keys and values stored as {dtype}; set diffusion_kv_cache_dtype='auto'"
            )
        self.query, self.key, self.value, self.mask = query, key, value, _mask(mask, extra, query, key)
        self.packed, self.padding = False, 0
        self.options: dict[str, Any] = {"key": impl.key, "scale": impl.softmax_scale, "is_causal": impl.causal}
        if spans:
            self._spans(spans, metadata.query_ranges)
        elif packed:
            self._documents(packed)
        elif metadata is not None and metadata.packed_padding is not None:
            self._padding(metadata.packed_padding)
        elif extra.get("valid_kv_length") is not None:
            self._prefix(int(extra["valid_kv_length"]))

    def _spans(self, spans: Any, ranges: Any) -> None:
        """Inside a span attention is full, elsewhere causal; or as a mask of four axes says."""
        self.options["is_causal"] = False
        if self.mask is not None and self.mask.dim() == 4:
            return
        items = [[[int(begin), int(end)] for begin, end in each] for each in spans]
        if any(each != items[0] for each in items):
            raise ValueError("full_attn_spans differ between the items of a batch; run one item at a time")
        stated: dict[str, Any] = {"full_attn_spans": items[0]}
        if ranges:
            stated["query_ranges"] = [[each.local_start, each.local_end, each.global_start] for each in ranges]
        self.options["metadata"] = json.dumps(stated, sort_keys=True)

    def _documents(self, packed: dict[str, Any]) -> None:
        """One row of several documents, each of which sees itself only; masks are in their boundaries."""
        missing = [name for name in _PACKED if name not in packed]
        if missing:
            raise ValueError(f"packed sequences need {', '.join(_PACKED)}; missing: {', '.join(missing)}")
        if self.query.shape[0] != 1 or self.key.shape[0] != 1:
            raise ValueError(f"packed sequences are one row, the batch is {self.query.shape[0]}")
        self.query, self.key, self.value = self.query[0], self.key[0], self.value[0]
        self.mask, self.packed = None, True
        self.options.update(
            layout="packed",
            cu_seqlens_q=packed["cu_seqlens_q"],
            cu_seqlens_kv=packed["cu_seqlens_k"],
            max_seqlen_q=int(packed["max_seqlen_q"]),
            max_seqlen_kv=int(packed["max_seqlen_k"]),
        )

    def _padding(self, packed: Any) -> None:
        """Tokens with padding behind them: the padding's queries give zero."""
        self.padding = self.query.shape[1] - int(packed.q_length)
        if self.padding < 0:
            raise ValueError(f"packed_padding has {packed.q_length} queries of {self.query.shape[1]}")
        if self.mask is not None and self.mask.shape[-2] not in (1, int(packed.q_length)) and self.mask.dim() == 4:
            self.mask = self.mask[:, :, : int(packed.q_length)]
        self.query = self.query[:, : int(packed.q_length)]
        self._prefix(int(packed.kv_length))

    def _prefix(self, length: int) -> None:
        """Only the first `length` keys count."""
        if not 0 < length <= self.key.shape[1]:
            raise ValueError(f"{length} valid keys of {self.key.shape[1]}")
        if length == self.key.shape[1]:
            return
        self.key, self.value = self.key[:, :length], self.value[:, :length]
        if self.mask is not None:
            self.mask = self.mask[..., :length]


def _mask(mask: Any, extra: Mapping[str, Any], query: Any, key: Any) -> Any:
    """The mask as fovea takes it; None where its producer states that it hides nothing."""
    if mask is None:
        return None
    mode = extra.get("attention_mask_mode")
    if mode is not None and mode not in _MASK_MODES:
        raise ValueError(f"attention_mask_mode is '{mode}' (accepted: {', '.join(_MASK_MODES)})")
    if mode == "none":
        return None
    if mask.dim() == 2 and tuple(mask.shape) == (query.shape[0], key.shape[1]):
        return mask.to(torch.bool)
    if mask.dim() == 2:
        return mask[None, None]
    if mask.dim() == 3:
        raise ValueError(f"attn_mask has shape {tuple(mask.shape)} (accepted: [B,Skv], [Sq,Skv] or four axes)")
    return mask


def _word(value: Any) -> str | None:
    """The text of a member of an enum of strings."""
    if value is None:
        return None
    return str(value.value) if isinstance(value, enum.Enum) else str(value)


@dataclasses.dataclass(frozen=True)
class _Status:
    status: str
    reason: str | None = None


@dataclasses.dataclass(frozen=True)
class _Path:
    """The result where the installed vllm_omni has no type for it."""

    backend: str
    path: str
    support: _Status
    compilation_mode: str
    platform: Any = None
    kernel_variant: Any = None
    parallel_strategy: Any = None


def _result(context: Any, path: str | None, support: str, mode: str, reason: str | None) -> Any:
    """An ExecutionPathResult of the module that the context's type is from."""
    types: Any = sys.modules.get(type(context).__module__)
    named: dict[str, Any] = {
        "backend": FoveaBackend.get_name(),
        "path": path or "none",
        "platform": getattr(context, "platform", None),
        "kernel_variant": None,
        "parallel_strategy": getattr(context, "parallel_strategy", None),
    }
    if not all(hasattr(types, name) for name in ("ExecutionPathResult", "CapabilityResult")):
        return _Path(support=_Status(support, reason), compilation_mode=mode, **named)
    status = types.SupportStatus(support) if hasattr(types, "SupportStatus") else support
    shown = types.CompilationMode(mode) if hasattr(types, "CompilationMode") else mode
    return types.ExecutionPathResult(
        support=types.CapabilityResult(status=status, reason=reason), compilation_mode=shown, **named
    )
