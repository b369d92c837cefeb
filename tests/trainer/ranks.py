"""Tasks that run in ranks. A module of its own, so that a rank imports no test framework."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
from torch import Tensor

from ndcheck.layout import Layout
from ndcheck.trainer import context_parallel, gradients, loader, loss, train
from ndcheck.trainer.data import MapDataset
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
    changes: dict
    documents: tuple[int, ...]
    window: int | None
    softcap: float | None

    def __call__(self, rank: int, scratch: Path) -> list:
        settings = Settings(sequence_length=self.length, **self.changes)
        mine = context_parallel.slice_positions(settings, self.cp, rank)
        query, key, value, weight = attention_inputs(self.heads, self.kv_heads, self.length)
        parts = [tensor[:, :, mine].clone().requires_grad_() for tensor in (query, key, value)]
        documents = torch.tensor([self.documents, [0] * self.length])
        with opened(Layout(cp=self.cp), rank, scratch) as mesh:
            attend = context_parallel.SlicedAttention(mesh, settings)
            options = {"scaling": 0.5, "sliding_window": self.window, "softcap": self.softcap}
            output, _ = attend(torch.nn.Identity(), *parts, None, documents=documents, **options)
            (output * weight[:, mine]).sum().backward()
        return [mine.numpy(), output.detach().numpy(), *(part.grad.numpy() for part in parts)]


@dataclass(frozen=True)
class LocalPieces:
    """The pieces that this rank holds, shapes of their gradients, and the norm of the gradient."""

    layout: Layout

    def __call__(self, rank: int, scratch: Path) -> tuple[dict, dict, float]:
        with opened(self.layout, rank, scratch) as mesh:
            run = train.build(Settings(), mesh)
            parameters = dict(run.network.named_parameters())
            held = {name: local(parameter).numpy(force=True).copy() for name, parameter in parameters.items()}
            step = next(train.train(run))
            shapes = {name: tuple(local(parameter.grad).shape) for name, parameter in parameters.items()}
        return held, shapes, step.gradient_norm.item()


@dataclass(frozen=True)
class AxesAskedFor:
    """Meshes that a step of training builds, and axes -> the functions that ask the mesh for them."""

    layout: Layout

    def __call__(self, rank: int, scratch: Path) -> tuple[int, dict[tuple[str, ...], set[str]]]:
        from ndcheck.conformance.observe import count_meshes

        asked: dict[tuple[str, ...], set[str]] = {}
        original = Mesh._used

        def used(mesh: Mesh, axes: tuple[str, ...]) -> tuple[str, ...]:
            frame = sys._getframe(2)  # 1: the mesh's own method
            while frame.f_code.co_name in ("all_reduce", "groups", "submesh"):
                frame = frame.f_back
            asked.setdefault(axes, set()).add(frame.f_code.co_name)
            return original(mesh, axes)

        Mesh._used = used
        try:
            with count_meshes() as built, opened(self.layout, rank, scratch) as mesh:
                run = train.build(Settings(family="qwen3"), mesh)
                next(train.train(run))
                return len(built), asked
        finally:
            Mesh._used = original


@dataclass(frozen=True)
class Shares:
    """What this rank's loader gives it, micro-batch by micro-batch, and how many rows it has read itself."""

    layout: Layout
    settings: Settings

    def __call__(self, rank: int, scratch: Path) -> tuple[list, int]:
        with opened(self.layout, rank, scratch) as mesh:
            dataset = MapDataset(self.settings, 256)
            batches = list(loader.load(dataset, mesh, even=self.settings.even_batches))
        fields = ("input_ids", "labels", "position_ids", "documents")
        rows = [(batch.samples, {name: getattr(batch, name).tolist() for name in fields}) for batch in batches]
        return rows, dataset.rows_read


@dataclass(frozen=True)
class ParallelLoss:
    """The loss of logits of which this rank holds a part of the vocabulary, and its gradient."""

    tp: int
    labels: tuple[int, ...]

    def __call__(self, rank: int, scratch: Path) -> tuple[float, list]:
        logits = loss_logits(len(self.labels)).chunk(self.tp, dim=-1)[rank].clone().requires_grad_()
        with opened(Layout(tp=self.tp), rank, scratch) as mesh:
            total = loss.parallel_cross_entropy(logits, torch.tensor(self.labels), mesh.groups("tp")[0])
            total.backward()
        return total.item(), logits.grad.tolist()


def loss_logits(tokens: int) -> Tensor:
    """float64 [T, 8], with large values: exp of them alone would overflow."""
    generator = torch.Generator().manual_seed(5)
    return torch.randn(tokens, 8, generator=generator, dtype=torch.float64) * 3 + 800


def one_step_gradients(settings: Settings) -> tuple[dict[str, Tensor], float]:
    """Gradients of step 1 in one process, and the norm that the trainer reports."""
    run = train.build(settings, alone())
    step = next(train.train(run))
    found = {name: parameter.grad.clone() for name, parameter in run.network.named_parameters()}
    assert gradients.gradient_norm(run.network) == step.gradient_norm
    return found, step.gradient_norm.item()
