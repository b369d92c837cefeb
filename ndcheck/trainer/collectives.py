"""Conjugate pairs: two operations, each of which is the other's backward pass.

::

    forward                              backward
    copy_to      nothing                 all-reduce     (each rank used the same input for a part of the work)
    reduce_from  all-reduce              nothing        (each rank's part of a sum gets the sum's gradient)

The pair of Megatron-LM (arXiv 1909.08053, f and g). To leave one out is to train on a part of the gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def copy_to(tensor: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    """``tensor``, equal on all ranks of ``group``, about to be used by each for its own part of the work."""
    apply: Callable[[Tensor, dist.ProcessGroup], Tensor] = _CopyTo.apply
    return tensor if group is None else apply(tensor, group)


def reduce_from(tensor: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    """The sum over ``group`` of each rank's ``tensor``."""
    apply: Callable[[Tensor, dist.ProcessGroup], Tensor] = _ReduceFrom.apply
    return tensor if group is None else apply(tensor, group)


class _CopyTo(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _sum(gradients[0], ctx.group), None


class _ReduceFrom(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: dist.ProcessGroup) -> Tensor:
        return _sum(tensor, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None


def _sum(tensor: Tensor, group: dist.ProcessGroup) -> Tensor:
    total = tensor.detach().clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, group=group)
    return total
