"""Every wrong version of a conditional rule is told from the right one by a known case."""

from __future__ import annotations

from ndcheck.dialects import ALL
from tests.mutation.mutants import cases, survivors


def test_no_mutant_survives() -> None:
    known = cases()
    conditional = [rule for rule in ALL if rule.clause is not None]
    outcomes = {rule.name: survivors(rule, known[rule.name]) for rule in conditional}
    assert sum(count for count, _ in outcomes.values()) > 2000
    assert {name: left for name, (_, left) in outcomes.items() if left} == {}
