"""Loaders: which data rank gets which rows, and who reads them.

Rows are handed out in micro-batches. For 2 data ranks and micro-batches of 4 rows, 10 rows in all::

                       split_batches: true              split_batches: false
                       one batch of 4, cut              batches of 2, dealt in turn
      data rank 0      [0 1]  [4 5]  [8 9]              [0 1]  [4 5]  [8 9]
      data rank 1      [2 3]  [6 7]  [0 1]  *           [2 3]  [6 7]  [0 1]  *

      *  even_batches: true completes the last micro-batch with rows from the start, so every rank has as many.
         even_batches: false leaves them out: rank 1 has no rows then. It trains on one blank row that has no labels,
         so that no collective waits for it for ever, and every row counts exactly once.

``dispatch_batches``: rank 0 alone reads a micro-batch (one batch, or one for each data rank), sends it to all, and
each takes its rows. Otherwise every rank reads its own; of a stream, it reads all and keeps its own.

Whatever the mode: data ranks get different rows, cp and tp peers the same; ``slice_rows`` then cuts tokens over cp.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import torch
import torch.distributed as dist
from torch import Tensor

from ndcheck.trainer.context_parallel import slice_positions
from ndcheck.trainer.data import MapDataset, Rows, StreamDataset, blank_row, join
from ndcheck.trainer.mesh import Mesh
from ndcheck.trainer.settings import Settings


@dataclass(frozen=True)
class Batch:
    """A rank's share of one micro-batch: B rows, S / cp tokens of each.

    ``samples``: their indices, none for a blank row. ``input_ids``, ``labels``, ``position_ids``:
    int64 [B, S / cp]. ``documents``: int64 [B, S], whole, since keys of other slices belong to documents too.
    """

    samples: tuple[int, ...]
    input_ids: Tensor
    labels: Tensor
    position_ids: Tensor
    documents: Tensor


def load(dataset: MapDataset, mesh: Mesh, *, even: bool) -> Iterator[Batch]:
    """This rank's share of every micro-batch of one epoch."""
    settings = dataset.settings
    shares = dispatched if settings.dispatch_batches else own_shares
    for rows in shares(dataset, mesh, even):
        yield slice_rows(rows if rows is not None else blank_row(settings), settings, mesh)


def slice_rows(rows: Rows, settings: Settings, mesh: Mesh) -> Batch:
    """This cp rank's tokens of ``rows``, on its device."""
    positions = slice_positions(settings, mesh.layout.cp, mesh.index("cp"))
    input_ids, labels, position_ids = (
        tensor[:, positions].to(mesh.device) for tensor in (rows.input_ids, rows.labels, rows.position_ids)
    )
    return Batch(rows.samples, input_ids, labels, position_ids, rows.documents.to(mesh.device))


def own_shares(dataset: MapDataset, mesh: Mesh, even: bool) -> Iterator[Rows | None]:
    """Every rank reads for itself; None where it has no rows."""
    settings, size = dataset.settings, share_size(dataset.settings, mesh)
    if settings.dataset == "iterable":
        for rows in micro_batches_of_stream(dataset, settings.micro_batch, even):
            yield share(rows, mesh.data_rank, size)
        return
    indices = epoch_indices(len(dataset), settings.micro_batch, even)
    cut = cut_batches if settings.split_batches else deal_batches
    for mine in cut(indices, size, mesh.layout.data_ranks, mesh.data_rank):
        yield join([dataset[index] for index in mine]) if mine else None


def dispatched(dataset: MapDataset, mesh: Mesh, even: bool) -> Iterator[Rows | None]:
    """Rank 0 reads and sends; None where this rank has no rows."""
    settings, size = dataset.settings, share_size(dataset.settings, mesh)
    source = read_micro_batches(dataset, mesh, even) if mesh.rank == 0 else None
    while (rows := send(next(source, None) if source is not None else None, settings, mesh)) is not None:
        yield share(rows, mesh.data_rank, size)


def read_micro_batches(dataset: MapDataset, mesh: Mesh, even: bool) -> Iterator[Rows]:
    """What the dispatcher reads: micro-batches, as one batch each or as one batch for each data rank."""
    settings = dataset.settings
    if settings.dataset == "iterable":
        yield from micro_batches_of_stream(dataset, settings.micro_batch, even)
        return
    indices = epoch_indices(len(dataset), settings.micro_batch, even)
    size = settings.micro_batch if settings.split_batches else share_size(settings, mesh)
    batches = (join([dataset[index] for index in indices[at : at + size]]) for at in range(0, len(indices), size))
    while round_ := list(islice(batches, settings.micro_batch // size)):
        yield join(round_)


def send(rows: Rows | None, settings: Settings, mesh: Mesh) -> Rows | None:
    """Rank 0's rows, to everybody; None (from rank 0) ends the epoch. Two broadcasts: how many rows, then the rows."""
    if mesh.device_mesh is None:
        return rows
    count = torch.tensor(len(rows.samples) if rows is not None else 0, device=mesh.device)
    dist.broadcast(count, src=0)
    if not count:
        return None
    width = settings.sequence_length
    packet = torch.empty(int(count), 1 + 4 * width, dtype=torch.int64, device=mesh.device)
    if rows is not None:
        packet.copy_(torch.cat([torch.tensor(rows.samples)[:, None], *rows.tensors], dim=1))
    dist.broadcast(packet, src=0)
    samples, *tensors = packet.cpu().split([1, width, width, width, width], dim=1)
    return Rows(tuple(samples.flatten().tolist()), *tensors)


def share_size(settings: Settings, mesh: Mesh) -> int:
    """Rows of a full micro-batch that belong to one data rank."""
    return settings.micro_batch // mesh.layout.data_ranks


def share(rows: Rows, data_rank: int, size: int) -> Rows | None:
    """A data rank's rows of a micro-batch, None if a short one leaves it none."""
    mine = rows.take(data_rank * size, (data_rank + 1) * size)
    return mine if mine.samples else None


def epoch_indices(samples: int, micro_batch: int, even: bool) -> list[int]:
    """The rows of an epoch in order: each once and, if ``even``, some from the start again to complete the last micro-batch."""
    missing = -samples % micro_batch if even else 0
    return [*range(samples), *(index % samples for index in range(missing))]


def cut_batches(indices: list[int], size: int, data_ranks: int, data_rank: int) -> Iterator[list[int]]:
    """split_batches: a batch of ``data_ranks`` x ``size`` rows is cut; a rank takes its part of each."""
    for start in range(0, len(indices), data_ranks * size):
        batch = indices[start : start + data_ranks * size]
        yield batch[data_rank * size : (data_rank + 1) * size]


def deal_batches(indices: list[int], size: int, data_ranks: int, data_rank: int) -> Iterator[list[int]]:
    """Not split_batches: batches of ``size`` rows are dealt; a rank takes every ``data_ranks``-th, [] in a round without one."""
    batches = [indices[start : start + size] for start in range(0, len(indices), size)]
    for first in range(0, len(batches), data_ranks):
        dealt = batches[first : first + data_ranks]
        yield dealt[data_rank] if data_rank < len(dealt) else []


def micro_batches_of_stream(dataset: MapDataset, size: int, even: bool) -> Iterator[Rows]:
    """Cut a stream into micro-batches; to complete the last one it keeps the first rows that came by."""
    stream = iter(StreamDataset(dataset))
    first: list[Rows] = []
    while rows := list(islice(stream, size)):
        first = first or rows
        if even:
            rows += [first[index % len(first)] for index in range(size - len(rows))]
        yield join(rows)
