"""Cells: the points of a matrix."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ndcheck.layout import Layout


@dataclass(frozen=True, slots=True)
class Cell:
    """One run to compare: which engine, under which layout, in which precision."""

    layout: Layout
    engine: str = "reference"
    precision: str = "float64"

    @property
    def id(self) -> str:
        """Stable, readable name: used axes with their degrees, then whatever differs from the defaults."""
        used = [f"{axis}{degree}" for axis, degree in self.layout.degrees().items() if degree > 1]
        parts = ["-".join(used) or "1rank"]
        parts += [self.engine] if self.engine != "reference" else []
        parts += [self.precision] if self.precision != "float64" else []
        return "/".join(parts)

    @property
    def baseline(self) -> Cell:
        """The same work in one process."""
        return replace(self, layout=Layout(), engine="reference")
