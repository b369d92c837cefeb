"""Cells of a matrix against one torchrun for each, in turn on the same machine, doing the same work.

``python -m tests.benchmarks.cells``: for each layout, its four loader modes under torchrun (a fresh process group and
fresh imports each), then the same four as the matrix runs them. Prints the time per cell, the ratio, and the slope of time
against number of cells.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from ndcheck.conformance.cells import DEFAULTS, Cell
from ndcheck.conformance.pool import Pool
from ndcheck.conformance.runner import Runner, gpu_count
from ndcheck.layout import Layout
from ndcheck.trainer.settings import Settings

LAYOUTS = {
    2: [Layout(dp_replicate=2), Layout(dp_shard=2), Layout(cp=2), Layout(tp=2)],
    8: [
        Layout(dp_shard=8),
        Layout(dp_replicate=2, dp_shard=4),
        Layout(dp_shard=4, tp=2),
        Layout(dp_shard=2, cp=2, tp=2),
        Layout(dp_replicate=2, cp=2, tp=2),
    ],
}
MODES = [
    replace(DEFAULTS, dispatch_batches=dispatch, split_batches=split)
    for dispatch, split in itertools.product([False, True], repeat=2)
]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, nargs="*", default=[2, 8], choices=list(LAYOUTS))
    parser.add_argument("--one-cell", metavar="JSON", help="what each rank under torchrun does")
    options = parser.parse_args()
    if options.one_cell:
        one_cell(json.loads(options.one_cell))
        return
    for ranks in options.ranks:
        measure(ranks)


def measure(ranks: int) -> None:
    """Every layout of ``ranks`` ranks, torchrun and ours in turn."""
    torchrun: list[float] = []
    ours: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        pool = Pool()
        gpu_count(pool)  # starts the server, once for all cells
        runner = Runner(pool, ranks, "cpu", None, 600.0, Path(folder))
        runner.baseline(Cell(Layout()))
        for layout in LAYOUTS[ranks]:
            theirs = [_timed(lambda cell=cell: run_torchrun(cell)) for cell in _cells(layout)]
            mine = [_timed(lambda cell=cell: run_warm(runner, cell)) for cell in _cells(layout)]
            runner.close()
            _say(f"{layout!s:>36}: torchrun {np.mean(theirs):5.1f} s a cell, ours {np.mean(mine):5.2f} s")
            torchrun += theirs
            ours += mine
    _say(f"{ranks} ranks: {len(ours)} cells, {np.sum(torchrun) / np.sum(ours):.1f} times faster")
    elapsed = np.cumsum(ours)
    numbers = np.arange(1, len(ours) + 1)
    slope, start = np.polyfit(numbers, elapsed, 1)
    straight = np.corrcoef(numbers, elapsed)[0, 1] ** 2
    _say(
        f"  time = {start:.2f} s + {slope:.2f} s x cells (R^2 {straight:.4f}); one torchrun {np.mean(torchrun):.1f} s\n"
    )


def run_torchrun(cell: Cell) -> None:
    """One cell as users run it today."""
    what = json.dumps({"layout": cell.layout.degrees(), "settings": asdict(cell.settings)})
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(cell.layout.world_size)]
    command = [*launcher, "--master-port", "0", "-m", "tests.benchmarks.cells", "--one-cell", what]
    with tempfile.TemporaryDirectory() as scratch:
        environment = os.environ | {"NDCHECK_SCRATCH": scratch, "OMP_NUM_THREADS": "1"}
        subprocess.run(command, check=True, env=environment, capture_output=True)


def one_cell(what: dict) -> None:
    """Train one cell as a rank that torchrun has started."""
    from datetime import timedelta

    import torch

    from ndcheck.conformance.engines.reference import open_session

    torch.set_num_threads(1)
    layout, scratch = Layout(**what["layout"]), Path(os.environ["NDCHECK_SCRATCH"])
    with open_session(layout, int(os.environ["RANK"]), scratch, torch.device("cpu"), timedelta(minutes=5)) as session:
        session.run(Cell(layout, settings=Settings(**what["settings"])))


def run_warm(runner: Runner, cell: Cell) -> None:
    """One cell as the matrix runs it, comparison included."""
    result = runner.run(cell)
    assert result.verdict == "agrees", result.reason


def _cells(layout: Layout) -> list[Cell]:
    return [Cell(layout, settings=settings) for settings in MODES]


def _timed(work) -> float:
    start = time.monotonic()
    work()
    return time.monotonic() - start


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
