from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ndcheck.conformance.cells import Cell
from ndcheck.conformance.faults import FAULTS
from ndcheck.conformance.pool import Pool
from ndcheck.conformance.runner import Result, Runner
from ndcheck.layout import Layout
from ndcheck.trainer.settings import Settings
from tests.conformance.ranks import Sabotage


@pytest.fixture(scope="module")
def runner(pool: Pool, time_limit: float, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    """One for all tests: baselines are computed once."""
    runner = Runner(pool, 8, "cpu", None, time_limit, tmp_path_factory.mktemp("run"))
    yield runner
    runner.close()


def sabotaged(pool: Pool, folder: Path, time_limit: float, **manners: str) -> Runner:
    return Runner(pool, 8, "cpu", None, time_limit, folder, Sabotage(manners))


def outcomes(runner: Runner, *cells: Cell) -> dict[str, tuple[str, str]]:
    results = [runner.run(cell) for cell in cells]
    runner.close()
    return {result.cell.id: (result.verdict, result.reason) for result in results}


def cell(layout: Layout, **settings: object) -> Cell:
    return Cell(layout, settings=Settings(**settings))


DISPATCH = {"dispatch_batches": True}


def test_a_cell_that_fails_costs_only_itself(pool, time_limit, tmp_path):
    """A rank is killed, raises, is refused memory, or refuses; what shares its layout goes on in fresh ranks."""
    manners = {"dp_shard2": "raise", "dp_shard2/dispatch": "kill", "cp2": "memory", "dp_shard4": "refuse"}
    runner = sabotaged(pool, tmp_path, time_limit, **manners)
    two, four = Layout(dp_shard=2), Layout(dp_shard=4)
    cells = [cell(two), cell(two, split_batches=True), cell(two, **DISPATCH), cell(two, dataset="iterable")]
    found = outcomes(runner, *cells, cell(Layout(cp=2)), cell(Layout(cp=2), **DISPATCH), cell(four))
    assert found == {
        "dp_shard2": ("crashes", "rank 1 raised RuntimeError: the seventh layer is missing"),
        "dp_shard2/split": ("agrees", ""),
        "dp_shard2/dispatch": ("crashes", "rank 1 was killed by SIGKILL"),
        "dp_shard2/iterable": ("agrees", ""),
        "cp2": ("crashes", "rank 1 raised MemoryError"),
        "cp2/dispatch": ("agrees", ""),
        "dp_shard4": ("refused", "sdpa with softcap is not supported"),
    }


@pytest.mark.parametrize(
    ("manner", "silent", "stack"),
    [
        ("hang", "ranks 0, 1", "wait_for_ever"),
        ("loop", "ranks 0, 1", "in misbehave"),
        ("skip", "ranks 0, 1", "all_reduce"),
    ],
)
def test_a_cell_that_hangs_costs_only_itself_and_the_time_limit(pool, tmp_path, manner, silent, stack):
    """A rank sleeps, spins, or leaves out a collective. The extra time is the time limit's."""
    limit = 15.0
    runner = sabotaged(pool, tmp_path, limit, dp_shard2=manner)
    runner.run(Cell(Layout(tp=2)))  # the baseline is no part of what is timed
    start = time.monotonic()
    result = runner.run(Cell(Layout(dp_shard=2)))
    assert time.monotonic() - start < limit + 10
    assert (result.verdict, result.reason) == ("hangs", f"no answer from {silent} within 15 s")
    assert stack in result.details, "the stack of the rank that is to blame"
    assert runner.run(cell(Layout(dp_shard=2), **DISPATCH)).verdict == "agrees"
    runner.close()


def test_a_cell_without_a_baseline_says_so(pool, time_limit, tmp_path):
    found = outcomes(sabotaged(pool, tmp_path, time_limit, **{"1rank": "kill"}), Cell(Layout(tp=2)))
    assert found == {"tp2": ("crashes", "baseline: rank 0 was killed by SIGKILL")}


def test_a_cell_that_needs_more_ranks_is_skipped(pool, time_limit, tmp_path):
    runner = Runner(pool, 2, "cpu", None, time_limit, tmp_path)
    resumed = Cell(Layout(), settings=Settings(resume_at=1), saved_by=Layout(tp=4))
    assert outcomes(runner, Cell(Layout(dp_shard=2, tp=2)), resumed) == {
        "dp_shard2-tp2": ("skipped", "needs 4 ranks, there are 2"),
        "1rank/resume_at1/from-tp4": ("skipped", "needs 4 ranks, there are 2"),
    }


def test_a_layout_that_the_trainer_cannot_carry_is_refused(runner):
    result = runner.run(Cell(Layout(tp=3)))
    assert (result.verdict, result.reason) == ("refused", "tp 3 does not divide the model's 16 attention heads")


FOUR, EIGHT = Layout(dp_shard=2, tp=2), Layout(dp_shard=2, cp=2, tp=2)


@pytest.mark.parametrize(
    "case",
    [
        cell(Layout(dp_replicate=2, dp_shard=2), **DISPATCH, even_batches=False),
        cell(Layout(dp_replicate=2, cp=2), cp_slices="zigzag", rows="packed"),
        cell(Layout(dp_replicate=2, tp=2), family="qwen3", sequence_parallel=True),
        cell(Layout(cp=2, tp=2), family="gemma2", cp_exchange="ring", rows="packed", cp_slices="zigzag"),
        cell(FOUR, family="mixtral", max_norm=0.5),
        cell(FOUR, family="llama-tied", loss_parallel=True, sequence_parallel=True),
        cell(FOUR, vocabulary_parallel=False, cpu_offload=True, reshard_after_forward=False),
        cell(EIGHT, checkpointing=True, optimizer="adamw", evaluate=True, split_batches=True),
        cell(Layout(dp_shard=4), dataset="iterable", **DISPATCH, even_batches=False, micro_batches=4, samples=42),
        Cell(Layout(tp=4), settings=Settings(resume_at=1, optimizer="adamw"), saved_by=Layout(dp_shard=2)),
    ],
    ids=lambda case: case.id,
)
def test_compositions_agree_in_float64(runner, case):
    result = runner.run(case)
    assert result.verdict == "agrees", f"{result.reason}\n{result.details}"
    assert result.max_gradient_error < 1e-13


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "mixed"])
@pytest.mark.parametrize("layout", [Layout(tp=2), Layout(dp_shard=2), Layout(cp=2)], ids=str)
def test_lower_precisions_are_held_to_their_own_noise(runner, layout, precision):
    result = runner.run(cell(layout, precision=precision))
    assert result.verdict == "agrees", result.reason
    low, high = {"float32": (1e-8, 1e-4)}.get(precision, (1e-4, 0.1))
    assert low < result.max_gradient_error < high, "an error of zero or 1e-15 would mean that it was not this precision"


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_is_found(pool, time_limit, runner, name):
    seeded = Runner(pool, 8, "cpu", name, time_limit, runner.folder)  # the same baselines
    runner.close()
    result = seeded.run(FAULTS[name].example())
    seeded.close()
    assert result.verdict == "diverges", result.details
    assert result.as_expected
    assert result.first_divergence is not None
    assert f"step {result.first_divergence.step}" in result.reason


def told(pool: Pool, runner: Runner, name: str, case: Cell) -> str:
    seeded = Runner(pool, 8, "cpu", name, 300.0, runner.folder)
    runner.close()
    result: Result = seeded.run(case)
    seeded.close()
    return result.reason


@pytest.mark.parametrize(
    ("name", "layout", "reason"),
    [
        (
            "gradients_not_averaged_over_dp_shard",
            Layout(dp_shard=2),
            "step 1, rank 0, model.embed_tokens.weight: all 21 gradients are 2.00x the baseline (= dp_shard)",
        ),
        (  # 5 norms: two in each of two layers, and the last one; the first to run is the input norm of layer 0
            "norm_gradients_summed_over_tp",
            Layout(tp=2),
            "step 1, rank 0, model.layers.0.input_layernorm.weight: 5 of 21 gradients "
            "(input_layernorm.weight, norm.weight, post_attention_layernorm.weight) are 2.00x the baseline (= tp)",
        ),
        (  # data rank 0 has rows 0 to 3 of each micro-batch of 8
            "replicas_not_synchronised",
            Layout(dp_replicate=2),
            "; all 21 gradients are wrong; rows 4, 5, 6, 7, 12, 13, 14, 15 count 0.00x",
        ),
        ("positions_restart_per_slice", Layout(tp=2), ""),
    ],
)
def test_what_is_wrong_is_told(pool, runner, name, layout, reason):
    assert told(pool, runner, name, Cell(layout)).endswith(reason)


def test_a_cell_does_not_depend_on_its_neighbours(pool, time_limit, tmp_path):
    """Alone or in any order, in warm ranks or fresh ones: the same figures to the last bit."""
    layout = Layout(dp_shard=2, tp=2)
    cells = [cell(layout), cell(layout, family="qwen3"), cell(layout, **DISPATCH), cell(layout, max_norm=0.5)]

    def figures(order: list[Cell], fresh: bool) -> dict[str, tuple]:
        runner = Runner(pool, 4, "cpu", None, time_limit, tmp_path)
        found = {}
        for each in order:
            result = runner.run(each)
            found[each.id] = (result.verdict, result.losses, tuple(result.gradient_errors.values()))
            if fresh:
                runner.close()
        runner.close()
        return found

    shuffled = random.Random(1).sample(cells, len(cells))
    assert shuffled != cells
    alone = figures(cells, fresh=True)
    assert {verdict for verdict, *_ in alone.values()} == {"agrees"}
    assert figures(cells, fresh=False) == alone
    assert figures(shuffled, fresh=False) == alone


def test_two_runs_never_hold_the_same_device(tmp_path):
    from ndcheck.conformance.slots import Slots

    first, second = Slots(tmp_path, 3), Slots(tmp_path, 3)
    assert first.acquire(2) == (0, 1)
    assert second.acquire(1) == (2,)
    first.release()
    third = Slots(tmp_path, 3)
    assert third.acquire(2) == (0, 1)
    assert first._try(1) is None, "all are taken"
