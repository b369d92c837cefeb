"""Looking at a run from inside a rank, whatever engine trains it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from ndcheck.conformance.record import Array


def whole(tensor: torch.Tensor | None) -> Array:
    """The whole of a possibly sharded tensor, in float64. A collective: every rank must call it."""
    assert tensor is not None, "every parameter has a gradient"
    full = tensor.detach()
    full = full.full_tensor() if isinstance(full, DTensor) else full
    array: Array = full.to("cpu", torch.float64, copy=True).numpy()
    return array


@contextmanager
def count_meshes() -> Iterator[list[tuple[str, ...] | None]]:
    """Collect the axes of every mesh built while active.

    torch makes further DeviceMesh objects when a mesh is sliced or flattened; those point to the mesh
    they came from, and are not counted.
    """
    built: list[tuple[str, ...] | None] = []
    construct = DeviceMesh.__init__

    def counting(self: DeviceMesh, *args: Any, **kwargs: Any) -> None:
        construct(self, *args, **kwargs)
        if kwargs.get("_root_mesh") is None:
            built.append(self.mesh_dim_names)

    DeviceMesh.__init__ = counting  # type: ignore[method-assign]
    try:
        yield built
    finally:
        DeviceMesh.__init__ = construct  # type: ignore[method-assign]


class ForwardOrder:
    """The order in which a network's modules began their first forward pass."""

    def __init__(self, network: nn.Module):
        self._network = network
        self._modules: dict[str, None] = {}

    def saw(self, name: str, *_: object) -> None:
        """Note that module ``name`` has begun."""
        self._modules.setdefault(name)

    def parameters(self) -> Mapping[str, nn.Parameter]:
        """Name -> parameter, those of modules that never ran last."""
        ordered = {
            name: parameter
            for module in self._modules
            for name, parameter in self._network.get_submodule(module).named_parameters(prefix=module, recurse=False)
        }
        for name, parameter in self._network.named_parameters():
            ordered.setdefault(name, parameter)
        return ordered


@contextmanager
def forward_order(network: nn.Module) -> Iterator[ForwardOrder]:
    """Watch ``network``'s modules while active."""
    order = ForwardOrder(network)
    handles = [module.register_forward_pre_hook(partial(order.saw, name)) for name, module in network.named_modules()]
    try:
        yield order
    finally:
        for handle in handles:
            handle.remove()
