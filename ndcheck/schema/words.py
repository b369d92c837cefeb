"""What a schema needs to know of a dialect: the kind of every key, and which keys a name of the rules is read from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import BaseModel

from ndcheck.dialects.dialect import Dialect
from ndcheck.dialects.parse import branches
from ndcheck.rules.conditions import OPERATORS, Condition, Test
from ndcheck.schema.kinds import Kind, satisfies
from ndcheck.schema.logic import Schema, all_of, any_of, negate
from ndcheck.schema.places import KeyPath, at, kind_at, lacking, readable


class Case(NamedTuple):
    """Where ``guard`` holds, a name has the value written at ``path``, or ``constant`` if it has one.

    ``kind`` says how the value is read if not like that of the key; ``default`` is the value of a key that is not written.
    ``only`` is the guard that leaves out the cases before it.
    """

    guard: Schema
    path: KeyPath | None
    constant: tuple[Any] | None = None
    kind: Kind | None = None
    default: Any = None
    only: Schema = True


class Snippet(NamedTuple):
    """A layout to start from: what an editor offers in an empty file."""

    label: str
    description: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """A dialect as a schema sees it.

    ``root`` is the file as a section of all its keys. ``readings``: name -> cases, of which the first that applies counts; a
    name without an entry is read from the key of that name. ``runs``: name of a Run -> the condition on the dialect's own keys
    under which it is on. ``old``: path of a deprecated key -> what to write instead.
    """

    dialect: Dialect
    root: Kind
    defaults: Mapping[str, Any]
    readings: Mapping[str, tuple[Case, ...]] = field(default_factory=dict)
    runs: Mapping[str, Condition] = field(default_factory=dict)
    old: Mapping[KeyPath, str] = field(default_factory=dict)
    descriptions: Mapping[KeyPath, str] = field(default_factory=dict)
    snippets: tuple[Snippet, ...] = ()
    file_match: tuple[str, ...] = ()

    def cases(self, name: str, *, raw: bool = False) -> tuple[Case, ...]:
        """The cases of a name, those that never apply left out."""
        path = tuple(name.split("."))
        if raw:
            return (Case(True, path),)
        plain = Case(True, path, default=self.defaults.get(name))
        return _exclusive((*self.readings.get(name, ()), plain))

    def truth(self, test: Test) -> Schema:
        """The files with which a test holds."""
        return any_of(*(all_of(case.only, self._truth(case, test)) for case in self.cases(test.name, raw=test.raw)))

    def _truth(self, case: Case, test: Test) -> Schema:
        holds = OPERATORS[test.operator]
        if case.path is None or case.constant is not None:
            return holds(case.constant[0] if case.constant else None, test.operand)
        kind = case.kind or kind_at(self.root, case.path)
        written = at(self.root, case.path, satisfies(kind, test.operator, test.operand))
        return any_of(written, lacking(self.root, case.path) if holds(case.default, test.operand) else False)

    def readable(self, name: str, *, raw: bool = False) -> Schema:
        """The files in which a name has a value of the right type, or none."""
        return any_of(*(all_of(case.only, self._readable(case)) for case in self.cases(name, raw=raw)))

    def _readable(self, case: Case) -> Schema:
        if case.path is None or case.constant is not None:
            return True
        return readable(self.root, case.path, case.kind or kind_at(self.root, case.path))


def descriptions(model: type[BaseModel], *above: str, prefix: str = "") -> dict[KeyPath, str]:
    """What a model says of its keys, and of those of its sections."""
    found: dict[KeyPath, str] = {}
    for name, info in model.model_fields.items():
        path = (*above, f"{prefix}{info.alias or name}")
        found[path] = info.description or ""
        for branch in branches(info.annotation):
            if isinstance(branch, type) and issubclass(branch, BaseModel):
                found |= descriptions(branch, *path)
    return found


def _exclusive(cases: Iterable[Case]) -> tuple[Case, ...]:
    exclusive: list[Case] = []
    before: Schema = False
    for case in cases:
        if before is True:
            break
        exclusive.append(case._replace(only=all_of(negate(before), case.guard)))
        before = any_of(before, case.guard)
    return tuple(exclusive)
