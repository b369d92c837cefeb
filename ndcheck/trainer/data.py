"""Synthetic token data, and each rank's share of it.

One optimizer step of global batch 4, as dp_shard 2 x cp 2 (any tp: tp peers read the same)::

                   tokens 0-31           tokens 32-63
      sample 0    dp_shard 0, cp 0   |   dp_shard 0, cp 1
      sample 1    dp_shard 0, cp 0   |   dp_shard 0, cp 1
      sample 2    dp_shard 1, cp 0   |   dp_shard 1, cp 1
      sample 3    dp_shard 1, cp 0   |   dp_shard 1, cp 1

Labels are made before a sample is sliced: the label of a slice's last token is the first token of the next slice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ndcheck.trainer.context_parallel import slice_positions
from ndcheck.trainer.mesh import Mesh
from ndcheck.trainer.model import IGNORED_LABEL, name_seed
from ndcheck.trainer.settings import Settings


@dataclass(frozen=True)
class Batch:
    """A rank's share of one optimizer step: B samples, S / cp tokens of each.

    ``samples``: B indices into the data set. ``input_ids``, ``labels``: int64 [B, S / cp], ``labels`` shifted.
    ``position_ids``: int64 [1, S / cp], positions in the whole sample.
    """

    samples: tuple[int, ...]
    input_ids: Tensor
    labels: Tensor
    position_ids: Tensor

    def micro_batches(self, count: int) -> Iterator[Batch]:
        """Cut into ``count`` parts of equally many samples."""
        size = len(self.samples) // count
        for start in range(0, len(self.samples), size):
            part = slice(start, start + size)
            yield Batch(self.samples[part], self.input_ids[part], self.labels[part], self.position_ids)


def make_sample(index: int, *, seed: int, sequence_length: int, vocabulary: int) -> tuple[Tensor, Tensor]:
    """Sample ``index``: (input_ids, labels), int64 [S] each.

    A prompt of up to 3/4 and padding of up to 1/4 of the tokens have no labels, so counts of label tokens
    differ from sample to sample and from slice to slice. Padding is on the right: under
    a causal mask no token sees it.
    """
    generator = torch.Generator().manual_seed(name_seed(f"{seed}:sample:{index}"))
    tokens = torch.randint(1, vocabulary, (sequence_length + 1,), generator=generator)
    prompt = int(torch.randint(0, sequence_length * 3 // 4 + 1, (), generator=generator))
    padding = int(torch.randint(0, sequence_length // 4 + 1, (), generator=generator))
    input_ids, labels = tokens[:-1].clone(), tokens[1:].clone()
    end = sequence_length - padding
    input_ids[end:] = 0
    labels[:prompt] = IGNORED_LABEL
    labels[end:] = IGNORED_LABEL
    return input_ids, labels


def batches(settings: Settings, vocabulary: int, mesh: Mesh) -> Iterator[Batch]:
    """This rank's share of every optimizer step, ``settings.steps`` of them."""
    size = settings.per_rank_batch(mesh.layout)
    for step in range(settings.steps):
        first = step * settings.global_batch + mesh.data_rank * size
        yield read(settings, vocabulary, mesh, range(first, first + size))


def read(settings: Settings, vocabulary: int, mesh: Mesh, samples: range) -> Batch:
    """This rank's slice of ``samples``, on its device."""
    rows = [
        make_sample(index, seed=settings.seed, sequence_length=settings.sequence_length, vocabulary=vocabulary)
        for index in samples
    ]
    positions = slice_positions(settings.sequence_length, mesh.layout.cp, mesh.index("cp"))
    input_ids, labels = (torch.stack(column)[:, positions].to(mesh.device) for column in zip(*rows, strict=True))
    return Batch(tuple(samples), input_ids, labels, positions[None].to(mesh.device))
