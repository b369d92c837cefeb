"""Text for people: position, rule, message, a frame of the lines that take part, the repair."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from itertools import groupby

from ndcheck.checker import FileReport, Report
from ndcheck.document import Document
from ndcheck.facts import FLAGS
from ndcheck.findings import Finding, Region, Severity
from ndcheck.fixes import is_fixable
from ndcheck.layout import counted

Paint = Callable[[str, str], str]

_COLOURS = {Severity.ERROR: "1;31", Severity.WARNING: "1;33", Severity.INFO: "1;36"}
_WIDTH = 100
"""Characters of a source line that are shown."""


def render(
    report: Report, unreadable: Mapping[str, str], *, colour: bool = False, hidden: int = 0, verbose: bool = False
) -> str:
    """The whole report.

    ``unreadable``: path -> why it could not be opened; ``hidden``: findings a baseline knows; ``verbose``: what each file was
    taken for, too.
    """
    paint = _colourful if colour else _plain
    blocks = [_finding(file, finding, paint) for file in report.files for finding in file.findings]
    several = len(report.files) > 1
    tail = [_dialect(file) for file in report.files if verbose and file.dialect]
    tail += [line for file in report.files if (line := _derived(file, several))]
    tail += [_assumed(file) for file in report.files if file.derived.assumed_model]
    return "\n".join([*blocks, "".join([*tail, *_summary(report, unreadable, hidden, paint)])])


def _plain(text: str, code: str) -> str:
    return text


def _colourful(text: str, code: str) -> str:
    return f"\033[{code}m{text}\033[0m"


def _finding(file: FileReport, finding: Finding, paint: Paint) -> str:
    region = finding.region
    where = paint(f"{_visible(file.path)}:{region.line}:{region.column}", "1")
    severity = paint(finding.severity.value, _COLOURS[finding.severity])
    lines = [f"{where}: {severity} {finding.code} [{finding.name}]", f"  {_visible(finding.message)}"]
    lines += _frame(file.document, finding, paint)
    lines += [_elsewhere(place, paint) for place in finding.related if place.path]
    if finding.fix:
        lines.append(f"  {paint('repair', '1;32')}: {_visible(finding.fix.title)}")
    return "\n".join(lines) + "\n"


def _elsewhere(place: Region, paint: Paint) -> str:
    """A place in another file of the run."""
    where = paint(f"{_visible(place.path)}:{place.line}:{place.column}", "1")
    return f"  {paint('see', '1;34')} {where}: {_visible(place.label)}"


def _frame(document: Document, finding: Finding, paint: Paint) -> list[str]:
    """Every line that takes part, with the primary place underlined by ^ and the others by -."""
    if not document.text:
        return []
    places = [(finding.region, True), *((region, False) for region in finding.related if not region.path)]
    places.sort(key=lambda item: (item[0].line, item[0].column))
    gutter = len(str(places[-1][0].line))
    lines: list[str] = []
    previous = None
    for number, group in groupby(places, key=lambda item: item[0].line):
        if previous is not None and number > previous + 1:
            lines.append(f"  {paint('.' * gutter, '2')}")
        previous = number
        source = document.line(number)
        members = list(group)
        first = members[0][0].column
        cut = max(first - _WIDTH // 2, 0) if _columns(source) > _WIDTH else 0
        shown = _visible(source[cut : cut + _WIDTH])
        lines.append(f"  {paint(f'{number:>{gutter}} |', '2')} {shown}".rstrip())
        margin = paint(" " * gutter + " |", "2")
        for region, primary in members:
            lines.append(f"  {margin} {_underline(source, region, primary, cut, finding, paint)}")
    return lines


def _underline(source: str, region: Region, primary: bool, cut: int, finding: Finding, paint: Paint) -> str:
    start = max(region.column - 1 - cut, 0)
    end_column = region.end_column if region.end_line == region.line else len(source) + 1
    visible = source[cut : cut + _WIDTH]
    end = min(max(end_column - 1 - cut, start + 1), max(len(visible), start + 1))
    pad = " " * _columns(_visible(visible[:start]))
    width = max(_columns(_visible(visible[start:end])), 1)
    mark = paint("^" * width, _COLOURS[finding.severity]) if primary else paint("-" * width, "1;34")
    return f"{pad}{mark} {_visible(region.label)}".rstrip()


def _columns(text: str) -> int:
    """Terminal columns: wide characters take two, combining ones none."""
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(bool(unicodedata.combining(char)) for char in text)


def _visible(text: str) -> str:
    """Control characters would move the cursor or repaint the screen: shown as escapes, tabs as one space."""
    return "".join(char if char.isprintable() else " " if char == "\t" else repr(char)[1:-1] for char in text)


def _dialect(file: FileReport) -> str:
    return f"{_visible(file.path)}: read as {file.dialect}, told by {_visible(file.told_by)}\n"


def _derived(file: FileReport, with_path: bool) -> str:
    parts = [text for text in (file.derived.layout_text, file.derived.batch_text) if text]
    if not parts:
        return ""
    return f"{_visible(file.path) + ': ' if with_path else ''}{'; '.join(parts)}\n"


def _assumed(file: FileReport) -> str:
    model = file.derived.assumed_model
    return f"{_visible(file.path)}: sizes of the model as published for {model}; {FLAGS['model_config']} gives those of yours.\n"


def _summary(report: Report, unreadable: Mapping[str, str], hidden: int, paint: Paint) -> list[str]:
    errors, warnings = report.count(Severity.ERROR), report.count(Severity.WARNING)
    infos = report.count(Severity.INFO)
    counts = [counted(errors, "error"), counted(warnings, "warning"), *([counted(infos, "note")] if infos else [])]
    found = ", ".join(counts) if errors or warnings or infos else "No findings"
    colour = "1;31" if errors else "1;33" if warnings else "1;32"
    lines = [f"{paint(found, colour)} in {counted(len(report.files), 'file')}.\n"] if report.files else []
    if hidden:
        lines.append(f"{counted(hidden, 'finding')} known from the baseline.\n")
    fixes = [finding.fix for file in report.files if file.asked_for for finding in file.findings]
    fixable = sum(is_fixable(fix, unsafe=False) for fix in fixes)
    unsafe = sum(is_fixable(fix, unsafe=True) for fix in fixes) - fixable
    if fixable:
        extra = f" ({unsafe} more with --unsafe-fixes)" if unsafe else ""
        lines.append(f"{counted(fixable, 'finding')} can be repaired with --fix{extra}.\n")
    elif unsafe:
        lines.append(f"{counted(unsafe, 'finding')} can be repaired with --fix --unsafe-fixes.\n")
    if unreadable:
        lines.append(f"{counted(len(unreadable), 'file')} could not be opened.\n")
    for fact, names in sorted(report.not_run.items()):
        lines.append(f"{counted(len(names), 'more rule')} could be checked with {FLAGS[fact]}.\n")
    return lines
