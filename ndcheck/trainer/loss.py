"""The loss: cross entropy per label token, with one divisor for the whole step.

With n_r label tokens on data rank r, and losses l_i::

    right:   sum over all ranks of (sum of l_i on r)  /  sum over all ranks of n_r
    wrong:   mean over ranks of   ((sum of l_i on r)  /  n_r)         "mean of means"

The two agree only if all n_r are equal, which padding, prompts and packing see to that they never are. The same holds for
micro-batches and for cp slices. So the divisor is counted first, over all of them, and each piece's sum is divided by it.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ndcheck.trainer.mesh import DATA_AXES, Mesh
from ndcheck.trainer.model import IGNORED_LABEL


def global_token_count(labels: Tensor, mesh: Mesh) -> Tensor:
    """Label tokens of one optimizer step over all data ranks and slices: int64 scalar, equal on every rank.

    ``labels``: this rank's share, any shape, all micro-batches.
    """
    return mesh.all_reduce((labels != IGNORED_LABEL).sum(), *DATA_AXES)


def summed_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Sum (not mean) over label tokens of -log p(label), in float32 or wider.

    ``logits`` [B, S, V]; ``labels`` [B, S], already shifted: the label of a position is the token that follows it.
    """
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return cross_entropy(wide.flatten(0, 1), labels.flatten(), ignore_index=IGNORED_LABEL, reduction="sum")
