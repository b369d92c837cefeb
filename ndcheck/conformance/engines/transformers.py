"""transformers' own parallelism under test: ``DistributedConfig``, a loop of one's own, and accelerate's loader. No shim."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.data_loader import prepare_data_loader
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from transformers.distributed import DistributedConfig

from ndcheck.conformance.cells import Cell
from ndcheck.conformance.engines import Refused, stack
from ndcheck.conformance.engines.options import NativeOptions
from ndcheck.conformance.observe import Watch
from ndcheck.layout import Layout
from ndcheck.trainer.model import IGNORED_LABEL
from ndcheck.trainer.settings import Settings


@contextmanager
def open_session(
    layout: Layout, rank: int, scratch: Path, device: torch.device, timeout: timedelta
) -> Iterator[NativeSession]:
    """See the package."""
    with stack.connect(layout, rank, scratch, device, timeout) as place:
        yield NativeSession(place)


class NativeSession(stack.StackSession):
    """See ``Session``."""

    options = NativeOptions

    def train(self, cell: Cell, options: NativeOptions, watch: Watch) -> tuple[str, ...]:
        """See ``StackSession``."""
        settings, layout = cell.settings, cell.layout
        if layout.cp > 1:
            raise Refused("DistributedConfig has no cp axis")
        if not stack.shards_natively():
            raise Refused("DistributedConfig of this release has no sizes")
        if settings.max_norm is not None:
            raise Refused("transformers has no clipping of its own for a sharded model outside of its Trainer")
        Accelerator(cpu=self.place.on_cpu)  # the loaders look for its state
        model = stack.load_model(settings, self.place, options, **sharding(layout))
        batches = prepare_loader(settings, layout, options, self.place)
        optimizer = stack.make_optimizer(settings, model)
        watch.begin(model)
        for parts in stack.steps(batches, settings):
            train_step(model, parts, layout, watch)
            optimizer.step()
            optimizer.zero_grad()
        return ()


def sharding(layout: Layout) -> dict[str, Any]:
    """Arguments of ``from_pretrained`` that shard a model over ``layout``; none for one rank.

    Only sizes above 1 are said: not every release knows every axis.
    """
    sizes = {"tp_size": layout.tp, "fsdp_size": layout.dp_shard, "dp_replicate_size": layout.dp_replicate}
    said = {name: size for name, size in sizes.items() if size > 1}
    return {"distributed_config": DistributedConfig(**said)} if said else {}


def prepare_loader(settings: Settings, layout: Layout, options: NativeOptions, place: stack.Place) -> Any:
    """accelerate's loader for a mesh with accelerate's axis names."""
    axes, shape = layout.mesh_axes, layout.mesh_shape
    mesh = init_device_mesh(place.device.type, shape, mesh_dim_names=axes) if axes else None
    return prepare_data_loader(
        stack.loader(settings, layout, options.padding),
        place.device,
        put_on_device=True,
        rng_types=[],
        split_batches=settings.split_batches,
        dispatch_batches=settings.dispatch_batches,
        even_batches=settings.even_batches,
        torch_device_mesh=mesh,
    )


def train_step(model: nn.Module, parts: list[dict[str, Tensor]], layout: Layout, watch: Watch) -> None:
    """Forward and backward over the micro-batches of one step."""
    samples = tuple(row for part in parts for row in stack.take_rows(part))
    tokens = summed(sum((part["shift_labels"] != IGNORED_LABEL).sum() for part in parts), layout)
    total = torch.zeros((), device=tokens.device)
    for part in parts:
        share = model(**part, num_items_in_batch=tokens).loss
        # FSDP averages gradients over the data ranks, and they are wanted summed
        (share * layout.data_ranks).backward()
        total += share.detach()
    watch.losses.append(float(summed(total, layout)))
    watch.step(samples)


def summed(value: Any, layout: Layout) -> Tensor:
    """The sum over data ranks: tp peers hold the same."""
    total: Tensor = value.clone()
    if layout.world_size > 1:
        dist.all_reduce(total)
    return total / layout.tp
