"""Cells: the points of a matrix."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

from ndcheck.layout import Layout
from ndcheck.trainer.settings import Settings

DEFAULTS = Settings()

LOADER = ("dispatch_batches", "split_batches", "even_batches", "dataset")
HOW = (
    *(name for name in LOADER if name != "even_batches"),
    "checkpointing",
    "reshard_after_forward",
    "cpu_offload",
    "vocabulary_parallel",
    "loss_parallel",
    "sequence_parallel",
    "cp_slices",
    "cp_exchange",
)
"""Settings that say how the work is done, not which: no part of a baseline."""

_WORDS: dict[tuple[str, Any], str] = {
    ("dispatch_batches", True): "dispatch",
    ("split_batches", True): "split",
    ("even_batches", False): "uneven",
    ("reshard_after_forward", False): "no-reshard",
    ("cpu_offload", True): "offload",
    ("vocabulary_parallel", False): "whole-vocabulary",
    ("loss_parallel", True): "loss-parallel",
    ("sequence_parallel", True): "sequence-parallel",
}
_FIRST = ("dispatch_batches", "split_batches", "even_batches")


@dataclass(frozen=True, slots=True)
class Cell:
    """One run to compare: which engine, under which layout, with which settings.

    ``saved_by``: for a resumed run, the layout that trained the steps before. ``options``: name and value of those options of
    the engine that differ from its defaults, sorted.
    """

    layout: Layout
    engine: str = "reference"
    settings: Settings = field(default=DEFAULTS)
    saved_by: Layout | None = None
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def id(self) -> str:
        """Stable, readable name: used axes with their degrees, then whatever differs from the defaults."""
        parts = [layout_id(self.layout)]
        parts += [self.engine] if self.engine != "reference" else []
        parts += [word(name, value) for name, value in changed(self.settings).items()]
        parts += [name if value is True else f"{name}-{value}" for name, value in self.options]
        parts += [f"from-{layout_id(self.saved_by)}"] if self.saved_by is not None else []
        return "/".join(parts)

    @property
    def baseline(self) -> Cell:
        """The same work in one process."""
        plain = {name: getattr(DEFAULTS, name) for name in HOW}
        return Cell(Layout(), settings=replace(self.settings, **plain))


def as_expected(verdict: str, expected: str) -> bool:
    """Whether a cell did what it should; one that could not run is no surprise either."""
    return verdict in (expected, "skipped")


def layout_id(layout: Layout) -> str:
    """'dp_shard2-tp2', '1rank'."""
    return "-".join(f"{axis}{degree}" for axis, degree in layout.degrees().items() if degree > 1) or "1rank"


def changed(settings: Settings) -> dict[str, Any]:
    """Setting -> value, those that differ from the defaults, the loader's first."""
    names = sorted((entry.name for entry in fields(settings)), key=lambda name: name not in _FIRST)
    values = {name: getattr(settings, name) for name in names}
    return {name: value for name, value in values.items() if value != getattr(DEFAULTS, name)}


def word(name: str, value: Any) -> str:
    """How a setting appears in a cell's name."""
    if (name, value) in _WORDS:
        return _WORDS[name, value]
    if value is True:
        return name
    return value if isinstance(value, str) else f"{name}{value}"
