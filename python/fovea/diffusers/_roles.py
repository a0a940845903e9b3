"""Which role each attention module of a diffusers model has in a configuration.

A role has a full name (wan.cross.text), a short one (cross.text) and a category (cross). The first of them that the
configuration has an entry for decides. A module that attends twice in one forward has two roles.
"""

from __future__ import annotations

import fnmatch
from typing import Any, NamedTuple

import fovea

# Wan's attention processor splits its context at this many text tokens, counted from the end.
WAN_TEXT_TOKENS = 512


class Role(NamedTuple):
    """names: from the most exact to the short one; category: "self", "cross" or "joint"."""

    names: tuple[str, ...]
    category: str


_SELF = Role(("self",), "self")
_CROSS = Role(("cross",), "cross")
_JOINT = Role(("joint",), "joint")
_WAN_SELF = Role(("wan.self", "self"), "self")
_WAN_TEXT = Role(("wan.cross.text", "cross.text"), "cross")
_WAN_IMAGE = Role(("wan.cross.image", "cross.image"), "cross")
_QWEN_JOINT = Role(("qwen.joint", "joint"), "joint")
_ZIMAGE = {
    "layers": Role(("zimage.joint", "joint"), "joint"),
    "noise_refiner": Role(("zimage.noise_refiner", "self"), "self"),
    "context_refiner": Role(("zimage.context_refiner", "self"), "self"),
    "siglip_refiner": Role(("zimage.siglip_refiner", "self"), "self"),
}


def _known(model: Any, name: str, module: Any) -> tuple[Role, ...] | None:
    """The roles of the models whose roles have names of their own."""
    family = type(model).__name__
    first, _, _ = name.partition(".")
    leaf = name.rpartition(".")[2]
    if family.startswith("Wan") and type(module).__name__ == "WanAttention":
        if leaf == "attn1":
            return (_WAN_SELF,)
        if leaf == "attn2":
            return (_WAN_TEXT,) if module.add_k_proj is None else (_WAN_TEXT, _WAN_IMAGE)
    if family.startswith("QwenImage") and getattr(module, "add_q_proj", None) is not None:
        return (_QWEN_JOINT,)
    if family.startswith("ZImage") and first in _ZIMAGE:
        return (_ZIMAGE[first],)
    return None


def _by_shape(name: str, module: Any) -> tuple[Role, ...]:
    if getattr(module, "add_q_proj", None) is not None:
        return (_JOINT,)
    leaf = name.rpartition(".")[2]
    if getattr(module, "is_cross_attention", False) or leaf == "attn2" or "cross" in leaf:
        return (_CROSS,)
    return (_SELF,)


def _stated(pattern: str, value: Any) -> Role:
    """A role that the user gave: "name" or ("name", "category")."""
    if isinstance(value, str):
        return Role((value,), value.partition(".")[0])
    if isinstance(value, (tuple, list)) and len(value) == 2 and all(isinstance(part, str) for part in value):
        return Role((value[0],), value[1])
    raise fovea.ArgumentError(
        100,
        "invalid_argument",
        f"roles['{pattern}'] is {value!r} (accepted: a role such as 'cross.text', or a pair of role and category)",
    )


def roles_of(model: Any, sites: dict[str, Any], stated: dict[str, Any] | None) -> dict[str, tuple[Role, ...]]:
    """The roles of the modules `sites`, by name; `stated` maps patterns of names to roles. The first match counts."""
    given = {pattern: _stated(pattern, value) for pattern, value in (stated or {}).items()}
    used = set()
    found: dict[str, tuple[Role, ...]] = {}
    for name, module in sites.items():
        pattern = next((pattern for pattern in given if fnmatch.fnmatchcase(name, pattern)), None)
        if pattern is not None:
            used.add(pattern)
            found[name] = (given[pattern],)
        else:
            found[name] = _known(model, name, module) or _by_shape(name, module)
    for pattern in given:
        if pattern not in used:
            raise fovea.ArgumentError(
                100,
                "invalid_argument",
                f"roles: no attention module of {type(model).__name__} matches '{pattern}' "
                f"(modules: {', '.join(list(sites)[:6])}{', ...' if len(sites) > 6 else ''})",
            )
    return found
