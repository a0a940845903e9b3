"""Adding a backend to diffusers' attention dispatcher, whose names are a closed enum.

Only what is checked here is relied upon; check() says whether this version of diffusers still has it.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import warnings
from typing import Any, Callable

import fovea

TESTED = "0.42.1"
NAME = "fovea"

_ARGUMENTS = (
    "query",
    "key",
    "value",
    "attn_mask",
    "dropout_p",
    "is_causal",
    "scale",
    "enable_gqa",
    "attention_kwargs",
    "backend",
    "parallel_config",
)
_MODULE = "diffusers.models.attention_dispatch"


def refuse(code: str, field: str, got: str, accepted: str, remedy: str) -> None:
    """Raises UnsupportedError with one reason."""
    message = f"fovea.diffusers: {field} is {got} (accepted: {accepted}); {remedy}"
    reason = fovea.Reason(code, field, got, accepted, remedy, message)
    raise fovea.UnsupportedError(200, "unsupported", message, [reason])


def load() -> tuple[Any, bool]:
    """The dispatcher's module, and whether DIFFUSERS_ATTN_BACKEND asks for fovea.

    The dispatcher turns that variable into a name of its enum when it is imported, before fovea can be one; so it is
    imported here with its own default.
    """
    try:
        import diffusers.utils.constants as constants
    except ImportError as error:
        raise ImportError(f"fovea.diffusers needs diffusers: pip install diffusers=={TESTED} ({error})") from error
    wanted = getattr(constants, "DIFFUSERS_ATTN_BACKEND", None) == NAME
    hidden = wanted and _MODULE not in sys.modules
    if hidden:
        constants.DIFFUSERS_ATTN_BACKEND = "native"
    try:
        import diffusers.models.attention_dispatch as dispatch
    except ImportError as error:
        accepted = f"{TESTED}, with which it is tested"
        refuse("package_version", "diffusers", _version(), accepted, f"install it ({error})")
    finally:
        if hidden:
            constants.DIFFUSERS_ATTN_BACKEND = NAME
    return dispatch, wanted


def _version() -> str:
    import diffusers

    return str(diffusers.__version__)


def _missing(dispatch: Any) -> str | None:
    """The first thing that this version's dispatcher does not have as expected."""
    enum = getattr(dispatch, "AttentionBackendName", None)
    if enum is None or not issubclass(enum, str) or not hasattr(enum, "_value2member_map_"):
        return "AttentionBackendName is no enum of strings"
    registry = getattr(dispatch, "_AttentionBackendRegistry", None)
    for name in ("_backends", "_constraints", "_supported_arg_names"):
        if not isinstance(getattr(registry, name, None), dict):
            return f"_AttentionBackendRegistry.{name} is no dict"
    for name in ("register", "set_active_backend", "get_active_backend"):
        if not callable(getattr(registry, name, None)):
            return f"_AttentionBackendRegistry.{name} is missing"
    function = getattr(dispatch, "dispatch_attention_fn", None)
    if function is None or tuple(inspect.signature(function).parameters) != _ARGUMENTS:
        return f"dispatch_attention_fn does not take ({', '.join(_ARGUMENTS)})"
    from diffusers.models.modeling_utils import ModelMixin

    for name in ("set_attention_backend", "reset_attention_backend"):
        if not callable(getattr(ModelMixin, name, None)):
            return f"ModelMixin.{name} is missing"
    return None


def check(dispatch: Any) -> None:
    """Refuses a diffusers whose dispatcher is another one; warns about a version that is not the tested one."""
    missing = _missing(dispatch)
    if missing is not None:
        remedy = f"pip install diffusers=={TESTED} ({missing})"
        refuse("package_version", "diffusers", _version(), f"{TESTED}, with which it is tested", remedy)
    if _version() != TESTED:
        warnings.warn(f"fovea.diffusers was tested with diffusers {TESTED}; this is {_version()}", stacklevel=3)


def add(dispatch: Any, value: str, function: Callable[..., Any], listed: bool) -> Any:
    """A new member of the enum whose backend is `function`. listed: shown among the names that diffusers accepts."""
    enum = dispatch.AttentionBackendName
    member = enum._value2member_map_.get(value)
    if member is None:
        name = value.upper()
        member = str.__new__(enum, value)
        member._name_ = name
        member._value_ = value
        member._sort_order_ = len(enum._value2member_map_)
        member.__objclass__ = enum
        enum._value2member_map_[value] = member
        if listed:
            type.__setattr__(enum, name, member)
            enum._member_names_.append(name)
            enum._member_map_[name] = member
    dispatch._AttentionBackendRegistry.register(member)(function)
    return member


def remove(dispatch: Any, member: Any) -> None:
    """Undoes add()."""
    enum, registry = dispatch.AttentionBackendName, dispatch._AttentionBackendRegistry
    for table in (registry._backends, registry._constraints, registry._supported_arg_names):
        table.pop(member, None)
    enum._value2member_map_.pop(member.value, None)
    if enum._member_map_.pop(member.name, None) is not None:
        enum._member_names_.remove(member.name)
        with contextlib.suppress(AttributeError):
            type.__delattr__(enum, member.name)


def attention_modules(model: Any) -> dict[str, Any]:
    """The modules whose processors diffusers switches between backends, by name."""
    from diffusers.models.attention import AttentionModuleMixin
    from diffusers.models.attention_processor import Attention, MochiAttention

    kinds = (Attention, MochiAttention, AttentionModuleMixin)
    return {name: module for name, module in model.named_modules() if isinstance(module, kinds)}
