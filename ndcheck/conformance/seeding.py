"""Seeding a fault: patch the trainer while a cell runs. The faults themselves are in ``faults.py``.

A fault is a function that is given ``patch(target, wrap)``: ``target`` names a function of ``ndcheck.trainer`` as
``module.function`` (or a method, as ``module.Class.method``), ``wrap`` turns the original into its faulty version. A fault is
called what its function is called; the docstring describes it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from ndcheck.conformance.cells import DEFAULTS, Cell
from ndcheck.layout import Layout
from ndcheck.trainer.settings import Precision

Function: TypeAlias = Callable[..., Any]
Patch: TypeAlias = Callable[[str, Callable[[Function], Function]], None]
Install: TypeAlias = Callable[[Patch, Cell], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """A bug that can be seeded.

    It shows in cells in which one of ``axes`` (all of them, if ``every``) has more than one rank, whose settings are
    ``settings`` where those say something, and whose layout is not one of those that ``hidden`` names.
    """

    name: str
    description: str
    axes: tuple[str, ...]
    every: bool
    settings: Mapping[str, Any]
    resumed: bool
    hidden: Callable[[Layout], bool]
    install: Install

    def touches(self, cell: Cell) -> bool:
        """Whether the fault changes a run of ``cell``."""
        used = [axis in cell.layout.mesh_axes for axis in self.axes]
        return (
            (all(used) if self.every else any(used))
            and all(getattr(cell.settings, name) == value for name, value in self.settings.items())
            and (cell.saved_by is not None or not self.resumed)
            and not self.hidden(cell.layout)
        )

    def example(self, precision: Precision = "float64") -> Cell:
        """The smallest cell that it touches."""
        axes = self.axes if self.every else self.axes[-1:]
        layout = Layout(**dict.fromkeys(axes, 2))
        settings = replace(DEFAULTS, precision=precision, **self.settings)
        return Cell(layout, settings=settings, saved_by=layout if self.resumed else None)


FAULTS: dict[str, Fault] = {}
"""Name -> fault."""

ANY = ("tp", "cp", "dp_replicate", "dp_shard")
DATA = ("dp_replicate", "dp_shard")


def fault(
    *axes: str,
    every: bool = False,
    resumed: bool = False,
    hidden: Callable[[Layout], bool] = lambda layout: False,
    **settings: Any,
) -> Callable[[Install], Install]:
    """Enter the decorated function into ``FAULTS``; see ``Fault``."""

    def enter(install: Install) -> Install:
        description = " ".join((install.__doc__ or "").split())
        name = install.__name__
        FAULTS[name] = Fault(name, description, axes, every, settings, resumed, hidden, install)
        return install

    return enter


@contextmanager
def seeded(name: str | None, cell: Cell) -> Iterator[None]:
    """Patch the trainer with fault ``name`` (None: no fault) while active, if it touches ``cell``."""
    with ExitStack() as undo:

        def patch(target: str, wrap: Callable[[Function], Function]) -> None:
            module_name, *path, attribute = target.split(".")
            holder: Any = importlib.import_module(f"ndcheck.trainer.{module_name}")
            for part in path:
                holder = getattr(holder, part)
            original = holder.__dict__[attribute]
            undo.callback(setattr, holder, attribute, original)
            setattr(holder, attribute, wrap(original))

        if name is not None and FAULTS[name].touches(cell):
            FAULTS[name].install(patch, cell)
        yield


def instead(function: Function) -> Callable[[Function], Function]:
    """Wrap by forgetting the original."""
    return lambda original: function
