"""A stand-in of vLLM-Omni's attention interface: the names, arguments and rules that a backend meets there.

Where a wheel of vllm-omni is given, its own files take the place of the stand-in's, with stand-ins only for the parts
of vLLM that they import.
"""

import abc
import dataclasses
import enum
import importlib.util
import sys
import types
import typing

import torch

PREFIX = "vllm_omni.diffusion.attention"


class Platform:
    """The platform that AttentionImpl.forward asks; `name` can be set."""

    name = "unspecified"

    def __getattr__(self, attribute):
        if attribute.startswith("is_"):
            return lambda: attribute[3:] == self.name
        raise AttributeError(attribute)


PLATFORM = Platform()


class AttentionBackend(abc.ABC):
    accept_output_buffer = False
    supports_piecewise_spans = False
    supports_paged_kv = False
    supports_prefix_kv_slicing = False
    supported_platforms = None

    @classmethod
    def validate_available(cls):
        return None

    @classmethod
    def supports_attention_mask(cls, attention_spec=None):
        return False

    @staticmethod
    @abc.abstractmethod
    def get_name(): ...

    @staticmethod
    @abc.abstractmethod
    def get_impl_cls(): ...

    @staticmethod
    @abc.abstractmethod
    def get_metadata_cls(): ...

    @staticmethod
    @abc.abstractmethod
    def get_builder_cls(): ...

    @staticmethod
    @abc.abstractmethod
    def get_supported_head_sizes(): ...

    @classmethod
    def supports_head_size(cls, head_size):
        sizes = cls.get_supported_head_sizes()
        return not sizes or head_size in sizes


@dataclasses.dataclass
class AttentionMetadata:
    attn_mask: torch.Tensor | None = None
    extra: dict = dataclasses.field(default_factory=dict)
    full_attn_spans: list | None = None
    query_ranges: tuple | None = None
    packed_padding: typing.Any = None


@dataclasses.dataclass(frozen=True)
class QueryRange:
    local_start: int
    local_end: int
    global_start: int


@dataclasses.dataclass(frozen=True)
class PackedPaddingMetadata:
    q_length: int
    kv_length: int
    cu_seqlens_q: torch.Tensor
    cu_seqlens_k: torch.Tensor


class AttentionImpl(abc.ABC):
    _supported_kv_cache_dtypes = {}

    @abc.abstractmethod
    def __init__(self, num_heads, head_size, softmax_scale, causal=False, num_kv_heads=None, **extra): ...

    @classmethod
    def supports_kv_cache_dtype(cls, kv_cache_dtype, platform_key):
        return kv_cache_dtype is None or kv_cache_dtype in cls._supported_kv_cache_dtypes.get(platform_key, set())

    def forward(self, query, key, value, attn_metadata=None):
        for platform, method in (("rocm", "hip"), ("cuda", "cuda"), ("npu", "npu"), ("musa", "musa")):
            if getattr(PLATFORM, f"is_{platform}")():
                return getattr(self, f"forward_{method}")(query, key, value, attn_metadata)
        raise NotImplementedError(PLATFORM.name)

    def forward_npu(self, query, key, value, attn_metadata=None):
        raise NotImplementedError


class DiffusionAttentionBackendEnum(enum.Enum):
    FLASH_ATTN = "somewhere.FlashAttentionBackend"
    TORCH_SDPA = "somewhere.SDPABackend"

    def get_path(self):
        return _OVERRIDES.get(self, self.value)

    def get_class(self):
        module, _, name = self.get_path().rpartition(".")
        return getattr(importlib.import_module(module), name)


_OVERRIDES = {}


def register_diffusion_backend(backend, class_path=None):
    _OVERRIDES[backend] = class_path
    return lambda decorated: decorated


def _module(name, **members):
    """Makes the module and the packages above it."""
    parent = None
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        path = ".".join(parts[:end])
        if path not in sys.modules:
            sys.modules[path] = types.ModuleType(path)
            sys.modules[path].__path__ = []
        if parent is not None:
            setattr(parent, parts[end - 1], sys.modules[path])
        parent = sys.modules[path]
    parent.__dict__.update(members)
    return parent


def _from_wheel(folder, name):
    spec = importlib.util.spec_from_file_location(name, folder / (name.replace(".", "/") + ".py"))
    module = importlib.util.module_from_spec(spec)
    above, _, leaf = name.rpartition(".")
    setattr(_module(above), leaf, module)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def use_installed():
    """Imports the installed vllm_omni; why there is none to use, or None."""
    if importlib.util.find_spec("vllm_omni") is None:
        return "not installed"
    try:
        importlib.import_module(f"{PREFIX}.layer")
    except Exception as error:  # noqa: BLE001 - whatever a package does at its import is its state
        for name in [name for name in sys.modules if name.partition(".")[0] == "vllm_omni"]:
            del sys.modules[name]
        return f"installed, but {type(error).__name__}: {error}"
    return None


def install(wheel_folder=None):
    """Makes vllm_omni's attention modules importable. wheel_folder: where a wheel was unpacked."""
    if wheel_folder is None:
        own = {name: value for name, value in globals().items() if not name.startswith("_")}
        _module(f"{PREFIX}.backends.abstract", **own)
        _module(f"{PREFIX}.backends.registry", **own)
        return
    import logging

    def resolve(path):
        module, _, name = path.rpartition(".")
        return getattr(importlib.import_module(module), name)

    _module("vllm.logger", init_logger=logging.getLogger)
    _module("vllm.utils.import_utils", resolve_obj_by_qualname=resolve)
    _module("vllm_omni.platforms", current_omni_platform=PLATFORM)
    backends = ("abstract", "registry", "utils.attn_runtime_selector", "sdpa")
    for name in (*(f"backends.{each}" for each in backends), "selector"):
        _from_wheel(wheel_folder, f"{PREFIX}.{name}")


class Mode(str, enum.Enum):
    none = "none"
    hsdp = "hsdp"


class SupportStatus(str, enum.Enum):
    SUPPORTED = "supported"
    UNSUPPORTED = "unsupported"
    UNMIGRATED = "unmigrated"


class CompilationMode(str, enum.Enum):
    TRACEABLE = "traceable"
    CUSTOM_OP = "custom_op"
    EAGER_ONLY = "eager_only"


@dataclasses.dataclass(frozen=True)
class CapabilityResult:
    status: SupportStatus
    reason: str | None = None

    def __post_init__(self):
        if self.status is SupportStatus.UNSUPPORTED and not self.reason:
            raise ValueError("actionable reason")


@dataclasses.dataclass(frozen=True)
class ExecutionContext:
    """The execution contract's request, which released versions do not have yet."""

    platform: str
    paged_kv: bool = False
    kv_cache_dtype: str | None = None
    parallel_strategy: Mode = Mode.none
    require_fullgraph: bool = False
    outer_boundaries: frozenset = frozenset()


@dataclasses.dataclass(frozen=True)
class ExecutionPathResult:
    backend: str
    path: str
    support: CapabilityResult
    compilation_mode: CompilationMode
    platform: str
    kernel_variant: str | None
    parallel_strategy: Mode
