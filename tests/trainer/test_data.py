from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from ndcheck.trainer.data import EVALUATION_ROWS, MapDataset, StreamDataset, blank_row, join, make_row
from ndcheck.trainer.settings import Settings

PADDED, PACKED = Settings(), Settings(rows="packed")


def flat(index: int, settings: Settings) -> list[torch.Tensor]:
    return [tensor[0] for tensor in make_row(index, settings, 256).tensors]


@pytest.mark.parametrize("settings", [PADDED, PACKED], ids=["padded", "packed"])
def test_a_label_is_the_token_that_follows_in_the_same_document(settings):
    labelled = 0
    for index in range(30):
        input_ids, labels, _, documents = flat(index, settings)
        for t in (labels != -100).nonzero().flatten().tolist():
            labelled += 1
            assert labels[t] == input_ids[t + 1]
            assert documents[t] == documents[t + 1]
    assert labelled > 300


def test_a_padded_row_is_one_document_and_padding():
    for index in range(30):
        input_ids, labels, positions, documents = flat(index, PADDED)
        assert positions.tolist() == list(range(64))
        end = int((documents == 0).sum())
        assert 48 <= end <= 64
        assert documents.tolist() == [0] * end + [1] * (64 - end)
        assert not input_ids[end:].any()
        assert (labels[max(0, end - 1) :] == -100).all()


def test_documents_of_a_packed_row_count_from_zero():
    several = 0
    for index in range(30):
        _, _, positions, documents = flat(index, PACKED)
        starts = [0, *((documents[1:] != documents[:-1]).nonzero().flatten() + 1).tolist(), 64]
        several += len(starts) > 3
        for start, stop in pairwise(starts):
            assert positions[start:stop].tolist() == list(range(stop - start))
    assert several > 20


@pytest.mark.parametrize("settings", [PADDED, PACKED], ids=["padded", "packed"])
def test_label_counts_are_uneven_wherever_a_mean_of_means_could_hide(settings):
    rows = [make_row(index, settings, 256) for index in range(16)]
    whole = join(rows)
    counts = (whole.labels != -100).sum(1)
    assert len(set(counts.tolist())) > 8
    for pieces in (whole.labels.chunk(2, dim=0), whole.labels.chunk(2, dim=1), whole.labels.chunk(8, dim=0)):
        assert len({int((piece != -100).sum()) for piece in pieces}) > len(pieces) // 2


def test_rows_are_the_same_everywhere_and_differ_from_each_other():
    first, again, other = make_row(3, PADDED, 256), make_row(3, PADDED, 256), make_row(4, PADDED, 256)
    assert torch.equal(first.input_ids, again.input_ids)
    assert not torch.equal(first.input_ids, other.input_ids)
    assert not torch.equal(first.input_ids, make_row(3, PADDED, 256, "evaluation").input_ids)
    assert not torch.equal(first.input_ids, make_row(3, Settings(seed=1), 256).input_ids)


def test_a_stream_has_the_rows_of_the_map_and_counts_them():
    dataset = MapDataset(Settings(samples=5), 256)
    assert [rows.samples for rows in StreamDataset(dataset)] == [(0,), (1,), (2,), (3,), (4,)]
    assert dataset.rows_read == 5
    assert len(MapDataset(PADDED, 256, split="evaluation")) == EVALUATION_ROWS


def test_a_blank_row_has_no_sample_and_no_label():
    row = blank_row(PADDED)
    assert row.samples == ()
    assert (row.labels == -100).all()
    assert row.input_ids.shape == (1, 64)
