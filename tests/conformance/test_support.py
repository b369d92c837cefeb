"""The page of what the stack supports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ndcheck.conformance.support import page, spans, verdict

ROOT = Path(__file__).parents[2]
REPORTS = ("2026-12-01-stack-8-ranks-cpu", "2026-12-01-witnesses-4-ranks-cpu")


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
