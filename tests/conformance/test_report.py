from __future__ import annotations

import json
import os
from math import inf
from pathlib import Path

import pytest

from ndcheck.conformance import report
from ndcheck.conformance.cells import Cell
from ndcheck.conformance.compare import Divergence
from ndcheck.conformance.runner import Result
from ndcheck.layout import Layout

GOOD = Result(Cell(Layout(dp_shard=2)), "agrees", "agrees", 1.23456, "", "", 1e-15, 0.0)
BAD = Result(
    Cell(Layout(dp_replicate=2, dp_shard=2, cp=2)),
    "diverges",
    "agrees",
    2.0,
    "step 1, rank 0, model.layers.0.self_attn.q_proj.weight: " + "all is wrong and more than that " * 5,
    "",
    inf,
    0.1,
    Divergence(1, "gradient", 0, "model.layers.0.self_attn.q_proj.weight", inf, 2.0),
)
SKIPPED = Result(Cell(Layout(tp=8)), "skipped", "agrees", 0.0, "needs 8 ranks, there are 4")
ENVIRONMENT = report.environment(device_type="cpu", ranks=4, matrix="smoke.yaml", fault=None, time_limit=120)


def test_json_has_the_promised_shape():
    content = json.loads(json.dumps(report.to_json([GOOD, BAD, SKIPPED], ENVIRONMENT, 3.0), allow_nan=False))
    assert content["version"] == 1
    assert content["environment"]["device"] == "cpu"
    assert set(content["cells"][0]) >= {
        "id", "engine", "layout", "dispatch_batches", "split_batches", "precision", "verdict", "seconds",
        "max_gradient_error", "max_loss_error", "first_divergence", "reason",
    }  # fmt: skip
    good, bad, skipped = content["cells"]
    assert good["layout"] == {"dp_replicate": 1, "dp_shard": 2, "cp": 1, "tp": 1, "ep": 1, "pp": 1}
    assert (good["id"], good["verdict"], good["max_gradient_error"], good["reason"]) == (
        "dp_shard2",
        "agrees",
        1e-15,
        None,
    )
    assert good["first_divergence"] is None
    assert bad["max_gradient_error"] is None, "JSON has no infinity"
    assert bad["first_divergence"]["parameter"] == "model.layers.0.self_attn.q_proj.weight"
    assert bad["first_divergence"]["ratio"] == 2
    assert skipped["max_loss_error"] is None
    totals = content["totals"]
    assert (totals["cells"], totals["agrees"], totals["diverges"], totals["skipped"]) == (3, 1, 1, 1)
    assert totals["unexpected"] == 1


def test_the_table_fits_a_terminal_and_says_what_was_expected():
    lines = [
        report.HEADER,
        *report.row(GOOD),
        *report.row(BAD),
        *report.row(SKIPPED),
        *report.summary([GOOD, BAD, SKIPPED], 3),
    ]
    assert max(map(len, lines)) <= 100
    assert "    expected: agrees" in report.row(BAD)
    assert len(report.row(GOOD)) == 1
    assert lines[-2:] == [
        "3 cells in 3 s: agrees 1, diverges 1, skipped 1; not as expected: 1",
        "largest gradient error inf; tolerance 1e-10 in float64",
    ]


def test_columns_line_up():
    place = report.HEADER.index("verdict")
    assert report.row(GOOD)[0][place:].startswith("agrees")
    assert report.row(BAD)[0][place:].startswith("diverges")


def test_a_report_is_whole_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "deep" / "matrix.json"
    report.write_json({"version": 1}, path)
    assert json.loads(path.read_text()) == {"version": 1}
    with pytest.raises(ValueError, match="not JSON compliant"):
        report.write_json({"version": inf}, path)

    def fail(*_: object) -> None:
        raise OSError("no")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no"):
        report.write_json({"version": 2}, path)
    assert json.loads(path.read_text()) == {"version": 1}
    assert [file.name for file in path.parent.iterdir()] == ["matrix.json"]
