"""Fovea as an attention backend of diffusers.

    import fovea.diffusers
    fovea.diffusers.register()                        # before models, when DIFFUSERS_ATTN_BACKEND=fovea
    pipe.transformer.set_attention_backend("fovea")
    image = pipe(prompt).images[0]
    print(fovea.diffusers.report(pipe.transformer))   # what each attention module ran

docs/diffusers.md says which versions are tested, what is refused, and how roles are named.
"""

from __future__ import annotations

import functools
import json
import threading
import weakref
from collections.abc import Mapping
from typing import Any

import fovea
import fovea.torch

import torch

from . import _call, _dispatch, _report
from ._report import Report
from ._roles import Role, roles_of

__all__ = ["NAME", "TESTED", "Report", "configure", "register", "report", "unregister"]

NAME = _dispatch.NAME
TESTED = _dispatch.TESTED

_UNATTACHED = "unattached"
_lock = threading.RLock()


class _State:
    """What register() has set up."""

    def __init__(self, dispatch: Any, config: Any, backend: str | None) -> None:
        self.dispatch = dispatch
        self.config = config
        self.backend = backend
        self.groups: dict[Any, _call.Group] = {}
        self.unattached: dict[tuple[str, str], list[Any]] = {}
        # By model: its sites, and the classes of modules whose processors run attention themselves.
        self.models: weakref.WeakKeyDictionary[Any, tuple[list[_call.Site], dict[str, str]]]
        self.models = weakref.WeakKeyDictionary()
        # By model: what configure() was given.
        self.configured: weakref.WeakKeyDictionary[Any, tuple[Any, str | None, Any]] = weakref.WeakKeyDictionary()
        self.originals: dict[str, Any] = {}


_state: _State | None = None


def register(config: Mapping[str, Any] | str | None = None, *, backend: str | None = None) -> None:
    """Makes "fovea" a name of diffusers' attention dispatcher.

    Then model.set_attention_backend("fovea"), diffusers' attention_backend("fovea") and DIFFUSERS_ATTN_BACKEND=fovea
    work; for the variable, call this before anything imports a model of diffusers. config: an attention configuration
    (docs/config.md) as JSON text or a mapping, and backend a shorthand for its default; for models that configure() is
    not called for. Calling it again replaces the configuration for models that are switched from then on.

    Raises ImportError without diffusers, UnsupportedError for a diffusers whose dispatcher differs from the tested
    one's, ArgumentError for a wrong configuration.
    """
    global _state
    with _lock:
        plain = fovea.torch.resolve_key(config, backend, role=_UNATTACHED)
        if _state is None:
            dispatch, wanted = _dispatch.load()
            _dispatch.check(dispatch)
            state = _State(dispatch, config, backend)
            _wrap_models(state)
            _state = state
        else:
            wanted = False
            _state.config, _state.backend = config, backend
        group = _call.Group(((_UNATTACHED, "self", plain),))
        function = _call.make_backend(group, _state.unattached)
        group.member = _dispatch.add(_state.dispatch, NAME, function, listed=True)
        if wanted:
            _state.dispatch._AttentionBackendRegistry.set_active_backend(group.member)


def unregister() -> None:
    """Takes the name away again. Models that use it go back to diffusers' default."""
    global _state
    with _lock:
        state, _state = _state, None
        if state is None:
            return
        for model in list(state.models):
            _detach(state, model)
        _unwrap_models(state)
        registry = state.dispatch._AttentionBackendRegistry
        plain = state.dispatch.AttentionBackendName(NAME)
        if registry.get_active_backend()[0] is plain:
            registry.set_active_backend(state.dispatch.AttentionBackendName.NATIVE)
        for member in [plain, *(group.member for group in state.groups.values())]:
            _dispatch.remove(state.dispatch, member)


def configure(
    model: Any,
    config: Mapping[str, Any] | str | None = None,
    *,
    backend: str | None = None,
    roles: Mapping[str, Any] | None = None,
) -> None:
    """Switches one model to fovea with its own configuration and roles; other models stay as they are.

    config, backend: as in register(), whose configuration is used when neither is given. roles: patterns of module
    names ("blocks.*.attn2") to roles ("cross.text") or to pairs of role and category. Registers fovea if that was not
    done. Raises UnsupportedError for a model that diffusers' dispatcher does not reach, ArgumentError for a
    configuration that is wrong or has an entry under per_role that no module of the model has as role or category.
    """
    with _lock:
        if _state is None:
            register()
        assert _state is not None
        model = _model(model)
        _attach(_state, model, config, backend, roles)
        _state.configured[model] = (config, backend, roles)


def report(model: Any = None) -> Report:
    """What the attention modules of a model ran since it was switched to fovea; print it for a table.

    Without a model: the calls that belong to no switched model, under the role "unattached". Modules whose processor
    computes attention itself, past diffusers' dispatcher, are listed with that note. See Report for the rows.
    """
    with _lock:
        if _state is None:
            remedy = "call fovea.diffusers.register() first"
            _dispatch.refuse("state", "report", "asked for", "after register()", remedy)
        assert _state is not None
        if model is None:
            return Report(
                _report.row(_UNATTACHED, "-", role, "self", problem, receipt, calls, "module")
                for (role, problem), (receipt, calls) in _state.unattached.items()
            )
        model = _model(model)
        found = _state.models.get(model)
        if found is None:
            remedy = 'call set_attention_backend("fovea") on it, or fovea.diffusers.configure(model)'
            got = f"asked for a {type(model).__name__}"
            _dispatch.refuse("state", "report", got, "a model that runs fovea", remedy)
        assert found is not None
        return Report(row for part in (_rows_of(found[0]), _rows_past(found[1])) for row in part)


def _model(value: Any) -> Any:
    """The model behind what a caller gave, which may be its compiled form."""
    model = getattr(value, "_orig_mod", value)
    if not isinstance(model, torch.nn.Module):
        raise fovea.ArgumentError(
            100,
            "invalid_argument",
            f"model is of type {type(model).__name__} (accepted: a model of diffusers, such as pipe.transformer)",
        )
    return model


def _rows_of(sites: list[_call.Site]) -> list[dict[str, Any]]:
    rows = []
    for site in sites:
        for role, category, key in site.group.roles:
            seen = [(problem, *entry) for (name, problem), entry in site.ran.items() if name == role]
            for problem, receipt, calls in seen:
                rows.append(_report.row(site.name, site.kind, role, category, problem, receipt, calls, "module"))
            planned = [] if seen else fovea.torch.receipts(key)
            for plan in planned:
                row = _report.row(site.name, site.kind, role, category, plan["problem"], plan["receipt"], None, "role")
                rows.append(row)
            if not seen and not planned:
                rows.append(_report.row(site.name, site.kind, role, category))
    return rows


def _rows_past(modules: dict[str, str]) -> list[dict[str, Any]]:
    return [
        _report.row(name, kind, None, None, note="not dispatched: its processor computes attention itself")
        for name, kind in modules.items()
    ]


def _per_role(key: str) -> set[str]:
    """The entries under per_role of a key's configuration."""
    found: set[str] = set()

    def walk(prefix: str, node: Any) -> None:
        if isinstance(node, Mapping) and "backend" not in node:
            for name, below in node.items():
                walk(f"{prefix}.{name}" if prefix else name, below)
        else:
            found.add(prefix)

    walk("", json.loads(key)["config"].get("per_role") or {})
    return found


def _resolve(config: Any, backend: str | None, role: Role) -> tuple[str, str, str]:
    """The role's full name, its category, and the key for the first of its names that the configuration has."""
    key = fovea.torch.resolve_key(config, backend, role=role.names[0], category=role.category)
    entries = _per_role(key)
    name = next((name for name in role.names if name in entries), role.names[0])
    return role.names[0], role.category, fovea.torch.resolve_key(config, backend, role=name, category=role.category)


def _attach(state: _State, model: Any, config: Any = None, backend: str | None = None, roles: Any = None) -> None:
    """Gives the model's modules their roles and its processors the backends of them; without errors or not at all."""
    own = config is not None or backend is not None
    if not own:
        config, backend = state.config, state.backend
    modules = _dispatch.attention_modules(model)
    reached = {name: module for name, module in modules.items() if hasattr(module.processor, "_attention_backend")}
    if not reached:
        _dispatch.refuse(
            "model",
            "model",
            f"{type(model).__name__}, none of whose attention goes through diffusers' dispatcher",
            "a model with processors that have _attention_backend",
            "leave this model on its own backend",
        )
    chosen = roles_of(model, reached, dict(roles) if roles else None)
    resolved = {role: _resolve(config, backend, role) for found in chosen.values() for role in found}
    if own:
        _check_entries(model, resolved)
    groups = {name: tuple(resolved[role] for role in found) for name, found in chosen.items()}
    _check_processors(reached, groups)
    _detach(state, model)
    sites = []
    for name, module in reached.items():
        group = state.groups.get(groups[name])
        if group is None:
            group = state.groups[groups[name]] = _call.Group(groups[name])
            function = _call.make_backend(group, state.unattached)
            group.member = _dispatch.add(state.dispatch, f"{NAME}[{len(state.groups)}]", function, listed=False)
        site = _call.Site(name, type(module).__name__, group)
        module.__dict__["_fovea_site"] = site
        module.__dict__["_fovea_hook"] = module.register_forward_pre_hook(_call.enter)
        module.processor._attention_backend = group.member
        sites.append(site)
    past = {name: type(module).__name__ for name, module in modules.items() if name not in reached}
    state.models[model] = (sites, past)


def _detach(state: _State, model: Any) -> None:
    if state.models.pop(model, None) is None:
        return
    members = {group.member for group in state.groups.values()}
    for module in model.modules():
        hook = module.__dict__.pop("_fovea_hook", None)
        if hook is not None:
            hook.remove()
            del module.__dict__["_fovea_site"]
            if getattr(module.processor, "_attention_backend", None) in members:
                module.processor._attention_backend = None


def _check_entries(model: Any, resolved: dict[Role, tuple[str, str, str]]) -> None:
    names = {name for role in resolved for name in (*role.names, role.category)}
    for _, _, key in resolved.values():
        unused = sorted(_per_role(key) - names)
        if unused:
            raise fovea.ArgumentError(
                100,
                "invalid_argument",
                f"per_role['{unused[0]}']: {type(model).__name__} has no attention of that role or category "
                f"(it has: {', '.join(sorted(names))})",
            )


def _check_processors(modules: dict[str, Any], groups: dict[str, Any]) -> None:
    """A processor that several modules share can name one backend only."""
    owners: dict[int, str] = {}
    for name, module in modules.items():
        first = owners.setdefault(id(module.processor), name)
        if groups[first] != groups[name]:
            _dispatch.refuse(
                "model",
                "processor",
                f"one object for {first} and {name}, which have different roles",
                "a processor for each role",
                "give each module a processor of its own",
            )


def _wrap_models(state: _State) -> None:
    """Lets diffusers' own switches on a model give its modules their roles."""
    from diffusers.models.modeling_utils import ModelMixin

    original_set, original_reset = ModelMixin.set_attention_backend, ModelMixin.reset_attention_backend

    @functools.wraps(original_set)
    def set_attention_backend(self: Any, backend: str) -> None:
        with _lock:
            if backend.lower() == NAME:
                original_set(self, backend)
                try:
                    _attach(state, self, *state.configured.get(self, ()))
                except fovea.FoveaError:
                    original_reset(self)
                    raise
            else:
                original_set(self, backend)
                _detach(state, self)

    @functools.wraps(original_reset)
    def reset_attention_backend(self: Any) -> None:
        with _lock:
            original_reset(self)
            _detach(state, self)

    state.originals = {"set_attention_backend": original_set, "reset_attention_backend": original_reset}
    ModelMixin.set_attention_backend = set_attention_backend
    ModelMixin.reset_attention_backend = reset_attention_backend


def _unwrap_models(state: _State) -> None:
    from diffusers.models.modeling_utils import ModelMixin

    for name, original in state.originals.items():
        setattr(ModelMixin, name, original)
