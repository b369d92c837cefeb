"""What kind of wrong: which factor, which degree, which module, whose rows?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import prod

import numpy as np

from ndcheck.conformance.record import Array, Record
from ndcheck.layout import Layout

EXACT = 1e-6
"""Factors are told apart to this, or to the tolerance if that is larger."""


def explain_gradients(
    layout: Layout, baseline: Record, found: Mapping[str, Array], wrong: Sequence[str], tolerance: Mapping[str, float]
) -> str:
    """One phrase about the gradients in ``wrong``, the parameters that are beyond ``tolerance`` in forward order."""
    expected, first = baseline.gradients, wrong[0]
    if first not in found or first not in expected or found[first].shape != expected[first].shape:
        return "the parameter is missing or has another shape on one side"
    known = [name for name in wrong if name in found and name in expected]
    ratios = {name: scale_factor(expected[name], found[name], tolerance[name]) for name in known}
    factor, limit = ratios[first], max(EXACT, tolerance[first])
    if factor is None:
        return _direction(baseline, found, wrong, limit)
    same = [name for name, other in ratios.items() if other is not None and np.isclose(other, factor, rtol=limit)]
    meaning = name_factor(layout, factor, limit)
    text = f"{_share(same, expected)} {factor:.2f}x the baseline" + (f" (= {meaning})" if meaning else "")
    return text if len(same) == len(wrong) else f"{text}, {len(wrong) - len(same)} more wrong otherwise"


def _direction(baseline: Record, found: Mapping[str, Array], wrong: Sequence[str], limit: float) -> str:
    first = wrong[0]
    scale = float(np.linalg.norm(baseline.gradients[first]))
    ratio = np.linalg.norm(found[first]) / scale
    error = np.linalg.norm(found[first] - baseline.gradients[first]) / scale
    rows = explain_rows(baseline, found, limit)
    return (
        f"gradient differs in direction (norm {ratio:.2f}x the baseline, relative error {error:.2g}); "
        f"{_share(wrong, baseline.gradients)} wrong" + (f"; {rows}" if rows else "")
    )


def scale_factor(expected: Array, found: Array, tolerance: float) -> float | None:
    """c such that ``found`` = c x ``expected`` up to ``tolerance``, None if there is no such number."""
    square = float(np.vdot(expected, expected))
    if square == 0 or found.shape != expected.shape or not np.all(np.isfinite(found)):
        return None
    factor = float(np.vdot(expected, found)) / square
    rest = float(np.linalg.norm(found - factor * expected)) / square**0.5
    return factor if rest <= tolerance * max(1.0, abs(factor)) else None


def name_factor(layout: Layout, factor: float, tolerance: float = EXACT) -> str:
    """Which degrees, or products of degrees, equal ``factor`` or its inverse: 'dp_shard or tp', '1/cp', ''."""
    names = []
    for size in range(1, len(layout.mesh_axes) + 1):
        for axes in combinations(layout.mesh_axes, size):
            degree = prod(getattr(layout, axis) for axis in axes)
            if np.isclose(factor, degree, rtol=tolerance):
                names.append(" x ".join(axes))
            elif np.isclose(factor, 1 / degree, rtol=tolerance):
                names.append(f"1/({' x '.join(axes)})" if size > 1 else f"1/{axes[0]}")
        if names:
            break  # the simplest explanation
    return " or ".join(names)


def explain_rows(baseline: Record, found: Mapping[str, Array], tolerance: float) -> str:
    """Which rows count too little or too much: 'rows 8 to 15 count 0.00x'; '' if that is not what is wrong.

    A gradient is the sum of its rows' gradients g_i, which the baseline has kept for one parameter. If what
    was found is a sum of c_i g_i, least squares give the c_i.
    """
    name = baseline.row_parameter
    if name is None or name not in found or not np.all(np.isfinite(found[name])):
        return ""
    rows, target = list(baseline.row_gradients), found[name].ravel()
    columns = np.stack([baseline.row_gradients[row].ravel() for row in rows], axis=1)
    weights, *_ = np.linalg.lstsq(columns, target, rcond=None)
    if np.linalg.norm(columns @ weights - target) > max(tolerance, 1e-8) * np.linalg.norm(target):
        return ""
    # + 0.0: a weight of nearly none may be less than none
    off = {
        row: round(float(weight), 3) + 0.0 for row, weight in zip(rows, weights, strict=True) if abs(weight - 1) > 1e-3
    }
    groups: dict[float, list[int]] = {}
    for row, weight in off.items():
        groups.setdefault(weight, []).append(row)
    if not groups or len(groups) > len(rows) // 2:
        return ""  # as many weights as rows explain nothing
    return ", ".join(
        f"{_rows(numbers)} count{'s' * (len(numbers) == 1)} {_weight(weight)}x" for weight, numbers in groups.items()
    )


def _weight(weight: float) -> str:
    """Two decimals, three where two would say 1.00."""
    return f"{weight:.2f}" if abs(weight - 1) >= 0.005 else f"{weight:.3f}"


def _rows(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"row {numbers[0]}"
    if list(numbers) == list(range(numbers[0], numbers[-1] + 1)):
        return f"rows {numbers[0]} to {numbers[-1]}"
    return f"rows {', '.join(map(str, numbers))}"


def _share(names: Sequence[str], expected: Mapping[str, Array]) -> str:
    count, total = len(names), len(expected)
    if count == total:
        return f"all {total} gradients are"
    kinds = {".".join(name.split(".")[-2:]) for name in names}
    only = f" ({', '.join(sorted(kinds))})" if len(kinds) <= 3 else ""
    return f"{count} of {total} gradients{only} {'is' if count == 1 else 'are'}"
