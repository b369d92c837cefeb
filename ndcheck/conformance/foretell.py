"""What the pre-flight says of a cell: the config that a user of its engine writes, put to the rules.

What a training script says and no file holds (the loader of a loop of one's own, the model's attention) is added to the Run
that the config's dialect makes, so that the same rules judge both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ndcheck.conformance.cells import Cell
from ndcheck.conformance.engines import options
from ndcheck.dialects import ASSUMED, DIALECTS
from ndcheck.facts import Facts
from ndcheck.findings import Severity
from ndcheck.rules import NEUTRAL
from ndcheck.rules.judge import judge
from ndcheck.rules.versions import in_range
from ndcheck.run import Batch, Kernels, Loader, Run, Sequence, Sharding
from ndcheck.values import Origin, Source, Value

AXES = ("dp_replicate", "dp_shard", "cp", "tp")


ENGINES = ("accelerate", "trainer", "transformers")
"""Engines whose cells the rules can judge."""

LEVELS = ("error", "warning", "info", "silent")
"""What the pre-flight says of a cell, loudest first."""


def confusion(cells: Iterable[Mapping[str, Any]]) -> dict[str, Counter[str]]:
    """Level -> verdict -> number of cells, of the cells of a report that the rules can judge; empty if there are none."""
    table: dict[str, Counter[str]] = {level: Counter() for level in LEVELS}
    for cell in cells:
        if is_judged(cell):
            table[verdict(cell["foretold"] or {})][cell["verdict"]] += 1
    return table if any(table.values()) else {}


def is_judged(cell: Mapping[str, Any]) -> bool:
    """The cell ran, and is of an engine whose config the rules can judge."""
    return cell["engine"] in ENGINES and cell["verdict"] != "skipped"


def off_diagonal(cells: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Cells that agree in spite of an error or a warning, and cells that do not although there was at most a note."""
    judged = [cell for cell in cells if is_judged(cell)]
    loud = {cell["id"]: verdict(cell["foretold"] or {}) in ("error", "warning") for cell in judged}
    return [cell for cell in judged if loud[cell["id"]] == (cell["verdict"] == "agrees")]


def foretold(cell: Cell) -> dict[str, str]:
    """Rule -> severity, of every rule that the cell's config breaks; empty for an engine whose configs nobody reads."""
    judges = dict(zip(ENGINES, (_accelerate, _trainer, _native), strict=True))
    return judges[cell.engine](cell) if cell.engine in judges else {}


def verdict(found: Mapping[str, str]) -> str:
    """The loudest severity, or 'silent'."""
    return next((level for level in LEVELS if level in found.values()), "silent")


def launch_file(cell: Cell) -> dict[str, Any]:
    """accelerate's launch file of a cell."""
    chosen, layout = choices(cell), cell.layout
    sequence = "sp" if chosen["sequence"] == "sp" else "cp"
    sharded = layout.dp_shard > 1 or (layout.cp > 1 and sequence == "cp")
    fsdp = sharded and chosen["fsdp"] != "off"
    sizes: dict[str, int] = {
        "dp_replicate": layout.dp_replicate,
        "dp_shard": layout.dp_shard,
        "tp": layout.tp,
        sequence: layout.cp,
    }
    mesh = {f"parallelism_config_{axis}_size": size for axis, size in sizes.items() if size > 1}
    return {
        "distributed_type": "FSDP" if fsdp else "MULTI_GPU",
        "num_processes": layout.world_size,
        **({"use_cpu": True} if chosen["state"] == "cpu" else {}),
        **({"fsdp_config": {"fsdp_version": int(chosen["fsdp"])}} if fsdp else {}),
        **({"parallelism_config": mesh} if chosen["mesh"] == "own" else {}),
    }


def arguments_file(cell: Cell) -> dict[str, Any]:
    """TrainingArguments of a cell, but for the mesh, which is an object."""
    chosen, layout, settings = choices(cell), cell.layout, cell.settings
    fsdp = layout.tp == 1 and (layout.dp_shard > 1 or layout.cp > 1)
    return {
        "per_device_train_batch_size": _rows(cell),
        "gradient_accumulation_steps": settings.micro_batches,
        "max_steps": settings.steps,
        "average_tokens_across_devices": chosen["average_tokens"],
        **({"use_cpu": True} if chosen["state"] == "cpu" else {}),
        **({"fsdp": True} if fsdp else {}),
        "accelerator_config": {
            "dispatch_batches": settings.dispatch_batches,
            "split_batches": settings.split_batches,
            "even_batches": settings.even_batches,
        },
    }


def choices(cell: Cell) -> dict[str, Any]:
    """Every option of the cell's engine, defaults too."""
    return {name: options.default(cell.engine, name) for name in options.NAMES} | dict(cell.options)


def _accelerate(cell: Cell) -> dict[str, str]:
    dialect, chosen = DIALECTS["accelerate"], choices(cell)
    settings = dialect.resolve(launch_file(cell))
    run = _with_script(cell, dialect.to_run(settings, Facts()))
    local = chosen["loss"] == "local"
    return _found(judge(dialect.rules, settings, replace(run, average_tokens=_said(not local, "loss"))).violations)


def _trainer(cell: Cell) -> dict[str, str]:
    dialect = DIALECTS["transformers"]
    settings = dialect.resolve(arguments_file(cell))
    run = _with_script(cell, dialect.to_run(settings, _ranks(cell)))
    run = replace(
        run, degrees=_degrees(cell), sharding=replace(run.sharding, by_mesh=cell.layout.tp == 1 or cell.layout.cp > 1)
    )
    return _found(judge(dialect.rules, settings, run).violations)


def _native(cell: Cell) -> dict[str, str]:
    off = _said(False, "DistributedConfig")
    run = Run(
        facts=_ranks(cell),
        degrees=_degrees(cell),
        sharding=Sharding(fsdp=_said(cell.layout.dp_shard > 1, "fsdp_size"), deepspeed=off, by_mesh=False),
        batch=Batch(),
        sequence=Sequence(zigzag=off, pads=True),
        loader=_loader(cell),
        kernels=Kernels(),
    )
    return _found(judge(NEUTRAL, _with_script(cell, run)).violations)


def _with_script(cell: Cell, run: Run) -> Run:
    """The Run, with what the training script adds."""
    chosen, settings = choices(cell), cell.settings
    sequence = replace(
        run.sequence,
        attention=_said(chosen["attention"], "attn_implementation"),
        packed=_said(settings.rows == "packed", "packed rows"),
        padding_side=_said(chosen["padding"], "padding side"),
    )
    batch = replace(run.batch, micro=_said(_rows(cell), "batch size"))
    return replace(run, sequence=sequence, loader=_loader(cell), batch=batch)


def _loader(cell: Cell) -> Loader:
    settings = cell.settings
    return Loader(
        streaming=_said(settings.dataset == "iterable", "data set"),
        dispatch_batches=_said(settings.dispatch_batches, "dispatch_batches"),
        split_batches=_said(settings.split_batches, "split_batches"),
        pads_to_length=_said(True, "rows of one length"),
        even_batches=_said(settings.even_batches, "even_batches"),
    )


def _ranks(cell: Cell) -> Facts:
    return Facts(world_size=_said(cell.layout.world_size, "ranks"))


def _degrees(cell: Cell) -> dict[str, Value[int]]:
    degrees = cell.layout.degrees()
    return {axis: _said(degrees[axis], axis) for axis in AXES if degrees[axis] > 1}


def _rows(cell: Cell) -> int:
    settings = cell.settings
    return settings.micro_batch if settings.split_batches else settings.micro_batch // cell.layout.data_ranks


def _said(value: Any, name: str) -> Value[Any]:
    return Value(value, Origin(Source.DERIVED, name))


def _found(violations: list[Any]) -> dict[str, str]:
    """Rule -> the loudest severity of what it found."""
    found: dict[str, str] = {}
    for rule, violation in violations:
        severity: Severity = violation.severity or rule.severity
        if in_range(rule.versions, {}, ASSUMED) and found.get(rule.name) != "error":
            found[rule.name] = severity.value
    return found
