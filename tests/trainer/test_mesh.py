from __future__ import annotations

import pytest

from ndcheck.layout import Layout
from tests.trainer.ranks import AxesAskedFor, AxisSums, FsdpMesh, alone


def digits(number: int) -> list[int]:
    return [place for place in range(number.bit_length()) if number >> place & 1]


def test_groups_along_each_axis(on_ranks):
    """Written out by hand: tp varies fastest, then cp, then dp_shard."""
    sums = on_ranks(AxisSums(Layout(dp_shard=2, cp=2, tp=2)), 8)
    members = {axis: {tuple(digits(rank[axis])) for rank in sums} for axis in sums[0]}
    assert members["tp"] == {(0, 1), (2, 3), (4, 5), (6, 7)}
    assert members["cp"] == {(0, 2), (1, 3), (4, 6), (5, 7)}
    assert members["dp_shard"] == {(0, 4), (1, 5), (2, 6), (3, 7)}
    assert members["dp_replicate"] == {(rank,) for rank in range(8)}, "an axis of degree 1 reduces nothing"


@pytest.mark.parametrize(
    ("layout", "names", "by_rank"),
    [
        (Layout(dp_shard=2), ("dp_shard",), {0: [0, 1], 1: [0, 1]}),
        (Layout(cp=2, tp=2), ("cp",), {0: [0, 2], 1: [1, 3], 2: [0, 2], 3: [1, 3]}),
        (Layout(dp_shard=2, cp=2), ("dp_shard_cp",), {0: [0, 1, 2, 3], 3: [0, 1, 2, 3]}),
        (Layout(dp_replicate=2, dp_shard=2), ("dp_replicate", "dp_shard"), {0: [[0, 1], [2, 3]], 2: [[0, 1], [2, 3]]}),
    ],
    ids=str,
)
def test_parameters_are_sharded_inside_a_replica(on_ranks, layout, names, by_rank):
    """HSDP: shards are neighbouring ranks, which share a node; replicas are far apart."""
    found = on_ranks(FsdpMesh(layout), layout.world_size)
    for rank, ranks in by_rank.items():
        assert found[rank] == (names, ranks)


def test_a_misspelt_axis_is_no_axis_of_degree_1():
    for ask in (alone().groups, alone().submesh):
        with pytest.raises(AssertionError, match="no such axis: dp_shrad"):
            ask("tp", "dp_shrad")


def test_one_mesh_serves_every_part_that_asks_for_an_axis(on_ranks):
    """Built once; what each part of the trainer asks it for, in a run that uses all of them."""
    for built, asked in on_ranks(AxesAskedFor(Layout(dp_replicate=2, dp_shard=2, tp=2)), 8):
        assert built == 1
        assert asked == {
            ("tp",): {"shard_matrices", "finish_gradients", "summed_loss"},
            ("cp",): {"__init__"},
            ("dp_shard", "cp"): {"fsdp_mesh"},
            ("dp_replicate",): {"fsdp_mesh"},
            ("dp_replicate", "dp_shard", "cp"): {"global_token_count", "accumulate_gradients"},
        }
