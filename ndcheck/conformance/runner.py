"""Run a matrix: cells in, results out, one at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ndcheck.conformance.cells import Cell
from ndcheck.conformance.compare import Divergence, compare
from ndcheck.conformance.faults import FAULTS
from ndcheck.conformance.pool import Failure, Pool, Task
from ndcheck.conformance.record import Record
from ndcheck.conformance.tolerance import TOLERANCES
from ndcheck.conformance.worker import Job, run_job

START_SECONDS = 300.0
"""Time for the fork server to import torch, on a cold disk."""

VERDICTS = ("agrees", "diverges", "crashes", "hangs", "refused", "skipped")


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a cell."""

    cell: Cell
    verdict: str
    """One of ``VERDICTS``."""
    expected: str
    """The verdict that was expected."""
    seconds: float
    """Wall clock, without the baseline."""
    reason: str = ""
    details: str = ""
    max_gradient_error: float | None = None
    max_loss_error: float | None = None
    first_divergence: Divergence | None = None

    @property
    def as_expected(self) -> bool:
        """Whether the cell did what it should; a cell that could not run is no surprise either."""
        return self.verdict in (self.expected, "skipped")


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs cells on ``ranks`` ranks of ``device_type`` ("cpu" or "cuda"), with ``fault`` seeded if it is not None.

    ``time_limit``: seconds per cell. ``rank_main``: what every rank of a cell runs.
    """

    pool: Pool
    ranks: int
    device_type: str
    fault: str | None
    time_limit: float
    rank_main: Callable[[Job, int, Path], Record] = run_job

    def run(self, cells: Sequence[Cell]) -> Iterator[Result]:
        """One result per cell, in order, as they come."""
        baselines: dict[Cell, Record | Failure] = {}
        for cell in cells:
            if cell.layout.world_size > self.ranks:
                reason = f"needs {cell.layout.world_size} ranks, there are {self.ranks}"
                yield Result(cell, "skipped", self.expected(cell), 0.0, reason)
                continue
            if cell.baseline not in baselines:
                baselines[cell.baseline] = self.baseline(cell.baseline)
            yield self.judge(cell, baselines[cell.baseline])

    def expected(self, cell: Cell) -> str:
        """What a cell should come to: agreement, unless a fault is seeded that touches its layout."""
        return "diverges" if self.fault is not None and FAULTS[self.fault].touches(cell.layout) else "agrees"

    def baseline(self, cell: Cell) -> Record | Failure:
        """The record of one process."""
        outcome = self.pool.run(self._task(cell, fault=None), 1, self.time_limit)
        return outcome if isinstance(outcome, Failure) else outcome[0]

    def judge(self, cell: Cell, baseline: Record | Failure) -> Result:
        """Run ``cell`` and compare it with its baseline."""
        expected = self.expected(cell)
        if isinstance(baseline, Failure):
            return Result(cell, baseline.kind, expected, 0.0, f"baseline: {baseline.reason}", baseline.details)
        start = time.monotonic()
        outcome = self.pool.run(self._task(cell, self.fault), cell.layout.world_size, self.time_limit)
        seconds = time.monotonic() - start
        if isinstance(outcome, Failure):
            return Result(cell, outcome.kind, expected, seconds, outcome.reason, outcome.details)
        found = compare(cell.layout, baseline, outcome, TOLERANCES[cell.precision])
        return Result(
            cell,
            "diverges" if found.divergence else "agrees",
            expected,
            seconds,
            found.reason,
            max_gradient_error=found.max_gradient_error,
            max_loss_error=found.max_loss_error,
            first_divergence=found.divergence,
        )

    def _task(self, cell: Cell, fault: str | None) -> Task[Record]:
        return partial(self.rank_main, Job(cell, self.device_type, fault, self.time_limit))


def gpu_count(pool: Pool) -> int | Failure:
    """GPUs that torch sees: asked in a rank, so that this process needs no torch. Also starts the fork server."""
    outcome = pool.run(count_gpus, 1, START_SECONDS)
    return outcome if isinstance(outcome, Failure) else outcome[0]


def count_gpus(rank: int, scratch: Path) -> int:
    """The task of ``gpu_count``."""
    import torch

    return torch.cuda.device_count()
