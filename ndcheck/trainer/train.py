"""Training, start to end. With one rank every parallel call does nothing, and what is left is the textbook loop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ndcheck.layout import Layout
from ndcheck.trainer import context_parallel, data, data_parallel, gradients, loss, model, tensor_parallel
from ndcheck.trainer.mesh import DATA_AXES, Mesh
from ndcheck.trainer.precision import DTYPES, compute_in
from ndcheck.trainer.settings import Settings, check_fits


@dataclass(frozen=True)
class Step:
    """One optimizer step on one rank, seen after the backward pass and before the update.

    ``loss`` and ``gradient_norm`` (before any clipping) belong to the global batch: float64 scalars, equal on
    every rank. ``samples`` are the ones that this rank read.
    """

    number: int
    loss: Tensor
    gradient_norm: Tensor
    samples: tuple[int, ...]


def check(settings: Settings, layout: Layout) -> None:
    """Raise ValueError, naming field and value, if this trainer cannot train ``settings`` under ``layout``."""
    kind = model.family(settings.family)
    check_fits(settings, layout, heads=kind.heads, kv_heads=kind.kv_heads)


def build(settings: Settings, mesh: Mesh) -> nn.Module:
    """The model, cut for this rank. The order matters: FSDP shards what TP has left on the rank."""
    check(settings, mesh.layout)
    network = model.build_model(
        settings.family,
        seed=settings.seed,
        dtype=DTYPES[settings.precision],
        device=mesh.device,
        attention=context_parallel.register_attention(mesh, settings.sequence_length),
    )
    tensor_parallel.shard_matrices(network, mesh)
    data_parallel.shard_parameters(network, mesh)
    return network


def train(network: nn.Module, settings: Settings, mesh: Mesh) -> Iterator[Step]:
    """Train ``network`` (from ``build``) for ``settings.steps`` steps of SGD.

    Yields each step while its gradients are in place: the update happens when the next one is asked for.
    """
    vocabulary = model.family(settings.family).vocabulary
    for number, batch in enumerate(data.batches(settings, vocabulary, mesh), start=1):
        step_loss = accumulate_gradients(network, batch, settings, mesh)
        tensor_parallel.shard_gradients(network)
        data_parallel.all_reduce_gradients(network, mesh)
        yield Step(number, step_loss, gradients.gradient_norm(network), batch.samples)
        gradients.sgd_step(network, settings.learning_rate)
        network.zero_grad()


def accumulate_gradients(network: nn.Module, batch: data.Batch, settings: Settings, mesh: Mesh) -> Tensor:
    """Forward and backward over all micro-batches; returns the loss of the global batch."""
    tokens = loss.global_token_count(batch.labels, mesh)
    total = torch.zeros((), dtype=torch.float64, device=mesh.device)
    for part in batch.micro_batches(settings.micro_batches):
        with compute_in(settings.precision):
            logits = network(input_ids=part.input_ids, position_ids=part.position_ids).logits
            share = loss.summed_cross_entropy(logits, part.labels) / tokens
            share.backward()
        total += share.detach()
    return mesh.all_reduce(total, *DATA_AXES)
