"""Files that belong to one run: what one of them leaves open, another one says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ndcheck.facts import Facts
from ndcheck.run import Run
from ndcheck.values import Origin, Source, Value, dotted


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two files of one run, and their names: what each says by itself."""

    first: Run
    second: Run
    names: tuple[str, str]


class Launched(Pair):
    """A launch file, and the training file that it starts."""


class Driven(Pair):
    """A file that hands its ranks to an engine, and the engine's config."""


def elsewhere(value: Value[Any], name: str) -> Value[Any]:
    """A value of the file ``name``, as another file quotes it: it has no place there."""
    origin = value.origin
    text = dotted(value.path) if value.path else origin.text
    return Value(
        value.value if value.readable else None, Origin(Source.FLAG, f"{text} in {name}"), readable=value.readable
    )


def with_ranks(facts: Facts, launch: Run, name: str) -> Facts:
    """The facts, with the counts that only the launch file knows."""
    known = launch.facts
    return replace(
        facts,
        world_size=facts.world_size or _count(known.world_size, name),
        nodes=facts.nodes or _count(known.nodes, name),
        gpus_per_node=facts.gpus_per_node or _count(known.gpus_per_node, name),
    )


def _count(value: Value[int] | None, name: str) -> Value[int] | None:
    return value if value is None or value.origin.source is not Source.KEY else elsewhere(value, name)


def started_by(training: Run, launch: Run, name: str) -> Run:
    """A training file's run with the axes and the engine that only its launch file sets up."""
    sharding = training.sharding
    above = launch.sharding
    if not (_on(sharding.fsdp) or _on(sharding.deepspeed)) and (_on(above.fsdp) or _on(above.deepspeed)):
        sharding = replace(
            sharding,
            fsdp=elsewhere(above.fsdp, name),
            fsdp_version=elsewhere(above.fsdp_version, name) if above.fsdp_version else None,
            deepspeed=elsewhere(above.deepspeed, name),
        )
    degrees = training.degrees
    if all(value.readable and value.value <= 1 for value in degrees.values()):
        # a trainer with degrees of its own hands over those, and the launcher's are not read
        degrees = _filled(degrees, launch.degrees, name)
    return replace(training, degrees=degrees, sharding=sharding)


def driven_by(engine: Run, trainer: Run, name: str) -> Run:
    """An engine's run with the rows and axes that its trainer states, which stand where the engine's file says ``auto``."""
    micro, accumulation = trainer.batch.micro, trainer.batch.accumulation
    batch = replace(
        engine.batch,
        micro=engine.batch.micro or (elsewhere(micro, name) if micro else None),
        accumulation=engine.batch.accumulation or (elsewhere(accumulation, name) if accumulation else None),
    )
    own = {axis: value for axis, value in engine.degrees.items() if axis != "dp_replicate"}
    inner = {axis: value for axis, value in trainer.degrees.items() if axis in ("tp", "cp", "pp")}
    return replace(engine, degrees=_filled(own, inner, name), batch=batch)


def _filled(own: Mapping[str, Value[int]], others: Mapping[str, Value[int]], name: str) -> dict[str, Value[int]]:
    return {**{axis: elsewhere(value, name) for axis, value in others.items()}, **own}


def _on(value: Value[bool]) -> bool:
    return value.readable and bool(value.value)
