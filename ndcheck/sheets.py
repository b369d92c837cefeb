"""The files of a run, opened: what each is, and the engine's config that one of them names or holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any, NamedTuple

from ndcheck.dialects import DIALECTS, Detection, detect
from ndcheck.dialects.dialect import Dialect, Examination, Role
from ndcheck.document import Document, Problem, Span
from ndcheck.findings import Violation
from ndcheck.pairing import Driven, elsewhere
from ndcheck.reader import read
from ndcheck.rules import NEUTRAL
from ndcheck.rules.rule import Rule
from ndcheck.run import Run
from ndcheck.settings import Settings
from ndcheck.values import Path, Value, dotted


class PairError(ValueError):
    """Files that cannot belong to one run; the message says why."""


class Text(NamedTuple):
    """A file's name and content."""

    path: str
    content: bytes | str


@dataclass(slots=True, kw_only=True, eq=False)
class Sheet:
    """One config on its way to a report. ``within``: the key under which it stands in the file, if it is not the file itself."""

    path: str
    document: Document
    dialect: Dialect | None = None
    told_by: str = ""
    settings: Settings | None = None
    within: Path = ()
    namer: Sheet | None = None
    assumed: str = ""
    alone: Run | None = None
    examination: Examination | None = None
    found: list[Placed] = field(default_factory=list)
    missing: dict[str, frozenset[str]] = field(default_factory=dict)
    pairs: set[type] = field(default_factory=set)

    def is_a(self, role: Role) -> bool:
        """It is read, and has this part in the run."""
        return self.dialect is not None and self.dialect.role is role


class Placed(NamedTuple):
    """A violation in a sheet; ``other`` is the pair's other file, if it is a pair's."""

    rule: Rule[Any]
    violation: Violation
    other: Sheet | None = None


def open_all(texts: Sequence[Text], dialect: str | None) -> list[Sheet]:
    """The files, and the engine's config that one of them names or holds, if none of them is one.

    ``dialect`` is that of the first. Raises PairError for two files that have the same part in a run.
    """
    sheets = [_open(text, dialect if number == 0 else None) for number, text in enumerate(texts)]
    _one_of_each(sheets)
    if not any(sheet.is_a(Role.ENGINE) for sheet in sheets):
        sheets += _engines(sheets)
    return sheets


def _open(text: Text, dialect: str | None) -> Sheet:
    document = _read(text.content, text.path)
    mapping = document.data
    told = detect(mapping) if isinstance(mapping, dict) else Detection(None, {})
    chosen = DIALECTS[dialect] if dialect else told.dialect
    if document.root is not None and not isinstance(mapping, dict):
        what = "empty" if mapping is None else "a list" if isinstance(mapping, list) else "a single value"
        document.problems.append(
            Problem("not-a-mapping", f"the file is {what}; a config is keys and values", Span(0, 0))
        )
    elif document.root is None and not document.problems:
        document.problems.append(Problem("not-a-mapping", "the file is empty", Span(0, 0)))
    if chosen is None or not isinstance(mapping, dict):
        if isinstance(mapping, dict) and not _is_broken(document):
            document.problems.append(Problem("unknown-dialect", _unknown_dialect(told), Span(0, 0)))
        return Sheet(path=text.path, document=document)
    why = "as asked for" if dialect else f"its keys {', '.join(sorted(told.keys[chosen.name]))}"
    return Sheet(path=text.path, document=document, dialect=chosen, told_by=why, settings=chosen.resolve(mapping))


def _one_of_each(sheets: Sequence[Sheet]) -> None:
    parts = {Role.LAUNCH: "launch files", Role.TRAINING: "training files", Role.ENGINE: "configs of an engine"}
    for role, what in parts.items():
        same = [sheet.path for sheet in sheets if sheet.is_a(role)]
        if len(same) > 1:
            raise PairError(f"{same[0]} and {same[1]} are both {what}; a run has one")


def _engines(sheets: Sequence[Sheet]) -> list[Sheet]:
    """The engine's config that the training file names or holds, else that of the launch file, which the trainer then takes."""
    for role in (Role.TRAINING, Role.LAUNCH):
        engine = next((engine for sheet in sheets if sheet.is_a(role) and (engine := _engine(sheet))), None)
        if engine is not None:
            return [engine]
    return []


def _engine(sheet: Sheet) -> Sheet | None:
    """The engine's config that a file names or holds, if it can be read."""
    if sheet.dialect is None or sheet.settings is None:
        return None
    value = sheet.dialect.engine(sheet.settings)
    if value is None or not value.readable or value.path is None:
        return None
    dialect = next(one for one in DIALECTS.values() if one.role is Role.ENGINE)
    if isinstance(value.value, dict):
        settings = dialect.resolve(value.value)
        engine = Sheet(path=sheet.path, document=sheet.document, dialect=dialect, settings=settings, within=value.path)
        engine.namer = sheet
        return engine
    if not isinstance(value.value, str) or not value.value:
        return None
    found = _named_file(value.value, sheet.path)
    if found is None:
        silent = [rule.name for rule in dialect.rules if rule not in NEUTRAL or rule.reads is Driven]
        sheet.missing["engine_config"] = frozenset(silent)
        return None
    engine = _open(found, dialect.name)
    engine.told_by, engine.namer = f"{dotted(value.path)} in {sheet.path}", sheet
    if engine.settings is not None:
        sheet.settings.let_name(dotted(value.path), _reader(engine.settings, engine.path))
    return engine


def _reader(settings: Settings, name: str) -> Callable[[str], Value[Any] | None]:
    def read_there(key: str) -> Value[Any] | None:
        value = settings.value(key)
        return None if value is None else elsewhere(value, name)

    return read_there


MAX_NAMED = 1_000_000
"""Bytes of a file that a config names; a larger one is no config."""


def _named_file(name: str, by: str) -> Text | None:
    """A JSON file that a config names: from here, else from beside the config. Nothing else is opened."""
    for path in (FilePath(name), FilePath(by).parent / name):
        try:
            if path.suffix == ".json" and path.is_file() and path.stat().st_size <= MAX_NAMED:
                return Text(str(path), path.read_bytes())
        except (OSError, ValueError):  # no such name, or not for us to read
            continue
    return None


def _read(content: bytes | str, path: str) -> Document:
    if isinstance(content, str):
        return read(content, path)
    try:
        return read(content.decode("utf-8"), path)
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8")
        # the readable part is kept, so that the finding has a line to stand on
        document = Document(before.replace("\0", " "))
        message = f"byte 0x{content[error.start]:02x} is no UTF-8; save the file as UTF-8"
        document.problems.append(Problem("not-utf8", message, Span(len(before), len(before))))
        return document


def _is_broken(document: Document) -> bool:
    return any(problem.kind in ("yaml-syntax", "json-syntax") for problem in document.problems)


def _unknown_dialect(told: Detection) -> str:
    if told.foreign is not None:
        return f"this is a file of {told.foreign}, which ndcheck does not read: nothing was checked"
    if told.keys:
        seen = " and ".join(f"{name} ({', '.join(sorted(keys))})" for name, keys in told.keys.items())
        return f"keys of {seen}, as many of each: nothing was checked; say which by --dialect"
    wanted = "; ".join(f"{dialect.name} by keys such as {_examples(dialect)}" for dialect in DIALECTS.values())
    return f"no known config language: nothing was checked. Known are {wanted}"


def _examples(dialect: Dialect) -> str:
    return ", ".join(dialect.telling)
