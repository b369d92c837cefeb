"""YAML text -> the values that PyYAML's safe loader gives, with the span of every key and value.

The reading is PyYAML's (YAML 1.1), because that is what axolotl and accelerate get: ``2e-5`` is a
string, ``no`` is false, the last of two equal keys wins. Built on libyaml's event stream, so that
aliases keep the place where they are used and duplicate keys are seen.
"""

from __future__ import annotations

from typing import Any

import yaml

from ndcheck.document import Document, Entry, Node, Problem, Span
from ndcheck.reader_json import MAX_DEPTH, read_json
from ndcheck.values import shown

try:
    from yaml import CSafeLoader as _Loader
except ImportError:  # PyYAML built without libyaml: the same events, ten times slower
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]

_MERGE = "tag:yaml.org,2002:merge"
_STR = "tag:yaml.org,2002:str"
_SCALAR_TAGS = frozenset(f"tag:yaml.org,2002:{kind}" for kind in "null bool int float binary timestamp str".split())
_CONTAINER_TAGS = {None, "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"}


def read(text: str, path: str = "") -> Document:
    """Read a text: JSON if its path ends so, as the frameworks take it, else YAML.

    Never raises: what is wrong is in ``problems``, and ``root`` is then None if nothing can be read.
    """
    return read_json(text) if path.lower().endswith(".json") else _read_yaml(text)


def _read_yaml(text: str) -> Document:
    text = text.removeprefix("\ufeff")  # libyaml does not count a byte order mark, nor do editors
    document = Document(text)
    builder = _Builder(document)
    try:
        for event in yaml.parse(text, Loader=_Loader):
            if not builder.take(event):
                break
    except yaml.YAMLError as error:
        document.root = None
        document.problems = [_syntax_problem(error, text)]
    except (ValueError, UnicodeError) as error:  # libyaml refuses lone surrogates while encoding
        document.root = None
        document.problems = [Problem("yaml-syntax", f"cannot be read as YAML: {error}", Span(0, 0))]
    if document.root is not None and len(text) < _STRICT_LIMIT and ("\t" in text or "?" in text):
        document.problems += _strict_problems(text)
    return document


_STRICT_LIMIT = 1_000_000  # characters; PyYAML's own scanner needs seconds for as many


def _strict_problems(text: str) -> list[Problem]:
    """What libyaml takes and PyYAML's own scanner, the one behind ``yaml.safe_load``, does not.

    That is a tab between tokens, and a question mark inside a word of a flow collection.
    """
    try:
        for _ in yaml.parse(text, Loader=yaml.SafeLoader):
            pass
    except yaml.YAMLError as error:
        return [_syntax_problem(error, text)]
    return []


def _syntax_problem(error: yaml.YAMLError, text: str) -> Problem:
    if isinstance(error, yaml.reader.ReaderError):
        character = error.character if isinstance(error.character, str) else chr(error.character)
        where = text.find(character) if isinstance(error.position, int) else -1
        start = max(where, 0)
        return Problem(
            "yaml-syntax", f"character U+{ord(character):04X} is not allowed in YAML", Span(start, start + 1)
        )
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    said = getattr(error, "problem", None) or getattr(error, "context", None) or "cannot be read"
    start = min(mark.index, len(text)) if mark else 0
    if text[start : start + 1] == "\t":
        said = f"{said}: this is a tab, and YAML indents with spaces"
    context_mark = getattr(error, "context_mark", None)
    related: tuple[tuple[Span, str], ...] = ()
    if context_mark is not None and context_mark.index != start:
        opened = min(context_mark.index, len(text))
        related = ((Span(opened, opened + 1), getattr(error, "context", None) or "it began here"),)
    return Problem("yaml-syntax", str(said), Span(start, min(start + 1, len(text))), related)


class _Frame:
    """A collection that is being read."""

    __slots__ = ("duplicates", "key", "key_span", "merges", "node", "own")

    def __init__(self, node: Node):
        self.node = node
        self.key: Any = _NO_KEY
        self.key_span: Span | None = None
        self.own: dict[Any, Entry] = {}
        self.merges: list[tuple[Node, Span]] = []


_NO_KEY: Any = object()
_UNUSABLE: Any = object()  # a key that no Python dictionary can hold


class _Builder:
    """Turns parser events into nodes, without recursion, so that depth cannot overflow the stack."""

    def __init__(self, document: Document):
        self.document = document
        self.anchors: dict[str, Node] = {}
        self.stack: list[_Frame] = []
        self.documents = 0

    def take(self, event: yaml.Event) -> bool:
        """Consume one event; False stops the reading."""
        if isinstance(event, yaml.ScalarEvent):
            node = self._scalar(event)
            self._anchor(event, node)
            self._attach(node, node.span)
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event)
        elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            return self._open(event)
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            self._close(event)
        elif isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents == 2:
                self._problem("yaml-syntax", "a second document starts here; the launcher reads only one", _span(event))
                return False
        return True

    def _problem(self, kind: str, message: str, span: Span, *related: tuple[Span, str]) -> None:
        self.document.problems.append(Problem(kind, message, span, related))

    def _anchor(self, event: yaml.NodeEvent, node: Node) -> None:
        if event.anchor is None:
            return
        earlier = self.anchors.get(event.anchor)
        if earlier is not None:
            first = Span(earlier.span.start, earlier.span.start + 1)
            message = f"anchor &{event.anchor} is given a second time; PyYAML takes each name once"
            self._problem("yaml-syntax", message, _span(event), (first, "given here first"))
        self.anchors[event.anchor] = node

    def _open(self, event: yaml.CollectionStartEvent) -> bool:
        start = _span(event).start
        node = Node(Span(start, start), is_open=True)
        if isinstance(event, yaml.MappingStartEvent):
            node.value, node.entries = {}, {}
        else:
            node.value, node.items = [], []
        if event.tag not in _CONTAINER_TAGS:
            self._problem("yaml-tag", f"tag {event.tag} is not read here: plain mappings and lists are", _span(event))
        self._anchor(event, node)
        self._attach(node, node.span)
        self.stack.append(_Frame(node))
        if len(self.stack) > MAX_DEPTH:
            self._problem("yaml-nesting", f"nested more than {MAX_DEPTH} levels deep", Span(start, start + 1))
            self.document.root = None
            return False
        return True

    def _close(self, event: yaml.CollectionEndEvent) -> None:
        frame = self.stack.pop()
        node = frame.node
        if node.entries is not None:
            _merge(frame, self._merged(frame))
        # The mark of a block collection's end lies at the next token, past blank lines and comments.
        mark = _span(event)
        end = mark.end if mark.end > mark.start else _last_end(frame)
        node.span = Span(node.span.start, max(end, node.span.start))
        node.is_open = False
        if self.stack:
            self._respan(node)

    def _respan(self, node: Node) -> None:
        """The parent noted the child's span before the child's end was known."""
        parent = self.stack[-1]
        if parent.node.items is not None:
            parent.node.items[-1] = Entry(None, node, node.span)
        else:
            for key, entry in reversed(parent.own.items()):
                if entry.node is node:
                    parent.own[key] = Entry(entry.key, node, node.span)
                    break

    def _alias(self, event: yaml.AliasEvent) -> None:
        node = self.anchors.get(str(event.anchor))
        if node is None:
            self._problem("yaml-syntax", f"alias *{event.anchor} has no anchor before it", _span(event))
            node = Node(_span(event), f"*{event.anchor}", f"*{event.anchor}")
        elif node.is_open:
            self._problem("yaml-alias", f"alias *{event.anchor} stands inside what it stands for", _span(event))
            node = Node(_span(event), f"*{event.anchor}", f"*{event.anchor}")
        self._attach(node, _span(event))

    def _scalar(self, event: yaml.ScalarEvent) -> Node:
        plain = bool(event.implicit[0])
        node = Node(_span(event), text=event.value, plain=plain and not event.style)
        tag = event.tag if event.tag not in (None, "!") else _resolve(event.value) if plain else _STR
        if tag == _MERGE and self.stack and self.stack[-1].node.entries is not None and self.stack[-1].key is _NO_KEY:
            node.value = _MERGE
            node.plain = True
            return node
        node.value = event.value  # what stays if it cannot be built, so that no second finding follows
        if tag not in _SCALAR_TAGS:
            self._problem("yaml-tag", f"PyYAML cannot build the tag {tag}", node.span)
            return node
        try:
            build = yaml.constructor.SafeConstructor.yaml_constructors[tag]
            node.value = build(_CONSTRUCTOR, yaml.ScalarNode(tag, event.value))
        except _BUILD_ERRORS as error:
            said = getattr(error, "problem", None) or (error if isinstance(error, ValueError) else "no such value")
            kind = tag.rpartition(":")[2]
            self._problem("yaml-scalar", f"{shown(event.value)} cannot be read as {kind}: {said}", node.span)
        return node

    def _attach(self, node: Node, span: Span) -> None:
        if not self.stack:
            self.document.root = node
            return
        frame = self.stack[-1]
        if frame.node.items is not None:
            frame.node.items.append(Entry(None, node, span))
            frame.node.value.append(node.value)
        elif frame.key is _NO_KEY:
            self._key(frame, node, span)
        else:
            self._value(frame, node, span)

    def _key(self, frame: _Frame, node: Node, span: Span) -> None:
        frame.key, frame.key_span = node.value, span
        if node.text is None:
            template = self.document.text.startswith("{", span.start - 1) and self.document.text[span.start] == "{"
            hint = "; a template in double braces must be quoted" if template else ""
            self._problem("yaml-key", f"a list or mapping cannot be a key{hint}", Span(span.start, span.start + 1))
            frame.key = _UNUSABLE

    def _value(self, frame: _Frame, node: Node, span: Span) -> None:
        key, key_span = frame.key, frame.key_span
        frame.key = _NO_KEY
        assert key_span is not None
        if key is _MERGE:
            frame.merges.append((node, span))
            return
        if key is _UNUSABLE:
            return
        entry = Entry(key_span, node, span)
        earlier = frame.own.pop(key, None)
        frame.own[key] = entry
        if earlier is not None:
            self._duplicate(key, earlier, entry)

    def _duplicate(self, key: Any, earlier: Entry, entry: Entry) -> None:
        assert entry.key is not None
        assert earlier.key is not None
        line = self.document.position(earlier.key.start).line
        same = (
            entry.node.text is not None
            and type(entry.node.value) is type(earlier.node.value)
            and entry.node.value == earlier.node.value
        )
        kind = "duplicate-key-same-value" if same else "duplicate-key"
        message = f"{shown(key)} is set twice, first on line {line}; PyYAML keeps only the last"
        self._problem(kind, message, entry.key, (earlier.key, "set here first; this value is lost"))

    def _merged(self, frame: _Frame) -> list[Node]:
        """The mappings that << brings, in order; known only when the mapping ends, since they may be written in it."""
        found: list[Node] = []
        for node, span in frame.merges:
            parts = [entry.node for entry in node.items] if node.items is not None else [node]
            if any(part.entries is None for part in parts):
                self._problem("yaml-merge", "<< needs a mapping, or a list of mappings", span)
            else:
                found += parts
        return found


def _merge(frame: _Frame, merged: list[Node]) -> None:
    """Fill a mapping: what << brings first (the earlier of several wins), then its own keys."""
    entries = frame.node.entries
    assert entries is not None
    for node in reversed(merged):
        entries.update(node.entries or {})
    for key, entry in frame.own.items():
        entries.pop(key, None)
        entries[key] = entry
    frame.node.value.update((key, entry.node.value) for key, entry in entries.items())


def _last_end(frame: _Frame) -> int:
    last: Entry | None = None
    if frame.node.items is not None:
        last = frame.node.items[-1] if frame.node.items else None
        ends = [last.span.end] if last else []
    else:
        ends = [max(entry.span.end, entry.key.end if entry.key else 0) for entry in frame.own.values()]
        ends += [span.end for _, span in frame.merges]
    return max(ends, default=frame.node.span.start)


def _span(event: yaml.Event) -> Span:
    assert event.start_mark is not None
    assert event.end_mark is not None
    return Span(event.start_mark.index, event.end_mark.index)


def _resolve(text: str) -> str:
    """The tag that PyYAML's safe loader gives to a plain scalar."""
    resolvers = yaml.SafeLoader.yaml_implicit_resolvers
    for tag, pattern in [*resolvers.get(text[:1], ()), *resolvers.get(None, ())]:
        if pattern.match(text):
            return str(tag)
    return _STR


_CONSTRUCTOR = yaml.constructor.SafeConstructor()
_BUILD_ERRORS = (ValueError, OverflowError, LookupError, AttributeError, yaml.YAMLError)
"""What PyYAML's constructors raise for ``2026-13-45``, ``!!int ""``, ``!!timestamp soon`` and the like."""
