"""Rules with tables of their own that a schema can state: bounds of numbers, lists that hold something, removed keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ndcheck.rules.axolotl.bounds import BOUNDS, FILLED, PATTERNS, list_empty, number_out_of_bounds
from ndcheck.rules.axolotl.retired import REFUSED, removal, removed_key
from ndcheck.schema.clauses import forbidden
from ndcheck.schema.kinds import ANYTHING, satisfies
from ndcheck.schema.logic import Schema, any_of
from ndcheck.schema.places import KeyPath, at
from ndcheck.schema.words import Words

_ONE_OR_MORE: tuple[Schema, ...] = ({"not": {"type": "number"}}, {"type": "number", "minimum": 1})


class Extra(NamedTuple):
    """A rule's part of a schema: limits on the value at ``path``, or a clause of its own."""

    code: str
    path: KeyPath
    limits: dict[str, Any] | None = None
    clause: dict[str, Any] | None = None


def extras(words: Words) -> list[Extra]:
    """The parts for a dialect; only axolotl's rules have such tables."""
    return [*_bounds(), *_filled(), *_removed(words)] if removed_key in words.dialect.rules else []


def _bounds() -> Iterator[Extra]:
    for key, bounds in BOUNDS.items():
        most = {} if bounds.most is None else {"maximum": bounds.most}
        yield Extra(number_out_of_bounds.code, tuple(key.split(".")), {"minimum": bounds.least, **most})
    for key in PATTERNS:
        yield Extra(number_out_of_bounds.code, (key,), {"additionalProperties": any_of(*_ONE_OR_MORE)})


def _filled() -> Iterator[Extra]:
    for key in FILLED:
        yield Extra(list_empty.code, (key,), {"minItems": 1})


def _removed(words: Words) -> Iterator[Extra]:
    for key, retired in REFUSED.items():
        operator = "set" if retired.any_value else "on"
        broken = at(words.root, (key,), satisfies(ANYTHING, operator, None))
        rule = f"{removed_key.code} {removed_key.name}"
        then = forbidden((key,), f"{removal(key)} [{rule}]")
        yield Extra(removed_key.code, (key,), clause={"$comment": rule, "if": broken, "then": then})
