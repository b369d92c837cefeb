"""What a check says: Violation (by path, as a rule says it) and Finding (by position, as a user sees it)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ndcheck.document import Span
from ndcheck.values import Path, Value


class Severity(StrEnum):
    """error: it will fail or train wrongly. warning: deprecated, wasteful, or wrong in some setups. info: worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Safety(StrEnum):
    """safe: the run means the same afterwards. unsafe: the run changes."""

    SAFE = "safe"
    UNSAFE = "unsafe"


class Mark(StrEnum):
    """Which part of an entry to underline."""

    KEY = "key"
    VALUE = "value"


@dataclass(frozen=True, slots=True)
class SetValue:
    """Write ``text`` (YAML) as the value of the key at ``path``; the key is added if it is not there."""

    path: Path
    text: str


@dataclass(frozen=True, slots=True)
class RenameKey:
    """Give the key at ``path`` another name, value and comments kept."""

    path: Path
    name: str


@dataclass(frozen=True, slots=True)
class RemoveKey:
    """Remove the key at ``path`` with its value and line."""

    path: Path


Edit = SetValue | RenameKey | RemoveKey


@dataclass(frozen=True, slots=True)
class Fix:
    """The smallest repair: ``title`` in the imperative; ``edits`` make it, or are empty when only a person can."""

    title: str
    safety: Safety = Safety.UNSAFE
    edits: tuple[Edit, ...] = ()


@dataclass(frozen=True, slots=True)
class Note:
    """A further place that takes part in a violation, and what it contributes.

    ``span`` places it when it is not an entry of the file. ``file`` is the one of a pair that it is in.
    """

    path: Path
    label: str
    span: Span | None = None
    file: int = 0


@dataclass(frozen=True, slots=True)
class Violation:
    """One rule broken at one place. ``path`` () means the file as a whole; ``file`` is the one of a pair, 0 or 1."""

    path: Path
    message: str
    notes: tuple[Note, ...] = ()
    fix: Fix | None = None
    severity: Severity | None = None  # only where it differs from the rule's own
    mark: Mark = Mark.KEY
    span: Span | None = None  # only where the place is not an entry of the file
    file: int = 0


@dataclass(frozen=True, slots=True)
class Region:
    """Lines and columns counted from 1; the end is exclusive. ``label`` says what stands there.

    ``path`` is empty in the finding's own file.
    """

    line: int
    column: int
    end_line: int
    end_column: int
    label: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One violation, placed in its file."""

    code: str
    name: str
    severity: Severity
    key: str
    message: str
    region: Region
    related: tuple[Region, ...] = ()
    fix: Fix | None = None


def place(*values: Value[object] | None) -> Path:
    """The path of the first value that the user wrote; () if none was."""
    return next((value.path for value in values if value is not None and value.path is not None), ())


def notes(*values: Value[object] | None) -> tuple[Note, ...]:
    """A note for each value that the user wrote, labelled with its key and value."""
    written = (value for value in values if value is not None and value.path is not None)
    return tuple(Note(value.path, str(value)) for value in written if value.path is not None)
