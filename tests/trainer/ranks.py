"""Tasks that run in ranks. A module of its own, so that a rank imports no test framework."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
from torch import Tensor

from ndcheck.layout import Layout
from ndcheck.trainer import context_parallel, gradients, train
from ndcheck.trainer.data_parallel import local
from ndcheck.trainer.mesh import Mesh, open_mesh
from ndcheck.trainer.settings import Settings

TIMEOUT = timedelta(seconds=100)


def alone() -> Mesh:
    """The mesh of one process."""
    return Mesh(Layout(), 0, torch.device("cpu"), None)


def opened(layout: Layout, rank: int, scratch: Path):
    return open_mesh(layout, rank, scratch / "rendezvous", timeout=TIMEOUT)


@dataclass(frozen=True)
class AxisSums:
    """For every axis, the sum of 2 ** rank over the rank's group: its binary digits are the group's members."""

    layout: Layout

    def __call__(self, rank: int, scratch: Path) -> dict[str, int]:
        with opened(self.layout, rank, scratch) as mesh:
            return {
                axis: int(mesh.all_reduce(torch.tensor(2**rank), axis))
                for axis in ("dp_replicate", "dp_shard", "cp", "tp")
            }


@dataclass(frozen=True)
class FsdpMesh:
    """Axes and ranks of the mesh that parameters are sharded over."""

    layout: Layout

    def __call__(self, rank: int, scratch: Path) -> tuple[tuple[str, ...], list]:
        with opened(self.layout, rank, scratch) as mesh:
            fsdp = mesh.fsdp_mesh()
            return fsdp.mesh_dim_names, fsdp.mesh.tolist()


def attention_inputs(heads: int, kv_heads: int, length: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """query, key, value and a weight for every output: float64, batch 2, head width 4."""
    generator = torch.Generator().manual_seed(7)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return (
        draw(2, heads, length, 4),
        draw(2, kv_heads, length, 4),
        draw(2, kv_heads, length, 4),
        draw(2, length, heads, 4),
    )


@dataclass(frozen=True)
class SlicedAttention:
    """This rank's slice of the attention's output, and of the gradients of a weighted sum of all outputs."""

    cp: int
    heads: int
    kv_heads: int
    length: int

    def __call__(self, rank: int, scratch: Path) -> list:
        size = self.length // self.cp
        mine = slice(rank * size, (rank + 1) * size)
        query, key, value, weight = attention_inputs(self.heads, self.kv_heads, self.length)
        parts = [tensor[:, :, mine].clone().requires_grad_() for tensor in (query, key, value)]
        with opened(Layout(cp=self.cp), rank, scratch) as mesh:
            attend = context_parallel.GatheredAttention(mesh.groups("cp")[0], mesh, self.length)
            output, _ = attend(torch.nn.Identity(), *parts, None, scaling=0.5)
            (output * weight[:, mine]).sum().backward()
        return [output.detach().numpy(), *(part.grad.numpy() for part in parts)]


@dataclass(frozen=True)
class LocalPieces:
    """Shapes of the pieces that this rank holds, of parameters and of their gradients, and the norm of the gradient."""

    layout: Layout

    def __call__(self, rank: int, scratch: Path) -> tuple[dict, dict, float]:
        settings = Settings(steps=1)
        with opened(self.layout, rank, scratch) as mesh:
            network = train.build(settings, mesh)
            held = {name: local(parameter).numpy(force=True).copy() for name, parameter in network.named_parameters()}
            for step in train.train(network, settings, mesh):
                norm = step.gradient_norm.item()
                shapes = {name: tuple(local(parameter.grad).shape) for name, parameter in network.named_parameters()}
        return held, shapes, norm


def one_step_gradients(settings: Settings) -> tuple[dict[str, Tensor], float]:
    """Gradients of step 1 in one process, and the norm that the trainer reports."""
    with tempfile.TemporaryDirectory() as scratch, opened(Layout(), 0, Path(scratch)) as mesh:
        network = train.build(settings, mesh)
        step = next(train.train(network, settings, mesh))
        found = {name: parameter.grad.clone() for name, parameter in network.named_parameters()}
    assert gradients.gradient_norm(network) == step.gradient_norm
    return found, step.gradient_norm.item()
