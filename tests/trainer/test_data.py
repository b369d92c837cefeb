from __future__ import annotations

import itertools

import pytest
import torch

from ndcheck.layout import Layout, layouts
from ndcheck.trainer.data import Batch, batches, make_sample
from ndcheck.trainer.mesh import Mesh
from ndcheck.trainer.settings import Settings

VOCABULARY = 256
AXES = ("dp_replicate", "dp_shard", "cp", "tp")


def shares(layout: Layout, settings: Settings) -> dict[tuple[int, int, int, int], list[Batch]]:
    """Coordinates of each rank -> its batches. Reading needs no communication, so one process can be every rank."""
    found = {}
    for rank in range(layout.world_size):
        mesh = Mesh(layout, rank, torch.device("cpu"), None)
        found[tuple(mesh.index(axis) for axis in AXES)] = list(batches(settings, VOCABULARY, mesh))
    return found


@pytest.mark.parametrize("layout", list(layouts(8, AXES)), ids=str)
def test_shares_put_together_are_the_global_batch(layout):
    settings = Settings(steps=2)
    whole = shares(Layout(), settings)[0, 0, 0, 0]
    parts = shares(layout, settings)
    data_ranks = list(itertools.product(range(layout.dp_replicate), range(layout.dp_shard)))
    for step, expected in enumerate(whole):
        for tp in range(layout.tp):
            for field in ("input_ids", "labels"):
                rows = [
                    torch.cat([getattr(parts[r, s, cp, tp][step], field) for cp in range(layout.cp)], dim=1)
                    for r, s in data_ranks
                ]
                assert torch.equal(torch.cat(rows), getattr(expected, field))
            positions = [parts[0, 0, cp, tp][step].position_ids for cp in range(layout.cp)]
            assert torch.cat(positions, dim=1).tolist() == [list(range(64))]
            read = [sample for r, s in data_ranks for sample in parts[r, s, 0, tp][step].samples]
            assert read == list(range(step * 16, (step + 1) * 16))


def test_a_label_is_the_token_that_follows():
    for index in range(20):
        input_ids, labels = make_sample(index, seed=0, sequence_length=64, vocabulary=VOCABULARY)
        labelled = [t for t in range(63) if labels[t] != -100 and labels[t + 1] != -100]
        assert labelled
        assert all(labels[t] == input_ids[t + 1] for t in labelled)


def test_labels_are_one_stretch_between_prompt_and_padding():
    for index in range(50):
        input_ids, labels = make_sample(index, seed=3, sequence_length=64, vocabulary=VOCABULARY)
        places = (labels != -100).nonzero().flatten().tolist()
        if places:
            assert places == list(range(places[0], places[-1] + 1))
            assert (input_ids[places[-1] + 1 :] == 0).all()
        assert len(places) <= 64


@pytest.mark.parametrize("seed", range(5))
def test_label_counts_are_uneven_wherever_a_mean_of_means_could_hide(seed):
    settings = Settings(seed=seed, steps=1)

    def count(batch: Batch) -> int:
        return int((batch.labels != -100).sum())

    for layout in (
        Layout(dp_shard=2),
        Layout(dp_replicate=2),
        Layout(cp=2),
        Layout(dp_shard=4, cp=2),
        Layout(dp_shard=8),
    ):
        holders = {key[:3]: batch for key, (batch,) in shares(layout, settings).items()}
        counts = [count(batch) for batch in holders.values()]
        assert len(set(counts)) > 1, f"{layout}: {counts}"
    (whole,) = shares(Layout(), settings)[0, 0, 0, 0]
    first, second = map(count, whole.micro_batches(2))
    assert first != second


def test_micro_batches_cut_the_samples_in_order():
    (whole,) = shares(Layout(), Settings(steps=1))[0, 0, 0, 0]
    parts = list(whole.micro_batches(4))
    assert [part.samples for part in parts] == [tuple(range(n, n + 4)) for n in (0, 4, 8, 12)]
    assert torch.equal(torch.cat([part.input_ids for part in parts]), whole.input_ids)
    assert torch.equal(torch.cat([part.labels for part in parts]), whole.labels)
