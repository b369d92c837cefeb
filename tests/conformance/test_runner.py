"""Cells end to end, on ranks."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from ndcheck.conformance.cells import Cell
from ndcheck.conformance.faults import FAULTS
from ndcheck.conformance.runner import Result, Runner
from ndcheck.layout import Layout
from tests.conformance.ranks import Sabotage


def outcomes(results: Iterable[Result]) -> dict[str, tuple[str, str]]:
    return {result.cell.id: (result.verdict, result.reason) for result in results}


def test_a_cell_that_fails_costs_only_itself(pool, time_limit):
    sabotage = Sabotage({"dp_shard2": "raise", "dp_replicate2": "kill", "dp_shard4": "refuse"})
    layouts = [Layout(cp=2), Layout(dp_shard=2), Layout(dp_replicate=2), Layout(dp_shard=4), Layout(tp=2)]
    results = list(Runner(pool, 4, "cpu", None, time_limit, sabotage).run([Cell(layout) for layout in layouts]))
    assert outcomes(results) == {
        "cp2": ("agrees", ""),
        "dp_shard2": ("crashes", "rank 1 raised RuntimeError: the seventh layer is missing"),
        "dp_replicate2": ("crashes", "rank 1 was killed by SIGKILL"),
        "dp_shard4": ("refused", "sdpa with softcap is not supported"),
        "tp2": ("agrees", ""),
    }
    assert [result.as_expected for result in results] == [True, False, False, False, True]


def test_a_cell_that_hangs_costs_only_itself_and_the_time_limit(pool):
    results = list(
        Runner(pool, 2, "cpu", None, 20.0, Sabotage({"dp_shard2": "hang"})).run(
            [Cell(Layout(dp_shard=2)), Cell(Layout(cp=2))]
        )
    )
    assert outcomes(results) == {
        "dp_shard2": ("hangs", "no answer from ranks 0, 1 within 20 s"),
        "cp2": ("agrees", ""),
    }
    assert "wait_for_ever" in results[0].details, "the stack of the rank that is to blame"


def test_a_cell_without_a_baseline_says_so(pool, time_limit):
    (result,) = Runner(pool, 2, "cpu", None, time_limit, Sabotage({"1rank": "kill"})).run([Cell(Layout(tp=2))])
    assert (result.verdict, result.reason) == ("crashes", "baseline: rank 0 was killed by SIGKILL")


def test_a_cell_that_needs_more_ranks_is_skipped(pool, time_limit):
    skipped, run = Runner(pool, 2, "cpu", None, time_limit).run([Cell(Layout(dp_shard=2, tp=2)), Cell(Layout(cp=2))])
    assert (skipped.verdict, skipped.reason, run.verdict) == ("skipped", "needs 4 ranks, there are 2", "agrees")


def test_a_layout_that_the_trainer_cannot_carry_is_refused(pool, time_limit):
    (result,) = Runner(pool, 3, "cpu", None, time_limit).run([Cell(Layout(tp=3))])
    assert (result.verdict, result.reason) == ("refused", "tp 3 does not divide the model's 16 attention heads")


@pytest.mark.parametrize(
    "layout",
    [
        Layout(dp_replicate=2),
        Layout(dp_replicate=2, dp_shard=2),
        Layout(dp_replicate=2, cp=2),
        Layout(dp_replicate=2, tp=2),
        Layout(dp_shard=2, cp=2),
        Layout(cp=2, tp=2),
        Layout(dp_shard=2, cp=2, tp=2),
    ],
    ids=str,
)
def test_compositions_agree_in_float64(pool, time_limit, layout):
    (result,) = Runner(pool, 8, "cpu", None, time_limit).run([Cell(layout)])
    assert result.verdict == "agrees", result.reason
    assert result.max_gradient_error < 1e-13


def test_float32_is_held_to_its_own_tolerance(pool, time_limit):
    (result,) = Runner(pool, 2, "cpu", None, time_limit).run([Cell(Layout(tp=2), precision="float32")])
    assert result.verdict == "agrees", result.reason
    assert 1e-9 < result.max_gradient_error < 1e-4, "an error of zero or 1e-15 would mean that it was not float32"


def smallest(axes: tuple[str, ...]) -> Layout:
    """Two ranks on the last of ``axes``."""
    return Layout(**{axes[-1]: 2})


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_is_found_and_named(pool, time_limit, name):
    layout = smallest(FAULTS[name].axes)
    (result,) = Runner(pool, 2, "cpu", name, time_limit).run([Cell(layout)])
    assert result.verdict == "diverges"
    assert result.as_expected
    assert result.first_divergence is not None
    assert (result.first_divergence.step, result.first_divergence.quantity) == (1, "gradient")
    assert result.first_divergence.parameter in result.reason
    assert result.max_gradient_error > 1e-3


def test_a_missing_division_by_dp_shard_is_told_as_that(pool, time_limit):
    (result,) = Runner(pool, 2, "cpu", "gradients_not_averaged_over_dp_shard", time_limit).run(
        [Cell(Layout(dp_shard=2))]
    )
    assert result.reason == (
        "step 1, rank 0, model.embed_tokens.weight: all 21 gradients are 2.00x the baseline (= dp_shard)"
    )
    assert result.first_divergence is not None
    assert result.first_divergence.ratio == pytest.approx(2, rel=1e-12)


def test_norm_gradients_summed_again_are_told_as_that(pool, time_limit):
    """5 norms: two in each of two layers, and the last one. The first to run is the input norm of layer 0."""
    (result,) = Runner(pool, 2, "cpu", "norm_gradients_summed_over_tp", time_limit).run([Cell(Layout(tp=2))])
    assert result.reason == (
        "step 1, rank 0, model.layers.0.input_layernorm.weight: 5 of 21 gradients are 2.00x the baseline (= tp)"
    )


def test_a_fault_leaves_alone_what_it_does_not_touch(pool, time_limit):
    (result,) = Runner(pool, 2, "cpu", "positions_restart_per_slice", time_limit).run([Cell(Layout(tp=2))])
    assert (result.verdict, result.expected) == ("agrees", "agrees")
