from __future__ import annotations

import numpy as np
import pytest
import torch

from ndcheck.trainer.context_parallel import ring_source, slice_positions
from ndcheck.trainer.settings import Settings
from tests.trainer.ranks import SlicedAttention, attention_inputs

ONE = (0,) * 8
TWO = (0, 0, 0, 1, 1, 1, 1, 2)


def by_the_definition(
    heads: int, kv_heads: int, documents: tuple[int, ...], window: int | None, softcap: float | None
) -> list[np.ndarray]:
    """softmax(q k' / 2, over the keys that may be seen) v, element by element, in one process."""
    length = len(documents)
    query, key, value, weight = attention_inputs(heads, kv_heads, length)
    inputs = [tensor.requires_grad_() for tensor in (query, key, value)]
    rows = []
    for row, in_document in enumerate((documents, (0,) * length)):
        for t in range(length):
            seen = [u for u in range(t + 1) if in_document[u] == in_document[t] and (window is None or t - u < window)]
            for h in range(heads):
                kv = h // (heads // kv_heads)
                scores = (query[row, h, t, None] * key[row, kv, seen]).sum(-1) * 0.5
                scores = scores if softcap is None else softcap * torch.tanh(scores / softcap)
                odds = scores.exp()
                rows.append(((odds / odds.sum())[:, None] * value[row, kv, seen]).sum(0))
    output = torch.stack(rows).unflatten(0, (2, length, heads))
    (output * weight).sum().backward()
    return [output.detach().numpy(), *(tensor.grad.numpy() for tensor in inputs)]


@pytest.mark.parametrize("exchange", ["gather", "ring"])
@pytest.mark.parametrize("slices", ["contiguous", "zigzag"])
@pytest.mark.parametrize(
    ("cp", "heads", "kv_heads", "documents", "window", "softcap"),
    [(1, 2, 1, TWO, 3, 0.7), (2, 4, 2, ONE, None, None), (2, 2, 2, TWO, None, 0.7), (4, 2, 1, TWO, 3, None)],
)
def test_sliced_attention_equals_its_definition(
    on_ranks, exchange, slices, cp, heads, kv_heads, documents, window, softcap
):
    expected = by_the_definition(heads, kv_heads, documents, window, softcap)
    changes = {"cp_exchange": exchange, "cp_slices": slices}
    parts = on_ranks(SlicedAttention(cp, heads, kv_heads, 8, changes, documents, window, softcap), cp)
    order = np.argsort(np.concatenate([part[0] for part in parts]))
    for i, (name, token_dim) in enumerate([("output", 1), ("query", 2), ("key", 2), ("value", 2)]):
        found = np.concatenate([part[i + 1] for part in parts], axis=token_dim).take(order, axis=token_dim)
        np.testing.assert_allclose(found, expected[i], rtol=0, atol=1e-13, err_msg=name)


def test_slices_written_out_by_hand():
    contiguous, zigzag = Settings(sequence_length=12), Settings(sequence_length=12, cp_slices="zigzag")
    assert [slice_positions(contiguous, 3, index).tolist() for index in range(3)] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9, 10, 11],
    ]
    assert [slice_positions(zigzag, 3, index).tolist() for index in range(3)] == [
        [0, 1, 10, 11],
        [2, 3, 8, 9],
        [4, 5, 6, 7],
    ]


def test_zigzag_gives_every_rank_as_many_pairs():
    def pairs(settings: Settings) -> set[int]:
        return {int((slice_positions(settings, 4, index) + 1).sum()) for index in range(4)}

    assert len(pairs(Settings(cp_slices="zigzag"))) == 1
    assert len(pairs(Settings())) == 4


def test_the_ring_hands_on_to_the_next_rank():
    assert [[ring_source(rank, hop, 3) for hop in range(3)] for rank in range(3)] == [[0, 2, 1], [1, 0, 2], [2, 1, 0]]
