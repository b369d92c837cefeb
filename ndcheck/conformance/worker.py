"""What a rank's process does for one cell."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import cast

from ndcheck.conformance.cells import Cell
from ndcheck.conformance.engines import ENGINES
from ndcheck.conformance.faults import seeded
from ndcheck.conformance.record import Record


@dataclass(frozen=True, slots=True)
class Job:
    """A cell and the circumstances in which it is run."""

    cell: Cell
    device_type: str
    fault: str | None
    time_limit: float
    """Seconds."""


def run_job(job: Job, rank: int, scratch: Path) -> Record:
    """Train ``job.cell`` as rank ``rank``, with its fault seeded if it has one."""
    engine = importlib.import_module(ENGINES[job.cell.engine])
    # a collective waits longer than the cell may last: what hangs is then seen to hang, not to raise
    timeout = timedelta(seconds=2 * job.time_limit)
    with seeded(job.fault, job.cell.layout):
        return cast(Record, engine.run(job.cell, rank, scratch, job.device_type, timeout))
