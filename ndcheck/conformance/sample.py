"""A sample of a matrix in which every two values still meet: a hundred cells tell most of what the full product would."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from ndcheck.conformance.matrix import Planned, point

Pair = tuple[tuple[str, Any], tuple[str, Any]]


def pairwise(planned: Sequence[Planned]) -> list[Planned]:
    """Some of ``planned``, in its order: any two values of engine, layout, setting and option that meet in one of its cells
    meet in one of these.

    Greedy: the cell that shows most pairs not seen yet comes next, the earlier of two as good.
    """
    shown = [pairs(plan) for plan in planned]
    missing = set().union(*shown)
    chosen: set[int] = set()
    while missing:
        best = max(range(len(planned)), key=lambda index: len(shown[index] & missing))
        chosen.add(best)
        missing -= shown[best]
    return [plan for index, plan in enumerate(planned) if index in chosen]


def pairs(plan: Planned) -> set[Pair]:
    """Every two of a cell's values, each with the name of what it is a value of."""
    values = {"layout": plan.cell.layout, "saved_by": plan.cell.saved_by, **point(plan.cell)}
    named = [(name, value) for name, value in values.items() if name not in plan.cell.layout.degrees()]
    return set(combinations(named, 2))
