"""What happens to gradients once they are summed: their norm, and the step they cause."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from ndcheck.trainer.data_parallel import local


def gradient_norm(model: nn.Module) -> Tensor:
    """L2 norm of the gradient of the whole model: float64 scalar, equal on every rank.

    Squares are summed over the groups that a tensor is cut over, and over no others: a replica
    counted twice would raise the norm by the square root of 2.
    """
    squares: dict[tuple[dist.ProcessGroup, ...], Tensor] = {}
    for parameter in model.parameters():
        square = local(parameter.grad).double().square().sum()
        groups = _shard_groups(parameter)
        squares[groups] = squares[groups] + square if groups in squares else square
    for groups, square in squares.items():
        for group in groups:
            dist.all_reduce(square, group=group)
    return torch.stack(list(squares.values())).sum().sqrt()


@torch.no_grad()
def sgd_step(model: nn.Module, learning_rate: float) -> None:
    """Subtract ``learning_rate`` x gradient, each rank on its own pieces: no communication."""
    for parameter in model.parameters():
        local(parameter).sub_(local(parameter.grad), alpha=learning_rate)


def _shard_groups(parameter: nn.Parameter) -> tuple[dist.ProcessGroup, ...]:
    """The groups over which ``parameter`` is cut into pieces."""
    if not isinstance(parameter, DTensor):
        return ()
    mesh = parameter.device_mesh
    # "not replicated" and not "sharded": FSDP over TP has a placement of its own, which is no Shard
    return tuple(mesh.get_group(i) for i, placement in enumerate(parameter.placements) if not placement.is_replicate())
