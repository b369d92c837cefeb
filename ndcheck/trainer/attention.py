"""Attention in blocks: what each query sees of one block of keys, and how blocks are put together.

For scores s = q k / sqrt(D), softmax over all keys is computed from any partition of them into blocks b::

    m_b = max s          l_b = sum exp(s - m_b)         o_b = sum exp(s - m_b) v        over the keys of block b
    m = max_b m_b        l = sum_b exp(m_b - m) l_b     o = sum_b exp(m_b - m) o_b / l

(online softmax, arXiv 1805.02867; the same merge as in FlashAttention and ring attention, arXiv 2310.01889).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Block:
    """Queries' view of one block of keys. B rows, H heads, Q queries, D width.

    ``maximum``, ``total``: [B, H, Q, 1] (m_b, l_b); ``weighted``: [B, H, Q, D] (o_b). In float32 or wider.
    """

    maximum: Tensor
    total: Tensor
    weighted: Tensor


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float, softcap: float | None) -> Block:
    """Attention of ``query`` [B, H, Q, D] to one block of keys and values [B, H_kv, K, D].

    ``mask``: bool [B, Q, K], True: attend. ``softcap``: scores are squashed to c x tanh(s / c) (Gemma 2).
    """
    key, value = repeat_heads(key, query.shape[1]), repeat_heads(value, query.shape[1])
    scores = query @ key.transpose(2, 3) * scale
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    scores = scores.masked_fill(~mask[:, None], float("-inf"))
    # a query that sees nothing of this block would have a maximum of -inf, and -inf minus -inf is no number
    maximum = scores.detach().amax(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)
    weights = torch.exp(scores - maximum)
    weighted = (weights.to(value.dtype) @ value).to(scores.dtype)
    return Block(maximum, weights.sum(-1, keepdim=True), weighted)


def merge(blocks: list[Block]) -> Tensor:
    """The output [B, H, Q, D] of attention over all ``blocks``."""
    maximum = torch.stack([block.maximum for block in blocks]).amax(0)
    scales = [torch.exp(block.maximum - maximum) for block in blocks]
    total = sum(scale * block.total for scale, block in zip(scales, blocks, strict=True))
    weighted = sum(scale * block.weighted for scale, block in zip(scales, blocks, strict=True))
    return torch.as_tensor(weighted / total)


def repeat_heads(tensor: Tensor, heads: int) -> Tensor:
    """Grouped queries: key-value head i serves query heads i x g to (i + 1) x g - 1, g = ``heads`` / H_kv."""
    return tensor.repeat_interleave(heads // tensor.shape[1], dim=1)


def visible(queries: Tensor, keys: Tensor, documents: Tensor, window: int | None) -> Tensor:
    """Who sees whom: bool [B, Q, K].

    ``queries`` [Q], ``keys`` [K]: global positions in the row. ``documents`` [B, S]: number of each token's document.
    A token sees itself and those before it, in its own document, and no further back than ``window`` tokens.
    """
    distance = queries[:, None] - keys[None, :]
    near = distance >= 0 if window is None else (distance >= 0) & (distance < window)
    return near & (documents[:, queries][:, :, None] == documents[:, keys][:, None, :])
