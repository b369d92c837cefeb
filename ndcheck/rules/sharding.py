"""Rules about FSDP and DeepSpeed against the mesh."""

from __future__ import annotations

from collections.abc import Iterator

from ndcheck.findings import Fix, Note, Severity, Violation, notes, place
from ndcheck.rules.conditions import on
from ndcheck.rules.rule import Rule, conditional, rule
from ndcheck.run import Run

FSDP2 = "fsdp_version: 2\nfsdp_config: {reshard_after_forward: true}\n"


@rule(
    "ND201",
    Severity.ERROR,
    Run,
    evidence="axolotl 0.18 distributed.py:359, reached only with tp or cp; without them the key does nothing (run)",
    bad="dp_shard_size: 8\n",
    good=f"dp_shard_size: 8\n{FSDP2}",
    given={"world_size": 8},
    unchecked=True,
)
def fsdp_required(run: Run) -> Iterator[Violation]:
    """dp_shard above 1 needs FSDP.

    dp_shard says over how many ranks FSDP cuts each parameter. With FSDP off nothing cuts anything:
    every rank keeps a whole copy, and the memory that the degree was to save is not saved.
    """
    if run.degree("dp_shard") == 1 or run.sharding.fsdp.value:
        return
    shard = run.degrees["dp_shard"]
    engine = " (DeepSpeed shards by its own ZeRO stage)" if run.sharding.deepspeed.value else ""
    message = f"{shard}, but FSDP is off, so nothing is sharded{engine}"
    fix = Fix(f"switch FSDP2 on: {run.sharding.switch}")
    off = tuple(Note(path, "FSDP is off") for path in [run.sharding.fsdp.path] if path)
    yield Violation(place(shard), message, (*off, *notes(run.sharding.deepspeed)), fix)


@rule(
    "ND202",
    Severity.WARNING,
    Run,
    evidence="axolotl 0.18, run: an explicit 1 is overridden by the rest of the ranks; accelerate 1.15 refuses FSDP2 with nothing to shard over",
    bad=f"dp_shard_size: 1\n{FSDP2}",
    good=f"dp_shard_size: 8\n{FSDP2}",
    given={"world_size": 8},
    unchecked=True,
)
def fsdp_shard_of_one(run: Run) -> Iterator[Violation]:
    """FSDP is on, and dp_shard is written as 1 on several ranks.

    The two contradict each other. Alone, FSDP then shards over all ranks all the same; beside other
    degrees the setting is dropped, and FSDP may be left with no axis to shard over.
    """
    shard = run.degrees.get("dp_shard")
    if shard is None or shard.value != 1 or not run.sharding.fsdp.value or run.ranks() == 1:
        return
    if not run.explicit():
        outcome = f"FSDP shards over all {run.ranks()} ranks all the same"
        fix = Fix(f"leave it out, or write {run.ranks()}")
    elif run.degree("cp") > 1:
        return  # FSDP shards over the cp ranks
    else:
        outcome = "FSDP has no axis to shard over"
        fix = Fix("remove the FSDP keys, or give dp_shard more ranks")
    yield Violation(
        place(shard), f"{shard} with FSDP on: {outcome}", notes(run.sharding.fsdp, *run.explicit().values()), fix
    )


FSDP_AND_DEEPSPEED = conditional(
    "ND203",
    "fsdp-and-deepspeed",
    Severity.ERROR,
    Run,
    summary="FSDP and DeepSpeed are both on",
    why="Both shard parameters and own the optimizer step. Where both are set up, "
    "the launcher starts FSDP and hands the trainer a DeepSpeed config as well.",
    when=on("sharding.fsdp"),
    then=~on("sharding.deepspeed"),
    message="DeepSpeed and FSDP are both on; a run can have only one of them",
    fix=Fix("remove deepspeed, or the FSDP keys"),
    evidence="axolotl 0.18 validation.py:1224 for the list form; run for fsdp_config",
    bad=f"deepspeed: zero2.json\n{FSDP2}",
    good=FSDP2,
    unchecked=True,
)


@rule(
    "ND204",
    Severity.ERROR,
    Run,
    evidence="accelerate 1.13 parallelism_config.py:379",
    bad="dp_shard_size: 4\ntensor_parallel_size: 2\nfsdp_version: 1\nfsdp_config: {offload_params: false}\n",
    good="dp_shard_size: 4\ntensor_parallel_size: 2\nfsdp_version: 2\nfsdp_config: {offload_params: false}\n",
    given={"world_size": 8, "also": ["fsdp1-deprecated"]},
)
def mesh_needs_fsdp2(run: Run) -> Iterator[Violation]:
    """A mesh with degrees above 1 is combined with FSDP1.

    FSDP1 flattens parameters into one buffer per unit and knows no device mesh. Only FSDP2 keeps each
    parameter apart, as a DTensor, so that other axes can cut it too.
    """
    version = run.sharding.fsdp_version
    if not run.sharding.fsdp.value or version is None or version.value == 2:
        return
    explicit = run.explicit()
    if not explicit or explicit.keys() <= run.sharding.stands_beside:
        return
    named = ", ".join(str(value) for value in explicit.values())
    message = f"{named} needs FSDP2, but FSDP runs as version {version.value} ({version.origin.text})"
    yield Violation(
        place(version, *explicit.values()),
        message,
        notes(*explicit.values()),
        Fix(f"switch FSDP2 on: {run.sharding.switch}"),
    )


RULES: tuple[Rule[Run], ...] = (fsdp_required, fsdp_shard_of_one, FSDP_AND_DEEPSPEED, mesh_needs_fsdp2)
