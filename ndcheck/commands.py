"""What ``ndcheck validate`` does with its arguments: settings, facts, files, repairs, output."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from ndcheck import baseline, fixes, options
from ndcheck.checker import FileReport, PairError, Report, Text, check_together
from ndcheck.dialects import ASSUMED
from ndcheck.facts import FactError, Facts, gather
from ndcheck.findings import Severity
from ndcheck.output import as_json, as_text
from ndcheck.policy import Policy, PolicyError

OK, FINDINGS, FAILED = 0, 1, 2

Say = Callable[[str], None]


class UsageError(ValueError):
    """The command cannot work as asked; the message says what to change."""


@dataclass(frozen=True, slots=True)
class _Job:
    """Everything that is the same for every file."""

    facts: Facts
    policy: Policy
    dialect: str | None
    unsafe: bool
    beside: tuple[Text, ...]

    def check(self, content: bytes | str, name: str) -> tuple[FileReport, ...]:
        """The reports of a file and of those of the same run. Raises UsageError if they cannot be of one."""
        try:
            return check_together([Text(name, content), *self.beside], self.facts, self.dialect, self.policy)
        except PairError as error:
            raise UsageError(f"--with: {error}") from None


def validate(arguments: Namespace, stdin: BinaryIO, write: Say, complain: Say, *, colour: bool) -> int:
    """Check the files; returns the exit code. Raises UsageError."""
    job, settings = _job(arguments)
    reports: list[FileReport] = []
    unreadable: dict[str, str] = {}
    changes: list[str] = []
    for name in dict.fromkeys(arguments.files):
        try:
            content = stdin.read() if name == "-" else Path(name).read_bytes()
            shown = arguments.stdin_filename if name == "-" else name
            files, after = _check(content, shown, job, arguments)
            if after is not None:
                changes.append(fixes.diff(_text(content), after, shown))
                _save(name, content, after, arguments, write)
        except UsageError:
            raise
        except (OSError, ValueError) as error:
            unreadable[name] = getattr(error, "strerror", None) or str(error)
            complain(f"{name}: {unreadable[name]}")
            continue
        reports += files
    report = Report(files=_merged(reports))
    if arguments.write_baseline:
        return _write_baseline(arguments.write_baseline, report, complain, bool(unreadable))
    known = arguments.baseline or settings.get("baseline")
    report, hidden = _without_known(report, known)
    if arguments.diff:
        write("".join(changes))
        if not report.ok:
            complain(f"errors that are left: {report.count(Severity.ERROR)}")
        return FAILED if unreadable else FINDINGS if changes or not report.ok else OK
    # with --fix the repaired text goes to stdout, so what is left to say goes to stderr
    say = _to_stderr(complain) if arguments.fix and "-" in arguments.files else write
    say(_render(report, unreadable, arguments, colour, hidden))
    return FAILED if unreadable else OK if report.ok else FINDINGS


def _to_stderr(complain: Say) -> Say:
    """A writer of whole blocks to where complaints go."""
    return lambda text: complain(f"after the repairs\n{text}".rstrip("\n"))


def _check(content: bytes, name: str, job: _Job, arguments: Namespace) -> tuple[tuple[FileReport, ...], str | None]:
    """The reports, and the repaired text if repairs were asked for and made. Only the file itself is repaired."""
    reports = job.check(content, name)
    if not (arguments.fix or arguments.diff):
        return reports, None
    text = _text(content)
    after, made = fixes.fix_text(
        text, lambda changed: job.check(changed, name)[0].findings, path=name, unsafe=job.unsafe
    )
    if not made:
        return reports, None
    return job.check(after, name), after


def _merged(reports: Iterable[FileReport]) -> tuple[FileReport, ...]:
    """One report of each file, though several may name it: what was found in it beside each of them, once."""
    merged: dict[str, FileReport] = {}
    for report in reports:
        key = os.path.realpath(report.path)
        seen = merged.get(key)
        if seen is None:
            merged[key] = report
            continue
        new = [finding for finding in report.findings if finding not in seen.findings]
        found = sorted((*seen.findings, *new), key=lambda one: (one.region.line, one.region.column, one.code))
        merged[key] = replace(seen, findings=tuple(found), asked_for=seen.asked_for or report.asked_for)
    return tuple(merged.values())


def _text(content: bytes) -> str:
    """The text whose offsets findings count in; empty if it is none, and then nothing can be repaired."""
    try:
        return content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError:
        return ""


def _save(name: str, before: bytes, after: str, arguments: Namespace, write: Say) -> None:
    if not arguments.fix or arguments.diff:
        return
    if name == "-":
        write(after)
        return
    mark = b"\xef\xbb\xbf" if before.startswith(b"\xef\xbb\xbf") else b""
    fixes.write_file(Path(name), mark + after.encode("utf-8"))


def _write_baseline(path: str, report: Report, complain: Say, failed: bool) -> int:
    try:
        Path(path).write_text(baseline.render(report, path), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write baseline {path}: {error.strerror or error}") from None
    complain(f"{len(report.findings)} findings noted in {path}")
    return FAILED if failed else OK


def _without_known(report: Report, path: str | None) -> tuple[Report, int]:
    if path is None:
        return report, 0
    try:
        return baseline.apply(report, baseline.load(path), path)
    except baseline.BaselineError as error:
        raise UsageError(str(error)) from None


def _render(report: Report, unreadable: dict[str, str], arguments: Namespace, colour: bool, hidden: int) -> str:
    if arguments.format == "json":
        return as_json.render(report, unreadable)
    return as_text.render(report, unreadable, colour=colour, hidden=hidden, verbose=arguments.verbose)


def _job(arguments: Namespace) -> tuple[_Job, dict[str, Any]]:
    settings = _settings(arguments)

    def given(name: str) -> Any:
        flag = getattr(arguments, name.replace("-", "_"))
        return settings.get(name) if flag is None else flag

    try:
        facts = gather(
            world_size=given("world-size"),
            nodes=given("nodes"),
            gpus_per_node=given("gpus-per-node"),
            model_config=given("model-config"),
            environment=os.environ,
            flags=True,
        )
        policy = Policy(
            select=_names(arguments.select) or tuple(settings.get("select", ())),
            ignore=(*settings.get("ignore", ()), *_names(arguments.ignore)),
            per_file_ignores=settings.get("per-file-ignores", {}),
            severities=settings.get("severities", {}),
            lowest=Severity(given("severity") or "info"),
            targets=_targets(given("target")),
        )
    except (FactError, PolicyError) as error:
        raise UsageError(str(error)) from None
    return _Job(facts, policy, given("dialect"), arguments.unsafe_fixes, _beside(arguments)), settings


def _beside(arguments: Namespace) -> tuple[Text, ...]:
    try:
        return tuple(Text(name, Path(name).read_bytes()) for name in arguments.beside)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"--with: {getattr(error, 'filename', '')}: {getattr(error, 'strerror', None) or error}"
        ) from None


def _settings(arguments: Namespace) -> dict[str, Any]:
    if arguments.isolated:
        return {}
    try:
        file = Path(arguments.config) if arguments.config else options.find(Path.cwd())
        return options.load(file) if file else {}
    except options.OptionsError as error:
        raise UsageError(str(error)) from None


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def _targets(texts: list[str] | str | None) -> dict[str, str]:
    """['axolotl==0.19'] -> {'axolotl': '0.19'}."""
    if not texts:
        return {}
    from packaging.version import InvalidVersion, Version

    found = {}
    for text in [texts] if isinstance(texts, str) else texts:
        name, separator, version = text.partition("==")
        try:
            if name.strip() not in ASSUMED or not separator:
                raise InvalidVersion
            found[name.strip()] = str(Version(version.strip()))
        except InvalidVersion:
            known = ", ".join(f"{package}==VERSION" for package in ASSUMED)
            raise UsageError(f"--target must be one of {known}, not {text!r}") from None
    return found
