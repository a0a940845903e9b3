"""One call of the dispatcher, in fovea's terms. Whatever fovea would have to leave out is refused."""

from __future__ import annotations

import threading
from typing import Any, Callable

import torch

import fovea.torch

from ._dispatch import refuse
from ._roles import WAN_TEXT_TOKENS


class Group:
    """What modules of one kind run: their roles' names and keys. Modules of equal configuration share a group, so
    that a compiled block has one graph for all of them."""

    def __init__(self, roles: tuple[tuple[str, str, str], ...]) -> None:
        self.roles = roles  # (role, category, key); the second is for image tokens
        self.member: Any = None

    def choose(self, seq_kv: int) -> tuple[str, str, str]:
        if len(self.roles) == 1 or seq_kv == WAN_TEXT_TOKENS:
            return self.roles[0]
        return self.roles[1]


class Site:
    """An attention module and what it ran: {(role, problem): [receipt, calls]}."""

    def __init__(self, name: str, kind: str, group: Group) -> None:
        self.name = name
        self.kind = kind
        self.group = group
        self.ran: dict[tuple[str, str], list[Any]] = {}


class _Local(threading.local):
    site: Site | None = None


_local = _Local()
_lock = threading.Lock()


def enter(module: torch.nn.Module, arguments: Any) -> None:
    """A forward pre-hook: the module whose calls follow in this thread. One function for all, for torch.compile."""
    if not torch.compiler.is_compiling():
        _local.site = module.__dict__.get("_fovea_site")


def _note(ran: dict[tuple[str, str], list[Any]], role: str, calls: list[dict[str, Any]]) -> None:
    with _lock:
        for call in calls:
            entry = ran.setdefault((role, call["problem"]), [call["receipt"], 0])
            entry[0] = call["receipt"]
            entry[1] += 1


def _mask(mask: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """A mask of torch's or diffusers' shape in fovea's: [B,Skv], or [1|B,1|H,1|Sq,Skv]."""
    if mask.dim() == 1:
        return mask[None]
    if mask.dim() == 2 and not (mask.shape[0] == query.shape[0] and mask.shape[1] == key.shape[1]):
        return mask[None, None]
    if mask.dim() == 3:
        refuse(
            "mask",
            "attn_mask",
            f"of shape {tuple(mask.shape)}, whose first axis may be batch or heads",
            "1, 2 or 4 dimensions",
            "give it as [B,1,Sq,Skv] or [1,H,Sq,Skv]",
        )
    return mask


def make_backend(group: Group, unattached: dict[tuple[str, str], list[Any]]) -> Callable[..., Any]:
    """The function that diffusers calls. unattached: where calls are noted that belong to no module of the group."""

    def fovea_attention(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
        return_lse: bool = False,
        window_size: tuple[int, int] | None = None,
        softcap: float = 0.0,
        alibi_slopes: Any = None,
        block_mask: Any = None,
        score_mod: Any = None,
        _parallel_config: Any = None,
    ) -> Any:
        if dropout_p != 0.0:
            refuse("option", "dropout_p", str(dropout_p), "0", "put the model into evaluation mode")
        if softcap != 0.0:
            refuse("option", "softcap", str(softcap), "0", "use another attention backend")
        for name, given in (("alibi_slopes", alibi_slopes), ("block_mask", block_mask), ("score_mod", score_mod)):
            if given is not None:
                refuse("option", name, "given", "none", "use another attention backend")
        if _parallel_config is not None:
            refuse("parallel", "parallel_config", "given", "none", "use a backend that supports context parallelism")
        if query.shape[2] != key.shape[2] and not enable_gqa:
            refuse(
                "heads",
                "enable_gqa",
                f"False, with {query.shape[2]} heads of queries and {key.shape[2]} of keys",
                "True for heads that differ",
                "pass enable_gqa=True",
            )
        if is_causal:
            if attn_mask is not None:
                refuse("mask", "attn_mask", "given with is_causal", "one of them", "put both into the mask")
            # torch counts from the first key, fovea from the last: keys past the queries are never seen.
            if key.shape[1] > query.shape[1]:
                key, value = key[:, : query.shape[1]], value[:, : query.shape[1]]
            elif key.shape[1] < query.shape[1]:
                refuse("mask", "is_causal", "True with more queries than keys", "False", "give it as a mask")
        if attn_mask is not None:
            attn_mask = _mask(attn_mask, query, key)
        role, _, stated = group.choose(key.shape[1])
        if torch.compiler.is_compiling():
            result = fovea.torch.attention(
                query, key, value, attn_mask, key=stated, scale=scale, is_causal=is_causal, window=window_size,
                return_lse=return_lse,
            )  # fmt: skip
        else:
            with fovea.torch.record_calls() as calls:
                result = fovea.torch.attention(
                    query, key, value, attn_mask, key=stated, scale=scale, is_causal=is_causal, window=window_size,
                    return_lse=return_lse,
                )  # fmt: skip
            site = _local.site
            _note(site.ran if site is not None and site.group is group else unattached, role, calls)
        if not return_lse:
            return result
        out, lse = result
        return out, lse.transpose(1, 2)

    return fovea_attention
