"""Configurations as immutable keys: what an op names its layer by, and the layers behind the names.

A key is text that states the whole configuration of a layer, so that a compiled graph which holds one needs nothing
else, and equal configurations have equal keys. Layers are made from their key on first use and kept. Neither owns a
tensor.
"""

import ctypes as c
import json
import os
import threading

import fovea
from fovea import _capi
from fovea.sparse import SparseAttentionState

_lock = threading.Lock()
_layers = {}
_metadata = {}
_states = {}
_keys = {}
_MOST_KEYS = 4096


class Layer:
    """An attention layer of the library for one key. Thread-safe."""

    def __init__(self, key):
        stated = parse(key)
        config = fovea._Config(json.dumps(stated["config"]), None)
        options = _capi.LayerOptions(
            struct_size=c.sizeof(_capi.LayerOptions),
            role=fovea._text(stated["role"]),
            category=fovea._text(stated["category"]),
            threads=stated["threads"],
            platform=fovea._text(stated.get("platform")),
            facts=fovea._text(stated.get("facts")),
        )
        self.key = key
        self.config = config
        self.role = stated["role"]
        self.category = stated["category"]
        self.lib = fovea._lib()
        self.handle = c.c_void_p()
        fovea._call(
            self.lib.fovea_attention_create, c.byref(options), config._handle, c.byref(self.handle)
        )
        # Receipts of the plans made so far, by problem; written under the lock.
        self.receipts = {}

    def __del__(self):
        if getattr(self, "handle", None):
            self.lib.fovea_attention_free(self.handle)


class Metadata:
    """What a model states about the masks of a call, from JSON text."""

    def __init__(self, text):
        self.lib = fovea._lib()
        self.handle = c.c_void_p()
        fovea._call(self.lib.fovea_metadata_create, text.encode(), c.byref(self.handle))

    def __del__(self):
        if getattr(self, "handle", None):
            self.lib.fovea_metadata_free(self.handle)


def parse(key):
    """The parts of a key; no text is an empty configuration. ArgumentError when it is no key."""
    try:
        if not key:
            return {"config": {}, "role": "self", "category": None, "threads": 0}
        stated = json.loads(key)
        if set(stated) - {"platform", "facts"} == {"config", "role", "category", "threads"}:
            return stated
    except (TypeError, ValueError):
        pass
    raise fovea.ArgumentError(
        100, "invalid_argument", f"'{key}' is no key of a configuration; make one with fovea.torch.resolve_key"
    )


def make_key(config=None, backend=None, role="self", category=None, threads=0, platform=None, facts=None):
    """The key of a configuration. Reads FOVEA_BACKEND when nothing is configured, now and not at the call."""
    config = fovea._config_text(config)
    environment = os.environ.get("FOVEA_BACKEND") if config is None and backend is None else None
    if isinstance(facts, dict):
        facts = ",".join(f"{name}={value}" for name, value in facts.items())
    known = (config, backend, role, category, threads, platform, facts, environment, fovea._generation)
    key = _keys.get(known)
    if key is None:
        handle = fovea._Config(config, backend)
        stated = fovea._take_json(fovea._lib().fovea_config_to_json, handle._handle)
        parts = {"config": stated, "role": str(role), "category": category, "threads": int(threads)}
        if platform is not None:
            parts.update(platform=platform, facts=facts)
        key = json.dumps(parts, sort_keys=True, separators=(",", ":"))
        with _lock:
            if len(_keys) >= _MOST_KEYS:
                _keys.clear()
            _keys[known] = key
    return key


def layer(key):
    """The layer of a key, made on first use."""
    with _lock:
        found = _layers.get(key)
        if found is None or found.lib is not fovea._lib():
            found = _layers[key] = Layer(key)
        return found


def _stated(table, text, make):
    """What a text states, made on first use; None for no text."""
    if not text:
        return None
    with _lock:
        known = (text, fovea._generation)
        found = table.get(known)
        if found is None:
            if len(table) >= _MOST_KEYS:
                table.clear()
            found = table[known] = make(text)
        return found


def metadata(text):
    """The metadata of a call from JSON text."""
    return _stated(_metadata, text, Metadata)


def sparse_state(text):
    """A state whose decision is that of SparseAttentionState.text."""
    return _stated(_states, text, SparseAttentionState._from_text)


def note_receipt(of, problem, receipt):
    """Remembers what a layer's plan for a problem is; of very many the latest."""
    with _lock:
        of.receipts.pop(problem, None)
        if len(of.receipts) >= _MOST_KEYS:
            del of.receipts[next(iter(of.receipts))]
        of.receipts[problem] = receipt


def receipts(key):
    """[{"problem", "receipt"}] of the plans made for a key."""
    with _lock:
        found = _layers.get(key)
        return [] if found is None else [{"problem": p, "receipt": r} for p, r in found.receipts.items()]
