"""Who gets which rows. The tables of rows are written out by hand."""

from __future__ import annotations

import itertools

import pytest

from ndcheck.layout import Layout
from ndcheck.trainer.data import make_row
from ndcheck.trainer.loader import cut_batches, deal_batches, epoch_indices
from ndcheck.trainer.settings import Settings
from tests.trainer.ranks import Shares

MODES = list(itertools.product(["map", "iterable"], [False, True], [False, True]))


def settings(dataset: str, dispatch: bool, split: bool, **changes) -> Settings:
    base = {"samples": 10, "global_batch": 8, "micro_batches": 2, "sequence_length": 16}
    return Settings(dataset=dataset, dispatch_batches=dispatch, split_batches=split, **base, **changes)


@pytest.mark.parametrize(("dataset", "dispatch", "split"), MODES)
def test_micro_batches_of_4_over_2_data_ranks(on_ranks, dataset, dispatch, split):
    """10 rows: the third micro-batch has two of its own."""
    even = on_ranks(Shares(Layout(dp_shard=2), settings(dataset, dispatch, split)), 2)
    assert [[samples for samples, _ in rows] for rows, _ in even] == [
        [(0, 1), (4, 5), (8, 9)],
        [(2, 3), (6, 7), (0, 1)],
    ]
    uneven = on_ranks(Shares(Layout(dp_shard=2), settings(dataset, dispatch, split, even_batches=False)), 2)
    assert [[samples for samples, _ in rows] for rows, _ in uneven] == [
        [(0, 1), (4, 5), (8, 9)],
        [(2, 3), (6, 7), ()],
    ]


@pytest.mark.parametrize(("dataset", "dispatch", "split"), MODES)
def test_who_reads(on_ranks, dataset, dispatch, split):
    """A dispatcher alone reads all rows, 10 and 2 again; else each reads its own 6, or the whole stream."""
    read = [count for _, count in on_ranks(Shares(Layout(dp_shard=2), settings(dataset, dispatch, split)), 2)]
    if dataset == "iterable":
        assert read == ([10, 0] if dispatch else [10, 10])
    else:
        assert read == ([12, 0] if dispatch else [6, 6])


@pytest.mark.parametrize("layout", [Layout(dp_shard=2, cp=2, tp=2), Layout(dp_replicate=2, dp_shard=2, tp=2)], ids=str)
@pytest.mark.parametrize("dispatch", [False, True])
@pytest.mark.parametrize("slices", ["contiguous", "zigzag"])
def test_shares_put_together_are_the_rows_of_the_data_set(on_ranks, layout, dispatch, slices):
    chosen = settings("map", dispatch, False, even_batches=False, cp_slices=slices, rows="packed")
    ranks = on_ranks(Shares(layout, chosen), 8)
    seen: dict[int, list[int]] = {}
    order = {"contiguous": list(range(16)), "zigzag": [0, 1, 2, 3, 12, 13, 14, 15, 4, 5, 6, 7, 8, 9, 10, 11]}
    places = order[slices] if layout.cp == 2 else list(range(16))
    for rank, (batches, _) in enumerate(ranks):
        at = layout.coordinates(rank)
        length = 16 // layout.cp
        mine = places[at["cp"] * length : (at["cp"] + 1) * length]
        for samples, fields in batches:
            for row, sample in enumerate(samples):
                whole = make_row(sample, chosen, 256)
                for name in ("input_ids", "labels", "position_ids"):
                    assert fields[name][row] == [getattr(whole, name)[0].tolist()[place] for place in mine]
                assert fields["documents"][row] == whole.documents[0].tolist(), "keys of other slices need them"
                seen.setdefault(sample, []).append(rank)
    assert sorted(seen) == list(range(10))
    peers = layout.cp * layout.tp
    assert all(len(set(readers)) == len(readers) == peers for readers in seen.values())


def test_indices_begin_again_to_complete_the_last_micro_batch():
    assert epoch_indices(5, 4, even=True) == [0, 1, 2, 3, 4, 0, 1, 2]
    assert epoch_indices(5, 4, even=False) == [0, 1, 2, 3, 4]
    assert epoch_indices(2, 8, even=True) == [0, 1, 0, 1, 0, 1, 0, 1], "a data set smaller than a micro-batch"
    assert epoch_indices(8, 4, even=True) == list(range(8))


def test_cutting_and_dealing_part_only_where_a_batch_is_short():
    """7 rows, batches of 2 for each of 2 ranks: in the second round the last rank has one row."""
    rows = list(range(7))
    for share in (cut_batches, deal_batches):
        assert [list(share(rows, 2, 2, rank)) for rank in range(2)] == [[[0, 1], [4, 5]], [[2, 3], [6]]]
    assert list(deal_batches(list(range(5)), 2, 2, 1)) == [[2, 3], []]
    assert list(cut_batches(list(range(5)), 2, 2, 1)) == [[2, 3], []]
