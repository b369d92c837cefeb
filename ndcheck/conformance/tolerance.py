"""How far a correct layout may be from one process: only sums are reordered, so it depends on the precision alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Largest relative error that still counts as agreement."""

    gradient: float
    """Of each parameter's gradient at step 1, and of each final weight: Frobenius norm of the difference over that of the baseline."""

    scalar: float
    """Of the loss and of the gradient norm, at every step."""


TOLERANCES: Mapping[str, Tolerance] = {
    # Correct layouts of 2 to 8 ranks lie within 3e-15, the mildest seeded fault beyond 1e-3: five orders of magnitude of room each way.
    "float64": Tolerance(gradient=1e-10, scalar=1e-10),
}
"""Precision -> tolerance. A precision that is not here has no verdict yet."""
