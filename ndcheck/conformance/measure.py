"""Distances between what two runs left behind."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isfinite

import numpy as np

from ndcheck.conformance.record import Array


def relative_error(value: float | Array, expected: float | Array) -> float:
    """Norm of the difference over the norm of ``expected``; infinite if anything is not finite, or if only ``expected`` is 0."""
    difference = float(np.linalg.norm(np.asarray(value) - np.asarray(expected)))
    scale = float(np.linalg.norm(np.asarray(expected)))
    if not isfinite(difference) or not isfinite(scale):
        return inf
    if scale == 0:
        return 0.0 if np.array_equal(value, expected) else inf
    return difference / scale


def errors(expected: Mapping[str, Array], found: Mapping[str, Array]) -> dict[str, float]:
    """Parameter -> relative error, in the order of ``expected``; a parameter that only one side has is infinitely wrong."""
    result = {
        name: relative_error(found[name], tensor) if name in found and found[name].shape == tensor.shape else inf
        for name, tensor in expected.items()
    }
    return result | {name: inf for name in found if name not in expected}


def norm_ratio(found: Array | None, expected: Array | None) -> float | None:
    """Norm of ``found`` over that of ``expected``, None where that says nothing."""
    if found is None or expected is None:
        return None
    scale = float(np.linalg.norm(expected))
    ratio = float(np.linalg.norm(found)) / scale if scale else inf
    return ratio if isfinite(ratio) else None
