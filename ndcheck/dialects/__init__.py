"""The config languages that ndcheck reads, and every rule there is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ndcheck.dialects import axolotl
from ndcheck.dialects.dialect import Dialect
from ndcheck.rules.rule import Rule

DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (axolotl.DIALECT,)}
"""Every dialect, by name."""

_BY_CODE = {rule.code: rule for dialect in DIALECTS.values() for rule in dialect.rules}
ALL: tuple[Rule[Any], ...] = tuple(_BY_CODE.values())
"""The catalogue: the rules of all frameworks first, then those of each."""


class Detection(NamedTuple):
    """What the keys of a file say of its dialect: the one that they are of, and dialect -> keys that only it has."""

    dialect: Dialect | None
    keys: Mapping[str, tuple[str, ...]]


def detect(mapping: Mapping[Any, Any]) -> Detection:
    """The one dialect that has keys of its own in the mapping; none if there is none, or more than one."""
    found = {name: keys for name, dialect in DIALECTS.items() if (keys := dialect.recognised_by(mapping))}
    return Detection(DIALECTS[next(iter(found))] if len(found) == 1 else None, found)
