"""Context parallelism (axis ``cp``): each rank holds a slice of every sample's tokens.

All layers but attention treat tokens one by one and need no change. In attention a query may look at keys of
other slices, so keys and values are gathered over cp (cp 2, 8 tokens; ``x``: the query attends to the key)::

                    keys of rank 0   keys of rank 1
                     0  1  2  3       4  5  6  7
      rank 0:  q0    x
               q1    x  x
               q2    x  x  x
               q3    x  x  x  x
      rank 1:  q4    x  x  x  x       x
               q5    x  x  x  x       x  x
               q6    x  x  x  x       x  x  x
               q7    x  x  x  x       x  x  x  x

The mask compares *global* positions: a rank that counted its own tokens from zero would be wrong, and would train.
Gathering keys forward means summing and scattering their gradients backward: every rank's queries used them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from ndcheck.trainer.mesh import Mesh

ATTENTION = "ndcheck_context_parallel"
"""Name under which transformers finds this attention."""


def slice_positions(sequence_length: int, cp: int, index: int) -> Tensor:
    """Global positions of the tokens that cp rank ``index`` holds: int64 [sequence_length / cp], in its order."""
    length = sequence_length // cp
    return torch.arange(index * length, (index + 1) * length)


def register_attention(mesh: Mesh, sequence_length: int) -> str:
    """Make the attention for this mesh known to transformers; return its name (transformers' own at cp 1)."""
    groups = mesh.groups("cp")
    if not groups:
        return "sdpa"
    AttentionInterface.register(ATTENTION, GatheredAttention(groups[0], mesh, sequence_length))
    return ATTENTION


class GatheredAttention:
    """Causal attention of one slice's queries over all slices' keys, in the form that transformers calls."""

    def __init__(self, group: dist.ProcessGroup, mesh: Mesh, sequence_length: int):
        cp = mesh.layout.cp
        slices = [slice_positions(sequence_length, cp, index) for index in range(cp)]
        queries, keys = slices[mesh.index("cp")], torch.cat(slices)
        self.group = group
        self.mask = (queries[:, None] >= keys[None, :]).to(mesh.device)  # bool [S / cp, S], True: attend

    def __call__(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        scaling: float | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, None]:
        """query [B, H, S / cp, D], key and value [B, H_kv, S / cp, D] -> [B, S / cp, H, D]."""
        assert attention_mask is None, "the mask is this object's own"
        key, value = gather_slices(key, self.group), gather_slices(value, self.group)  # [B, H_kv, S, D]
        output = scaled_dot_product_attention(
            query, key, value, attn_mask=self.mask, scale=scaling, enable_gqa=query.shape[1] != key.shape[1]
        )
        return output.transpose(1, 2).contiguous(), None


def gather_slices(local: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Concatenate the slices of all cp ranks along the token dim: [B, H, S / cp, D] -> [B, H, S, D]."""
    apply: Callable[[Tensor, dist.ProcessGroup], Tensor] = _GatherSlices.apply
    return apply(local, group)


class _GatherSlices(torch.autograd.Function):
    """Forward: all-gather along dim 2. Backward, its conjugate: reduce-scatter (sum) along dim 2."""

    @staticmethod
    def forward(ctx: Any, local: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        slices = [torch.empty_like(local, memory_format=torch.contiguous_format) for _ in range(group.size())]
        dist.all_gather(slices, local.contiguous(), group=group)
        return torch.cat(slices, dim=2)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        slices = [part.contiguous() for part in gradients[0].chunk(ctx.group.size(), dim=2)]
        local = torch.empty_like(slices[0])
        dist.reduce_scatter(local, slices, group=ctx.group)
        return local, None
