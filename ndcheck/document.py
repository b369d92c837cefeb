"""One file: its text, its values, and the span of every key and value; edits of the text.

``reader.py`` makes documents from text.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ndcheck.values import Path

_LINE_END = re.compile(r"\r\n|\r|\n")


class Span(NamedTuple):
    """Half-open range of character offsets."""

    start: int
    end: int


class Position(NamedTuple):
    """A place as people count it: both from 1, columns in characters."""

    line: int
    column: int


class Place(NamedTuple):
    """Where one entry stands: ``key`` is None for a list item."""

    key: Span | None
    value: Span

    @property
    def whole(self) -> Span:
        """From the key to the end of the value."""
        if self.key is None:
            return self.value
        # A merged or aliased value may stand elsewhere; then the key alone is the place.
        return Span(self.key.start, self.value.end) if self.value.end >= self.key.end else self.key


class Problem(NamedTuple):
    """Something wrong with the text itself. ``kind`` is the name of the rule that reports it."""

    kind: str
    message: str
    span: Span
    related: tuple[tuple[Span, str], ...] = ()


class TextEdit(NamedTuple):
    """Replace the characters ``start:end`` by ``text``."""

    start: int
    end: int
    text: str


@dataclass(slots=True)
class Node:
    """One value of the file: its span, what PyYAML makes of it, and, for a collection, its parts."""

    span: Span
    value: Any = None
    text: str | None = None  # scalars: the source without quotes
    plain: bool = False  # scalars: written without quotes
    entries: dict[Any, Entry] | None = None
    items: list[Entry] | None = None
    is_open: bool = False


class Entry(NamedTuple):
    """A key (None in a list) and the node behind it; ``span`` is where the value is written here."""

    key: Span | None
    node: Node
    span: Span


@dataclass(slots=True)
class Document:
    """One file: text, values, positions, and what was wrong while reading. ``is_json``: else it is YAML."""

    text: str
    root: Node | None = None
    problems: list[Problem] = field(default_factory=list)
    is_json: bool = False
    _line_starts: list[int] = field(default_factory=list)

    @property
    def data(self) -> Any:
        """The values as PyYAML's safe loader, or Python's json, would return them; None if the text cannot be read."""
        return self.root.value if self.root is not None else None

    def position(self, offset: int) -> Position:
        """Line and column of a character offset."""
        if not self._line_starts:
            self._line_starts = [0, *(match.end() for match in _LINE_END.finditer(self.text))]
        line = bisect_right(self._line_starts, offset)
        return Position(line, offset - self._line_starts[line - 1] + 1)

    def line(self, number: int) -> str:
        """Text of a line, counted from 1, without its end."""
        self.position(0)
        start = self._line_starts[number - 1]
        end = self._line_starts[number] if number < len(self._line_starts) else len(self.text)
        return self.text[start:end].rstrip("\r\n")

    def locate(self, path: Path) -> Place | None:
        """Where the entry at ``path`` is written; None if it is not in the file."""
        entry = self.entry(path)
        return Place(entry.key, entry.span) if entry else None

    def entry(self, path: Path) -> Entry | None:
        """The entry at ``path``; None if it is not in the file."""
        node, entry = self.root, None
        for part in path:
            if node is None:
                return None
            if node.entries is not None:
                entry = node.entries.get(part)
            elif node.items is not None and isinstance(part, int) and 0 <= part < len(node.items):
                entry = node.items[part]
            else:
                return None
            node = entry.node if entry else None
        return entry if node is not None else None

    def scalars(self) -> Iterator[tuple[Path, Entry]]:
        """Every scalar as it is written, once: what aliases repeat is not walked again."""
        if self.root is None:
            return
        seen: set[int] = set()
        stack: list[tuple[Path, Node]] = [((), self.root)]
        while stack:
            path, node = stack.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            children = enumerate(node.items) if node.items is not None else (node.entries or {}).items()
            for key, entry in children:
                if entry.node.text is None:
                    stack.append(((*path, key), entry.node))
                elif id(entry.node) not in seen:
                    seen.add(id(entry.node))
                    yield (*path, key), entry


def apply_edits(text: str, edits: Iterable[TextEdit]) -> str:
    """The text with every edit made. Raises ValueError if two edits overlap."""
    ordered = sorted(set(edits))
    for before, after in itertools.pairwise(ordered):
        if after.start < before.end or (after.start, after.end) == (before.start, before.end):
            raise ValueError(f"edits at {before.start}:{before.end} and {after.start}:{after.end} overlap")
    for edit in reversed(ordered):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text
