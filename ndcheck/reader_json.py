"""JSON text -> the values that Python's ``json`` gives, with the span of every key and value.

Strict, because frameworks read ``.json`` files strictly: no comments, no trailing commas, no byte order mark.
"""

from __future__ import annotations

import json
import re
from typing import Any

from ndcheck.document import Document, Entry, Node, Problem, Span
from ndcheck.values import shown

MAX_DEPTH = 100
"""Nesting beyond this is refused: no config needs it, and recursion elsewhere would not survive it."""

_BLANK = re.compile(r"[ \t\r\n]*")
_SCALAR = re.compile(
    r'"(?:[^"\\\x00-\x1f]|\\.)*"|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null|NaN|-?Infinity'
)
_WORD = re.compile(r"[\w.+-]+|.", re.DOTALL)


class _Wrong(Exception):  # noqa: N818  (the end of one reading, kept as a problem)
    def __init__(self, message: str, at: int, kind: str = "json-syntax", related: tuple[tuple[Span, str], ...] = ()):
        super().__init__(message)
        self.problem = Problem(kind, message, Span(at, at + 1), related)


def read_json(text: str) -> Document:
    """Read a JSON text. Never raises: what is wrong is in ``problems``, and ``root`` is then None if nothing can be read."""
    document = Document(text.removeprefix("\ufeff"), is_json=True)
    if text.startswith("\ufeff"):
        mark = "the file begins with a byte order mark, which Python's json refuses; save it as UTF-8 without one"
        document.problems.append(Problem("json-syntax", mark, Span(0, 0)))
    try:
        _Reader(document).read()
    except _Wrong as wrong:
        document.root = None
        document.problems.append(wrong.problem)
    return document


class _Reader:
    """Recursive descent: one method for each kind of value."""

    def __init__(self, document: Document):
        self.document = document
        self.text = document.text

    def read(self) -> None:
        start = self._skip(0)
        if start == len(self.text):
            return
        root = self._value(start, 0)
        after = self._skip(root.span.end)
        if after < len(self.text):
            raise _Wrong("the value of the file has ended here, and more follows", after)
        self.document.root = root

    def _value(self, at: int, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise _Wrong(f"nested more than {MAX_DEPTH} levels deep", at, "yaml-nesting")
        opening = self.text[at : at + 1]
        if opening == "{":
            return self._object(at, depth)
        if opening == "[":
            return self._array(at, depth)
        return self._scalar(at)

    def _scalar(self, at: int) -> Node:
        found = _SCALAR.match(self.text, at)
        if found is None:
            raise self._unexpected("a value", at)
        written = found[0]
        try:
            value = json.loads(written)
        except ValueError as error:  # a bad escape, or more digits than Python converts
            said = getattr(error, "msg", "too many digits")
            raise _Wrong(f"{shown(written)} cannot be read: {said}", at) from None
        quoted = written.startswith('"')
        return Node(Span(at, found.end()), value, value if quoted else written, plain=not quoted)

    def _array(self, at: int, depth: int) -> Node:
        node = Node(Span(at, at), [], items=[])
        assert node.items is not None
        after = self._skip(at + 1)
        while self.text[after : after + 1] != "]":
            inner = self._value(after, depth + 1)
            node.items.append(Entry(None, inner, inner.span))
            node.value.append(inner.value)
            after = self._next(inner.span.end, "]", at)
        node.span = Span(at, after + 1)
        return node

    def _object(self, at: int, depth: int) -> Node:
        node = Node(Span(at, at), {}, entries={})
        after = self._skip(at + 1)
        while self.text[after : after + 1] != "}":
            if self.text[after : after + 1] != '"':
                raise self._unexpected("a key in double quotes", after)
            key = self._scalar(after)
            colon = self._skip(key.span.end)
            if self.text[colon : colon + 1] != ":":
                raise self._unexpected(f"a colon after {shown(key.value)}", colon)
            inner = self._value(self._skip(colon + 1), depth + 1)
            self._enter(node, key, inner)
            after = self._next(inner.span.end, "}", at)
        node.span = Span(at, after + 1)
        return node

    def _enter(self, node: Node, key: Node, inner: Node) -> None:
        assert node.entries is not None
        entry = Entry(key.span, inner, inner.span)
        earlier = node.entries.pop(key.value, None)
        node.entries[key.value] = entry
        node.value[key.value] = inner.value
        if earlier is None or earlier.key is None:
            return
        same = inner.text is not None and (type(inner.value), inner.value) == (
            type(earlier.node.value),
            earlier.node.value,
        )
        line = self.document.position(earlier.key.start).line
        message = (
            f"{shown(key.value)} is set twice, first on line {line}; json keeps only the last, DeepSpeed refuses both"
        )
        related = ((earlier.key, "set here first; this value is lost"),)
        kind = "duplicate-key-same-value" if same else "duplicate-key"
        self.document.problems.append(Problem(kind, message, key.span, related))

    def _next(self, at: int, closing: str, opened: int) -> int:
        """Where the next part of a collection begins, or its closing bracket."""
        after = self._skip(at)
        found = self.text[after : after + 1]
        if found == ",":
            following = self._skip(after + 1)
            if self.text[following : following + 1] == closing:
                raise _Wrong("a comma before the closing bracket; JSON allows none", after)
            return following
        if found == closing:
            return after
        if not found:
            related = ((Span(opened, opened + 1), "opened here"),)
            raise _Wrong(f"the file ends where {closing} or a comma was expected", after, related=related)
        raise self._unexpected(f"a comma or {closing}", after)

    def _skip(self, at: int) -> int:
        found = _BLANK.match(self.text, at)
        assert found is not None
        return found.end()

    def _unexpected(self, wanted: str, at: int) -> _Wrong:
        word = _WORD.match(self.text, at)
        if word is None:
            return _Wrong(f"the file ends where {wanted} was expected", at)
        hints: dict[str, Any] = {
            "/": "; JSON has no comments",
            "#": "; JSON has no comments",
            "'": "; JSON quotes with double quotes",
            '"': "; the text in quotes does not end on its line, or holds a control character",
            "True": "; JSON writes true",
            "False": "; JSON writes false",
            "None": "; JSON writes null",
        }
        return _Wrong(f"expected {wanted}, not {shown(word[0])}{hints.get(word[0], '')}", at)
