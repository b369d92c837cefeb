"""The page of releases side by side."""

from __future__ import annotations

import json
from pathlib import Path

from ndcheck.conformance.versions import page, pair

ROOT = Path(__file__).parents[2]
RELEASES = sorted(
    (ROOT / "reports/2026-12-03-stack-releases").glob("*.json"),
    key=lambda path: [tuple(map(int, part.split("."))) for part in path.stem.split("-")],
    reverse=True,
)


def cell(name: str, verdict: str, reason: str = "") -> dict:
    return {
        "id": name,
        "engine": "trainer",
        "layout": {"tp": 2},
        "dispatch_batches": False,
        "split_batches": True,
        "settings": {},
        "verdict": verdict,
        "reason": reason,
    }


def report(transformers: str, *cells: dict) -> dict:
    verdicts = [one["verdict"] for one in cells]
    totals = {name: verdicts.count(name) for name in ("agrees", "diverges", "crashes", "hangs", "refused", "skipped")}
    where = {"accelerate": "1.0", "transformers": transformers, "torch": "2.13.0"}
    return {"environment": where, "cells": list(cells), "totals": totals}


def test_the_page_is_that_of_the_committed_reports():
    reports = [json.loads(path.read_text()) for path in RELEASES]
    assert len({pair(report) for report in reports}) == len(reports) >= 4
    assert (ROOT / "docs/versions.md").read_text() == page(reports)


def test_only_cells_that_differ_are_listed_and_reasons_are_counted_once():
    text = page(
        [
            report("6.0", cell("a", "agrees"), cell("b", "agrees")),
            report("5.0", cell("a", "agrees"), cell("b", "crashes", "rank 3 raised TypeError: no such thing; more")),
        ]
    )
    assert "1 cell have the same verdict" not in text
    assert "1 cell has the same verdict under all. The others:" in text
    assert "| trainer, tp 2, no dispatch, split, map | agrees | crashes |" in text
    assert "- 1 cell: raised TypeError: no such thing" in text
