"""What a rank's process does: open its engine's session once, then run job after job in it."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal

from ndcheck.conformance.cells import Cell
from ndcheck.conformance.engines import Refused, Session, Unrunnable, load_engine
from ndcheck.conformance.faults import seeded
from ndcheck.conformance.noise import cut_sums
from ndcheck.conformance.record import Record
from ndcheck.layout import Layout


@dataclass(frozen=True, slots=True)
class Job:
    """A cell and the circumstances in which it is run.

    ``devices``: the GPU of each rank, empty on the CPU. ``noise``: name of the variant of a baseline, see ``noise``.
    ``phase``: ``save`` trains the first part of a resumed cell and writes ``checkpoint``; ``resume`` reads it.
    """

    cell: Cell
    layout: Layout
    devices: tuple[int, ...]
    fault: str | None
    time_limit: float
    """Seconds."""
    noise: str | None = None
    phase: Literal["run", "save", "resume"] = "run"
    checkpoint: Path | None = None


_open = ExitStack()
_sessions: dict[str, Session] = {}
"""This process's session: one at most, since a rank keeps its layout for life."""


def run_job(job: Job, rank: int, scratch: Path) -> Record | None:
    """Train ``job.cell`` as rank ``rank``, with its fault seeded if it has one."""
    session = _session(job, rank, scratch)
    with seeded(job.fault, job.cell), cut_sums(job.noise):
        if job.phase == "run":
            return session.run(job.cell)
        assert job.checkpoint is not None, "both phases need it"
        if not hasattr(session, "resume"):
            raise Refused(f"the engine {job.cell.engine} cannot resume a run")
        if job.phase == "save":
            session.save(job.cell, job.checkpoint)
            return None
        return session.resume(job.cell, job.checkpoint)


def _session(job: Job, rank: int, scratch: Path) -> Session:
    name = job.cell.engine
    if name not in _sessions:
        import torch

        try:
            engine = load_engine(name)
        except ImportError as error:
            raise Unrunnable(f"the engine {name} cannot be imported: {error}") from error
        device = torch.device("cuda", job.devices[rank]) if job.devices else torch.device("cpu")
        # a collective waits longer than the cell may last: what hangs is then seen to hang, not to raise
        timeout = timedelta(seconds=2 * job.time_limit)
        _sessions[name] = _open.enter_context(engine.open_session(job.layout, rank, scratch, device, timeout))
    return _sessions[name]
