"""Data parallelism (axes ``dp_replicate`` and ``dp_shard``): ranks read different samples and sum their gradients.

Where the parameters live, for a layer of weights W (A and B: its halves)::

    dp_replicate 2 (DDP)        dp_shard 2 (FSDP)             dp_replicate 2 x dp_shard 2 (HSDP)
      r0: A B    r1: A B          r0: A      r1: B              r0: A      r1: B      (replica 0)
                                                                r2: A      r3: B      (replica 1)

    forward   -                   all-gather A B                all-gather inside a replica
    backward  all-reduce dW       reduce-scatter dW             reduce-scatter inside, then all-reduce across

FSDP gathers a layer just before it is used and frees it after. cp peers hold the same weights and different tokens,
which is all that FSDP needs to know: the cp axis joins dp_shard (``Mesh.fsdp_mesh``).

Gradients are *summed*, not averaged: the loss is already divided by the label tokens of the whole batch (``loss.py``).
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from ndcheck.layout import Layout
from ndcheck.trainer.mesh import Mesh
from ndcheck.trainer.settings import Settings


def shard_parameters(network: nn.Module, mesh: Mesh, settings: Settings) -> None:
    """Shard every parameter over dp_shard x cp, one unit per decoder layer; nothing happens at degree 1."""
    fsdp = mesh.fsdp_mesh()
    if fsdp is None:
        return
    options: dict[str, Any] = {"mesh": fsdp, "reshard_after_forward": settings.reshard_after_forward}
    if settings.precision == "mixed":
        options["mp_policy"] = mixed_precision()
    if settings.cpu_offload:
        options["offload_policy"] = CPUOffloadPolicy(pin_memory=mesh.device.type == "cuda")
    for layer in cast(nn.ModuleList, network.get_submodule("model.layers")):
        fully_shard(layer, **options)
    fully_shard(network, **options)
    for module in network.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(gradient_divisor(mesh.layout))
            # without it FSDP hands the factor to the backend, and gloo cannot scale
            module.set_force_sum_reduction_for_comms(True)


def mixed_precision() -> MixedPrecisionPolicy:
    """Weights at rest and sums of gradients in float32, all between in bfloat16."""
    return MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


def gradient_divisor(layout: Layout) -> float:
    """What FSDP divides the summed gradient by (its own default would be the number of ranks)."""
    return 1.0


def all_reduce_gradients(network: nn.Module, mesh: Mesh) -> None:
    """Sum gradients over dp_replicate where FSDP does not: when nothing is sharded."""
    if mesh.fsdp_mesh() is not None:
        return
    for group in mesh.groups("dp_replicate"):
        for parameter in network.parameters():
            dist.all_reduce(local(parameter.grad), group=group)


def local(tensor: torch.Tensor | None) -> torch.Tensor:
    """The piece of ``tensor`` that this rank holds, sharing its memory; a plain tensor is its own piece."""
    assert tensor is not None, "every parameter takes part in the loss"
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
