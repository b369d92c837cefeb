"""How far a correct layout may be from one process: only sums are reordered, so it depends on the precision.

In float64 one limit serves all: measured on all layouts of 2, 4 and 8 ranks, correct ones are within 6e-15 and the mildest seeded
fault is beyond 1e-6. In the other precisions the limit is a small multiple of the noise of the baseline itself (``noise.py``), per
tensor: how much rounding shows in a gradient differs from tensor to tensor by orders of magnitude.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ndcheck.conformance.measure import errors, relative_error
from ndcheck.conformance.record import Record

FLOAT64 = 1e-10
MULTIPLE = 4.0
"""Of the band: the variants sample the noise, and the largest of a few samples is not the largest there is."""
ROUNDING = {"float32": 2.0**-24, "bfloat16": 2.0**-9, "mixed": 2.0**-9}
"""Unit round-off of the arithmetic: no band is narrower, however lucky the samples were."""


@dataclass(frozen=True)
class Tolerance:
    """Largest relative error that still counts as agreement. Gradients and weights: parameter -> error."""

    gradient: Mapping[str, float]
    weight: Mapping[str, float]
    loss: float
    """At every step, and of the evaluation."""
    gradient_norm: float
    """At every step."""


def fixed(baseline: Record) -> Tolerance:
    """The tolerance in float64."""
    each = dict.fromkeys(baseline.gradients, FLOAT64)
    return Tolerance(each, each, FLOAT64, FLOAT64)


def measured(baseline: Record, variants: Sequence[Record], precision: str) -> Tolerance:
    """The tolerance from the same work with its sums cut and reordered, ``variants`` of the baseline."""
    least = ROUNDING[precision]
    return Tolerance(
        _worst(baseline.gradients, [errors(baseline.gradients, variant.gradients) for variant in variants], least),
        _worst(baseline.weights, [errors(baseline.weights, variant.weights) for variant in variants], least),
        # a loss is a mean in float32 over all label tokens: its own round-off is that of float32
        MULTIPLE * max(ROUNDING["float32"], *(_scalars(baseline.losses, other.losses) for other in variants)),
        MULTIPLE * max(least, *(_scalars(baseline.gradient_norms, other.gradient_norms) for other in variants)),
    )


def _worst(names: Mapping[str, object], found: Sequence[Mapping[str, float]], least: float) -> dict[str, float]:
    return {name: MULTIPLE * max(least, *(variant[name] for variant in found)) for name in names}


def _scalars(expected: Sequence[float], found: Sequence[float]) -> float:
    return max(relative_error(value, right) for value, right in zip(found, expected, strict=True))
