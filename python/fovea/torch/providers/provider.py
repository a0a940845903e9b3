"""What the providers have in common."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from fovea import _plugin


class Provider:
    """A package: what to import, which names it serves, what it cannot do, and how a call runs.

    package: the fact that stands for it. distributions: names under which its version is found. Instances keep nothing.
    """

    package: str = ""
    module: str = ""
    install: str = ""
    distributions: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()

    def check(self, module: Any) -> None:
        """Raises ImportError when the module lacks what a call needs."""

    def validator(self, module: Any) -> Callable[[int, int, int], Any] | None:
        """The package's own rule for head sizes, (head_dim, dim_v, alignment), which raises; None: it has none."""
        return None

    def refusals(self, module: Any, backend: str, problem: Any) -> Iterable[tuple[str, ...]]:
        """Reasons (code, field, got, accepted, remedy) for everything that a call cannot have."""
        raise NotImplementedError

    def run(self, module: Any, call: Any) -> None:
        """Computes call.out, and call.lse when it is there."""
        raise NotImplementedError


@functools.lru_cache(maxsize=64)
def parameters(function):
    """The names that a function of a package takes."""
    return frozenset(inspect.signature(function).parameters)


def need(module, *names):
    """ImportError naming what the module lacks."""
    missing = [name for name in names if not hasattr(module, name)]
    if missing:
        # A folder that other packages share, such as flash_attn with flash-attn-4 alone.
        shared = getattr(module, "__file__", None) is None and hasattr(module, "__path__")
        alone = ": it is the folder of other packages" if shared else ""
        raise ImportError(f"{module.__name__} has no {', '.join(missing)}{alone}")


def serves(provider, backend):
    """The refusal of a name that the package stands for in the tables but has no kernel for here."""
    if backend not in provider.backends:
        yield ("package", "backend", backend, ", ".join(provider.backends), "choose one of these names")


def no_masks(problem, remedy):
    """Refusals of mask tensors and of key lengths."""
    if problem.mask_kind:
        yield ("mask", "mask", _plugin.MASKS[problem.mask_kind], "none", remedy)
    if problem.has_kv_lengths:
        yield ("kv_lengths", "kv_lengths", "given", "none", remedy)


def equal_head_sizes(problem):
    """The refusal of value heads of another size."""
    if problem.head_dim != problem.dim_v:
        yield ("dim_v", "dim_v", str(problem.dim_v), str(problem.head_dim), "choose FLASH_ATTN or TORCH_SDPA")


def causal_is_square(problem):
    """The refusal of kernels whose diagonal starts at the first query and key."""
    if problem.causal and problem.seq_q != problem.seq_kv:
        got = f"causal with {problem.seq_q} queries and {problem.seq_kv} keys"
        yield ("causal", "causal", got, "equal lengths", "choose FLASH_ATTN or FLASH_ATTN_2")
