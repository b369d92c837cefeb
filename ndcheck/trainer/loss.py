"""The loss: cross entropy per label token, with one divisor for the whole step.

With n_r label tokens on data rank r, and losses l_i::

    right:   sum over all ranks of (sum of l_i on r)  /  sum over all ranks of n_r
    wrong:   mean over ranks of   ((sum of l_i on r)  /  n_r)         "mean of means"

The two agree only if all n_r are equal, which padding, prompts and packing see to that they never are. The same holds for
micro-batches and for cp slices. So the divisor is counted first, over all of them, and each piece's sum is divided by it.

``loss_parallel``: logits z stay cut over tp by vocabulary. -log p(label) = log sum exp(z) - z_label needs three
small collectives instead of whole logits: the largest z, the sum of exp, and z_label from the rank that holds it.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import cross_entropy

from ndcheck.trainer.collectives import reduce_from
from ndcheck.trainer.mesh import DATA_AXES, Mesh
from ndcheck.trainer.model import IGNORED_LABEL


def global_token_count(labels: Iterable[Tensor], mesh: Mesh) -> Tensor:
    """Label tokens of one optimizer step over all data ranks and slices: int64 scalar, equal on every rank.

    ``labels``: this rank's share of every micro-batch, any shapes.
    """
    count = torch.zeros((), dtype=torch.int64, device=mesh.device)
    for part in labels:
        count += (part != IGNORED_LABEL).sum()
    return mesh.all_reduce(count, *DATA_AXES)


def summed_loss(logits: Tensor, labels: Tensor, mesh: Mesh, *, parallel: bool) -> Tensor:
    """Sum (not mean) over label tokens of -log p(label), in float32 or wider.

    ``logits`` [B, S, V], or [B, S, V / tp] if ``parallel``; ``labels`` [B, S], already shifted.
    """
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32)).flatten(0, 1)
    groups = mesh.groups("tp")
    if parallel and groups:
        return parallel_cross_entropy(wide, labels.flatten(), groups[0])
    return cross_entropy(wide, labels.flatten(), ignore_index=IGNORED_LABEL, reduction="sum")


def parallel_cross_entropy(logits: Tensor, labels: Tensor, group: dist.ProcessGroup) -> Tensor:
    """The same sum from logits [T, V / tp] of which each rank of ``group`` holds a part of the vocabulary."""
    maximum = logits.detach().amax(-1)
    dist.all_reduce(maximum, op=dist.ReduceOp.MAX, group=group)
    logits = logits - maximum[:, None]
    total = reduce_from(logits.exp().sum(-1), group)
    own = labels - group.rank() * logits.shape[-1]  # index among this rank's columns
    held = (own >= 0) & (own < logits.shape[-1])
    at_label = logits.gather(-1, own.clamp(0, logits.shape[-1] - 1)[:, None])[:, 0]
    at_label = reduce_from(torch.where(held, at_label, 0.0), group)
    return torch.where(labels != IGNORED_LABEL, total.log() - at_label, 0.0).sum()
