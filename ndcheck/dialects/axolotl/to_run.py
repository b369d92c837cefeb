"""axolotl's settings -> a Run."""

from __future__ import annotations

from typing import Any

from ndcheck.dialects.stated import precision, stated
from ndcheck.facts import Facts
from ndcheck.run import Batch, Groups, Kernels, Loader, Run, Sequence, Sharding
from ndcheck.settings import Settings
from ndcheck.values import Origin, Source, Value, default, derive

DEGREE_KEYS = {
    "dp_replicate": "dp_replicate_size",
    "dp_shard": "dp_shard_size",
    "cp": "context_parallel_size",
    "tp": "tensor_parallel_size",
    "ep": "expert_parallel_size",
}
"""Axis -> axolotl's key. There is no pipeline parallelism in axolotl."""

LIGER_FLAGS = ("liger_rope", "liger_fused_linear_cross_entropy", "liger_layer_norm")


def to_run(settings: Settings, facts: Facts) -> Run:
    """What the settings mean."""
    return Run(
        facts=facts,
        degrees=_degrees(settings),
        degree_keys={axis: (key,) for axis, key in DEGREE_KEYS.items()},
        sharding=Sharding(
            fsdp=derive(lambda: _fsdp(settings)),
            fsdp_version=_given(settings, "fsdp_version") or _pinned_version(settings),
            deepspeed=_switch(settings, "deepspeed"),
            stands_beside=frozenset({"cp", "ep"}),  # context and expert parallelism may stand alone beside FSDP1
            wraps=settings.value("fsdp_config.transformer_layer_cls_to_wrap"),
            switch="fsdp_version: 2 and an fsdp_config",
            fills=True,
        ),
        batch=Batch(
            micro=_given(settings, "micro_batch_size"),
            accumulation=derive(lambda: _accumulation(settings)),
        ),
        sequence=Sequence(
            length=_given(settings, "sequence_len"),
            zigzag=derive(lambda: _zigzag(settings)),
            pads=True,  # axolotl's collator pads rows to a multiple of 64 or of cp
        ),
        loader=Loader(
            streaming=derive(lambda: _streaming(settings)),
            dispatch_batches=derive(lambda: _dispatch(settings)),
            split_batches=_switch(settings, "accelerator_config.split_batches"),
            pads_to_length=_switch(settings, "pad_to_sequence_len", "sample_packing"),
        ),
        kernels=Kernels(
            key_stride=_key_stride(settings),
            liger_flags={name: value for name in LIGER_FLAGS if (value := settings.value(name)) is not None},
            liger_rms_norm=settings.value("liger_rms_norm"),
            liger_loss=settings.value("liger_cross_entropy"),
            liger_fused_loss=settings.value("liger_fused_linear_cross_entropy"),
        ),
        optimizer=_given(settings, "optimizer"),
        quantized=_switch(settings, "load_in_4bit", "load_in_8bit"),
        groups=_groups(settings),
        adapter=_given(settings, "adapter"),
        reentrant=derive(lambda: _reentrant(settings)),
        precision=precision(settings),
        stated=stated(settings, "optimizer", "lr_scheduler"),
    )


def model_path(settings: Settings) -> Value[str] | None:
    """``base_model``, which may be a local directory."""
    value = settings.value("base_model")
    return value if value is not None and value.readable and isinstance(value.value, str) else None


def _given(settings: Settings, key: str) -> Value[Any] | None:
    value = settings.value(key)
    return None if value is None or (value.readable and value.value is None) else value


def _degrees(settings: Settings) -> dict[str, Value[int]]:
    found = {axis: _given(settings, key) for axis, key in DEGREE_KEYS.items()}
    return {axis: value for axis, value in found.items() if value is not None}


def _key_stride(settings: Settings) -> Value[int] | None:
    """Only varlen_llama3 takes key heads in strides; axolotl chooses it for packed rows."""
    kernel = settings.value("ring_attn_func")
    if kernel is not None and kernel.readable and kernel.value is not None:
        return _given(settings, "heads_k_stride") if kernel.value == "varlen_llama3" else None
    packed = settings.value("sample_packing")
    return _given(settings, "heads_k_stride") if packed is not None and packed.readable and packed.value else None


def _switch(settings: Settings, *keys: str) -> Value[bool]:
    """The first key that is on, as a boolean with its origin; else the first that is written; else off."""

    def compute() -> Value[bool]:
        values = [value for key in keys if (value := settings.value(key)) is not None]
        chosen = next((value for value in values if value.value), values[0] if values else None)
        return default(False, settings.whose) if chosen is None else Value(bool(chosen.value), chosen.origin)

    return derive(compute)


def _fsdp(settings: Settings) -> Value[bool]:
    """A non-empty ``fsdp_config`` or a non-empty ``fsdp`` list switches FSDP on."""
    for key in ("fsdp_config", "fsdp"):
        value = settings.value(key)
        if value is not None and value.value:
            return Value(True, value.origin)
    written = settings.written("fsdp_config")
    return default(False, settings.whose) if written is None else Value(False, written.origin)


def _pinned_version(settings: Settings) -> Value[int]:
    return derive(
        lambda: Value(1 if _fsdp(settings).value else 2, Origin(Source.DEFAULT, "axolotl's default without a version"))
    )


def _accumulation(settings: Settings) -> Value[int]:
    """axolotl: the steps, else batch_size // micro_batch_size, which the default of 1 makes unreachable unless null."""
    steps = settings.value("gradient_accumulation_steps")
    if steps is not None and steps.value:
        return steps
    total, micro = settings.get("batch_size"), settings.get("micro_batch_size")
    count = total // micro if total and micro else 1
    return Value(count, Origin(Source.DERIVED, "batch_size // micro_batch_size"))


def _reentrant(settings: Settings) -> Value[bool]:
    """Checkpointing is on, and the reentrant form is asked for."""
    form = settings.value("gradient_checkpointing_kwargs.use_reentrant")
    if form is None or not settings.on("gradient_checkpointing"):
        return default(False, settings.whose)
    return Value(bool(form.value), form.origin)


def _groups(settings: Settings) -> Groups | None:
    method = _given(settings, "rl")
    if method is None:
        return None
    batch = _given(settings, "trl.generation_batch_size")
    return Groups(
        method=method,
        size=_given(settings, "trl.num_generations"),
        rows=batch or derive(lambda: _rows_per_rank(settings)),
        generation_batch=batch,
    )


def _rows_per_rank(settings: Settings) -> Value[int]:
    micro, steps = settings.get("micro_batch_size") or 1, settings.get("gradient_accumulation_steps") or 1
    return Value(micro * steps, Origin(Source.DERIVED, "micro_batch_size x gradient_accumulation_steps"))


def _zigzag(settings: Settings) -> Value[bool]:
    """axolotl's two ring kernels slice contiguously; a zig-zag one can be written, though it is refused."""
    for problem in settings.problems:
        if problem.path == ("ring_attn_func",) and isinstance(problem.value, str):
            return Value(
                "zigzag" in problem.value.lower().replace("_", ""), Origin(Source.KEY, "ring_attn_func", problem.path)
            )
    return default(False, settings.whose)


def _streaming(settings: Settings) -> Value[bool]:
    for key in ("pretraining_dataset", "streaming"):
        value = settings.value(key)
        if value is not None and value.value:
            return Value(True, value.origin)
    return default(False, settings.whose)


def _dispatch(settings: Settings) -> Value[bool | None]:
    """What is written; else off for pretraining_dataset (axolotl's own default); else accelerate's choice (None)."""
    written = settings.value("accelerator_config.dispatch_batches")
    if written is not None and written.value is not None:
        return written
    if settings.on("pretraining_dataset"):
        return default(False, settings.whose)
    return default(None, "accelerate")
