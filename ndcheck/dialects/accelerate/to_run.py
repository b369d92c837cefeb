"""accelerate's launch file -> a Run. What a training script says is not in it, and stays unknown."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from ndcheck.facts import Facts
from ndcheck.run import Batch, Kernels, Loader, Run, Sequence, Sharding
from ndcheck.settings import Settings
from ndcheck.values import Origin, Source, Value, default, derive

MESH = "parallelism_config.parallelism_config_{}_size"
DEGREE_KEYS = {axis: MESH.format(axis) for axis in ("dp_replicate", "dp_shard", "cp", "tp")}
"""Axis -> accelerate's key."""
MEGATRON_KEYS = {
    "tp": "megatron_lm_config.tp_degree",
    "pp": "megatron_lm_config.pp_degree",
    "cp": "megatron_lm_config.context_parallel_size",
}
"""Axis -> the key that counts under Megatron-LM, which fills the rest with replicas."""
SP = MESH.format("sp")
SWITCH = "distributed_type: FSDP and fsdp_config.fsdp_version: 2"


def to_run(settings: Settings, facts: Facts) -> Run:
    """What the settings mean."""
    facts = with_processes(settings, facts)
    return Run(
        facts=facts,
        degrees=degrees(settings, facts),
        degree_keys={axis: tuple(key.split(".")) for axis, key in DEGREE_KEYS.items()},
        sharding=Sharding(
            fsdp=derive(lambda: type_is(settings, "FSDP")),
            fsdp_version=settings.value("fsdp_config.version"),
            deepspeed=derive(lambda: type_is(settings, "DEEPSPEED")),
            wraps=settings.value("fsdp_config.transformer_layer_cls_to_wrap"),
            switch=SWITCH,
            by_mesh=not is_megatron(settings),
            cpu=derive(lambda: on_cpu(settings)),
        ),
        batch=Batch(accumulation=_number(settings, "gradient_accumulation_steps")),
        sequence=Sequence(
            zigzag=default(False, "accelerate"),  # load balancing needs a multiple of 2 x cp, and falls back without it
            pads=False,
            cp_by_torch=True,
            attention=settings.value("parallelism_config.parallelism_config_sp_attn_implementation"),
            ulysses=settings.value(SP),
        ),
        loader=Loader(
            streaming=default(False, "accelerate"),
            dispatch_batches=default(None, "accelerate"),
            split_batches=default(False, "accelerate"),
            pads_to_length=default(True, "accelerate"),
        ),
        kernels=Kernels(),
        precision=_precision(settings),
        stated={"max_grad_norm": clipping} if (clipping := _number(settings, "gradient_clipping")) else {},
    )


def degrees(settings: Settings, facts: Facts) -> dict[str, Value[int]]:
    """The axes that are written; Megatron-LM's own replace the mesh."""
    keys = MEGATRON_KEYS if is_megatron(settings) else DEGREE_KEYS
    values = {axis: settings.value(key) for axis, key in keys.items()}
    found = {axis: value for axis, value in values.items() if value is not None and not is_null(value)}
    return found if keys is DEGREE_KEYS else found | _replicas(found, facts)


def _replicas(found: dict[str, Value[int]], facts: Facts) -> dict[str, Value[int]]:
    """What is left of the ranks after Megatron-LM's own axes, if it is whole."""
    inner = prod(value.value for value in found.values() if value.readable)
    if facts.world_size is None or inner < 1 or facts.world_size.value % inner:
        return {}
    return {"dp_replicate": Value(facts.world_size.value // inner, Origin(Source.DERIVED, "the ranks that are left"))}


def is_null(value: Value[object]) -> bool:
    """Written, and empty."""
    return value.readable and value.value is None


def type_is(settings: Settings, wanted: str) -> Value[bool]:
    """Whether ``distributed_type`` is this one."""
    value = settings.value("distributed_type")
    if value is None:
        return default(False, "accelerate")
    return Value(value.value == wanted, Origin(Source.DERIVED, f"distributed_type {value.value}", value.path))


def is_megatron(settings: Settings) -> bool:
    """Megatron-LM runs the ranks."""
    value = derive(lambda: type_is(settings, "MEGATRON_LM"))
    return value.readable and value.value


def on_cpu(settings: Settings) -> Value[bool]:
    """Ranks run on CPUs: by ``use_cpu``, or by the type."""
    value = settings.value("use_cpu")
    if value is not None and value.value:
        return Value(True, value.origin)
    return type_is(settings, "MULTI_CPU")


def with_processes(settings: Settings, facts: Facts) -> Facts:
    """The facts, completed by the file: a flag or the environment wins, as it does in the launcher."""
    if facts.world_size is None:
        one = derive(lambda: type_is(settings, "NO"))
        processes = settings.value("num_processes")
        if one.readable and one.value:
            facts = replace(facts, world_size=Value(1, one.origin))
        elif processes is not None and processes.readable and processes.value is not None and processes.value >= 1:
            facts = replace(facts, world_size=processes)
    return _with_machines(settings, facts)


def _with_machines(settings: Settings, facts: Facts) -> Facts:
    machines, world = settings.value("num_machines"), facts.world_size
    if facts.gpus_per_node is not None or machines is None or not machines.readable or world is None:
        return facts
    if not machines.value or machines.value < 1 or world.value % machines.value:
        return facts
    each = Value(world.value // machines.value, Origin(Source.DERIVED, f"{world} / {machines}"))
    return replace(facts, nodes=machines, gpus_per_node=each)


def _number(settings: Settings, key: str) -> Value[Any] | None:
    """A number that the launcher hands to DeepSpeed."""
    value = settings.value(f"deepspeed_config.{key}")
    return value if value is not None and value.readable and isinstance(value.value, int | float) else None


def _precision(settings: Settings) -> Value[str] | None:
    """``mixed_precision``; false is YAML's reading of no."""
    value = settings.value("mixed_precision")
    if value is None or not value.readable or value.value is None:
        return None
    word = value.value or "no"
    return Value(word, Origin(Source.DERIVED, f"mixed_precision {word}", value.path))
