"""Conditions over named values, from which both a check and a JSON Schema clause can be derived.

    on("sample_packing") & above("context_parallel_size", 1)

A value that is not there, or is null, is off, not set, not above anything, and equal to nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ndcheck.values import Value


class Source(Protocol):
    """Where a condition looks names up: Settings or Run."""

    def value(self, name: str) -> Value[Any] | None:
        """The value in force for a name."""

    def written(self, name: str) -> Value[Any] | None:
        """The value that the user wrote for a name, whatever becomes of it."""


class Condition:
    """A test that holds or does not; combine with ``&``, ``|`` and ``~``."""

    def holds(self, source: Source) -> bool:
        """Whether it holds. Raises Unreadable if it rests on a value of the wrong type."""
        raise NotImplementedError

    def names(self) -> tuple[str, ...]:
        """Every name it looks at, in order."""
        raise NotImplementedError

    def __and__(self, other: Condition) -> Condition:
        return Both(self, other)

    def __or__(self, other: Condition) -> Condition:
        return Either(self, other)

    def __invert__(self) -> Condition:
        return Not(self)


@dataclass(frozen=True, slots=True)
class Test(Condition):
    """One comparison of one value. ``operator`` is a key of OPERATORS; ``raw`` looks at what is written only."""

    name: str
    operator: str
    operand: Any = None
    raw: bool = False

    def holds(self, source: Source) -> bool:
        """See Condition."""
        value = source.written(self.name) if self.raw else source.value(self.name)
        return OPERATORS[self.operator](None if value is None else value.value, self.operand)

    def names(self) -> tuple[str, ...]:
        """See Condition."""
        return (self.name,)


@dataclass(frozen=True, slots=True)
class Both(Condition):
    """Both hold; the second is not looked at if the first does not."""

    left: Condition
    right: Condition

    def holds(self, source: Source) -> bool:
        """See Condition."""
        return self.left.holds(source) and self.right.holds(source)

    def names(self) -> tuple[str, ...]:
        """See Condition."""
        return self.left.names() + self.right.names()


@dataclass(frozen=True, slots=True)
class Either(Condition):
    """At least one holds."""

    left: Condition
    right: Condition

    def holds(self, source: Source) -> bool:
        """See Condition."""
        return self.left.holds(source) or self.right.holds(source)

    def names(self) -> tuple[str, ...]:
        """See Condition."""
        return self.left.names() + self.right.names()


@dataclass(frozen=True, slots=True)
class Not(Condition):
    """The inner one does not hold."""

    inner: Condition

    def holds(self, source: Source) -> bool:
        """See Condition."""
        return not self.inner.holds(source)

    def names(self) -> tuple[str, ...]:
        """See Condition."""
        return self.inner.names()


def on(name: str, *, raw: bool = False) -> Condition:
    """The value is true, or anything else that Python takes for true."""
    return Test(name, "on", raw=raw)


def is_set(name: str, *, raw: bool = False) -> Condition:
    """There is a value, and it is not null."""
    return Test(name, "set", raw=raw)


def equals(name: str, operand: Any, *, raw: bool = False) -> Condition:
    """The value is exactly this."""
    return Test(name, "equals", operand, raw=raw)


def one_of(name: str, *operands: Any) -> Condition:
    """The value is one of these."""
    return Test(name, "one of", frozenset(operands))


def above(name: str, operand: float) -> Condition:
    """The value is a number greater than this."""
    return Test(name, "above", operand)


def at_least(name: str, operand: float) -> Condition:
    """The value is a number, and not less than this."""
    return Test(name, "at least", operand)


def matches(name: str, pattern: str) -> Condition:
    """The value is a string in which the pattern is found; ``^`` and ``$`` anchor it."""
    return Test(name, "matches", pattern)


def lists(name: str, pattern: str) -> Condition:
    """The value is a list with a string in which the pattern is found."""
    return Test(name, "lists", pattern)


def is_mapping(name: str) -> Condition:
    """The value is a mapping."""
    return Test(name, "mapping")


def _number(value: Any) -> bool:
    return isinstance(value, int | float)


OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "on": lambda value, _: bool(value),
    "set": lambda value, _: value is not None,
    "equals": lambda value, operand: value is not None and type(value) is type(operand) and value == operand,
    "one of": lambda value, operands: isinstance(value, str | int) and value in operands,
    "above": lambda value, operand: _number(value) and value > operand,
    "at least": lambda value, operand: _number(value) and value >= operand,
    "matches": lambda value, pattern: isinstance(value, str) and re.search(pattern, value) is not None,
    "lists": lambda value, pattern: (
        isinstance(value, list) and any(isinstance(item, str) and re.search(pattern, item) for item in value)
    ),
    "mapping": lambda value, _: isinstance(value, dict),
}
