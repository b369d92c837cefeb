"""``transformers.Trainer`` under test, with the arguments by which its users ask for a layout.

With tp the model is sharded by transformers when it is loaded (``DistributedConfig``), since accelerate's own way is broken;
else accelerate shards it (``parallelism_config`` and ``fsdp``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from accelerate import ParallelismConfig
from torch import Tensor, nn
from transformers import Trainer, TrainerCallback, TrainingArguments

from ndcheck.conformance.cells import Cell
from ndcheck.conformance.engines import stack
from ndcheck.conformance.engines.options import TrainerOptions
from ndcheck.conformance.engines.transformers import sharding
from ndcheck.conformance.observe import Watch
from ndcheck.layout import Layout
from ndcheck.trainer.gradients import LEARNING_RATE


@contextmanager
def open_session(
    layout: Layout, rank: int, scratch: Path, device: torch.device, timeout: timedelta
) -> Iterator[TrainerSession]:
    """See the package."""
    with stack.connect(layout, rank, scratch, device, timeout) as place:
        yield TrainerSession(place)


class TrainerSession(stack.StackSession):
    """See ``Session``."""

    options = TrainerOptions

    def train(self, cell: Cell, options: TrainerOptions, watch: Watch) -> tuple[str, ...]:
        """See ``StackSession``."""
        settings, layout = cell.settings, cell.layout
        shims = stack.ring_attention(self.place)
        arguments = make_arguments(cell, options, self.place)
        model = stack.load_model(settings, self.place, options, **cut(layout, arguments))
        trainer = WatchedTrainer(
            watch,
            model=model,
            args=arguments,
            train_dataset=stack.dataset(settings, options.padding),
            data_collator=collate,
            callbacks=[Losses(watch)],
        )
        if layout.cp > 1:
            stack.note_positions(model, watch)
        trainer.train()
        return shims


def make_arguments(cell: Cell, options: TrainerOptions, place: stack.Place) -> TrainingArguments:
    """What a user writes for the layout, and whatever makes a run comparable: no warm-up, no shuffling, no rounding of logs."""
    settings, layout = cell.settings, cell.layout
    relabelled = place.on_cpu and options.state == "relabelled" and layout.world_size > 1
    by_accelerate = layout.tp == 1 or not stack.shards_natively()
    fsdp = by_accelerate and (layout.dp_shard > 1 or layout.cp > 1)
    return TrainingArguments(
        output_dir=str(place.scratch / f"output-{place.rank}"),
        use_cpu=place.on_cpu,
        per_device_train_batch_size=stack.batch_size(settings, layout),
        gradient_accumulation_steps=settings.micro_batches,
        max_steps=settings.steps,
        optim="sgd",
        learning_rate=LEARNING_RATE[settings.optimizer],
        lr_scheduler_type="constant",
        weight_decay=0.0,
        max_grad_norm=settings.max_norm or 0.0,
        average_tokens_across_devices=options.average_tokens,
        accelerator_config={
            "dispatch_batches": settings.dispatch_batches,
            "split_batches": settings.split_batches,
            "even_batches": settings.even_batches,
            "use_configured_state": relabelled,
        },
        parallelism_config=parallelism(layout, options),
        fsdp=True if fsdp else None,
        fsdp_config={"version": 2} if fsdp else None,
        train_sampling_strategy="sequential",
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        logging_steps=1,
        logging_nan_inf_filter=False,
        disable_tqdm=True,
        report_to=[],
        save_strategy="no",
        seed=settings.seed,
    )


def cut(layout: Layout, arguments: TrainingArguments) -> dict[str, Any]:
    """Arguments of ``from_pretrained`` for a layout with tp; where the release does not shard natively, by accelerate's mesh."""
    if layout.tp == 1 or stack.shards_natively():
        return sharding(layout) if layout.tp > 1 else {}
    return stack.tensor_parallel(layout, arguments.parallelism_config.build_device_mesh(arguments.device.type))


def parallelism(layout: Layout, options: TrainerOptions) -> ParallelismConfig | None:
    """The ``parallelism_config`` of a layout. A model that transformers has sharded brings its own mesh, and needs none."""
    if layout.tp > 1 and layout.cp == 1 and stack.shards_natively():
        return ParallelismConfig() if options.mesh == "stale" else None
    if layout.dp_shard == layout.cp == layout.tp == 1:
        return None
    return ParallelismConfig(
        dp_replicate_size=layout.dp_replicate, dp_shard_size=layout.dp_shard, cp_size=layout.cp, tp_size=layout.tp
    )


def collate(samples: list[stack.Sample]) -> dict[str, Tensor]:
    """What a collator hands to Trainer: labels unshifted, positions where rows are packed."""
    batch = stack.collate(samples)
    del batch["shift_labels"]
    if "attention_mask" in batch:
        del batch["position_ids"]
    return batch


class WatchedTrainer(Trainer):  # type: ignore[misc]
    """Tells ``watch`` which rows a step had, and shows it the gradients before they are clipped."""

    def __init__(self, watch: Watch, **arguments: Any):
        super().__init__(**arguments)
        self.watch = watch
        self.read: tuple[int, ...] = ()

    def training_step(self, model: nn.Module, inputs: dict[str, Any], *rest: Any, **more: Any) -> Tensor:
        """One micro-batch."""
        if not hasattr(self.watch, "network"):
            self.watch.begin(model)
        self.read += stack.take_rows(inputs)
        loss: Tensor = super().training_step(model, inputs, *rest, **more)
        if self.accelerator.sync_gradients:
            self.watch.step(self.read)
            self.read = ()
        return loss


class Losses(TrainerCallback):  # type: ignore[misc]
    """Takes down the loss that Trainer logs for each step."""

    def __init__(self, watch: Watch):
        self.watch = watch

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        """One line of the log."""
        if logs is not None and "loss" in logs:
            self.watch.losses.append(logs["loss"])
