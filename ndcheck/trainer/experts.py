"""Mixture of experts: a router sends each token to a few of many MLPs.

::

    token t --router--> weights w_1 w_2 of experts e_1 e_2 --> y_t = w_1 MLP_e1(x_t) + w_2 MLP_e2(x_t)

transformers keeps the two input matrices of an expert (gate and up) in one of [2 F, D], which cannot be cut over tp by
rows: one rank would get all of gate and the other all of up. Here it is [2, F, D], cut along F::

                 gate            up              down
    tp 0     rows 0..F/2      rows 0..F/2     columns 0..F/2
    tp 1     rows F/2..F      rows F/2..F     columns F/2..F

Experts are not cut apart from each other (no expert parallelism): FSDP shards them as it shards all parameters.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.functional import linear

from ndcheck.trainer.collectives import copy_to, reduce_from


class Experts(nn.Module):
    """E experts. ``gate_up_proj``: [E, 2, F, D]; ``down_proj``: [E, D, F]; cut along F over ``group`` if there is one."""

    def __init__(self, count: int, width: int, inner: int, activation: nn.Module):
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.empty(count, 2, inner, width))
        self.down_proj = nn.Parameter(torch.empty(count, width, inner))
        self.activation = activation
        self.group: dist.ProcessGroup | None = None

    def forward(self, tokens: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """tokens [T, D], chosen experts int64 [T, k] and their weights [T, k] -> [T, D]."""
        gate_up, down = (_piece(parameter) for parameter in (self.gate_up_proj, self.down_proj))
        tokens, weights = copy_to(tokens, self.group), route(weights, self.group)
        output = torch.zeros_like(tokens)
        for expert in range(len(gate_up)):
            token, place = torch.where(chosen == expert)
            gate, up = (linear(tokens[token], matrix) for matrix in gate_up[expert])
            result = linear(self.activation(gate) * up, down[expert]) * weights[token, place, None].to(tokens.dtype)
            output = output.index_add(0, token, result)
        return reduce_from(output, self.group)


def route(weights: Tensor, group: dist.ProcessGroup | None) -> Tensor:
    """The router's weights, about to multiply each tp rank's part of the experts' output."""
    return copy_to(weights, group)


def replace_experts(model: nn.Module) -> None:
    """Put ``Experts`` in place of transformers' own, weights not yet drawn; nothing happens to a dense model."""
    for module in model.modules():
        old = getattr(module, "experts", None)
        if isinstance(old, nn.Module) and not isinstance(old, Experts):
            sizes: Any = old
            new = Experts(sizes.num_experts, sizes.hidden_dim, sizes.intermediate_dim, sizes.act_fn)
            cast(Any, module).experts = new.to(sizes.down_proj.device, sizes.down_proj.dtype)


def _piece(parameter: nn.Parameter) -> Tensor:
    """What this rank holds of an expert's matrix while it computes."""
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter
