"""How a rule is declared: once, with everything that the check, the messages and the pages need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from ndcheck.document import Document
from ndcheck.findings import Fix, Severity, Violation, notes
from ndcheck.pairing import Driven, Launched
from ndcheck.rules.conditions import Condition, Source
from ndcheck.run import Run
from ndcheck.settings import Settings
from ndcheck.values import Value

Subject = TypeVar("Subject", Document, Settings, Run, Launched, Driven)
Check = Callable[[Subject], Iterable[Violation]]


class Clause(NamedTuple):
    """A rule as data, from which a JSON Schema clause can be made as well: ``broken`` is its negation.

    ``names`` in the order in which the finding looks for a key to stand at; ``message`` may name them in braces.
    """

    broken: Condition
    names: tuple[str, ...]
    message: str
    fix: Fix | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(Generic[Subject]):
    """One constraint.

    ``code`` and ``name`` are stable. ``reads`` is what ``check`` is given: the Document (the text
    itself), the Settings (a dialect's own words), the Run (neutral words), or two Runs that belong together. ``bad`` breaks the rule
    and nothing else, ``good`` is its nearest legal neighbour; both are YAML fragments that stand on
    a minimal config (that of their dialect), under the facts in ``given``, whose ``beside`` is a file of the same run. ``unchecked`` says that the
    framework itself lets the mistake pass. ``versions`` is the range of framework versions for which
    the rule holds, as a requirement (``axolotl<0.19``); empty means all.
    """

    code: str
    name: str
    severity: Severity
    summary: str
    why: str
    reads: type[Subject]
    check: Check[Subject]
    evidence: str
    bad: str
    good: str
    given: Mapping[str, Any] = field(default_factory=dict)
    clause: Clause | None = None
    unchecked: bool = False
    versions: str = ""


def rule(
    code: str,
    severity: Severity,
    reads: type[Subject],
    *,
    evidence: str,
    bad: str,
    good: str,
    given: Mapping[str, Any] | None = None,
    unchecked: bool = False,
    versions: str = "",
) -> Callable[[Check[Subject]], Rule[Subject]]:
    """Declare a rule as a function: its name is the rule's, its docstring the summary and the reason."""

    def declare(check: Check[Subject]) -> Rule[Subject]:
        summary, _, why = (check.__doc__ or "").strip().partition("\n\n")
        return Rule(
            code=code,
            name=check.__name__.replace("_", "-"),
            severity=severity,
            summary=" ".join(summary.split()),
            why=" ".join(why.split()),
            reads=reads,
            check=check,
            evidence=evidence,
            bad=bad,
            good=good,
            given=given or {},
            unchecked=unchecked,
            versions=versions,
        )

    return declare


def conditional(
    code: str,
    name: str,
    severity: Severity,
    reads: type[Subject],
    *,
    summary: str,
    why: str,
    when: Condition,
    then: Condition | None = None,
    message: str,
    fix: Fix | None = None,
    evidence: str,
    bad: str,
    good: str,
    given: Mapping[str, Any] | None = None,
    unchecked: bool = False,
    versions: str = "",
) -> Rule[Subject]:
    """Declare a rule as a condition: where ``when`` holds, ``then`` must hold; without ``then``, ``when`` must not.

    The finding stands at the first key of ``then`` that the user wrote, else at the first of
    ``when``; every other key that takes part is noted. ``message`` may name keys in braces, with
    ``{key}`` replaced by key and value.
    """
    broken = when if then is None else when & ~then
    names = (then.names() if then else ()) + when.names()

    def check(subject: Subject) -> Iterable[Violation]:
        source: Source = subject  # type: ignore[assignment]
        if not broken.holds(source):
            return
        values: dict[str, Value[Any] | None] = {key: source.value(key) for key in dict.fromkeys(names)}
        written = [value for value in values.values() if value is not None and value.path is not None]
        first = written[0] if written else None
        yield Violation(
            path=first.path or () if first else (),
            message=_fill(message, values),
            notes=notes(*(value for value in written[1:] if value.readable)),
            fix=fix,
        )

    return Rule(
        code=code,
        name=name,
        severity=severity,
        summary=summary,
        why=why,
        reads=reads,
        check=check,
        evidence=evidence,
        bad=bad,
        good=good,
        given=given or {},
        clause=Clause(broken, tuple(dict.fromkeys(names)), message, fix),
        unchecked=unchecked,
        versions=versions,
    )


def _fill(message: str, values: Mapping[str, Value[Any] | None]) -> str:
    for key, value in values.items():
        # the rule may hold whatever a value of the wrong type was meant to be
        told = f"{key} (unset)" if value is None else str(value) if value.readable else key
        message = message.replace(f"{{{key}}}", told)
    return message
