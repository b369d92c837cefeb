"""The config languages that ndcheck reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ndcheck.dialects import axolotl
from ndcheck.dialects.dialect import Dialect

DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (axolotl.DIALECT,)}
"""Every dialect, by name."""


def detect(mapping: Mapping[Any, Any]) -> Dialect | None:
    """The one dialect that recognises the mapping; None if none does, or more than one."""
    found = [dialect for dialect in DIALECTS.values() if dialect.recognises(mapping)]
    return found[0] if len(found) == 1 else None
