"""Arguments of transformers 5.24 and TRL 1.10 by name and type, from ``keys.json``. For the types see ``types.py``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from ndcheck.dialects.types import build

_FACTS: dict[str, dict[str, str]] = json.loads((files(__package__) / "keys.json").read_bytes())

METHODS = ("sft", "dpo", "grpo", "kto", "reward", "rloo")
"""TRL's trainers, each with arguments of its own."""

ARGUMENTS: Mapping[str, str] = _FACTS["transformers"]
"""``TrainingArguments``: name -> type text."""

KEYS: Mapping[str, str] = {key: text for part in reversed(_FACTS.values()) for key, text in part.items()}
"""Every argument there is."""

OWN_KEYS: Mapping[str, frozenset[str]] = {
    method: frozenset(_FACTS[method]) - {key for other in METHODS if other != method for key in _FACTS[other]}
    for method in METHODS
}
"""Trainer of TRL -> the arguments that only it has."""


@cache
def annotation(key: str) -> Any:
    """The Python type of an argument; None for a key that nobody knows."""
    text = KEYS.get(key)
    return None if text is None else build(text if "null" in text else f"{text} | null")
