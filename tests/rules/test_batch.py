"""Rows per step, and the loader that hands them to ranks."""

from __future__ import annotations

import pytest

from tests.helpers import FLASH, FSDP2, Seen, codes, completed, findings, message, report, seen

STREAM = "streaming: true\nmax_steps: 10\n"
PRETRAIN = "pretraining_dataset: [{path: org/text}]\nmax_steps: 10\n"


@pytest.mark.parametrize("key", ["micro_batch_size", "gradient_accumulation_steps"])
@pytest.mark.parametrize(
    ("value", "expected"),
    [("-1", True), ("1", False), ("8", False), ("null", False), ("two", False), ('"-3"', True), ("1.0", False)],
)
def test_batch_factor(key: str, value: str, expected: bool) -> None:
    assert seen("ND501", f"{key}: {value}\n") == ([Seen("error", 1, key)] if expected else [])


@pytest.mark.parametrize(
    ("degrees", "ranks", "layout", "rows"),
    [
        ("", 8, {"dp_replicate": 8}, 64),  # 2 x 4 x 8
        (FSDP2, 8, {"dp_shard": 8}, 64),
        ("tensor_parallel_size: 2\ndp_shard_size: 4\n" + FSDP2, 8, {"tp": 2, "dp_shard": 4}, 32),
        ("context_parallel_size: 4\ndp_shard_size: 2\n" + FSDP2 + FLASH, 8, {"cp": 4, "dp_shard": 2}, 16),
        ("context_parallel_size: 2\ntensor_parallel_size: 4\n" + FLASH, 8, {"cp": 2, "tp": 4}, 8),
        ("dp_replicate_size: 2\ndp_shard_size: 4\n" + FSDP2, 8, {"dp_replicate": 2, "dp_shard": 4}, 64),
        ("tensor_parallel_size: 2\n", 8, None, None),
        ("tensor_parallel_size: two\n", 8, None, None),
        ("", None, None, None),
        ("tensor_parallel_size: 2\ndp_shard_size: 4\n" + FSDP2, None, {"tp": 2, "dp_shard": 4}, 32),
    ],
)
def test_global_batch_counts_data_ranks_only(
    degrees: str, ranks: int | None, layout: dict[str, int] | None, rows: int | None
) -> None:
    text = completed(f"micro_batch_size: 2\ngradient_accumulation_steps: 4\n{degrees}")
    derived = report(text, world_size=ranks).derived
    assert derived.global_batch_size == rows
    used = None if derived.layout is None else {axis: size for axis, size in derived.layout.items() if size > 1}
    assert used == layout
    if rows is not None:
        assert derived.batch_text is not None
        ranked = "1 data rank" if rows == 8 else f"{rows // 8} data ranks"
        assert derived.batch_text == f"{rows} rows a step = 2 micro batch x 4 accumulation x {ranked}"


@pytest.mark.parametrize(
    ("fragment", "ranks", "line"),
    [
        (STREAM, 4, 1),
        (STREAM + "accelerator_config: {dispatch_batches: true}\n", 4, 3),
        (STREAM + "accelerator_config: {dispatch_batches: null}\n", 4, 1),
        (STREAM + "accelerator_config: {split_batches: false}\n", 4, 1),
        (STREAM + "tensor_parallel_size: 2\n", None, 1),
        (PRETRAIN + "accelerator_config: {dispatch_batches: true}\n", 4, 3),
        (STREAM + "accelerator_config: {dispatch_batches: false}\n", 4, None),
        (STREAM + "pad_to_sequence_len: true\n", 4, None),
        (STREAM + "sample_packing: true\n", 4, None),
        (STREAM, 1, None),
        (STREAM, None, None),
        (PRETRAIN, 4, None),  # axolotl itself switches dispatch off
        ("streaming: false\n", 4, None),
        ("streaming: null\naccelerator_config: {dispatch_batches: true}\n", 4, None),
        ("streaming: maybe\n", 4, None),
        (STREAM + "accelerator_config: {dispatch_batches: maybe}\n", 4, None),
        (STREAM + "accelerator_config: [1]\n", 4, None),
        ("", 4, None),
    ],
)
def test_dispatch_unequal_rows(fragment: str, ranks: int | None, line: int | None) -> None:
    found = [(item.severity, item.line) for item in seen("ND511", fragment, world_size=ranks)]
    assert found == ([] if line is None else [("warning", line)])


PADDED = STREAM + "pad_to_sequence_len: true\n"


@pytest.mark.parametrize(
    ("fragment", "ranks", "line"),
    [
        (PADDED + "context_parallel_size: 2\n", 2, 1),
        (PADDED + "context_parallel_size: 2\n", None, 1),
        (PADDED + "context_parallel_size: 2\naccelerator_config: {dispatch_batches: true}\n", 2, 5),
        ("context_parallel_size: 2\naccelerator_config: {dispatch_batches: true}\n", 2, 2),
        (PADDED + "tensor_parallel_size: 2\ndp_shard_size: 2\n" + FSDP2, 4, 1),
        (PADDED + "tensor_parallel_size: 2\ndp_replicate_size: 2\n", 4, 1),
        (PADDED + "tensor_parallel_size: 2\n", 2, None),  # all ranks are one tp group: rank 0 feeds them alike
        (PADDED + "tensor_parallel_size: 2\n", None, None),
        (PADDED + "tensor_parallel_size: 2\naccelerator_config: {split_batches: true}\n", 2, 1),  # cut over tp peers
        (
            PADDED + "tensor_parallel_size: 2\naccelerator_config: {split_batches: true, dispatch_batches: false}\n",
            2,
            None,
        ),
        (PADDED + "dp_shard_size: 2\n" + FSDP2, 2, None),
        (PADDED + "context_parallel_size: 1\n", 2, None),
        (PADDED + "context_parallel_size: null\n", 2, None),
        (PADDED + "context_parallel_size: two\n", 2, None),
        (PADDED + "context_parallel_size: 2\naccelerator_config: {dispatch_batches: false}\n", 2, None),
        ("context_parallel_size: 2\n", 2, None),
        (PRETRAIN + "context_parallel_size: 2\n", 2, None),
    ],
)
def test_dispatch_splits_mesh(fragment: str, ranks: int | None, line: int | None) -> None:
    found = [(item.severity, item.line) for item in seen("ND512", fragment, world_size=ranks)]
    assert found == ([] if line is None else [("error", line)])


DISPATCH = "accelerator_config: {dispatch_batches: true}\n"


@pytest.mark.parametrize(
    ("fragment", "ranks", "expected"),
    [
        ("tensor_parallel_size: 2\n" + DISPATCH, 2, True),
        ("tensor_parallel_size: 8\n" + DISPATCH, None, True),
        ("tensor_parallel_size: 2\n" + DISPATCH, 4, False),  # worse: ND512
        (
            "tensor_parallel_size: 2\naccelerator_config: {dispatch_batches: true, split_batches: true}\n",
            2,
            False,
        ),  # ND512
        ("tensor_parallel_size: 2\naccelerator_config: {dispatch_batches: false}\n", 2, False),
        ("tensor_parallel_size: 2\n", 2, False),
        (PADDED + "tensor_parallel_size: 2\n" + DISPATCH, 2, False),  # a stream has no length
        ("dp_shard_size: 2\n" + FSDP2 + DISPATCH, 2, False),
    ],
)
def test_dispatch_shortens_epoch(fragment: str, ranks: int | None, expected: bool) -> None:
    assert bool(seen("ND514", fragment, world_size=ranks)) == expected


def test_dispatch_names_the_axes_that_suffer() -> None:
    fragment = PADDED + "context_parallel_size: 2\ntensor_parallel_size: 2\ndp_shard_size: 2\n" + FSDP2
    text = message("ND512", fragment, world_size=8)
    assert "context_parallel_size 2 and tensor_parallel_size 2" in text
    assert "unset, which means on for streamed data" in text


SPLIT = "accelerator_config: {split_batches: true}\n"


@pytest.mark.parametrize(
    ("fragment", "ranks", "expected"),
    [
        ("micro_batch_size: 3\n" + SPLIT, 2, True),
        ("micro_batch_size: 1\n" + SPLIT, 8, True),
        ("micro_batch_size: 4\n" + SPLIT, 2, False),
        ("micro_batch_size: 3\n" + SPLIT, 1, False),
        ("micro_batch_size: 3\ntensor_parallel_size: 2\n" + SPLIT, 2, False),  # one data rank
        ("micro_batch_size: 3\ntensor_parallel_size: 2\n" + SPLIT, 4, True),  # two
        ("micro_batch_size: 3\ncontext_parallel_size: 4\n" + SPLIT, 4, False),
        ("micro_batch_size: 3\ntensor_parallel_size: 3\n" + SPLIT, 4, False),  # no whole number of data ranks: ND101's
        ("micro_batch_size: 3\naccelerator_config: {split_batches: false}\n", 2, False),
        ("micro_batch_size: 3\naccelerator_config: {split_batches: null}\n", 2, False),
        ("micro_batch_size: 3\n", 2, False),
        ("micro_batch_size: three\n" + SPLIT, 2, False),
        ("micro_batch_size: -3\n" + SPLIT, 2, False),  # ND501's
    ],
)
def test_split_batches(fragment: str, ranks: int, expected: bool) -> None:
    found = seen("ND513", fragment, world_size=ranks)
    assert found == ([Seen("error", 1, "micro_batch_size")] if expected else [])


def test_split_batches_waits_for_the_world_size() -> None:
    text = completed("micro_batch_size: 3\n" + SPLIT)
    assert "split-batches-divide" in report(text).not_run["world_size"]


def test_split_batches_repair_is_the_next_multiple() -> None:
    (finding,) = findings("ND513", "micro_batch_size: 9\n" + SPLIT, world_size=4)
    assert finding.fix is not None
    assert finding.fix.title == "set it to 12"


def test_a_plain_config_breaks_none() -> None:
    assert not [code for code in codes("", world_size=8) if code.startswith("ND5")]
