from __future__ import annotations

from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest

from ndcheck.conformance.compare import Comparison, compare
from ndcheck.conformance.diagnose import explain_rows, name_factor, scale_factor
from ndcheck.conformance.measure import relative_error
from ndcheck.conformance.record import Record
from ndcheck.conformance.tolerance import MULTIPLE, fixed, measured
from ndcheck.layout import Layout

LAYOUT = Layout(dp_shard=2, tp=2)
GRADIENTS = {"embed": np.array([[3.0, 4.0]]), "q": np.array([1.0, 2.0, 2.0]), "norm": np.array([0.5])}
BASELINE = Record(
    rank=0,
    coordinates=Layout().coordinates(0),
    first_step=1,
    positions=(0, 1, 2, 3),
    rows_read=8,
    evaluation_loss=3.0,
    losses=(2.0, 1.5),
    gradient_norms=(5.0, 4.0),
    samples=((0, 1, 2, 3), (4, 5, 6, 7)),
    gradients=GRADIENTS,
    weights={name: 1 + value for name, value in GRADIENTS.items()},
    mesh_constructions=0,
)
TOLERANCE = fixed(BASELINE)


def correct() -> list[Record]:
    """What four ranks leave when all is well: dp_shard is the outer axis."""
    return [
        replace(
            BASELINE,
            rank=rank,
            coordinates=LAYOUT.coordinates(rank),
            samples=((0, 1), (4, 5)) if rank < 2 else ((2, 3), (6, 7)),
            mesh_constructions=1,
        )
        for rank in range(4)
    ]


def judged(records: list[Record]):
    return compare(LAYOUT, BASELINE, records, TOLERANCE)


def largest(found: Comparison) -> float:
    return max(found.gradient_errors.values())


def altered(rank: int, **changes) -> list[Record]:
    records = correct()
    records[rank] = replace(records[rank], **changes)
    return records


def test_a_correct_run_agrees():
    found = judged(correct())
    assert found.divergence is None
    assert (largest(found), found.max_loss_error, found.reason) == (0, 0, "")


def test_rounding_agrees_and_is_reported():
    found = judged(altered(2, gradients=GRADIENTS | {"q": GRADIENTS["q"] * (1 + 1e-13)}))
    assert found.divergence is None
    assert largest(found) == pytest.approx(1e-13, rel=0.01)


def test_every_gradient_doubled_is_the_degree():
    records = [replace(record, gradients={n: 2 * g for n, g in GRADIENTS.items()}) for record in correct()]
    found = compare(Layout(dp_shard=2, cp=4), BASELINE, records, TOLERANCE)
    assert found.divergence is not None
    assert (found.divergence.step, found.divergence.quantity, found.divergence.parameter) == (1, "gradient", "embed")
    assert found.divergence.ratio == pytest.approx(2)
    assert found.divergence.error == pytest.approx(1)
    assert found.reason == "step 1, rank 0, embed: all 3 gradients are 2.00x the baseline (= dp_shard)"


def test_the_first_wrong_parameter_in_forward_order_is_named():
    found = judged(altered(0, gradients=GRADIENTS | {"norm": GRADIENTS["norm"] / 2, "q": GRADIENTS["q"] / 2}))
    assert found.divergence is not None
    assert found.divergence.parameter == "q"
    assert found.reason == "step 1, rank 0, q: 2 of 3 gradients (norm, q) are 0.50x the baseline (= 1/dp_shard or 1/tp)"


def test_a_fault_in_one_rank_is_seen():
    found = judged(altered(3, gradients=GRADIENTS | {"norm": -GRADIENTS["norm"]}))
    assert found.divergence is not None
    assert (found.divergence.rank, found.divergence.parameter) == (3, "norm")
    assert "1 of 3 gradients (norm) is -1.00x the baseline" in found.reason


def test_a_wrong_direction_is_told_with_norm_and_error():
    """(0, 5) against (3, 4): same norm 5, difference (-3, 1) of norm sqrt(10)."""
    found = judged(altered(0, gradients=GRADIENTS | {"embed": np.array([[0.0, 5.0]])}))
    assert "norm 1.00x the baseline, relative error 0.63" in found.reason
    assert largest(found) == pytest.approx(10**0.5 / 5)


@pytest.mark.parametrize("bad", [nan, inf])
def test_what_is_not_finite_diverges(bad):
    found = judged(altered(1, gradients=GRADIENTS | {"norm": np.array([bad])}))
    assert found.divergence is not None
    assert largest(found) == inf
    assert judged(altered(1, losses=(2.0, bad))).divergence is not None


def test_a_parameter_on_one_side_only_diverges():
    for gradients in ({"embed": GRADIENTS["embed"], "q": GRADIENTS["q"]}, GRADIENTS | {"extra": np.ones(1)}):
        found = judged(altered(0, gradients=gradients))
        assert found.divergence is not None
        assert "missing or has another shape" in found.reason
    found = judged(altered(0, gradients=GRADIENTS | {"q": np.ones((2, 2))}))
    assert found.divergence is not None


@pytest.mark.parametrize(
    ("changes", "quantity", "step", "words"),
    [
        ({"losses": (2.0, 1.5001)}, "loss", 2, "loss is 1.5001, the baseline's 1.5"),
        ({"gradient_norms": (5.1, 4.0)}, "gradient_norm", 1, "gradient norm is 5.1, the baseline's 5"),
        ({"weights": BASELINE.weights | {"q": np.zeros(3)}}, "weight", 2, "q: relative error 1 of the weight"),
        ({"evaluation_loss": 3.1}, "evaluation_loss", 2, "evaluation loss is 3.1, the baseline's 3"),
        ({"samples": ((2, 3),)}, "samples", 2, "rank 2 made 1 steps, the baseline 2"),
        ({"positions": (0, 1, 2, 2)}, "tokens", 1, "tokens missing [3], held twice [2] among the cp peers of rank 2"),
        ({"mesh_constructions": 2}, "mesh", 1, "rank 2 built 2 meshes, not 1"),
        ({"samples": ((0, 1), (4, 5))}, "samples", 1, "rank 3 read other rows than its cp or tp peer, rank 2"),
    ],
)
def test_each_quantity_is_held_to_the_baseline(changes, quantity, step, words):
    found = judged(altered(2, **changes))
    assert found.divergence is not None
    assert (found.divergence.quantity, found.divergence.step) == (quantity, step)
    assert words in found.reason


def test_samples_lost_or_doubled_are_listed():
    records = [
        replace(record, samples=((0, 1), (4, 5)) if record.rank < 2 else ((1, 9), (6, 7))) for record in correct()
    ]
    found = judged(records)
    assert found.divergence is not None
    assert found.divergence.quantity == "samples"
    assert found.reason == "step 1: rows missing [2, 3], too often or not of this step [1, 9]"


def test_relative_error_worked_out_by_hand():
    assert relative_error(np.array([3.0, 4.0]), np.array([3.0, 4.0])) == 0
    assert relative_error(np.array([3.0, 5.0]), np.array([3.0, 4.0])) == pytest.approx(0.2)
    assert relative_error(0.0, 0.0) == 0
    assert relative_error(1e-300, 0.0) == inf


@pytest.mark.parametrize(
    ("layout", "factor", "name"),
    [
        (Layout(dp_shard=2), 2.0, "dp_shard"),
        (Layout(dp_shard=2), 0.5, "1/dp_shard"),
        (Layout(dp_shard=2, tp=2), 2.0, "dp_shard or tp"),
        (Layout(dp_shard=2, tp=4), 8.0, "dp_shard x tp"),
        (Layout(dp_shard=2, tp=4), 1 / 8, "1/(dp_shard x tp)"),
        (Layout(dp_shard=2, cp=2, tp=4), 4.0, "tp"),
        (Layout(dp_shard=2), 1.7, ""),
    ],
)
def test_a_factor_is_named_after_degrees(layout, factor, name):
    assert name_factor(layout, factor) == name


def test_only_a_multiple_has_a_factor():
    assert scale_factor(np.array([1.0, 2.0]), np.array([3.0, 6.0]), 1e-10) == pytest.approx(3)
    assert scale_factor(np.array([1.0, 2.0]), np.array([3.0, 6.1]), 1e-10) is None
    assert scale_factor(np.zeros(2), np.ones(2), 1e-10) is None


def test_slices_of_cp_peers_tile_the_row():
    layout = Layout(cp=2)
    halves = [(0, 3), (1, 2)]
    records = [
        replace(BASELINE, rank=rank, coordinates=layout.coordinates(rank), positions=halves[rank], mesh_constructions=1)
        for rank in range(2)
    ]
    assert compare(layout, BASELINE, records, TOLERANCE).divergence is None
    records[1] = replace(records[1], positions=(2, 3))
    found = compare(layout, BASELINE, records, TOLERANCE)
    assert found.reason == ("step 1: of each row, tokens missing [1], held twice [3] among the cp peers of rank 0")


ROWS = {4: np.array([1.0, 0.0, 0.0, 2.0]), 5: np.array([0.0, 1.0, 0.0, 3.0]), 6: np.array([0.0, 0.0, 1.0, 4.0])}


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ((1, 1, 0), "row 6 counts 0.00x"),
        ((1, 2, 1), "row 5 counts 2.00x"),
        ((0, 0, 1), "rows 4 to 5 count 0.00x"),
        ((-1e-6, 0, 1), "rows 4 to 5 count 0.00x"),  # as some processors round
        ((1, 1, 1), ""),
        ((0.5, 2, 3), ""),
    ],
)
def test_rows_that_count_too_little_or_too_much_are_named(weights, words):
    base = replace(BASELINE, row_parameter="norm", row_gradients=ROWS)
    found = sum(weight * gradient for weight, gradient in zip(weights, ROWS.values(), strict=True))
    assert explain_rows(base, {"norm": found}, 1e-10) == words


def test_what_is_no_sum_of_rows_is_not_explained_by_them():
    base = replace(BASELINE, row_parameter="norm", row_gradients=ROWS)
    assert explain_rows(base, {"norm": np.array([1.0, 1.0, 1.0, 8.0])}, 1e-10) == ""
    assert explain_rows(BASELINE, {"norm": np.ones(4)}, 1e-10) == ""


def test_a_measured_tolerance_is_a_multiple_of_the_noise_of_each_tensor():
    noisy = replace(BASELINE, gradients=GRADIENTS | {"q": GRADIENTS["q"] * 1.01}, losses=(2.0, 1.5003))
    quiet = replace(BASELINE, gradients=GRADIENTS | {"norm": GRADIENTS["norm"] * 1.1})
    found = measured(BASELINE, [noisy, quiet], "bfloat16")
    assert found.gradient["q"] == pytest.approx(MULTIPLE * 0.01)
    assert found.gradient["norm"] == pytest.approx(MULTIPLE * 0.1)
    assert found.gradient["embed"] == MULTIPLE * 2**-9, "no narrower than the arithmetic"
    assert found.loss == pytest.approx(MULTIPLE * 2e-4)
