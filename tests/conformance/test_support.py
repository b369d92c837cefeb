"""The page of what the stack supports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ndcheck.conformance.foretell import foretold, off_diagonal
from ndcheck.conformance.matrix import load_matrix
from ndcheck.conformance.support import page, spans, verdict

ROOT = Path(__file__).parents[2]
REPORTS = ("2026-12-03-stack-8-ranks-cpu", "2026-12-03-witnesses-4-ranks-cpu")


def reports() -> list[dict]:
    return [json.loads((ROOT / "reports" / name / "matrix.json").read_text()) for name in REPORTS]


def test_the_page_is_that_of_the_committed_reports():
    assert (ROOT / "docs" / "support.md").read_text() == page(reports())


def test_nothing_in_the_committed_reports_is_a_surprise_or_without_a_reason():
    for report in reports():
        assert report["totals"]["unexpected"] == report["totals"]["skipped"] == 0
        unexplained = [
            cell["id"]
            for cell in report["cells"]
            if cell["verdict"] != "agrees" and not (cell["rules"] or cell["because"])
        ]
        assert unexplained == []


@pytest.mark.parametrize(
    ("rows", "text"), [([], "none"), ([3], "3"), ([0, 1, 2, 8, 9], "0-2 8-9"), ([4, 0, 1], "4 0-1"), ([1, 1], "1 1")]
)
def test_rows_are_told_as_spans(rows, text):
    assert spans(rows) == text


def test_a_divergence_names_its_rule_or_its_quantity():
    cell = {"verdict": "diverges", "rules": ["dispatch-splits-mesh"], "first_divergence": {"quantity": "samples"}}
    assert verdict(cell) == "**diverges** (dispatch-splits-mesh)"
    assert verdict(cell | {"rules": None}) == "**diverges** (samples)"
    assert verdict(cell | {"verdict": "refused"}) == "refused"


def test_every_cell_beside_the_diagonal_has_a_reason():
    """Foretold and agreeing, or not foretold and not agreeing: the page says why, or which note speaks of it."""
    cells = [cell for report in reports() for cell in report["cells"]]
    beside = off_diagonal(cells)
    assert 0 < len(beside) < len(cells) / 10
    assert [cell["id"] for cell in beside if not (cell["because"] or cell["rules"])] == []


def test_what_the_reports_say_of_a_cell_is_what_the_matrix_and_the_rules_say_today():
    for name, report, ranks in zip(("stack.yaml", "witnesses.yaml"), reports(), (8, 4), strict=True):
        plans = {plan.cell.id: plan for plan in load_matrix(name).cells(ranks)}
        assert set(plans) == {cell["id"] for cell in report["cells"]}
        for cell in report["cells"]:
            plan = plans[cell["id"]]
            assert (cell["expected"], tuple(cell["rules"] or ()), cell["because"] or "") == (
                plan.expected,
                plan.rules,
                plan.because,
            )
            assert (cell["foretold"] or {}) == foretold(plan.cell)


def test_a_rule_that_a_matrix_names_is_broken_by_the_cell():
    for report in reports():
        for cell in report["cells"]:
            assert set(cell["rules"] or ()) <= set(cell["foretold"] or {}), cell["id"]
