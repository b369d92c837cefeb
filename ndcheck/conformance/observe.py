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

from ndcheck.conformance.cells import Cell
from ndcheck.conformance.record import Array, Record

WRAPPERS = ("module.", "_orig_mod.", "_checkpoint_wrapped_module.", "_fsdp_wrapped_module.")
"""What wrappers of a module put into the names of its parameters."""


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


class Watch:
    """Takes down a run as it goes: what an engine leaves behind is a ``Record``, and this makes one.

    For a network whose parameters bear the names of ``trainer.model.build_model``'s (wrappers may add theirs), whole, or cut
    as DTensors. ``begin``: once the network is ready to train; ``step``: after each optimizer step's last backward pass, before
    gradients are clipped and the update; ``record``: at the end. Each on every rank, since they may have to talk.
    """

    def __init__(self, cell: Cell, rank: int):
        self.cell, self.rank = cell, rank
        self.losses: list[float] = []
        self.norms: list[float] = []
        self.samples: list[tuple[int, ...]] = []
        whole_row = tuple(range(cell.settings.sequence_length))
        self.positions: tuple[int, ...] | None = whole_row if cell.layout.cp == 1 else None
        self.gradients: Mapping[str, Array] = {}
        self.held: float | None = None

    def begin(self, network: nn.Module) -> None:
        """See how much of it this rank keeps."""
        self.network = network
        self.held = share_held(network)

    def step(self, samples: tuple[int, ...]) -> None:
        """``samples``: the rows that this rank had a share in, of all micro-batches of the step."""
        self.samples.append(samples)
        gradients = {
            name: whole(parameter.grad)
            for name, parameter in plain_names(self.network).items()
            if parameter.grad is not None
        }
        self.norms.append(float(sum(float((tensor**2).sum()) for tensor in gradients.values()) ** 0.5))
        if not self.gradients:
            self.gradients = gradients

    def record(self, **more: Any) -> Record:
        """The account of the run. ``more``: further fields of ``Record``."""
        fields: dict[str, Any] = {
            "rank": self.rank,
            "coordinates": self.cell.layout.coordinates(self.rank),
            "first_step": self.cell.settings.resume_at + 1,
            "losses": tuple(self.losses),
            "gradient_norms": tuple(self.norms),
            "samples": tuple(self.samples),
            "positions": self.positions,
            "rows_read": 0,
            "gradients": self.gradients,
            "weights": {name: whole(parameter) for name, parameter in plain_names(self.network).items()},
            "evaluation_loss": None,
            "mesh_constructions": None,
            "held": self.held,
        }
        return Record(**fields | more)


def plain_names(network: nn.Module) -> dict[str, nn.Parameter]:
    """Name -> parameter, without what wrappers have added to the name."""
    found = {}
    for name, parameter in network.named_parameters():
        for wrapper in WRAPPERS:
            name = name.replace(wrapper, "")
        found[name] = parameter
    return found


def share_held(network: nn.Module) -> float:
    """Share of the decoder layers' matrices that this rank keeps, from 0 to 1."""
    matrices = [
        parameter for name, parameter in plain_names(network).items() if ".layers." in name and parameter.dim() > 1
    ]
    held = sum(tensor.to_local().numel() if isinstance(tensor, DTensor) else tensor.numel() for tensor in matrices)
    return held / sum(tensor.numel() for tensor in matrices)
