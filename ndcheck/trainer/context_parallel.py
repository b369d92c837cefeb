"""Context parallelism (axis ``cp``): each rank holds a slice of every row's tokens.

All layers but attention treat tokens one by one and need no change. In attention a query may look at keys of
other slices, so keys and values travel over cp (cp 2, 8 tokens; ``x``: the query attends to the key)::

    contiguous                                     zig-zag: slices i and 2 cp - 1 - i
      rank 0:  q0   x                                rank 0:  q0   x
               q1   x x                                       q1   x x
               q2   x x x                                     q6   x x x x x x x
               q3   x x x x                                   q7   x x x x x x x x
      rank 1:  q4   x x x x x                        rank 1:  q2   x x x
               q5   x x x x x x                               q3   x x x x
               q6   x x x x x x x                             q4   x x x x x
               q7   x x x x x x x x                           q5   x x x x x x

Zig-zag gives every rank as many x. The mask compares *global* positions: a rank that counted its own tokens from zero
would be wrong, and would train.

Two ways for keys and values to travel. ``gather``: every rank collects all slices at once; backward, gradients are
summed and scattered, since every rank's queries used them. ``ring``: in cp - 1 hops each rank passes on what it has
just used, and merges what it sees block by block (``attention.py``); backward, gradients travel the ring the other way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from transformers import AttentionInterface

from ndcheck.trainer.attention import attend, merge, visible
from ndcheck.trainer.mesh import Mesh
from ndcheck.trainer.settings import Settings

ATTENTION = "ndcheck"
"""Name under which transformers finds this attention."""


def slice_positions(settings: Settings, cp: int, index: int) -> Tensor:
    """Global positions of the tokens that cp rank ``index`` holds: int64 [S / cp], in its order."""
    positions = torch.arange(settings.sequence_length)
    if settings.cp_slices == "contiguous":
        return positions.chunk(cp)[index]
    chunks = positions.chunk(2 * cp)
    return torch.cat([chunks[index], chunks[2 * cp - 1 - index]])


def register_attention(mesh: Mesh, settings: Settings) -> str:
    """Make the attention for this mesh known to transformers; return its name."""
    AttentionInterface.register(ATTENTION, SlicedAttention(mesh, settings))
    return ATTENTION


class SlicedAttention:
    """Causal attention of one slice's queries over all slices' keys, in the form that transformers calls."""

    def __init__(self, mesh: Mesh, settings: Settings):
        groups = mesh.groups("cp")
        self.group = groups[0] if groups else None
        self.index = mesh.index("cp")
        self.blocks = gathered_blocks if settings.cp_exchange == "gather" else ring_blocks
        cp = mesh.layout.cp
        self.slices = [slice_positions(settings, cp, index).to(mesh.device) for index in range(cp)]

    def __call__(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        *,
        documents: Tensor,
        scaling: float,
        sliding_window: int | None = None,
        softcap: float | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, None]:
        """query [B, H, S / cp, D], key and value [B, H_kv, S / cp, D], documents [B, S] -> [B, S / cp, H, D]."""
        assert attention_mask is None, "the mask is made here"
        blocks = []
        for keys, key_block, value_block in self.key_blocks(key, value):
            mask = visible(self.slices[self.index], keys, documents, sliding_window)
            blocks.append(attend(query, key_block, value_block, mask, scaling, softcap))
        return merge(blocks).to(query.dtype).transpose(1, 2).contiguous(), None

    def key_blocks(self, key: Tensor, value: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Blocks of (global positions, keys, values) that together are the whole row's."""
        if self.group is None:
            yield self.slices[0], key, value
        else:
            yield from self.blocks(key, value, self.slices, self.index, self.group)


def gathered_blocks(
    key: Tensor, value: Tensor, slices: list[Tensor], index: int, group: dist.ProcessGroup
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """One block: the slices of all ranks."""
    yield torch.cat(slices), gather_slices(key, group), gather_slices(value, group)


def ring_blocks(
    key: Tensor, value: Tensor, slices: list[Tensor], index: int, group: dist.ProcessGroup
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """cp blocks: this rank's own slice, then that of the rank before it, and so on round the ring."""
    both = torch.stack([key, value])
    for hop in range(len(slices)):
        if hop:
            both = pass_on(both, group)
        yield slices[ring_source(index, hop, len(slices))], both[0], both[1]


def ring_source(index: int, hop: int, cp: int) -> int:
    """Whose slice rank ``index`` holds after ``hop`` hops."""
    return (index - hop) % cp


def gather_slices(local: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Concatenate the slices of all cp ranks along the token dim: [B, H, S / cp, D] -> [B, H, S, D]."""
    apply: Callable[[Tensor, dist.ProcessGroup], Tensor] = _GatherSlices.apply
    return apply(local, group)


def pass_on(tensor: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Give ``tensor`` to the next rank of the ring; return the previous rank's."""
    apply: Callable[[Tensor, dist.ProcessGroup], Tensor] = _PassOn.apply
    return apply(tensor, group)


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


class _PassOn(torch.autograd.Function):
    """Forward: one hop along the ring. Backward, its conjugate: one hop back."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return _hop(tensor, group, 1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _hop(gradients[0], ctx.group, -1), None


def _hop(tensor: Tensor, group: dist.ProcessGroup, step: int) -> Tensor:
    """Send to the rank ``step`` further along the ring, receive from the one ``step`` before."""
    rank, size = group.rank(), group.size()
    received = torch.empty_like(tensor, memory_format=torch.contiguous_format)
    requests = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, tensor.contiguous(), group=group, group_peer=(rank + step) % size),
            dist.P2POp(dist.irecv, received, group=group, group_peer=(rank - step) % size),
        ]
    )
    for request in requests:
        request.wait()
    return received
