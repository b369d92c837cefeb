"""Arguments of transformers' and TRL's trainers -> a Run."""

from __future__ import annotations

from typing import Any

from ndcheck.dialects.stated import precision, stated
from ndcheck.dialects.transformers.keys import METHODS, OWN_KEYS
from ndcheck.facts import Facts
from ndcheck.run import Batch, Groups, Kernels, Loader, Run, Sequence, Sharding
from ndcheck.settings import Settings
from ndcheck.values import Origin, Source, Unreadable, Value, default, derive

AXES = ("dp_replicate", "dp_shard", "cp", "tp")
WHOSE = "transformers"
STREAMING = ("dataset_streaming", "streaming")
FORCE_DISPATCH_OFF = ("sft", "dpo", "kto", "reward")
"""Trainers of TRL that switch dispatching off for streamed data."""


def to_run(settings: Settings, facts: Facts) -> Run:
    """What the settings mean."""
    return Run(
        facts=facts,
        degrees=degrees(settings),
        degree_keys={axis: ("parallelism_config", f"{axis}_size") for axis in AXES},
        sharding=Sharding(
            fsdp=switch(settings, "fsdp"),
            fsdp_version=settings.value("fsdp_config.version"),
            deepspeed=switch(settings, "deepspeed"),
            wraps=settings.value("fsdp_config.transformer_layer_cls_to_wrap"),
            switch="fsdp: true and fsdp_config.version: 2",
            by_launcher=True,
            cpu=switch(settings, "use_cpu"),
        ),
        batch=Batch(
            micro=given(settings, "per_device_train_batch_size"),
            accumulation=given(settings, "gradient_accumulation_steps"),
        ),
        sequence=Sequence(
            length=given(settings, "max_length"),
            zigzag=default(False, WHOSE),
            pads=True,  # rows are as long as the collator makes them, which max_length bounds only
            cp_by_torch=True,
            attention=attention(settings),
            packed=packed(settings),
            padding_side=given(settings, "padding_side"),
        ),
        loader=Loader(
            streaming=derive(lambda: streaming(settings)),
            dispatch_batches=derive(lambda: dispatch(settings)),
            split_batches=switch(settings, "accelerator_config.split_batches"),
            pads_to_length=switch(settings, "packing"),
            even_batches=given(settings, "accelerator_config.even_batches"),
        ),
        kernels=Kernels(),
        optimizer=optimizer(settings),
        quantized=derive(lambda: first_on(settings, "load_in_4bit", "load_in_8bit")),
        groups=groups(settings),
        adapter=None,
        average_tokens=settings.value("average_tokens_across_devices"),
        precision=precision(settings),
        stated=stated(settings, "optim", "lr_scheduler_type"),
    )


def given(settings: Settings, key: str) -> Value[Any] | None:
    """The value in force, None if it is null."""
    value = settings.value(key)
    return None if value is None or (value.readable and value.value is None) else value


def switch(settings: Settings, key: str) -> Value[bool]:
    """A key as a boolean with its origin."""
    return derive(lambda: first_on(settings, key))


def first_on(settings: Settings, *keys: str) -> Value[bool]:
    """The first key that is on; else the first that is written; else off."""
    values = [value for key in keys if (value := settings.value(key)) is not None]
    chosen = next((value for value in values if value.value), values[0] if values else None)
    return default(False, WHOSE) if chosen is None else Value(bool(chosen.value), chosen.origin)


def degrees(settings: Settings) -> dict[str, Value[int]]:
    """The axes that are written."""
    found = {axis: given(settings, f"parallelism_config.{axis}_size") for axis in AXES}
    return {axis: value for axis, value in found.items() if value is not None}


def attention(settings: Settings) -> Value[str] | None:
    """TRL's two places for it; the arguments of the model come first."""
    return given(settings, "model_init_kwargs.attn_implementation") or given(settings, "attn_implementation")


def packed(settings: Settings) -> Value[bool] | None:
    """Rows hold several documents: packed, or flattened."""
    return derive(lambda: first_on(settings, "packing", "padding_free"))


def method(settings: Settings) -> str | None:
    """The trainer of TRL whose own arguments the file has, if it has those of one."""
    found = [name for name in METHODS if not OWN_KEYS[name].isdisjoint(settings.mapping)]
    return found[0] if len(found) == 1 else None


def streaming(settings: Settings) -> Value[bool]:
    """The data can only be iterated."""
    return first_on(settings, *STREAMING)


def dispatch(settings: Settings) -> Value[bool | None]:
    """What is written; else what TRL's trainers make of streamed data; else accelerate's choice."""
    written = settings.value("accelerator_config.dispatch_batches")
    if written is not None and written.value is not None:
        return written
    if method(settings) in FORCE_DISPATCH_OFF and streaming(settings).value:
        return Value(False, Origin(Source.DERIVED, "TRL switches it off for streamed data"))
    return default(None, "accelerate")


def optimizer(settings: Settings) -> Value[str] | None:
    """The name in ``optim``."""
    return given(settings, "optim")


def groups(settings: Settings) -> Groups | None:
    """GRPO and RLOO compare several completions of a prompt."""
    name = method(settings) or ("grpo" if "num_generations" in settings.mapping else None)
    if name not in ("grpo", "rloo"):
        return None
    batch = given(settings, "generation_batch_size")
    return Groups(
        method=Value(name, Origin(Source.DERIVED, f"keys of {name}")),
        size=given(settings, "num_generations"),
        rows=batch or derive(lambda: rows_per_rank(settings)),
        generation_batch=batch,
    )


def rows_per_rank(settings: Settings) -> Value[int]:
    """Completions of a rank in one generation."""
    micro = settings.get("per_device_train_batch_size")
    steps = settings.get("steps_per_generation") or settings.get("gradient_accumulation_steps")
    if micro is None or steps is None:
        raise Unreadable("a factor of the batch is null")
    return Value(micro * steps, Origin(Source.DERIVED, "per_device_train_batch_size x steps of a generation"))
