"""Run rules over one config and collect what they say."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ndcheck.facts import FactMissing
from ndcheck.findings import Violation
from ndcheck.rules.rule import Rule
from ndcheck.values import Unreadable


class Verdicts(NamedTuple):
    """What the rules said: violations in catalogue order, and fact -> rules that had to stay silent without it."""

    violations: list[tuple[Rule[Any], Violation]]
    not_run: dict[str, list[Rule[Any]]]


def judge(rules: Iterable[Rule[Any]], *subjects: object) -> Verdicts:
    """Give every rule the subject that it reads. A rule whose subject is not among them does not run."""
    by_type: dict[type, Any] = {type(subject): subject for subject in subjects}
    violations: list[tuple[Rule[Any], Violation]] = []
    not_run: dict[str, list[Rule[Any]]] = {}
    for rule in rules:
        if rule.reads not in by_type:
            continue
        try:
            violations.extend((rule, violation) for violation in rule.check(by_type[rule.reads]))
        except FactMissing as missing:
            not_run.setdefault(missing.fact, []).append(rule)
        except Unreadable:
            continue  # the wrong type is a finding of its own
    return Verdicts(violations, not_run)
