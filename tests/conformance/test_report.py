from __future__ import annotations

import json
import os
from math import inf
from pathlib import Path

import pytest

from ndcheck.conformance import report
from ndcheck.conformance.cells import Cell
from ndcheck.conformance.compare import Divergence
from ndcheck.conformance.journal import Journal
from ndcheck.conformance.runner import Result
from ndcheck.layout import Layout
from ndcheck.trainer.settings import Settings

GOOD = Result(
    Cell(Layout(dp_shard=2), settings=Settings(dispatch_batches=True, family="qwen3")),
    "agrees",
    "agrees",
    1.23456,
    max_loss_error=0.0,
    losses=(6.0, 5.5),
    gradient_errors={"embed": 1e-15},
)
BAD = Result(
    Cell(Layout(dp_replicate=2, dp_shard=2, cp=2)),
    "diverges",
    "agrees",
    2.0,
    "step 1, rank 0, embed: all | is wrong",
    "",
    0.1,
    Divergence(1, "gradient", 0, "embed", inf, 2.0),
    (6.0, inf),
    {"embed": inf},
)
SKIPPED = Result(Cell(Layout(tp=8)), "skipped", "agrees", 0.0, "needs 8 ranks, there are 4")
ENVIRONMENT = report.environment(
    device_type="cpu", ranks=4, matrix="smoke.yaml", fault=None, time_limit=120, started="2026-12-01T00:00:00Z"
)


def content() -> dict:
    return report.to_json([report.cell(result) for result in (GOOD, BAD, SKIPPED)], [], ENVIRONMENT, 3.0)


def test_tracebacks_do_not_tell_where_packages_lie():
    root = Path(report.__file__).parents[2]
    text = f'  File "{root}/ndcheck/x.py", line 1\n  File "/a/lib/python3.11/site-packages/torch/y.py", line 2, in "/kept/z"'
    assert report.portable(text) == '  File "ndcheck/x.py", line 1\n  File "torch/y.py", line 2, in "/kept/z"'


def test_json_has_the_promised_shape():
    found = json.loads(json.dumps(content(), allow_nan=False))
    assert found["version"] == 1
    assert found["environment"]["device"] == "cpu"
    assert set(found["cells"][0]) >= {
        "id", "engine", "layout", "dispatch_batches", "split_batches", "precision", "verdict", "seconds",
        "max_gradient_error", "max_loss_error", "first_divergence", "reason",
    }  # fmt: skip
    good, bad, skipped = found["cells"]
    assert good["layout"] == {"dp_replicate": 1, "dp_shard": 2, "cp": 1, "tp": 1, "ep": 1, "pp": 1}
    assert (good["id"], good["verdict"], good["reason"]) == ("dp_shard2/dispatch/qwen3", "agrees", None)
    assert (good["dispatch_batches"], good["split_batches"], good["settings"]) == (True, False, {"family": "qwen3"})
    assert good["baseline"] == "1rank/qwen3"
    assert good["rerun"] == "ndcheck matrix --gpus 4 --matrix smoke.yaml -k 'dp_shard2/dispatch/qwen3'"
    assert bad["max_gradient_error"] is None, "JSON has no infinity"
    assert (bad["losses"], bad["gradient_errors"]) == ([6.0, None], {"embed": None})
    assert bad["first_divergence"]["ratio"] == 2
    assert skipped["max_loss_error"] is None
    totals = found["totals"]
    assert (totals["cells"], totals["agrees"], totals["diverges"], totals["skipped"]) == (3, 1, 1, 1)
    assert totals["unexpected"] == 1


def test_a_few_lines_say_what_came_of_it():
    assert report.summary(content()) == [
        "3 cells in 3 s: agrees 1, diverges 1, skipped 1; not as expected: 1",
        "float64: largest gradient error of a cell that agrees 1.0e-15 (limit 1e-10)",
    ]


def test_markdown_is_a_table_whose_cells_cannot_break_it():
    lines = report.markdown(content()).splitlines()
    assert lines[-3] == "| dp_shard2/dispatch/qwen3 | agrees | 1.0e-15 | 0.0e+00 | 1.2 |"
    assert "**diverges**, not agrees: step 1, rank 0, embed: all \\| is wrong" in lines[-2]


def test_files_are_whole_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    report.write(tmp_path / "deep", content())
    assert {path.name for path in (tmp_path / "deep").iterdir()} == {"matrix.json", "matrix.md", "index.html"}
    path = tmp_path / "file"
    report.replace_file(path, "old")

    def fail(*_: object) -> None:
        raise OSError("no")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no"):
        report.replace_file(path, "new")
    assert path.read_text() == "old"
    assert {file.name for file in tmp_path.iterdir()} == {"deep", "file"}


def test_a_journal_passes_over_other_runs_and_broken_lines(tmp_path: Path):
    path = tmp_path / "new" / "journal.jsonl"
    Journal(path, "one").add({"cell": {"id": "a"}, "baseline": None})
    Journal(path, "two").add({"cell": {"id": "b"}, "baseline": None})
    with path.open("a") as file:
        file.write('{"run": "one", "cell": {"id"')
    assert Journal(path, "one").ids() == ["a"]
    assert Journal(path, "two").ids() == ["b"]
    Journal(path, "one").clear()
    assert Journal(path, "two").ids() == []


def test_results_of_other_runs_have_another_fingerprint():
    prints = {
        report.fingerprint(*facts) for facts in [(4, "cpu", None), (8, "cpu", None), (4, "cuda", None), (4, "cpu", "x")]
    }
    assert len(prints) == 4
