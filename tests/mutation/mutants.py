"""Wrong versions of every conditional rule, to show that the examples and operand tables tell them from the right one.

    python -m tests.mutation.mutants            # counts, and what survives

A mutant is the rule's condition with one change: a comparison inverted, taken for always true or never,
a bound moved by one, an allowed value left out, "and" for "or", or one side dropped. It is killed if a known case comes
out otherwise. The seed of this project was one inverted comparison that nobody had tested.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from ndcheck.dialects import ALL
from ndcheck.dialects.examples import facts_of, language, whole
from ndcheck.facts import gather
from ndcheck.reader import read
from ndcheck.rules.conditions import Both, Condition, Either, Not, Source, Test
from ndcheck.rules.rule import Rule
from ndcheck.run import Run
from ndcheck.values import Unreadable
from tests.helpers import completed

RULE_TESTS = Path(__file__).parents[1] / "rules"


@dataclass(frozen=True)
class Constant(Condition):
    """Holds always, or never."""

    outcome: bool

    def holds(self, source: Source) -> bool:
        return self.outcome

    def names(self) -> tuple[str, ...]:
        return ()


def mutants(condition: Condition) -> Iterator[Condition]:
    """Every condition that differs in one place."""
    if isinstance(condition, Test):
        yield Not(condition)
        yield Constant(True)
        yield Constant(False)
        yield from _other_operands(condition)
    elif isinstance(condition, Not):
        yield condition.inner
        yield from (Not(inner) for inner in mutants(condition.inner))
    elif isinstance(condition, Both | Either):
        yield (Either if isinstance(condition, Both) else Both)(condition.left, condition.right)
        yield from (replace(condition, left=left) for left in mutants(condition.left))
        yield from (replace(condition, right=right) for right in mutants(condition.right))


def _other_operands(test: Test) -> Iterator[Condition]:
    if test.operator in ("above", "at least"):
        yield replace(test, operand=test.operand + 1)
        yield replace(test, operand=test.operand - 1)
    elif test.operator == "one of":
        yield from (replace(test, operand=test.operand - {word}) for word in sorted(test.operand, key=str))


def cases() -> dict[str, list[tuple[Source, bool]]]:
    """Rule -> configs with the expected outcome: both examples, and the operand tables of the tests."""
    found: dict[str, list[tuple[Source, bool]]] = {rule.name: [] for rule in ALL}
    for rule in ALL:
        if rule.clause is not None:
            for fragment, broken in ((rule.bad, True), (rule.good, False)):
                found[rule.name].append((_subject(rule, whole(rule, fragment), facts_of(rule)), broken))
    by_code = {rule.code: rule for rule in ALL}
    for path in sorted(RULE_TESTS.glob("test_*.py")):
        for code, fragment, broken, *_ in getattr(import_module(f"tests.rules.{path.stem}"), "CASES", ()):
            rule = by_code[code]
            if rule.clause is not None:
                text = completed(fragment) if language(rule, fragment).name == "axolotl" else whole(rule, fragment)
                found[rule.name].append((_subject(rule, text, {}), broken))
    return found


def _subject(rule: Rule[Any], text: str, facts: dict[str, Any]) -> Source:
    dialect = language(rule, text)
    settings = dialect.resolve(read(text).data)
    return dialect.to_run(settings, gather(**facts)) if rule.reads is Run else settings


def survivors(rule: Rule[Any], known: list[tuple[Source, bool]]) -> tuple[int, list[Condition]]:
    """How many mutants the rule has, and those that every known case takes for the rule itself."""
    assert rule.clause is not None
    all_mutants = list(mutants(rule.clause.broken))
    return len(all_mutants), [mutant for mutant in all_mutants if not _killed(mutant, known)]


def _killed(mutant: Condition, known: list[tuple[Source, bool]]) -> bool:
    return any(_holds(mutant, subject) != broken for subject, broken in known)


def _holds(condition: Condition, subject: Source) -> bool:
    try:
        return condition.holds(subject)
    except Unreadable:
        return False


def main() -> None:
    known = cases()
    total, left = 0, 0
    for rule in ALL:
        if rule.clause is None:
            continue
        count, surviving = survivors(rule, known[rule.name])
        total, left = total + count, left + len(surviving)
        for mutant in surviving:
            sys.stdout.write(f"{rule.code} {rule.name}: {mutant}\n")
    sys.stdout.write(f"{total} mutants, {left} survive\n")


if __name__ == "__main__":
    main()
