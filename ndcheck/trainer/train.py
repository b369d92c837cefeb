"""Training, start to end. With one rank every parallel call does nothing, and what is left is the textbook loop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ndcheck.layout import Layout
from ndcheck.trainer import (
    checkpoint,
    context_parallel,
    data,
    data_parallel,
    gradients,
    loader,
    loss,
    model,
    tensor_parallel,
)
from ndcheck.trainer.mesh import DATA_AXES, Mesh
from ndcheck.trainer.precision import DTYPES, compute_in
from ndcheck.trainer.settings import Settings, check_fits


@dataclass(frozen=True)
class Step:
    """One optimizer step on one rank, seen after the backward pass and before the update.

    ``loss`` and ``gradient_norm`` (before any clipping) belong to the global batch: float64 scalars, equal on
    every rank. ``samples`` are the rows that this rank had a share in.
    """

    number: int
    loss: Tensor
    gradient_norm: Tensor
    samples: tuple[int, ...]


@dataclass(frozen=True)
class Run:
    """A model cut for this rank, its optimizer and its data."""

    settings: Settings
    mesh: Mesh
    network: nn.Module
    optimizer: gradients.Optimizer
    dataset: data.MapDataset


def check(settings: Settings, layout: Layout) -> None:
    """Raise ValueError, naming field and value, if this trainer cannot train ``settings`` under ``layout``."""
    kind = model.family(settings.family)
    check_fits(settings, layout, heads=kind.heads, kv_heads=kind.kv_heads)


def build(settings: Settings, mesh: Mesh) -> Run:
    """Everything that a run needs. The order matters: FSDP shards what TP has left on the rank."""
    check(settings, mesh.layout)
    network = model.build_model(
        settings.family,
        seed=settings.seed,
        dtype=DTYPES[settings.precision],
        device=mesh.device,
        attention=context_parallel.register_attention(mesh, settings),
    )
    if settings.checkpointing:
        model.recompute_layers(network, settings.precision)
    tensor_parallel.shard_matrices(network, mesh, settings)
    data_parallel.shard_parameters(network, mesh, settings)
    dataset = data.MapDataset(settings, model.family(settings.family).vocabulary)
    return Run(settings, mesh, network, gradients.Optimizer(network, settings), dataset)


def train(run: Run, *, first: int = 1, last: int | None = None) -> Iterator[Step]:
    """Train from step ``first`` to ``last`` (of the epoch, if None), counted from 1.

    Yields each step while its gradients are in place: the update happens when the next one is asked for.
    """
    settings, network, mesh = run.settings, run.network, run.mesh
    batches = loader.load(run.dataset, mesh, even=settings.even_batches)
    for number in range(1, (last or settings.steps) + 1):
        parts = list(islice(batches, settings.micro_batches))
        if number < first:
            continue  # a resumed run reads on where the saved one stopped
        step_loss = accumulate_gradients(run, parts)
        tensor_parallel.finish_gradients(network, mesh)
        data_parallel.all_reduce_gradients(network, mesh)
        norm = gradients.gradient_norm(network)
        yield Step(number, step_loss, norm, tuple(sample for part in parts for sample in part.samples))
        gradients.clip(network, norm, settings.max_norm)
        run.optimizer.step()
        network.zero_grad()


def accumulate_gradients(run: Run, parts: list[loader.Batch]) -> Tensor:
    """Forward and backward over all micro-batches; returns the loss of the global batch."""
    tokens = loss.global_token_count((part.labels for part in parts), run.mesh)
    total = torch.zeros((), dtype=torch.float64, device=run.mesh.device)
    for part in parts:
        with compute_in(run.settings.precision):
            share = micro_batch_loss(run, part) / tokens
            share.backward()
        total += share.detach()
    return run.mesh.all_reduce(total, *DATA_AXES)


def micro_batch_loss(run: Run, part: loader.Batch) -> Tensor:
    """Summed loss of this rank's share of one micro-batch."""
    inputs = {"input_ids": part.input_ids, "position_ids": part.position_ids, "documents": part.documents}
    if run.settings.precision == "mixed" and run.mesh.fsdp_mesh() is None:
        # what FSDP does by policy: compute with rounded copies, whose gradients flow back to the weights
        rounded = {name: parameter.to(torch.bfloat16) for name, parameter in run.network.named_parameters()}
        logits = functional_call(run.network, rounded, kwargs=inputs).logits
    else:
        logits = run.network(**inputs).logits
    return loss.summed_loss(logits, part.labels, run.mesh, parallel=run.settings.loss_parallel)


@torch.no_grad()
def evaluate(run: Run) -> Tensor:
    """Loss per label token over the evaluation rows, each once: float64 scalar, equal on every rank."""
    rows = data.MapDataset(run.settings, run.dataset.vocabulary, split="evaluation")
    parts = list(loader.load(rows, run.mesh, even=False))
    tokens = loss.global_token_count((part.labels for part in parts), run.mesh)
    total = torch.zeros((), dtype=torch.float64, device=run.mesh.device)
    with compute_in(run.settings.precision):
        for part in parts:
            total += micro_batch_loss(run, part)
    return run.mesh.all_reduce(total, *DATA_AXES) / tokens


def save(run: Run, folder: Path) -> None:
    """Write the run's state into ``folder``."""
    checkpoint.save(folder, run.network, run.optimizer, run.mesh)


def load(run: Run, folder: Path) -> None:
    """Continue from the state in ``folder``, saved under whatever layout."""
    checkpoint.load(folder, run.network, run.optimizer, run.mesh)
