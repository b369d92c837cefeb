"""DeepSpeed's config -> a Run. What ``auto`` stands for is in another file, and stays unknown."""

from __future__ import annotations

from typing import Any

from ndcheck.facts import Facts
from ndcheck.run import Batch, Kernels, Loader, Run, Sequence, Sharding
from ndcheck.settings import Settings
from ndcheck.values import Origin, Source, Value, default

WHOSE = "DeepSpeed"
STATED = {
    "bf16": "bf16.enabled",
    "fp16": "fp16.enabled",
    "learning_rate": "optimizer.params.lr",
    "adam_betas": "optimizer.params.betas",
    "adam_epsilon": "optimizer.params.eps",
    "weight_decay": "optimizer.params.weight_decay",
    "max_grad_norm": "gradient_clipping",
    "top_learning_rate": "scheduler.params.warmup_max_lr",
    "optimizer": "optimizer.type",
    "scheduler": "scheduler.type",
}
"""What a trainer states as well -> DeepSpeed's key."""


def to_run(settings: Settings, facts: Facts) -> Run:
    """What the settings mean."""
    return Run(
        facts=facts,
        degrees=degrees(settings, facts),
        degree_keys={"tp": ("tensor_parallel", "autotp_size")},
        sharding=Sharding(
            fsdp=default(False, WHOSE),
            deepspeed=Value(True, Origin(Source.DERIVED, "the file is DeepSpeed's")),
            by_mesh=False,
        ),
        batch=Batch(
            micro=given(settings, "train_micro_batch_size_per_gpu"),
            accumulation=given(settings, "gradient_accumulation_steps"),
            total=given(settings, "train_batch_size"),
        ),
        sequence=Sequence(zigzag=default(False, WHOSE), pads=True, ulysses=given(settings, "sequence_parallel_size")),
        loader=Loader(
            streaming=default(False, WHOSE),
            dispatch_batches=default(None, "accelerate"),
            split_batches=default(False, WHOSE),
            pads_to_length=default(True, WHOSE),
        ),
        kernels=Kernels(),
        stated={name: value for name, key in STATED.items() if (value := given(settings, key)) is not None},
    )


def given(settings: Settings, key: str) -> Value[Any] | None:
    """The value in force; None if it is null, or auto."""
    value = settings.value(key)
    return None if value is None or (value.readable and value.value in (None, "auto")) else value


def degrees(settings: Settings, facts: Facts) -> dict[str, Value[int]]:
    """AutoTP, and replicas over the ranks that it and Ulysses leave, if they are whole."""
    tp, ulysses = given(settings, "tensor_parallel.autotp_size"), given(settings, "sequence_parallel_size")
    # 0 is DeepSpeed's word for none
    found = {"tp": tp} if tp is not None and not (tp.readable and tp.value == 0) else {}
    inner = 1
    for value in (*found.values(), ulysses):
        inner *= value.value if value is not None and value.readable else 1
    world = facts.world_size
    if world is None or inner < 1 or world.value % inner:
        return found
    left = Origin(Source.DERIVED, "the ranks that are left")
    return {**found, "dp_replicate": Value(world.value // inner, left)}
