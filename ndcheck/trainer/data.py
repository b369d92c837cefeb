"""Synthetic data sets: rows by index, or a stream.

Labels are made before anything is cut: the label of a position is the token that follows it, wherever that lies::

    padded row     prompt p p p | answer a a a a | padding . . .
       labels      -  -  -  a     a a a -          -  -  -        (-: no part in the loss)
       positions   0  1  2  3     4 5 6 7          8  9  10
       documents   0 0 0 0 0 0 0 0                 1 1 1          (padding sees padding only)

    packed row     first document  | second       | padding
       positions   0 1 2 3 4 5 6     0 1 2 3 4      0 1 2
       documents   0 0 0 0 0 0 0     1 1 1 1 1      2 2 2         (a token sees its own document only)

Prompts and padding are of every length, so counts of label tokens differ from row to row and from slice to slice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import Tensor

from ndcheck.trainer.model import IGNORED_LABEL, name_seed
from ndcheck.trainer.settings import Settings

EVALUATION_ROWS = 13
"""Rows of the evaluation set: a number that no layout's data ranks divide."""


@dataclass(frozen=True)
class Rows:
    """B whole rows of the data set.

    ``samples``: their indices. ``input_ids``, ``labels`` (shifted), ``position_ids`` (in the document),
    ``documents`` (number of the document in the row): int64 [B, S].
    """

    samples: tuple[int, ...]
    input_ids: Tensor
    labels: Tensor
    position_ids: Tensor
    documents: Tensor

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """All of [B, S]."""
        return self.input_ids, self.labels, self.position_ids, self.documents

    def take(self, start: int, stop: int) -> Rows:
        """Rows ``start`` to ``stop`` of these."""
        part = slice(start, stop)
        return Rows(self.samples[part], *(tensor[part] for tensor in self.tensors))


def join(rows: list[Rows]) -> Rows:
    """All of ``rows``, one after the other."""
    samples = tuple(sample for part in rows for sample in part.samples)
    return Rows(samples, *(torch.cat(column) for column in zip(*(part.tensors for part in rows), strict=True)))


@dataclass
class MapDataset:
    """Rows by index. ``rows_read`` counts them: with a dispatcher, only rank 0 reads."""

    settings: Settings
    vocabulary: int
    split: str = "train"
    rows_read: int = field(default=0, init=False)

    def __len__(self) -> int:
        return self.settings.samples if self.split == "train" else EVALUATION_ROWS

    def __getitem__(self, index: int) -> Rows:
        self.rows_read += 1
        return make_row(index, self.settings, self.vocabulary, self.split)


@dataclass
class StreamDataset:
    """The same rows, one after the other: no length, no index."""

    source: MapDataset

    def __iter__(self) -> Iterator[Rows]:
        return (self.source[index] for index in range(len(self.source)))


def make_row(index: int, settings: Settings, vocabulary: int, split: str = "train") -> Rows:
    """Row ``index`` of the data set, the same in every process."""
    generator = torch.Generator().manual_seed(name_seed(f"{settings.seed}:{split}:{index}"))
    length = settings.sequence_length
    tokens = torch.randint(1, vocabulary, (length + 1,), generator=generator)
    padding = _draw(0, length // 4, generator)
    input_ids, labels = tokens[:-1].clone(), tokens[1:].clone()
    position_ids, documents = torch.empty(length, dtype=torch.int64), torch.empty(length, dtype=torch.int64)
    bounds = [0, *_cuts(length - padding, settings.rows == "packed", generator), length - padding]
    for number, (start, stop) in enumerate(pairwise(bounds)):
        documents[start:stop] = number
        position_ids[start:stop] = torch.arange(stop - start)
        labels[start : start + _draw(0, (stop - start) * 3 // 4, generator)] = IGNORED_LABEL
        labels[stop - 1] = IGNORED_LABEL  # what follows is another document, or padding
    end = bounds[-1]
    input_ids[end:], labels[end:], documents[end:] = 0, IGNORED_LABEL, len(bounds) - 1
    position_ids[end:] = torch.arange(padding) if settings.rows == "packed" else torch.arange(end, length)
    return Rows((index,), *(tensor[None] for tensor in (input_ids, labels, position_ids, documents)))


def blank_row(settings: Settings) -> Rows:
    """A row that is all padding, for a data rank that has none: it takes part in every collective, and adds nothing."""
    zeros = torch.zeros(1, settings.sequence_length, dtype=torch.int64)
    positions = torch.arange(settings.sequence_length)[None]
    return Rows((), zeros, torch.full_like(zeros, IGNORED_LABEL), positions, zeros.clone())


def _cuts(length: int, packed: bool, generator: torch.Generator) -> list[int]:
    """Where documents begin, the first one apart: up to three cuts; the first document has at least 4 tokens."""
    if not packed:
        return []
    return sorted({_draw(1, length // 4 - 1, generator) * 4 + _draw(0, 3, generator) for _ in range(3)})


def _draw(low: int, high: int, generator: torch.Generator) -> int:
    """A whole number from ``low`` to ``high``, both included."""
    return int(torch.randint(low, max(low, high) + 1, (), generator=generator))
