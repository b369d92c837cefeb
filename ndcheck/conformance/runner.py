"""Run cells: each on a team of ranks, compared with its baseline."""

from __future__ import annotations

import hashlib
import pickle
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ndcheck.conformance.cells import Cell, as_expected
from ndcheck.conformance.compare import Divergence, compare
from ndcheck.conformance.faults import FAULTS
from ndcheck.conformance.noise import VARIANTS
from ndcheck.conformance.pool import Failure, Pool, Team
from ndcheck.conformance.record import Record
from ndcheck.conformance.slots import Lock, Slots
from ndcheck.conformance.tolerance import Tolerance, fixed, measured
from ndcheck.conformance.worker import Job, run_job
from ndcheck.layout import Layout

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
    max_loss_error: float | None = None
    first_divergence: Divergence | None = None
    losses: tuple[float, ...] = ()
    gradient_errors: dict[str, float] = field(default_factory=dict)
    seen: frozenset[str] = frozenset()
    """Every quantity that is beyond its tolerance."""
    rows: tuple[tuple[int, ...], ...] = ()
    """Rank -> the rows that it had in the first step."""
    shims: tuple[str, ...] = ()
    """What was done to the software under test so that it runs here."""

    @property
    def as_expected(self) -> bool:
        """Whether the cell did what it should; a cell that could not run is no surprise either."""
        return as_expected(self.verdict, self.expected)

    @property
    def max_gradient_error(self) -> float | None:
        """Largest over ranks and parameters; None if nothing was compared."""
        return max(self.gradient_errors.values(), default=None)


@dataclass(frozen=True, slots=True)
class Baseline:
    """One process's work, and how far others may be from it. ``record`` is what rank 0 left behind."""

    cell: Cell
    record: Record
    tolerance: Tolerance
    seconds: float


Rank = Callable[[Job, int, Path], Record | None]


@dataclass
class Runner:
    """Runs cells, one at a time, on ``ranks`` ranks at most.

    ``device_type``: "cpu" or "cuda". ``fault``: name of a fault to seed, or None. ``time_limit``: seconds per cell.
    ``folder``: shared by all processes of a matrix run; baselines and device locks are kept there.
    ``rank_main``: what every rank of a cell runs.
    """

    pool: Pool
    ranks: int
    device_type: str
    fault: str | None
    time_limit: float
    folder: Path
    rank_main: Rank = run_job
    slots: Slots = field(init=False)
    _team: Team | None = field(init=False, default=None)
    _of: tuple[str, Layout] | None = field(init=False, default=None)
    _devices: tuple[int, ...] = field(init=False, default=())
    _baselines: dict[Cell, Baseline | Failure] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.slots = Slots(self.folder / "devices", self.ranks)

    def run(self, cell: Cell, expected: str = "agrees") -> Result:
        """Run ``cell``, and its baseline before it unless that has been done."""
        expected = self.expected(cell, expected)
        needed = max(cell.layout.world_size, cell.saved_by.world_size if cell.saved_by is not None else 1)
        if needed > self.ranks:
            return Result(cell, "skipped", expected, 0.0, f"needs {needed} ranks, there are {self.ranks}")
        baseline = self.baseline(cell.baseline)
        if isinstance(baseline, Failure):
            return Result(cell, baseline.kind, expected, 0.0, f"baseline: {baseline.reason}", baseline.details)
        start = time.monotonic()
        outcome = self._records(cell)
        seconds = time.monotonic() - start
        if isinstance(outcome, Failure):
            return Result(cell, outcome.kind, expected, seconds, outcome.reason, outcome.details)
        found = compare(cell.layout, baseline.record, outcome, baseline.tolerance)
        return Result(
            cell,
            "diverges" if found.divergence else "agrees",
            expected,
            seconds,
            found.reason,
            max_loss_error=found.max_loss_error,
            first_divergence=found.divergence,
            losses=outcome[0].losses,
            gradient_errors=dict(found.gradient_errors),
            seen=found.seen,
            rows=tuple(record.samples[0] if record.samples else () for record in outcome),
            shims=outcome[0].shims,
        )

    def close(self) -> None:
        """End the ranks that are kept warm, and give their devices back."""
        if self._team is not None:
            self._team.end()
        self.slots.release()
        self._team, self._of, self._devices = None, None, ()

    def expected(self, cell: Cell, usual: str) -> str:
        """What a cell should come to: ``usual``, unless a fault is seeded that touches it."""
        return "diverges" if self.fault is not None and FAULTS[self.fault].touches(cell) else usual

    def baseline(self, cell: Cell) -> Baseline | Failure:
        """The work of one process. Of several processes that want the same one, the first computes it."""
        if cell not in self._baselines:
            folder = self.folder / "baselines"
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{hashlib.sha256(repr(cell).encode()).hexdigest()[:16]}.pickle"
            if not path.exists():
                self.close()  # whoever computes it may be waiting for the devices that are held here
            with Lock(path.with_suffix(".lock")):
                if not path.exists():
                    _write(path, self._compute_baseline(cell))
                # written by this run, into a folder of its own
                self._baselines[cell] = pickle.loads(path.read_bytes())
        return self._baselines[cell]

    def known_baseline(self, cell: Cell) -> Baseline | None:
        """The baseline of ``cell``, if this process has it."""
        known = self._baselines.get(cell.baseline)
        return known if isinstance(known, Baseline) else None

    def _compute_baseline(self, cell: Cell) -> Baseline | Failure:
        start = time.monotonic()
        outcome = self._run(cell, cell.layout, fault=None)
        if isinstance(outcome, Failure):
            return outcome
        record = outcome[0]
        variants = []
        for name in VARIANTS if cell.settings.precision != "float64" else ():
            other = self._run(cell, cell.layout, fault=None, noise=name)
            if isinstance(other, Failure):
                return other
            variants.append(other[0])
        tolerance = measured(record, variants, cell.settings.precision) if variants else fixed(record)
        self.close()  # its device may be one that the cell needs
        return Baseline(cell, record, tolerance, time.monotonic() - start)

    def _records(self, cell: Cell) -> list[Any] | Failure:
        if cell.saved_by is None:
            return self._run(cell, cell.layout, self.fault)
        checkpoint = Path(tempfile.mkdtemp(prefix="checkpoint-", dir=self.folder))
        try:
            saved = self._run(cell, cell.saved_by, self.fault, phase="save", checkpoint=checkpoint)
            if isinstance(saved, Failure):
                return saved
            return self._run(cell, cell.layout, self.fault, phase="resume", checkpoint=checkpoint)
        finally:
            shutil.rmtree(checkpoint, ignore_errors=True)

    def _run(self, cell: Cell, layout: Layout, fault: str | None, **job: Any) -> list[Any] | Failure:
        """Run one job on the layout's team: the warm one, if it is this layout's."""
        if self._of != (cell.engine, layout) or self._team is None or not self._team.alive:
            self.close()
            self._devices = self.slots.acquire(layout.world_size)
            self._team, self._of = self.pool.team(layout.world_size), (cell.engine, layout)
        devices = self._devices if self.device_type == "cuda" else ()
        task = partial(self.rank_main, Job(cell, layout, devices, fault, self.time_limit, **job))
        return self._team.run(task, self.time_limit)


def _write(path: Path, value: Baseline | Failure) -> None:
    part = path.with_suffix(".part")
    part.write_bytes(pickle.dumps(value))
    part.replace(path)


def gpu_count(pool: Pool) -> int | Failure:
    """GPUs that torch sees: asked in a rank, so that this process needs no torch. Also starts the fork server."""
    outcome = pool.run(count_gpus, 1, START_SECONDS)
    return outcome if isinstance(outcome, Failure) else outcome[0]


def count_gpus(rank: int, scratch: Path) -> int:
    """The task of ``gpu_count``."""
    import torch

    return torch.cuda.device_count()
