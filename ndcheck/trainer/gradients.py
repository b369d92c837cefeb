"""What happens to gradients once they are summed: their norm, clipping, and the step that they cause."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from ndcheck.trainer.data_parallel import local
from ndcheck.trainer.settings import Settings

LEARNING_RATE = {"sgd": 0.1, "adamw": 1e-3}


def gradient_norm(network: nn.Module) -> Tensor:
    """L2 norm of the gradient of the whole model: float64 scalar, equal on every rank.

    Squares are summed over the groups that a tensor is cut over, and over no others: a replica
    counted twice would raise the norm by the square root of 2.
    """
    squares: dict[tuple[dist.ProcessGroup, ...], Tensor] = {}
    for parameter in network.parameters():
        square = local(parameter.grad).double().square().sum()
        groups = shard_groups(parameter)
        squares[groups] = squares[groups] + square if groups in squares else square
    for groups, square in squares.items():
        for group in groups:
            dist.all_reduce(square, group=group)
    return torch.stack(list(squares.values())).sum().sqrt()


def clip(network: nn.Module, norm: Tensor, max_norm: float | None) -> None:
    """Scale all gradients by ``max_norm`` / ``norm`` if ``norm``, that of the whole model, is larger."""
    if max_norm is not None and norm > max_norm:
        for parameter in network.parameters():
            local(parameter.grad).mul_(max_norm / norm)


class Optimizer:
    """torch's optimizer on the pieces that this rank holds: every element is stepped once, and nothing is sent.

    ``parameters``: name -> parameter; ``pieces``: name -> the tensor that is stepped, sharing the parameter's memory.
    """

    def __init__(self, network: nn.Module, settings: Settings):
        self.parameters = dict(network.named_parameters())
        self.pieces = {name: local(parameter).detach() for name, parameter in self.parameters.items()}
        kinds: dict[str, Any] = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}
        self.torch: torch.optim.Optimizer = kinds[settings.optimizer](
            self.pieces.values(), lr=LEARNING_RATE[settings.optimizer], foreach=False
        )

    def step(self) -> None:
        """Apply each parameter's gradient to its piece."""
        for name, parameter in self.parameters.items():
            self.pieces[name].grad = local(parameter.grad)
        self.torch.step()

    def state(self) -> dict[str, dict[str, Tensor]]:
        """Parameter -> what the optimizer remembers of it (AdamW: two moments and the step), laid out like the parameter."""
        return {
            name: {key: like(value, self.parameters[name]) for key, value in self.torch.state[piece].items()}
            for name, piece in self.pieces.items()
        }

    def prepare_state(self) -> None:
        """Make room for a state that is to be loaded: a step with gradients of zero, which is undone."""
        before = {name: piece.clone() for name, piece in self.pieces.items()}
        for piece in self.pieces.values():
            piece.grad = torch.zeros_like(piece)
        self.torch.step()
        for name, piece in self.pieces.items():
            piece.copy_(before[name])


def like(piece: Tensor, parameter: nn.Parameter) -> Tensor:
    """``piece``, one rank's part of a tensor that is cut as ``parameter`` is, as the whole (a DTensor); scalars stay."""
    if not isinstance(parameter, DTensor) or piece.dim() == 0:
        return piece
    return DTensor.from_local(
        piece,
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )


def shard_groups(parameter: nn.Parameter) -> tuple[dist.ProcessGroup, ...]:
    """The groups over which ``parameter`` is cut into pieces."""
    if not isinstance(parameter, DTensor):
        return ()
    mesh = parameter.device_mesh
    # "not replicated" and not "sharded": FSDP over TP has a placement of its own, which is no Shard
    return tuple(mesh.get_group(i) for i, placement in enumerate(parameter.placements) if not placement.is_replicate())
