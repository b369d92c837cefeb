"""axolotl's keys by name and type, from ``keys.json``: facts of axolotl 0.18, read once. For the types see ``types.py``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, create_model

from ndcheck.dialects.types import build

_FACTS: dict[str, Any] = json.loads((files(__package__) / "keys.json").read_bytes())

PLUGIN_KEYS: dict[str, frozenset[str]] = {plugin: frozenset(keys) for plugin, keys in _FACTS["plugins"].items()}
"""Plug-in (the module under ``axolotl.integrations``) -> the keys that exist only where it is listed."""

KEY_TYPES: dict[str, str] = {
    **_FACTS["keys"],
    **{key: text for keys in _FACTS["plugins"].values() for key, text in keys.items()},
}
"""Top-level key -> type text, plug-in keys included; without the keys of the model."""

SECTION_KEYS: dict[str, dict[str, str]] = _FACTS["sections"]
"""Section -> its keys and their type texts."""

DATASET_KEYS: frozenset[str] = frozenset(_FACTS["datasets"])
"""Every key of an entry of ``datasets``, whatever its kind."""


def section_of(text: str) -> Mapping[str, str] | None:
    """The keys of the section that a type text names, if it names one."""
    start = text.find("{")
    return None if start < 0 or "list[" in text else SECTION_KEYS[text[start + 1 : text.index("}")]]


@cache
def annotation(text: str) -> Any:
    """The Python type of a type text."""
    return build(text, _section)


@cache
def _section(name: str) -> Any:
    fields: dict[str, Any] = {}
    for key, text in SECTION_KEYS[name].items():
        # a key that pydantic keeps for itself gets another field name, and its own as alias
        field = f"{key}_" if hasattr(BaseModel, key) else key
        fields[field] = (annotation(text), Field(None, alias=key if field != key else None))
    return create_model(name, __config__=ConfigDict(extra="ignore", protected_namespaces=()), **fields)
