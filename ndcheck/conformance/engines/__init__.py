"""Engines: what trains a cell.

An engine is a module with a function ``open_session(layout, rank, scratch, device, timeout)``: a context manager, entered once
in the life of a rank's process. What it yields trains cells of that layout, one after the other: see ``Session``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from ndcheck.conformance.cells import Cell
from ndcheck.conformance.record import Record

ENGINES: Mapping[str, str] = {"reference": "ndcheck.conformance.engines.reference"}
"""Engine -> its module, imported only in ranks: every engine needs torch."""


class Refused(Exception):  # noqa: N818 - a verdict, not an error
    """The engine will not train this cell, and says why."""


class Session(Protocol):
    """A rank of an engine, connected to the others."""

    def run(self, cell: Cell) -> Record:
        """Train ``cell``, start to end. Raises Refused if the engine says no before training."""

    def save(self, cell: Cell, folder: Path) -> None:
        """Train ``cell`` up to the step at which it is interrupted, and save into ``folder``."""

    def resume(self, cell: Cell, folder: Path) -> Record:
        """Train the rest of ``cell`` from what ``save`` left in ``folder``."""
