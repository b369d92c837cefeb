"""A value and where it came from, so that a message can always say both."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Path = tuple[str | int, ...]
"""Where a value sits in a file: keys and list indices from the top."""


class Source(StrEnum):
    """The kinds of places that a value can come from."""

    KEY = "key"
    FLAG = "flag"
    ENVIRONMENT = "environment"
    MODEL = "model"
    DEFAULT = "default"
    DERIVED = "derived"


class Origin(NamedTuple):
    """Where a value came from: ``text`` for people, ``path`` when it was a key of the file."""

    source: Source
    text: str
    path: Path | None = None


class Unreadable(Exception):  # noqa: N818  (not an error: it tells a rule to stay silent)
    """A value of the wrong type was asked for; its own finding is already made, so the asker stays silent."""


class Value(Generic[T_co]):
    """A value in force, with its origin. ``value`` raises Unreadable if what was written has the wrong type."""

    __slots__ = ("_value", "origin", "readable")

    def __init__(self, value: T_co, origin: Origin, *, readable: bool = True):
        self._value = value
        self.origin = origin
        self.readable = readable

    @property
    def value(self) -> T_co:
        """What is in force."""
        if not self.readable:
            raise Unreadable(self.origin.text)
        return self._value

    @property
    def path(self) -> Path | None:
        """Where it stands in the file, if the user wrote it."""
        return self.origin.path

    def __str__(self) -> str:
        """'tensor_parallel_size 3', '8 (--world-size)': the value as a message quotes it."""
        if self.origin.source is Source.KEY:
            return f"{self.origin.text} {shown(self.value)}"
        return f"{shown(self.value)} ({self.origin.text})"

    def __repr__(self) -> str:
        return f"Value({self._value!r}, {self.origin!r}, readable={self.readable})"


def from_key(value: T, path: Path) -> Value[T]:
    """A value that the user wrote at ``path``."""
    return Value(value, Origin(Source.KEY, dotted(path), path))


def default(value: T, whose: str) -> Value[T]:
    """A value that nobody wrote: the default of ``whose`` ("axolotl", "accelerate")."""
    return Value(value, Origin(Source.DEFAULT, f"{whose}'s default"))


def derive(compute: Callable[[], Value[T]]) -> Value[T]:
    """A value computed from others; unreadable if one of them is."""
    try:
        return compute()
    except Unreadable as error:
        return Value[T](None, Origin(Source.DERIVED, str(error)), readable=False)  # type: ignore[arg-type]


def dotted(path: Path) -> str:
    """('datasets', 0, 'path') -> 'datasets[0].path'."""
    text = ""
    for part in path:
        name = part if isinstance(part, str) and part else shown(part)
        text += f"[{name}]" if isinstance(part, int) else f".{name}" if text else name
    return text


_LONGEST_INT = 256  # bits


def shown(value: object, limit: int = 60) -> str:
    """A value as YAML users write it, cut to ``limit`` characters; never walks into large values."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and value.bit_length() > _LONGEST_INT:
        return f"an integer of {value.bit_length()} bits"  # Python refuses to print the longest of them
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple | set):
        return f"a list of {len(value)}" if len(value) != 1 else "a list of 1"
    text = repr(value) if isinstance(value, str) and (not value or not value.isprintable()) else str(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."
