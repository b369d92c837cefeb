"""Findings -> text edits -> a file or a diff. Only the bytes that a repair needs are touched."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from difflib import unified_diff
from pathlib import Path as FilePath

from ndcheck.document import Document, Entry, Node, TextEdit, apply_edits
from ndcheck.findings import Edit, Finding, Fix, RemoveKey, RenameKey, Safety, SetValue
from ndcheck.reader import read
from ndcheck.values import Path

_MAX_PASSES = 20
"""Repairs can uncover others; far more than any file needs, and an end if two of them undo each other."""


class NotEditable(Exception):  # noqa: N818  (an answer, not an error: this repair is left to a person)
    """The place is written in a way that a text edit cannot change safely."""


def fix_text(
    text: str, check: Callable[[str], Iterable[Finding]], *, path: str = "", unsafe: bool = False
) -> tuple[str, int]:
    """Repair until nothing more can be repaired: the new text, and how many repairs were made.

    ``check`` finds what is wrong with a text; ``path`` tells JSON from YAML. Safe repairs always, those that change the run only with
    ``unsafe``. A repair that would break the file, or that overlaps one made in the same pass, waits.
    """
    made = 0
    for _ in range(_MAX_PASSES):
        edits, count = _one_pass(read(text, path), check(text), unsafe, path)
        if not edits:
            break
        text, made = apply_edits(text, edits), made + count
    return text, made


def is_fixable(fix: Fix | None, *, unsafe: bool) -> bool:
    """The repair is mechanical, and allowed."""
    return fix is not None and bool(fix.edits) and (unsafe or fix.safety is Safety.SAFE)


def diff(before: str, after: str, path: str) -> str:
    """A unified diff, as ``git apply`` takes it."""
    lines = unified_diff(_lines(before), _lines(after), f"a/{path}", f"b/{path}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _lines(text: str) -> list[str]:
    """Cut at the one line end that git knows."""
    return (
        text.split("\n")
        if not text
        else [f"{line}\n" for line in text.split("\n")[:-1]] + [last for last in text.split("\n")[-1:] if last]
    )


def write_file(path: FilePath, content: bytes) -> None:
    """Replace a file's content in one step, mode and owner kept. On any failure the file is as it was.

    Raises OSError.
    """
    target = path.resolve(strict=True)  # through a symbolic link, the file behind it
    before = target.stat()
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fchmod(stream.fileno(), stat.S_IMODE(before.st_mode))
            if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
                os.fchown(stream.fileno(), before.st_uid, before.st_gid)
            os.fsync(stream.fileno())
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _one_pass(document: Document, findings: Iterable[Finding], unsafe: bool, path: str) -> tuple[list[TextEdit], int]:
    chosen: list[TextEdit] = []
    count = 0
    for finding in findings:
        if finding.fix is None or not is_fixable(finding.fix, unsafe=unsafe):
            continue
        try:
            edits = [edit for symbolic in finding.fix.edits for edit in _text_edits(document, symbolic)]
            if _is_sound(document, [*chosen, *edits], path):
                chosen += edits
                count += 1
        except NotEditable:
            continue
    return chosen, count


def _is_sound(document: Document, edits: list[TextEdit], path: str) -> bool:
    try:
        changed = read(apply_edits(document.text, edits), path)
    except ValueError:
        return False
    before = Counter(problem.kind for problem in document.problems)
    return Counter(problem.kind for problem in changed.problems) <= before


def _text_edits(document: Document, edit: Edit) -> Iterator[TextEdit]:
    entry = document.entry(edit.path)
    if isinstance(edit, SetValue) and entry is None:
        yield _add(document, edit.path, edit.text)
    elif entry is None or entry.key is None:
        raise NotEditable
    elif isinstance(edit, RenameKey):
        yield _rename(document, entry, edit.name)
    elif isinstance(edit, SetValue):
        yield _set(document, entry, _spelled(document, edit.text))
    else:
        yield _remove(document, edit)


def _spelled(document: Document, text: str) -> str:
    """A value that is given as YAML, in the file's own language."""
    return json.dumps(read(text).data) if document.is_json else text


def _rename(document: Document, entry: Entry, name: str) -> TextEdit:
    assert entry.key is not None
    if any(entry.key in (problem.span, *(span for span, _ in problem.related)) for problem in document.problems):
        raise NotEditable  # written twice: which one is meant is for a person to say
    written = document.text[entry.key.start : entry.key.end]
    quote = written[:1] if written[:1] in "\"'" else ""
    return TextEdit(entry.key.start, entry.key.end, f"{quote}{name}{quote}")


def _set(document: Document, entry: Entry, text: str) -> TextEdit:
    assert entry.key is not None
    start, end = entry.span
    if start < entry.key.end:
        raise NotEditable  # the value stands elsewhere, behind an anchor
    if start == end:
        return TextEdit(start, end, f" {text}")
    return TextEdit(start, end, text)


def _add(document: Document, path: Path, text: str) -> TextEdit:
    """A new key after the last one of its mapping, indented like it."""
    parent = _mapping_at(document, path[:-1])
    own = _own_entries(document, parent)
    if not own or (_is_flow(document, parent) and not document.is_json):
        raise NotEditable
    last = max(own, key=lambda entry: entry.key.start if entry.key else 0)
    assert last.key is not None
    if document.is_json:
        return _add_to_json(document, last, f"{json.dumps(path[-1])}: {_spelled(document, text)}")
    indent = " " * (document.position(last.key.start).column - 1)
    end = _line_end(document.text, max(last.span.end, last.key.end))
    newline = "\r\n" if "\r\n" in document.text else "\n"
    ends_with_newline = document.text[:end].endswith(("\n", "\r"))
    line = f"{indent}{path[-1]}: {text}"
    return TextEdit(end, end, f"{line}{newline}" if ends_with_newline else f"{newline}{line}")


def _add_to_json(document: Document, last: Entry, written: str) -> TextEdit:
    """On a line of its own, if the last key has one."""
    assert last.key is not None
    start = document.text.rfind("\n", 0, last.key.start) + 1
    before = document.text[start : last.key.start]
    newline = "\r\n" if "\r\n" in document.text else "\n"
    gap = " " if before.strip() or not start else f"{newline}{before}"
    return TextEdit(last.span.end, last.span.end, f",{gap}{written}")


def _mapping_at(document: Document, path: Path) -> Node:
    entry = document.entry(path)
    node = document.root if not path else entry.node if entry else None
    if node is None or not node.entries:
        raise NotEditable
    return node


def _own_entries(document: Document, node: Node) -> list[Entry]:
    """The entries written in this mapping itself: what << brought stands elsewhere."""
    inside = [entry for entry in (node.entries or {}).values() if entry.key is not None]
    return [entry for entry in inside if entry.key and node.span.start <= entry.key.start < max(node.span.end, 1)]


def _is_flow(document: Document, node: Node) -> bool:
    return document.text[node.span.start : node.span.start + 1] == "{"


def _remove(document: Document, edit: RemoveKey) -> TextEdit:
    parent, entry = _mapping_at(document, edit.path[:-1]), document.entry(edit.path)
    if entry is None or entry.key is None:
        raise NotEditable
    own = sorted(_own_entries(document, parent), key=lambda other: other.key.start if other.key else 0)
    if entry not in own or len(own) < 2:
        raise NotEditable  # an emptied mapping would mean null
    if _is_flow(document, parent):
        return _remove_from_flow(own, entry)
    start = document.text.rfind("\n", 0, entry.key.start) + 1
    if document.text[start : entry.key.start].strip():
        raise NotEditable  # the key shares its line with a list's dash
    return TextEdit(start, _line_end(document.text, max(entry.span.end, entry.key.end)), "")


def _remove_from_flow(own: list[Entry], entry: Entry) -> TextEdit:
    at = own.index(entry)
    assert entry.key is not None
    if at + 1 < len(own):
        following = own[at + 1].key
        assert following is not None
        return TextEdit(entry.key.start, following.start, "")
    return TextEdit(own[at - 1].span.end, entry.span.end, "")


def _line_end(text: str, offset: int) -> int:
    """The offset after the line break that ends the line of ``offset``."""
    found = text.find("\n", max(offset - 1, 0) if text[offset - 1 : offset] == "\n" else offset)
    return len(text) if found < 0 else found + 1
