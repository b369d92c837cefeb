"""accelerate under test: a loop of one's own around ``Accelerator`` with a ``ParallelismConfig``, as its documentation writes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, ParallelismConfig
from accelerate.utils import DataLoaderConfiguration, FullyShardedDataParallelPlugin
from torch import Tensor, nn

from ndcheck.conformance.cells import Cell
from ndcheck.conformance.engines import stack
from ndcheck.conformance.engines.options import AccelerateOptions
from ndcheck.conformance.observe import Watch
from ndcheck.layout import Layout
from ndcheck.trainer.model import IGNORED_LABEL
from ndcheck.trainer.settings import Settings


@contextmanager
def open_session(
    layout: Layout, rank: int, scratch: Path, device: torch.device, timeout: timedelta
) -> Iterator[AccelerateSession]:
    """See the package."""
    with stack.connect(layout, rank, scratch, device, timeout) as place:
        yield AccelerateSession(place)


class AccelerateSession(stack.StackSession):
    """See ``Session``."""

    options = AccelerateOptions

    def train(self, cell: Cell, options: AccelerateOptions, watch: Watch) -> tuple[str, ...]:
        """See ``StackSession``."""
        settings, layout = cell.settings, cell.layout
        shims = stack.ring_attention(self.place) if options.sequence == "cp" else ()
        accelerator = make_accelerator(settings, layout, options, self.place)
        cut = {} if options.model == "whole" else stack.tensor_parallel(layout, accelerator.torch_device_mesh)
        model = stack.load_model(settings, self.place, options, **cut)
        optimizer = stack.make_optimizer(settings, model)
        model, optimizer = accelerator.prepare(model, optimizer)
        batches = accelerator.prepare(stack.loader(settings, layout, options.padding, self.seed(cell, options)))
        scheduler = accelerator.prepare(schedule(optimizer, settings, layout)) if options.schedule != "none" else None
        watch.begin(model)
        for parts in stack.steps(batches, settings):
            train_step(accelerator, model, parts, settings, layout, options, watch)
            if settings.max_norm is not None:
                accelerator.clip_grad_norm_(model.parameters(), settings.max_norm)
            optimizer.step()
            if scheduler is not None:
                scheduler.step()
            optimizer.zero_grad()
        return shims

    def seed(self, cell: Cell, options: AccelerateOptions) -> int | None:
        """From what this rank draws the order of the rows; None: it does not."""
        if options.shuffle == "off":
            return None
        return cell.settings.seed + (self.place.rank if options.shuffle == "apart" else 0)


def schedule(optimizer: Any, settings: Settings, layout: Layout) -> torch.optim.lr_scheduler.LRScheduler:
    """A whole learning rate for the rows of the run, none after. accelerate counts a step for each rank that reads rows."""
    steps = settings.steps * layout.data_ranks
    return torch.optim.lr_scheduler.LambdaLR(optimizer.optimizer, lambda step: float(step < steps))


def make_accelerator(settings: Settings, layout: Layout, options: AccelerateOptions, place: stack.Place) -> Accelerator:
    """``Accelerator`` for the layout; of one rank, without any parallelism."""
    sequence = {f"{options.sequence}_size": layout.cp}
    degrees = {"dp_replicate_size": layout.dp_replicate, "dp_shard_size": layout.dp_shard, "tp_size": layout.tp}
    sharded = layout.dp_shard > 1 or (layout.cp > 1 and options.sequence == "cp")
    meshed = layout.world_size > 1 and options.mesh == "own"
    plugin = (
        FullyShardedDataParallelPlugin(
            fsdp_version=int(options.fsdp),
            auto_wrap_policy="transformer_based_wrap",
            # the launcher's default would break FSDP2 over tp; here every rank reads the checkpoint
            cpu_ram_efficient_loading=False,
        )
        if sharded and options.fsdp != "off"
        else None
    )
    return Accelerator(
        cpu=place.on_cpu,
        fsdp_plugin=plugin,
        parallelism_config=ParallelismConfig(**degrees, **sequence) if meshed else None,
        dataloader_config=DataLoaderConfiguration(
            dispatch_batches=settings.dispatch_batches,
            split_batches=settings.split_batches,
            even_batches=settings.even_batches,
        ),
    )


def train_step(
    accelerator: Accelerator,
    model: nn.Module,
    parts: list[dict[str, Tensor]],
    settings: Settings,
    layout: Layout,
    options: AccelerateOptions,
    watch: Watch,
) -> None:
    """Forward and backward over the micro-batches of one step."""
    samples = tuple(row for part in parts for row in stack.take_rows(part))
    tokens = sum((part["shift_labels"] != IGNORED_LABEL).sum() for part in parts)
    assert isinstance(tokens, Tensor), "a step has a micro-batch"
    every = accelerator.gather(tokens.reshape(1)).sum() / (layout.tp * layout.cp)
    total = torch.zeros((), device=tokens.device)
    for number, part in enumerate(parts, 1):
        last = number == len(parts)
        with nullcontext() if last else accelerator.no_sync(model), sliced(accelerator, part, layout, options, watch):
            share = model(**inputs(part, layout, options, every if options.loss == "global" else None)).loss
            if options.loss == "local":
                share = share / len(parts) / (layout.data_ranks * layout.cp)
            # gradients are averaged over the ranks of the data and cp axes, and are wanted summed
            accelerator.backward(share * layout.data_ranks * layout.cp)
        total += share.detach()
    watch.losses.append(float(accelerator.gather(total.reshape(1)).sum() / layout.tp))
    watch.step(samples)


def inputs(
    part: dict[str, Tensor], layout: Layout, options: AccelerateOptions, tokens: Tensor | None
) -> dict[str, Any]:
    """What the model is called with."""
    given: dict[str, Any] = {name: tensor for name, tensor in part.items() if name != "shift_labels"}
    if layout.cp == 1 or options.labels == "shifted":
        given["shift_labels"] = part["shift_labels"]
    return given if tokens is None else given | {"num_items_in_batch": tokens}


@contextmanager
def sliced(
    accelerator: Accelerator, part: dict[str, Tensor], layout: Layout, options: AccelerateOptions, watch: Watch
) -> Iterator[None]:
    """Cut the rows over cp while active."""
    if layout.cp == 1 or options.sequence == "sp":
        yield
        return
    part.pop("attention_mask", None)
    width = part["input_ids"].shape[1]
    where = torch.arange(width, device=part["input_ids"].device)[None]
    buffers = [*part.values(), where]
    context: AbstractContextManager[None] = accelerator.maybe_context_parallel(
        buffers=buffers, buffer_seq_dims=[1] * len(buffers), no_restore_buffers=set(buffers)
    )
    with context:
        watch.positions = tuple(where[0].tolist())
        yield
