"""Rules as clauses: where a file breaks the rule, a key of it is forbidden, with the rule's message.

A rule is silent where a value that it looks at cannot be read, and looks no further than it must. So a condition has two
schemas here: the files with which it holds, and those in which it can be decided.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ndcheck.findings import Severity
from ndcheck.rules.conditions import OPERATORS, Both, Condition, Either, Not, Test
from ndcheck.rules.rule import Rule
from ndcheck.schema.logic import Schema, all_of, any_of, negate
from ndcheck.schema.places import KeyPath, kind_at, written
from ndcheck.schema.words import Words


class Definitions:
    """Schemas that several clauses need, each under a name that says what it is about."""

    def __init__(self, pointer: str) -> None:
        self.pointer = pointer
        self.schemas: dict[str, Schema] = {}
        self._names: dict[object, str] = {}

    def refer(self, key: object, name: str, make: Callable[[], Schema]) -> Schema:
        """A reference to the schema for ``key``, made the first time it is asked for; the schema itself if it is trivial."""
        if key not in self._names:
            schema = make()
            if isinstance(schema, bool):
                return schema
            self._names[key] = name = self._free(name)
            self.schemas[name] = schema
        return {"$ref": f"{self.pointer}{self._names[key]}"}

    def _free(self, name: str) -> str:
        name = re.sub(r"[^\w.-]+", "_", name).strip("_")
        at_last, number = name, 1
        while at_last in self.schemas:
            number += 1
            at_last = f"{name}.{number}"
        return at_last


class Compiler:
    """Conditions of one dialect as schemas."""

    def __init__(self, words: Words, definitions: Definitions) -> None:
        self.words = words
        self.definitions = definitions

    def holds(self, condition: Condition) -> Schema:
        """The files with which the condition can be decided, and holds."""
        match condition:
            case Test():
                return self._test(condition)
            case Both(left, right):
                return all_of(self.holds(left), self.holds(right))
            case Either(left, right):
                return any_of(self.holds(left), all_of(self.decidable(left), self.holds(right)))
            case Not(inner):
                return all_of(self.decidable(inner), negate(self.holds(inner)))
        raise AssertionError(condition)

    def decidable(self, condition: Condition) -> Schema:
        """The files with which the condition can be decided."""
        match condition:
            case Test():
                return self._readable(condition)
            case Both(left, right):
                return all_of(self.decidable(left), any_of(negate(self.holds(left)), self.decidable(right)))
            case Either(left, right):
                return all_of(self.decidable(left), any_of(self.holds(left), self.decidable(right)))
            case Not(inner):
                return self.decidable(inner)
        raise AssertionError(condition)

    def _test(self, test: Test) -> Schema:
        if test.name in self.words.runs:
            return self.holds(self.words.runs[test.name])
        operand = "" if test.operand is None else f".{_short(test.operand)}"
        name = f"{test.name}.{'written.' if test.raw else ''}{test.operator}{operand}"
        key = (repr(test),)  # 0, 0.0 and false are equal
        return self.definitions.refer(key, name, lambda: self.words.truth(test))

    def _readable(self, test: Test) -> Schema:
        if test.name in self.words.runs:
            return self.decidable(self.words.runs[test.name])
        name = f"{test.name}.{'written.' if test.raw else ''}readable"
        key = ("readable", test.name, test.raw)
        return self.definitions.refer(key, name, lambda: self.words.readable(test.name, raw=test.raw))


def _short(operand: Any) -> str:
    words = sorted(map(str, operand)) if isinstance(operand, frozenset) else [str(operand)]
    return "_".join(words)[:30].lower()


class Place(NamedTuple):
    """A key at which a finding may stand: where ``guard`` holds. ``sure``: it does, or that of one before."""

    path: KeyPath
    guard: Schema
    sure: bool


def clause(rule: Rule[Any], compiler: Compiler) -> dict[str, Any]:
    """A rule as ``if`` and ``then``: an error forbids the key that the finding stands at, anything less marks it."""
    assert rule.clause is not None
    words = compiler.words
    message = f"{told(rule, words)} [{rule.code} {rule.name}]"
    places = list(_places(rule, words))
    then = _forbid(places, message) if rule.severity is Severity.ERROR else _mark(places, message)
    return {"$comment": f"{rule.code} {rule.name}", "if": compiler.holds(rule.clause.broken), "then": then}


def forbidden(path: KeyPath, message: str) -> dict[str, Any]:
    """The key at ``path`` must not be there; the message beside it is what editors show."""
    key, rest = path[0], path[1:]
    if rest:
        return {"type": "object", "properties": {key: forbidden(rest, message)}}
    return {"type": "object", "properties": {key: False}, "errorMessage": message}


def _marked(path: KeyPath, message: str) -> dict[str, Any]:
    key, rest = path[0], path[1:]
    marked = _marked(rest, message) if rest else {"deprecationMessage": message}

    return {"type": "object", "properties": {key: marked}}


def _forbid(places: list[Place], message: str) -> dict[str, Any]:
    return _chain(places, lambda path: forbidden(path, message), {"const": None, "errorMessage": message})


def _mark(places: list[Place], message: str) -> dict[str, Any]:
    return _chain(places, lambda path: _marked(path, message), {})


def _chain(places: list[Place], say: Callable[[KeyPath], dict[str, Any]], otherwise: dict[str, Any]) -> dict[str, Any]:
    """``say`` at the first place that is written."""
    if not places:
        return otherwise
    first, rest = places[0], places[1:]
    if first.sure:
        return say(first.path)
    chained: dict[str, Any] = {"if": first.guard, "then": say(first.path)}
    if following := _chain(rest, say, otherwise):
        chained["else"] = following
    return chained


def _places(rule: Rule[Any], words: Words) -> Iterator[Place]:
    assert rule.clause is not None
    sure = _certain(rule.clause.broken, words)
    seen = set()
    for name in rule.clause.names:
        for inner in words.runs[name].names() if name in words.runs else (name,):
            cases = [case for case in words.cases(inner) if case.path is not None and case.path not in seen]
            for number, case in enumerate(cases, 1):
                assert case.path is not None
                seen.add(case.path)
                guard = written(case.path) if case.guard is True else case.guard
                yield Place(case.path, guard, inner in sure and number == len(cases))
            if inner in sure:
                return


def _certain(condition: Condition, words: Words) -> set[str]:
    """The names that have a value which somebody wrote, wherever the condition holds."""
    match condition:
        case Both(left, right):
            return _certain(left, words) | _certain(right, words)
        case Test(name, operator, operand):
            unwritten = [words.defaults.get(name)]
            return set() if any(OPERATORS[operator](value, operand) for value in unwritten) else {name}
    return set()


def told(rule: Rule[Any], words: Words) -> str:
    """The message of a rule with what is known of each value in every file that breaks it, and the repair."""
    assert rule.clause is not None
    known = dict(_known(rule.clause.broken, words))
    message = rule.clause.message
    for name in rule.clause.names:
        value = f" {known[name]}" if name in known else ""
        message = message.replace(f"{{{name}}}", f"{name}{value}")
    return message + (f"; {rule.clause.fix.title}" if rule.clause.fix else "")


def _known(condition: Condition, words: Words) -> Iterator[tuple[str, str]]:
    match condition:
        case Both(left, right):
            yield from _known(left, words)
            yield from _known(right, words)
        case Test(name, "equals", operand):
            yield name, str(operand).lower() if isinstance(operand, bool) else str(operand)
        case Test(name, "on") if kind_at(words.root, tuple(name.split("."))).only_switch:
            yield name, "true"
