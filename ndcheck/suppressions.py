"""Comments that silence a rule: ``# ndcheck: ignore[name, code] reason``.

Behind a value the comment speaks of its own line; on a line of its own, of the next line; before the
first key, of the whole file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ndcheck.document import Document, Span
from ndcheck.findings import Finding

_COMMENT = re.compile(r"(?<!\S)#\s*ndcheck:\s*ignore(?P<list>\[(?P<names>[^\]\n]*)\])?", re.ASCII)


@dataclass(slots=True)
class Suppression:
    """One comment. ``line`` is the line that it speaks of, None for the file. ``used``: names that silenced something."""

    span: Span
    names: tuple[str, ...]
    line: int | None
    used: set[str] = field(default_factory=set)

    def silences(self, finding: Finding) -> bool:
        """The finding is silenced; remembers that the name was of use."""
        if self.line is not None and finding.region.line != self.line:
            return False
        matching = {name for name in self.names if name in (finding.name, finding.code)}
        self.used |= matching
        return bool(matching)


def suppressions(document: Document) -> list[Suppression]:
    """Every suppression comment of a file, in order."""
    return list(_read(document)) if "ndcheck:" in document.text and not document.is_json else []


def _read(document: Document) -> Iterator[Suppression]:
    inside = [entry.span for _, entry in document.scalars()]
    first = document.root.span.start if document.root else len(document.text)
    for match in _COMMENT.finditer(document.text):
        if any(span.start < match.start() < span.end for span in inside):
            continue  # text of a value, not a comment
        names = tuple(name.strip() for name in (match["names"] or "").split(",") if name.strip())
        yield Suppression(Span(match.start(), match.end()), names, _line(document, match.start(), first))


def _line(document: Document, offset: int, first: int) -> int | None:
    if offset < first:
        return None
    line = document.position(offset).line
    alone = document.line(line).lstrip().startswith("#")
    return line + 1 if alone else line
