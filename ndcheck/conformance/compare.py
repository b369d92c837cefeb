"""A cell's records against those of the same work in one process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf

from ndcheck.conformance.diagnose import explain_gradients
from ndcheck.conformance.measure import errors, norm_ratio, relative_error
from ndcheck.conformance.record import Record
from ndcheck.conformance.tolerance import Tolerance
from ndcheck.layout import Layout


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where a run first left the baseline."""

    step: int
    """Optimizer step, from 1."""
    quantity: str
    """``mesh``, ``sharding``, ``samples``, ``tokens``, ``gradient``, ``loss``, ``gradient_norm``, ``weight``, ``evaluated`` or
    ``evaluation_loss``."""
    rank: int
    parameter: str | None = None
    error: float | None = None
    """Relative error, beyond the tolerance."""
    ratio: float | None = None
    """The rank's value, or the norm of its tensor, over the baseline's."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What comparing found; ``divergence`` is None if the run agrees."""

    gradient_errors: Mapping[str, float]
    """Parameter -> relative Frobenius error of its gradient at the first step, the largest over ranks."""
    max_loss_error: float
    """Largest over ranks and steps, relative."""
    divergence: Divergence | None
    reason: str
    seen: frozenset[str]
    """Every quantity that is beyond its tolerance; ``samples`` for rows and tokens."""


def compare(layout: Layout, baseline: Record, records: Sequence[Record], tolerance: Tolerance) -> Comparison:
    """Compare every rank of a run with the baseline.

    Each rank is held to the whole baseline, so that a fault in one replica cannot hide behind the others.
    """
    found = [errors(baseline.gradients, record.gradients) for record in records]
    gradient_errors = {name: max(rank.get(name, inf) for rank in found) for name in dict.fromkeys(chain(*found))}
    loss_error = max(
        relative_error(loss, expected)
        for record in records
        for loss, expected in zip(record.losses, baseline.losses, strict=False)  # a run of fewer steps is told as that
    )
    found_wrong = list(_divergences(layout, baseline, records, tolerance))
    first, reason = found_wrong[0] if found_wrong else (None, "")
    seen = frozenset("samples" if where.quantity == "tokens" else where.quantity for where, _ in found_wrong)
    return Comparison(gradient_errors, loss_error, first, reason, seen)


def _divergences(
    layout: Layout, baseline: Record, records: Sequence[Record], tolerance: Tolerance
) -> Iterator[tuple[Divergence, str]]:
    """Every difference beyond the tolerance, in the order in which a run would show it."""
    yield from _mesh(layout, records)
    yield from _sharding(layout, records)
    yield from _samples(baseline, records)
    yield from _tokens(baseline, records)
    yield from _gradients(layout, baseline, records, tolerance)
    yield from _scalars(baseline, records, tolerance)
    yield from _weights(baseline, records, tolerance)
    yield from _evaluation(baseline, records, tolerance)


def _mesh(layout: Layout, records: Sequence[Record]) -> Iterator[tuple[Divergence, str]]:
    expected = 1 if layout.world_size > 1 else 0
    for record in records:
        if record.mesh_constructions not in (None, expected):
            reason = f"rank {record.rank} built {record.mesh_constructions} meshes, not {expected}"
            yield Divergence(record.first_step, "mesh", record.rank), reason


def _sharding(layout: Layout, records: Sequence[Record]) -> Iterator[tuple[Divergence, str]]:
    """A rank keeps its part of the decoder layers' matrices: what is cut over dp_shard and tp, perhaps over cp as well."""
    parts = layout.dp_shard * layout.tp
    for record in records:
        # with one axis missing it would be twice as much, and pieces may be of unequal size
        if record.held is not None and record.held > 1.5 / parts:
            axes = " x ".join(axis for axis in ("dp_shard", "tp") if getattr(layout, axis) > 1)
            reason = f"rank {record.rank} keeps {record.held:.3g} of the layers' matrices, not 1/{parts} ({axes})"
            error = record.held * parts - 1
            yield Divergence(record.first_step, "sharding", record.rank, error=error, ratio=record.held * parts), reason


def _samples(baseline: Record, records: Sequence[Record]) -> Iterator[tuple[Divergence, str]]:
    """Ranks that differ in dp_replicate or dp_shard share out the baseline's rows; cp and tp peers have the same."""
    made = min(len(record.samples) for record in records)
    for index, expected in enumerate(baseline.samples[:made]):
        step = baseline.first_step + index
        readers: dict[tuple[int, int], Record] = {}
        for record in records:
            peer = readers.setdefault(_data_place(record), record)
            if record.samples[index] != peer.samples[index]:
                reason = f"step {step}: rank {record.rank} read other rows than its cp or tp peer, rank {peer.rank}"
                yield Divergence(step, "samples", record.rank), reason
        read = sorted(sample for record in readers.values() for sample in record.samples[index])
        if read != sorted(expected):
            missing, extra = _difference(expected, read), _difference(read, expected)
            reason = f"step {step}: rows missing {missing}, too often or not of this step {extra}"
            yield Divergence(step, "samples", records[0].rank), reason
    for record in records:
        if len(record.samples) != len(baseline.samples):
            reason = f"rank {record.rank} made {len(record.samples)} steps, the baseline {len(baseline.samples)}"
            yield Divergence(baseline.first_step + made, "samples", record.rank), reason


def _tokens(baseline: Record, records: Sequence[Record]) -> Iterator[tuple[Divergence, str]]:
    """The slices of cp peers tile the row: every token once. tp peers have the same slice."""
    slices: dict[tuple[tuple[int, int], int], dict[int, Record]] = {}
    if baseline.positions is None:
        return
    for record in records:
        if record.positions is None:
            continue  # not told
        peers = slices.setdefault((_data_place(record), record.coordinates["tp"]), {})
        peers[record.coordinates["cp"]] = record
    for peers in slices.values():
        held = sorted(position for record in peers.values() for position in record.positions or ())
        if held != sorted(baseline.positions):
            first = next(iter(peers.values()))
            reason = (
                f"step {first.first_step}: of each row, tokens missing {_difference(baseline.positions, held)}, "
                f"held twice {_difference(held, baseline.positions)} among the cp peers of rank {first.rank}"
            )
            yield Divergence(first.first_step, "tokens", first.rank), reason


def _gradients(
    layout: Layout, baseline: Record, records: Sequence[Record], tolerance: Tolerance
) -> Iterator[tuple[Divergence, str]]:
    for record in records:
        found = errors(baseline.gradients, record.gradients)
        wrong = [name for name, error in found.items() if error > tolerance.gradient.get(name, 0.0)]
        if wrong:
            step, name = record.first_step, wrong[0]
            ratio = norm_ratio(record.gradients.get(name), baseline.gradients.get(name))
            reason = explain_gradients(layout, baseline, record.gradients, wrong, tolerance.gradient)
            where = Divergence(step, "gradient", record.rank, name, found[name], ratio)
            yield where, f"step {step}, rank {record.rank}, {name}: {reason}"


def _scalars(baseline: Record, records: Sequence[Record], tolerance: Tolerance) -> Iterator[tuple[Divergence, str]]:
    for index in range(min(len(record.losses) for record in (baseline, *records))):
        for record in records:
            for quantity, values, expected, limit in (
                ("loss", record.losses, baseline.losses, tolerance.loss),
                ("gradient_norm", record.gradient_norms, baseline.gradient_norms, tolerance.gradient_norm),
            ):
                step = baseline.first_step + index
                yield from _scalar(step, quantity, record.rank, values[index], expected[index], limit)


def _weights(baseline: Record, records: Sequence[Record], tolerance: Tolerance) -> Iterator[tuple[Divergence, str]]:
    last = baseline.first_step + len(baseline.losses) - 1
    for record in records:
        for name, error in errors(baseline.weights, record.weights).items():
            if error > tolerance.weight.get(name, 0.0):
                ratio = norm_ratio(record.weights.get(name), baseline.weights.get(name))
                reason = f"after step {last}, rank {record.rank}, {name}: relative error {error:.2g} of the weight"
                yield Divergence(last, "weight", record.rank, name, error, ratio), reason


def _evaluation(baseline: Record, records: Sequence[Record], tolerance: Tolerance) -> Iterator[tuple[Divergence, str]]:
    last = baseline.first_step + len(baseline.losses) - 1
    for record in records:
        if record.evaluated is not None and baseline.evaluated is not None and record.evaluated != baseline.evaluated:
            missing = _difference(baseline.evaluated, record.evaluated)
            extra = _difference(record.evaluated, baseline.evaluated)
            reason = f"evaluation on rank {record.rank}: rows missing {missing}, counted too often {extra}"
            yield Divergence(last, "evaluated", record.rank), reason
        if baseline.evaluation_loss is not None:
            found = inf if record.evaluation_loss is None else record.evaluation_loss
            yield from _scalar(last, "evaluation_loss", record.rank, found, baseline.evaluation_loss, tolerance.loss)


def _scalar(
    step: int, quantity: str, rank: int, found: float, expected: float, limit: float
) -> Iterator[tuple[Divergence, str]]:
    error = relative_error(found, expected)
    if error > limit:
        name = quantity.replace("_", " ")
        reason = f"step {step}, rank {rank}: {name} is {found:.6g}, the baseline's {expected:.6g}"
        yield Divergence(step, quantity, rank, None, error, found / expected if expected else None), reason


def _data_place(record: Record) -> tuple[int, int]:
    return record.coordinates["dp_replicate"], record.coordinates["dp_shard"]


def _difference(numbers: Sequence[int], others: Sequence[int]) -> list[int]:
    """What ``numbers`` has more often than ``others``, each once."""
    return sorted({number for number in numbers if numbers.count(number) > others.count(number)})
