"""Settings: the values in force in a dialect's own words, each with its origin."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ndcheck.findings import Fix
from ndcheck.values import Origin, Path, Source, Value, default, from_key

_MAX_DEPTH = 10
"""Levels of free mappings that are looked into; a mapping handed in from Python may even contain itself."""


@dataclass(frozen=True, slots=True)
class TypeProblem:
    """A value of the wrong type. ``expected`` in words; ``choices`` are the words allowed, if any; ``kind`` is pydantic's."""

    path: Path
    value: Any
    expected: str
    choices: tuple[str, ...]
    kind: str


@dataclass(frozen=True, slots=True)
class UnknownKey:
    """A key that the dialect does not know, and drops unless it is ``refused``.

    ``known`` are the keys it could have meant; ``elsewhere`` says where it belongs.
    """

    path: Path
    known: tuple[str, ...]
    elsewhere: str | None = None
    maybe_plugin: str | None = None
    refused: bool = False


@dataclass(frozen=True, slots=True)
class OldKey:
    """A deprecated key: the path of ``new`` takes over.

    ``both``: both are set; ``conflict``: and they differ. ``lost``: nothing reads the old one.
    """

    path: Path
    new: Path
    reason: str
    both: bool = False
    conflict: bool = False
    lost: bool = False
    fix: Fix | None = None


@dataclass(frozen=True, slots=True)
class InactiveKey:
    """A key of a plug-in that is not listed, so that nothing reads it."""

    path: Path
    plugin: str
    value: Any


class Settings:
    """Values by dotted key (``fsdp_config.offload_params``).

    ``typed`` is what the user wrote, after type coercion; values at the paths of ``problems`` had the
    wrong type; ``defaults`` are the dialect's. ``put`` overlays what the dialect itself makes of the
    file (renamed keys, derived values), so a reader sees one meaning whichever way it was spelled.
    ``unknown``, ``old`` and ``inactive`` list what the dialect saw on the way; ``mapping`` is the file as it was.
    """

    def __init__(
        self,
        whose: str,
        typed: Mapping[str, Any],
        problems: Iterable[TypeProblem] = (),
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        self.whose = whose
        self.mapping: Mapping[Any, Any] = {}
        self.problems = tuple(problems)
        self.unknown: tuple[UnknownKey, ...] = ()
        self.old: list[OldKey] = []
        self.inactive: tuple[InactiveKey, ...] = ()
        self._typed = typed
        self._unreadable = {problem.path for problem in self.problems}
        # one bad item spoils its list, nothing else
        self._unreadable |= {path[: _first_index(path)] for path in self._unreadable}
        self._defaults = defaults or {}
        self._overlay: dict[str, Value[Any] | None] = {}
        self._named: dict[str, Callable[[str], Value[Any] | None]] = {}
        self._written: dict[str, Value[Any] | None] = {}  # a hundred rules ask for the same few keys

    def put(self, key: str, value: Value[Any] | None) -> None:
        """Let ``value`` be in force for ``key``."""
        self._overlay[key] = value

    def let_name(self, key: str, read: Callable[[str], Value[Any] | None]) -> None:
        """Let the keys below ``key``, which names a file, be read from that file."""
        self._named[key] = read

    def value(self, key: str) -> Value[Any] | None:
        """The value in force, or None if there is none: not written, and no default."""
        if key in self._overlay:
            return self._overlay[key]
        written = self.written(key)
        if written is not None:
            return written
        for named, read in self._named.items():
            if key.startswith(f"{named}."):
                return read(key.removeprefix(f"{named}."))
        return default(self._defaults[key], self.whose) if self._defaults.get(key) is not None else None

    def written(self, key: str) -> Value[Any] | None:
        """The value that the user wrote for exactly this key; a written null is a Value of None."""
        if key not in self._written:
            self._written[key] = self._look_up(key)
        return self._written[key]

    def _look_up(self, key: str) -> Value[Any] | None:
        path = tuple(key.split("."))
        for end in range(1, len(path) + 1):
            if path[:end] in self._unreadable:
                return Value(None, Origin(Source.KEY, key, path[:end]), readable=False)
        node: Any = self._typed
        for part in path:
            if not isinstance(node, Mapping) or part not in node:
                return None
            node = node[part]
        return from_key(node, path)

    def anything(self, key: str) -> Value[Any] | None:
        """What is written at top level for a key that the dialect need not know."""
        return from_key(self.mapping[key], (key,)) if key in self.mapping else None

    def texts(self) -> Iterator[tuple[Path, str]]:
        """Every string inside a mapping that is still a string after type coercion, with its path."""
        stack: list[tuple[Path, Any]] = [((), self._typed)]
        while stack:
            path, node = stack.pop()
            for key, value in node.items():
                if isinstance(value, str):
                    yield (*path, key), value
                elif isinstance(value, Mapping) and len(path) < _MAX_DEPTH:
                    stack.append(((*path, key), value))

    def get(self, key: str) -> Any:
        """The value in force, None if there is none. Raises Unreadable if its type was wrong."""
        value = self.value(key)
        return None if value is None else value.value

    def on(self, key: str) -> bool:
        """The value in force is truthy."""
        return bool(self.get(key))


def _first_index(path: Path) -> int:
    return next((at for at, part in enumerate(path) if isinstance(part, int)), len(path))
