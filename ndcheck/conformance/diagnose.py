"""What kind of wrong: does a factor explain the gradients, and is it a degree of the layout?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import prod

import numpy as np

from ndcheck.conformance.record import Array
from ndcheck.layout import Layout


def explain_gradients(
    layout: Layout, expected: Mapping[str, Array], found: Mapping[str, Array], wrong: Sequence[str], tolerance: float
) -> str:
    """One phrase about the gradients in ``wrong``, the parameters that are beyond ``tolerance`` in forward order."""
    first = wrong[0]
    if first not in found or first not in expected or found[first].shape != expected[first].shape:
        return "the parameter is missing or has another shape on one side"
    ratios = {name: scale_factor(expected[name], found[name], tolerance) for name in wrong if name in found}
    factor = ratios[first]
    if factor is None:
        scale = float(np.linalg.norm(expected[first]))
        ratio, error = np.linalg.norm(found[first]) / scale, np.linalg.norm(found[first] - expected[first]) / scale
        return (
            f"gradient differs in direction (norm {ratio:.2f}x the baseline, relative error {error:.2g}); "
            f"{_share(len(wrong), len(expected))} wrong"
        )
    same = [name for name, other in ratios.items() if other is not None and np.isclose(other, factor, rtol=1e-6)]
    meaning = name_factor(layout, factor)
    text = f"{_share(len(same), len(expected))} {factor:.2f}x the baseline" + (f" (= {meaning})" if meaning else "")
    return text if len(same) == len(wrong) else f"{text}, {len(wrong) - len(same)} more wrong otherwise"


def scale_factor(expected: Array, found: Array, tolerance: float) -> float | None:
    """c such that ``found`` = c x ``expected`` up to ``tolerance``, None if there is no such number."""
    square = float(np.vdot(expected, expected))
    if square == 0 or found.shape != expected.shape or not np.all(np.isfinite(found)):
        return None
    factor = float(np.vdot(expected, found)) / square
    rest = float(np.linalg.norm(found - factor * expected)) / square**0.5
    return factor if rest <= tolerance * max(1.0, abs(factor)) else None


def name_factor(layout: Layout, factor: float) -> str:
    """Which degrees, or products of degrees, equal ``factor`` or its inverse: 'dp_shard or tp', '1/cp', ''."""
    names = []
    for size in range(1, len(layout.mesh_axes) + 1):
        for axes in combinations(layout.mesh_axes, size):
            degree = prod(getattr(layout, axis) for axis in axes)
            if np.isclose(factor, degree, rtol=1e-6):
                names.append(" x ".join(axes))
            elif np.isclose(factor, 1 / degree, rtol=1e-6):
                names.append(f"1/({' x '.join(axes)})" if size > 1 else f"1/{axes[0]}")
        if names:
            break  # the simplest explanation
    return " or ".join(names)


def _share(count: int, total: int) -> str:
    if count == total:
        return f"all {total} gradients are"
    return f"{count} of {total} gradients {'is' if count == 1 else 'are'}"
