"""Text -> document -> dialect -> run -> findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from ndcheck import models
from ndcheck.dialects.dialect import Role, examine
from ndcheck.document import Document, Problem, Span
from ndcheck.facts import FactError, Facts
from ndcheck.findings import Finding, Mark, Region, Severity, Violation
from ndcheck.layout import counted
from ndcheck.pairing import Driven, Launched, driven_by, started_by, with_ranks
from ndcheck.policy import Policy
from ndcheck.rules import NEUTRAL
from ndcheck.rules import text as text_rules
from ndcheck.rules.judge import judge
from ndcheck.rules.rule import Rule
from ndcheck.run import Run
from ndcheck.sheets import PairError, Placed, Sheet, Text, open_all
from ndcheck.suppressions import Suppression, suppressions
from ndcheck.values import Path, Unreadable, Value, dotted

__all__ = ["Derived", "FileReport", "PairError", "Report", "Text", "check", "check_together"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """What follows from a config: None where a fact or a legal value is missing. Sizes in ranks and rows per step.

    ``assumed_model``: the well-known model whose sizes were taken, because the config names it and nothing of it is on the disk.
    """

    world_size: int | None = None
    layout: dict[str, int] | None = None
    layout_text: str | None = None
    global_batch_size: int | None = None
    batch_text: str | None = None
    assumed_model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """What was found in one file, by position. ``not_run``: fact -> rules that stayed silent without it.

    ``told_by`` says what the dialect was known by. ``asked_for``: it is the file that was to be checked, not one beside it.
    """

    path: str
    document: Document
    dialect: str | None
    told_by: str
    findings: tuple[Finding, ...]
    not_run: dict[str, frozenset[str]]
    derived: Derived
    asked_for: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was found in all files."""

    files: tuple[FileReport, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Every finding, file by file."""
        return tuple(finding for file in self.files for finding in file.findings)

    def count(self, severity: Severity) -> int:
        """How many findings are of this severity."""
        return sum(finding.severity is severity for finding in self.findings)

    @property
    def ok(self) -> bool:
        """There is no error."""
        return self.count(Severity.ERROR) == 0

    @property
    def not_run(self) -> dict[str, frozenset[str]]:
        """Fact -> names of the rules that it would let speak, over all files."""
        merged: dict[str, frozenset[str]] = {}
        for file in self.files:
            for fact, names in file.not_run.items():
                merged[fact] = merged.get(fact, frozenset()) | names
        return merged


def check(
    content: bytes | str, path: str, facts: Facts, dialect: str | None = None, policy: Policy | None = None
) -> FileReport:
    """Check one file's content. Never raises for what the content is.

    ``dialect`` is a name of DIALECTS; without it the content decides. Without ``policy`` every rule speaks. An engine's config that
    the file names is read beside it, and what is found there is in ``check_together``'s further reports.
    """
    return check_together([Text(path, content)], facts, dialect, policy)[0]


def check_together(
    texts: Sequence[Text], facts: Facts, dialect: str | None = None, policy: Policy | None = None
) -> tuple[FileReport, ...]:
    """Check the files of one run: each for itself, and all against each other; and an engine's config that one of them names.

    ``dialect`` is that of the first. The reports come in the order of the files, those of named files last. Raises PairError for two
    files that have the same part in a run.
    """
    policy = policy or Policy()
    sheets = open_all(texts, dialect)
    known = [sheet for role in Role for sheet in sheets if sheet.is_a(role)]
    for sheet in known:
        _examine_beside(sheet, known, facts, policy)
    for first, second in combinations(known, 2):
        _compare(first, second, policy)
    for sheet in sheets:
        if sheet.dialect is None:
            rules = [rule for rule in text_rules.RULES if _speaks(rule, policy, sheet.path)]
            sheet.found = [Placed(*found) for found in judge(rules, sheet.document).violations]
    return tuple(_report(sheet, sheets, policy) for sheet in sheets if not sheet.within)


def _examine_beside(sheet: Sheet, known: Sequence[Sheet], facts: Facts, policy: Policy) -> None:
    """Put the rules to one sheet, with what the files before it say."""
    assert sheet.dialect is not None
    assert sheet.settings is not None
    above = known[: known.index(sheet)]
    last = above[-1] if above else None
    if above and above[0].is_a(Role.LAUNCH) and above[0].alone is not None:
        facts = with_ranks(facts, above[0].alone, above[0].path)
    if facts.model is None:
        facts, sheet.assumed = _with_named_model(sheet.dialect.model_path(sheet.settings), sheet.document, facts)

    def complete(run: Run) -> Run:
        sheet.alone = run
        if last is None or last.examination is None:
            return run
        return (driven_by if sheet.is_a(Role.ENGINE) else started_by)(run, last.examination.run, last.path)

    chosen = replace(
        sheet.dialect, rules=tuple(rule for rule in sheet.dialect.rules if _speaks(rule, policy, sheet.path))
    )
    document = None if sheet.within else sheet.document
    sheet.examination = examine(chosen, sheet.settings, facts, document, complete)
    said = {placed.rule.code for one in above for placed in one.found}
    for rule, violation in sheet.examination.verdicts.violations:
        # what stands nowhere in this file follows from the others, where it may have been said already
        if violation.path or rule.reads is not Run or rule.code not in said:
            sheet.found.append(Placed(rule, _inside(violation, sheet.within)))


def _compare(first: Sheet, second: Sheet, policy: Policy) -> None:
    """Put the rules about pairs to two files, in the order of their parts: to what each says by itself."""
    if first.alone is None or second.alone is None:
        return
    names = (first.path, second.path)
    pair: Launched | Driven
    if second.is_a(Role.ENGINE):
        pair = Driven(first=first.alone, second=second.alone, names=names)
    else:
        pair = Launched(first=first.alone, second=second.alone, names=names)
    for sheet in (first, second):
        sheet.pairs.add(type(pair))
    for rule, violation in judge(NEUTRAL, pair).violations:
        sheet, other = (second, first) if violation.file else (first, second)
        if _speaks(rule, policy, sheet.path):
            sheet.found.append(Placed(rule, _inside(violation, sheet.within), other))


def _inside(violation: Violation, within: Path) -> Violation:
    """A violation in a config that stands under a key of the file."""
    if not within:
        return violation
    here = violation.file
    moved = tuple(replace(note, path=within + note.path) if note.file == here else note for note in violation.notes)
    fix = violation.fix
    if fix is not None:
        fix = replace(fix, edits=tuple(replace(edit, path=within + edit.path) for edit in fix.edits))
    return replace(violation, path=within + violation.path, notes=moved, fix=fix)


def _speaks(rule: Rule[Any], policy: Policy, path: str) -> bool:
    return rule.name in text_rules.UNREADABLE or policy.allows(rule, path)


def _with_named_model(named: Value[str] | None, document: Document, facts: Facts) -> tuple[Facts, str]:
    """The facts with the model's sizes, where its name gives them; and the well-known model that was assumed, if one was."""
    if named is None:
        return facts, ""
    try:
        found = models.find(named.value)
    except FactError as error:
        place = document.locate(named.path or ())
        document.problems.append(Problem("model-config-unreadable", str(error), place.value if place else Span(0, 0)))
        return facts, ""
    return (replace(facts, model=found.shape), found.assumed) if found else (facts, "")


def _report(sheet: Sheet, sheets: Sequence[Sheet], policy: Policy) -> FileReport:
    """What was found in a file, and in configs that stand under a key of it."""
    document, path = sheet.document, sheet.path
    parts = [sheet, *(one for one in sheets if one.within and one.namer is sheet)]
    findings = [_finding(document, placed, policy, path) for part in parts for placed in part.found]
    silent = _silent(parts)
    unasked = {name for names in silent.values() for name in names} | _unpaired(parts)
    findings = _unsuppressed(document, findings, policy, path, unasked)
    findings = [finding for finding in findings if policy.shows(finding.severity)]
    findings.sort(key=lambda finding: (finding.region.line, finding.region.column, finding.code))
    return FileReport(
        path=path,
        document=document,
        dialect=sheet.dialect.name if sheet.dialect else None,
        told_by=sheet.told_by,
        findings=tuple(findings),
        not_run=silent,
        derived=replace(_derived(sheet.examination.run), assumed_model=sheet.assumed)
        if sheet.examination
        else Derived(),
        asked_for=sheet is sheets[0],
    )


def _silent(parts: Sequence[Sheet]) -> dict[str, frozenset[str]]:
    """Fact -> rules that could not speak without it."""
    silent: dict[str, frozenset[str]] = {}
    for part in parts:
        found = part.examination.verdicts.not_run if part.examination else {}
        named = {fact: frozenset(rule.name for rule in rules) for fact, rules in found.items()}
        for fact, names in (*part.missing.items(), *named.items()):
            silent[fact] = silent.get(fact, frozenset()) | names
    return silent


def _unpaired(parts: Sequence[Sheet]) -> set[str]:
    """Rules about pairs of which the other file is not there."""
    there = {pair for part in parts for pair in part.pairs}
    return {rule.name for rule in NEUTRAL if rule.reads in (Launched, Driven) and rule.reads not in there}


def _unsuppressed(
    document: Document, findings: list[Finding], policy: Policy, path: str, unasked: set[str]
) -> list[Finding]:
    """The findings that no comment silences, and one for each name in a comment that silences nothing.

    A rule that was ``unasked`` may have something to silence another time.
    """
    comments = suppressions(document)
    kept = []
    for finding in findings:
        # every comment is asked, so that each learns whether it is of use
        silenced = [comment.silences(finding) for comment in comments]
        if finding.name in text_rules.UNREADABLE or not any(silenced):
            kept.append(finding)
    if not policy.allows(text_rules.UNUSED_SUPPRESSION, path):
        return kept
    for comment in comments:
        unused = [
            f"{name} is not found here" for name in comment.names if name not in comment.used and name not in unasked
        ]
        if not comment.names:
            unused = ["name the rules to ignore: # ndcheck: ignore[name] reason"]
        kept += [_unused(document, comment, message, policy) for message in unused]
    return kept


def _unused(document: Document, comment: Suppression, message: str, policy: Policy) -> Finding:
    return _finding(document, Placed(text_rules.UNUSED_SUPPRESSION, Violation((), message, span=comment.span)), policy)


def _finding(document: Document, placed: Placed, policy: Policy, path: str = "") -> Finding:
    rule, violation, other = placed
    span = Span(*violation.span) if violation.span else _span(document, violation.path, violation.mark)
    return Finding(
        code=rule.code,
        name=rule.name,
        severity=rule.severity
        if rule.name in text_rules.UNREADABLE
        else policy.severity(rule, violation.severity or rule.severity),
        key=dotted(violation.path),
        message=violation.message,
        region=_region(document, span),
        related=tuple(_related(document, violation, other, path)),
        fix=violation.fix,
    )


def _related(document: Document, violation: Violation, other: Sheet | None, path: str) -> Iterator[Region]:
    for note in violation.notes:
        there, name, place = document, "", note.path
        if note.file != violation.file and other is not None:
            there, place = other.document, other.within + note.path
            name = other.path if other.path != path else ""
        if note.span or there.locate(place):
            yield _region(there, note.span or _span(there, place, Mark.KEY), note.label, name)


def _span(document: Document, path: Path, mark: Mark) -> Span:
    """The entry at ``path``, or the nearest one around it that is written; the file's start for ()."""
    for end in range(len(path), 0, -1):
        place = document.locate(path[:end])
        if place is not None:
            at_value = place.key is None or (
                mark is Mark.VALUE and end == len(path) and place.value.end > place.value.start
            )
            return place.value if at_value or place.key is None else place.key
    return Span(0, 0)


def _region(document: Document, span: Span, label: str = "", path: str = "") -> Region:
    start, end = document.position(span.start), document.position(max(span.end, span.start))
    return Region(start.line, start.column, end.line, end.column, label, path)


def _derived(run: Run) -> Derived:
    try:
        layout, rows = run.layout(), run.global_batch_size()
        micro, accumulation = run.batch.micro, run.batch.accumulation
    except Unreadable:
        return Derived(world_size=run.facts.world_size.value if run.facts.world_size else None)
    text = None
    if layout is not None and rows is not None and micro is not None and accumulation is not None:
        text = (
            f"{counted(rows, 'row')} a step = {micro.value} micro batch x {accumulation.value} accumulation "
            f"x {counted(layout.data_ranks, 'data rank')}"
        )
    return Derived(
        world_size=run.facts.world_size.value if run.facts.world_size else None,
        layout=layout.degrees() if layout else None,
        layout_text=f"{layout.world_size} ranks = {layout}" if layout else None,
        global_batch_size=rows,
        batch_text=text,
    )
