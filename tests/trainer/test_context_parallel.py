from __future__ import annotations

import numpy as np
import pytest
import torch

from ndcheck.trainer.context_parallel import register_attention, slice_positions
from tests.trainer.ranks import SlicedAttention, alone, attention_inputs


def by_the_definition(heads: int, kv_heads: int, length: int) -> list[np.ndarray]:
    """softmax(q k' / 2, over keys that are not in the future) v, element by element, in one process."""
    query, key, value, weight = attention_inputs(heads, kv_heads, length)
    inputs = [tensor.requires_grad_() for tensor in (query, key, value)]
    rows = []
    for t in range(length):
        for h in range(heads):
            kv = h // (heads // kv_heads)
            scores = (query[:, h, t, None] * key[:, kv, : t + 1]).sum(-1) * 0.5  # [B, t + 1]
            odds = scores.exp()
            share = odds / odds.sum(-1, keepdim=True)
            rows.append((share[..., None] * value[:, kv, : t + 1]).sum(1))
    output = torch.stack(rows, dim=1).unflatten(1, (length, heads))
    (output * weight).sum().backward()
    return [output.detach().numpy(), *(tensor.grad.numpy() for tensor in inputs)]


@pytest.mark.parametrize(("cp", "heads", "kv_heads"), [(2, 2, 2), (2, 4, 2), (4, 2, 1)])
def test_sliced_attention_equals_its_definition(on_ranks, cp, heads, kv_heads):
    expected = by_the_definition(heads, kv_heads, 8)
    slices = on_ranks(SlicedAttention(cp, heads, kv_heads, 8), cp)
    for i, (name, token_dim) in enumerate([("output", 1), ("query", 2), ("key", 2), ("value", 2)]):
        found = np.concatenate([part[i] for part in slices], axis=token_dim)
        np.testing.assert_allclose(found, expected[i], rtol=0, atol=1e-13, err_msg=name)


def test_slices_tile_the_sequence():
    assert [slice_positions(12, 3, index).tolist() for index in range(3)] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9, 10, 11],
    ]


def test_one_rank_uses_the_attention_of_transformers():
    assert register_attention(alone(), 64) == "sdpa"
