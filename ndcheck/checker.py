"""Text -> document -> dialect -> run -> findings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import Any

from ndcheck.dialects import DIALECTS, Detection, detect
from ndcheck.dialects.dialect import Dialect, Examination, examine
from ndcheck.document import Document, Problem, Span
from ndcheck.facts import FactError, Facts, read_model_config
from ndcheck.findings import Finding, Mark, Region, Severity, Violation
from ndcheck.policy import Policy
from ndcheck.reader import read
from ndcheck.rules import text as text_rules
from ndcheck.rules.judge import judge
from ndcheck.rules.rule import Rule
from ndcheck.run import Run
from ndcheck.suppressions import Suppression, suppressions
from ndcheck.values import Path, Unreadable, Value, dotted


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """What follows from a config: None where a fact or a legal value is missing. Sizes in ranks and rows per step."""

    world_size: int | None = None
    layout: dict[str, int] | None = None
    layout_text: str | None = None
    global_batch_size: int | None = None
    batch_text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """What was found in one file, by position. ``not_run``: fact -> rules that stayed silent without it.

    ``told_by`` says what the dialect was known by.
    """

    path: str
    document: Document
    dialect: str | None
    told_by: str
    findings: tuple[Finding, ...]
    not_run: dict[str, frozenset[str]]
    derived: Derived


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

    ``dialect`` is a name of DIALECTS; without it the content decides. Without ``policy`` every rule speaks.
    """
    policy = policy or Policy()
    document = _read(content, path)
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
        rules = [rule for rule in text_rules.RULES if _speaks(rule, policy, path)]
        return _report(path, document, None, "", judge(rules, document).violations, policy)
    chosen = replace(chosen, rules=tuple(rule for rule in chosen.rules if _speaks(rule, policy, path)))
    examination = _examine(chosen, document, mapping, facts)
    why = "as asked for" if dialect else f"its keys {', '.join(sorted(told.keys[chosen.name]))}"
    return _report(path, document, chosen, why, examination.verdicts.violations, policy, examination)


def _speaks(rule: Rule[Any], policy: Policy, path: str) -> bool:
    return rule.name in text_rules.UNREADABLE or policy.allows(rule, path)


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


def _examine(dialect: Dialect, document: Document, mapping: dict[Any, Any], facts: Facts) -> Examination:
    settings = dialect.resolve(mapping)
    if facts.model is None:
        facts = _with_local_model(dialect.model_path(settings), document, facts)
    return examine(dialect, settings, facts, document)


def _with_local_model(named: Value[str] | None, document: Document, facts: Facts) -> Facts:
    """The model's shape, where the config names a directory on this disk."""
    if named is None or not _is_directory(named.value):
        return facts
    try:
        return replace(facts, model=read_model_config(FilePath(named.value)))
    except FactError as error:
        place = document.locate(named.path or ())
        document.problems.append(Problem("model-config-unreadable", str(error), place.value if place else Span(0, 0)))
        return facts


def _is_directory(name: str) -> bool:
    try:
        return bool(name) and FilePath(name).is_dir()
    except (OSError, ValueError):  # a name too long, or with a null byte, is no directory
        return False


def _report(
    path: str,
    document: Document,
    dialect: Dialect | None,
    told_by: str,
    violations: Iterable[tuple[Rule[Any], Violation]],
    policy: Policy,
    examination: Examination | None = None,
) -> FileReport:
    findings = [_finding(document, rule, violation, policy) for rule, violation in violations]
    findings = _unsuppressed(document, findings, policy, path)
    findings = [finding for finding in findings if policy.shows(finding.severity)]
    findings.sort(key=lambda finding: (finding.region.line, finding.region.column, finding.code))
    silent = examination.verdicts.not_run if examination else {}
    return FileReport(
        path=path,
        document=document,
        dialect=dialect.name if dialect else None,
        told_by=told_by,
        findings=tuple(findings),
        not_run={fact: frozenset(rule.name for rule in rules) for fact, rules in silent.items()},
        derived=_derived(examination.run) if examination else Derived(),
    )


def _unsuppressed(document: Document, findings: list[Finding], policy: Policy, path: str) -> list[Finding]:
    """The findings that no comment silences, and one for each name in a comment that silences nothing."""
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
        unused = [f"{name} is not found here" for name in comment.names if name not in comment.used]
        if not comment.names:
            unused = ["name the rules to ignore: # ndcheck: ignore[name] reason"]
        kept += [_unused(document, comment, message, policy) for message in unused]
    return kept


def _unused(document: Document, comment: Suppression, message: str, policy: Policy) -> Finding:
    return _finding(document, text_rules.UNUSED_SUPPRESSION, Violation((), message, span=comment.span), policy)


def _finding(document: Document, rule: Rule[Any], violation: Violation, policy: Policy) -> Finding:
    span = Span(*violation.span) if violation.span else _span(document, violation.path, violation.mark)
    related = tuple(
        _region(document, note.span or _span(document, note.path, Mark.KEY), note.label)
        for note in violation.notes
        if note.span or document.locate(note.path)
    )
    return Finding(
        code=rule.code,
        name=rule.name,
        severity=rule.severity
        if rule.name in text_rules.UNREADABLE
        else policy.severity(rule, violation.severity or rule.severity),
        key=dotted(violation.path),
        message=violation.message,
        region=_region(document, span),
        related=related,
        fix=violation.fix,
    )


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


def _region(document: Document, span: Span, label: str = "") -> Region:
    start, end = document.position(span.start), document.position(max(span.end, span.start))
    return Region(start.line, start.column, end.line, end.column, label)


def _derived(run: Run) -> Derived:
    try:
        layout, rows = run.layout(), run.global_batch_size()
        micro, accumulation = run.batch.micro, run.batch.accumulation
    except Unreadable:
        return Derived(world_size=run.facts.world_size.value if run.facts.world_size else None)
    text = None
    if layout is not None and rows is not None and micro is not None and accumulation is not None:
        text = f"{rows} rows a step = {micro.value} micro batch x {accumulation.value} accumulation x {layout.data_ranks} data ranks"
    return Derived(
        world_size=run.facts.world_size.value if run.facts.world_size else None,
        layout=layout.degrees() if layout else None,
        layout_text=f"{layout.world_size} ranks = {layout}" if layout else None,
        global_batch_size=rows,
        batch_text=text,
    )
