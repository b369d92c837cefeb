"""A cell's records against those of the same work in one process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite

import numpy as np

from ndcheck.conformance.diagnose import explain_gradients
from ndcheck.conformance.record import Array, Record
from ndcheck.conformance.tolerance import Tolerance
from ndcheck.layout import Layout


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where a run first left the baseline."""

    step: int
    """Optimizer step, from 1."""
    quantity: str
    """``mesh``, ``samples``, ``loss``, ``gradient``, ``gradient_norm`` or ``weight``."""
    rank: int
    parameter: str | None = None
    error: float | None = None
    """Relative error, beyond the tolerance."""
    ratio: float | None = None
    """The rank's value, or the norm of its tensor, over the baseline's."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What comparing found; ``divergence`` is None if the run agrees."""

    max_gradient_error: float
    """Largest over ranks and parameters: relative Frobenius error of the gradient at step 1."""
    max_loss_error: float
    """Largest over ranks and steps, relative."""
    divergence: Divergence | None
    reason: str


def compare(layout: Layout, baseline: Record, records: Sequence[Record], tolerance: Tolerance) -> Comparison:
    """Compare every rank of a run with the baseline.

    Each rank is held to the whole baseline, so that a fault in one replica cannot hide behind the others.
    """
    gradient_error = max(error for record in records for error in errors(baseline.gradients, record.gradients).values())
    loss_error = max(
        relative_error(loss, expected)
        for record in records
        for loss, expected in zip(record.losses, baseline.losses, strict=True)
    )
    first, reason = next(_divergences(layout, baseline, records, tolerance), (None, ""))
    return Comparison(gradient_error, loss_error, first, reason)


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


def _divergences(
    layout: Layout, baseline: Record, records: Sequence[Record], tolerance: Tolerance
) -> Iterator[tuple[Divergence, str]]:
    """Every difference beyond the tolerance, in the order in which a run would show it."""
    yield from _mesh(layout, records)
    yield from _samples(baseline, records)
    yield from _gradients(layout, baseline, records, tolerance)
    yield from _scalars(baseline, records, tolerance)
    yield from _weights(baseline, records, tolerance)


def _mesh(layout: Layout, records: Sequence[Record]) -> Iterator[tuple[Divergence, str]]:
    expected = 1 if layout.world_size > 1 else 0
    for record in records:
        if record.mesh_constructions != expected:
            reason = f"rank {record.rank} built {record.mesh_constructions} meshes, not {expected}"
            yield Divergence(1, "mesh", record.rank), reason


def _samples(baseline: Record, records: Sequence[Record]) -> Iterator[tuple[Divergence, str]]:
    """Ranks that differ in dp_replicate or dp_shard share out the baseline's samples; cp and tp peers read the same."""
    for index, expected in enumerate(baseline.samples):
        readers: dict[tuple[int, int], Record] = {}
        for record in records:
            place = (record.coordinates["dp_replicate"], record.coordinates["dp_shard"])
            peer = readers.setdefault(place, record)
            if record.samples[index] != peer.samples[index]:
                reason = (
                    f"step {index + 1}: rank {record.rank} read other samples than its cp or tp peer, rank {peer.rank}"
                )
                yield Divergence(index + 1, "samples", record.rank), reason
        read = sorted(sample for record in readers.values() for sample in record.samples[index])
        if read != sorted(expected):
            missing, extra = sorted(set(expected) - set(read)), sorted(set(read) - set(expected))
            doubled = sorted({sample for sample in read if read.count(sample) > 1})
            reason = f"step {index + 1}: samples missing {missing}, not of this step {extra}, read twice {doubled}"
            yield Divergence(index + 1, "samples", records[0].rank), reason


def _gradients(
    layout: Layout, baseline: Record, records: Sequence[Record], tolerance: Tolerance
) -> Iterator[tuple[Divergence, str]]:
    for record in records:
        found = errors(baseline.gradients, record.gradients)
        wrong = [name for name, error in found.items() if error > tolerance.gradient]
        if wrong:
            ratio = norm_ratio(record.gradients.get(wrong[0]), baseline.gradients.get(wrong[0]))
            reason = explain_gradients(layout, baseline.gradients, record.gradients, wrong, tolerance.gradient)
            where = Divergence(1, "gradient", record.rank, wrong[0], found[wrong[0]], ratio)
            yield where, f"step 1, rank {record.rank}, {wrong[0]}: {reason}"


def _scalars(baseline: Record, records: Sequence[Record], tolerance: Tolerance) -> Iterator[tuple[Divergence, str]]:
    for index in range(len(baseline.losses)):
        for record in records:
            for quantity, values, expected in (
                ("loss", record.losses, baseline.losses),
                ("gradient_norm", record.gradient_norms, baseline.gradient_norms),
            ):
                error = relative_error(values[index], expected[index])
                if error > tolerance.scalar:
                    reason = (
                        f"step {index + 1}, rank {record.rank}: {quantity.replace('_', ' ')} is {values[index]:.6g}, "
                        f"the baseline's {expected[index]:.6g}"
                    )
                    ratio = values[index] / expected[index] if expected[index] else None
                    yield Divergence(index + 1, quantity, record.rank, None, error, ratio), reason


def _weights(baseline: Record, records: Sequence[Record], tolerance: Tolerance) -> Iterator[tuple[Divergence, str]]:
    last = len(baseline.losses)
    for record in records:
        for name, error in errors(baseline.weights, record.weights).items():
            if error > tolerance.gradient:
                ratio = norm_ratio(record.weights.get(name), baseline.weights.get(name))
                reason = f"after step {last}, rank {record.rank}, {name}: relative error {error:.2g} of the weight"
                yield Divergence(last, "weight", record.rank, name, error, ratio), reason


def norm_ratio(found: Array | None, expected: Array | None) -> float | None:
    """Norm of ``found`` over that of ``expected``, None where that says nothing."""
    if found is None or expected is None:
        return None
    scale = float(np.linalg.norm(expected))
    ratio = float(np.linalg.norm(found)) / scale if scale else inf
    return ratio if isfinite(ratio) else None
