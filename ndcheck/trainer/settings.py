"""Settings of one training run, and whether a layout can carry them."""

from __future__ import annotations

from dataclasses import dataclass

from ndcheck.layout import Layout

PRECISIONS = ("float64", "float32", "bfloat16")
"""Types that weights, activations and gradients can have, widest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is trained, apart from how it is laid out over ranks.

    Every number describes the whole run: a layout must never change what is learnt.
    """

    family: str = "llama"
    """Model family: a key of ``model.FAMILIES``."""

    precision: str = "float64"
    """One of ``PRECISIONS``."""

    steps: int = 3
    """Optimizer steps."""

    global_batch: int = 16
    """Samples per optimizer step, over all data ranks."""

    micro_batches: int = 2
    """Forward and backward passes per optimizer step on each rank (gradient accumulation)."""

    sequence_length: int = 64
    """Tokens per sample."""

    learning_rate: float = 0.1
    """Of plain SGD: AdamW would hide a gradient that is wrong by a factor."""

    seed: int = 0
    """Of the weights and of the data."""

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision {self.precision!r} is not one of {', '.join(PRECISIONS)}")
        for field in ("steps", "global_batch", "micro_batches", "sequence_length"):
            if getattr(self, field) < 1:
                raise ValueError(f"{field} must be at least 1, not {getattr(self, field)}")

    def per_rank_batch(self, layout: Layout) -> int:
        """Samples that one data rank reads per optimizer step."""
        return self.global_batch // layout.data_ranks


def check_fits(settings: Settings, layout: Layout, *, heads: int, kv_heads: int) -> None:
    """Raise ValueError, naming field and value, if ``layout`` cannot train ``settings`` on such a model."""
    for axis in ("ep", "pp"):
        degree = getattr(layout, axis)
        if degree > 1:
            raise ValueError(f"{axis} {degree}: the reference trainer has no {axis} axis, set it to 1")
    pieces = layout.data_ranks * settings.micro_batches
    if settings.global_batch % pieces:
        raise ValueError(
            f"global_batch {settings.global_batch} does not split into {layout.data_ranks} data ranks "
            f"x {settings.micro_batches} micro_batches = {pieces} equal parts"
        )
    if settings.sequence_length % layout.cp:
        raise ValueError(f"sequence_length {settings.sequence_length} does not split into cp {layout.cp} equal slices")
    for name, count in (("attention heads", heads), ("key-value heads", kv_heads)):
        if count % layout.tp:
            raise ValueError(f"tp {layout.tp} does not divide the model's {count} {name}")
