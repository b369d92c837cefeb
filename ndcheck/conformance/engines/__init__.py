"""Engines: what trains a cell.

An engine is a module with a function ``open_session(layout, rank, scratch, device, timeout)``: a context manager, entered once
in the life of a rank's process. What it yields trains cells of that layout, one after the other: see ``Session``.

Ours are listed here; a package of others brings its own by an entry point of the group ``ndcheck.engines``, whose name is the
engine's and whose value is such a module.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Protocol

from ndcheck.conformance.cells import Cell
from ndcheck.conformance.record import Record

GROUP = "ndcheck.engines"
"""Group of the entry points."""

OURS: Mapping[str, str] = {
    name: f"ndcheck.conformance.engines.{name}" for name in ("reference", "accelerate", "trainer", "transformers")
}
"""Engine -> its module, imported only in ranks: every engine needs torch."""


class Refused(Exception):  # noqa: N818 - a verdict, not an error
    """The engine will not train this cell, and says why."""


class Unrunnable(Exception):  # noqa: N818 - a verdict, not an error
    """The cell cannot be run here, whatever the engine would do: what is missing, and where it could be run."""


class Session(Protocol):
    """A rank of an engine, connected to the others.

    An engine that cannot resume a run leaves ``save`` and ``resume`` out.
    """

    def run(self, cell: Cell) -> Record:
        """Train ``cell``, start to end. Raises Refused if the engine says no before training, Unrunnable."""

    def save(self, cell: Cell, folder: Path) -> None:
        """Train ``cell`` up to the step at which it is interrupted, and save into ``folder``."""

    def resume(self, cell: Cell, folder: Path) -> Record:
        """Train the rest of ``cell`` from what ``save`` left in ``folder``."""


@cache
def engines() -> Mapping[str, str]:
    """Engine -> its module: ours, and those of installed packages. Nothing is imported."""
    others = {point.name: point.value for point in entry_points(group=GROUP)}
    return others | dict(OURS)


def load_engine(name: str) -> ModuleType:
    """Import an engine."""
    return importlib.import_module(engines()[name])
