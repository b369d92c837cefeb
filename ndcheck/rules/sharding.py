"""Rules about FSDP and DeepSpeed against the mesh."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from importlib.resources import files

from ndcheck.findings import Fix, Note, SetValue, Severity, Violation, notes, place
from ndcheck.rules.conditions import on
from ndcheck.rules.rule import Rule, conditional, rule
from ndcheck.run import Run

WRAPPED = "distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  fsdp_version: 2\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
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
    if run.degree("dp_shard") == 1 or run.sharding.fsdp.value or run.beside_mesh() or not run.sharding.by_mesh:
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
    """FSDP is on, and has no axis to shard over.

    With dp_shard at 1 on several ranks the two contradict each other. Alone, FSDP then shards over all ranks all the
    same; beside other degrees it is left with no axis, and what launches it refuses, or drops one of the two.
    """
    shard = run.degrees.get("dp_shard")
    if not run.sharding.fsdp.value or run.degree("dp_shard") > 1 or run.ranks() == 1 or run.degree("cp") > 1:
        return  # FSDP shards over the cp ranks too
    others = run.explicit()
    if shard is not None and shard.value != 1:
        return
    if shard is None and (run.sharding.fills or not others):
        return
    named = str(shard) if shard is not None else f"{run.degree_name('dp_shard')} is 1 unless written, and"
    if not others:
        outcome = f"FSDP shards over all {run.ranks()} ranks all the same"
        fix = Fix(f"leave it out, or write {run.ranks()}")
    else:
        outcome = "FSDP has no axis to shard over"
        fix = Fix("switch FSDP off, or give dp_shard more ranks")
    refused = bool(others) and not run.sharding.fills
    with_fsdp = f"{named} with FSDP on: {outcome}" if shard is not None else f"{named} {outcome}"
    where = place(shard, *others.values())
    severity = Severity.ERROR if refused else None
    yield Violation(where, with_fsdp, notes(run.sharding.fsdp, *others.values()), fix, severity)


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


@rule(
    "ND205",
    Severity.ERROR,
    Run,
    evidence="accelerate 1.15 state.py:998 and 1007 refuse it (matrices/witnesses.yaml, run)",
    bad="distributed_type: MULTI_GPU\nnum_processes: 2\nparallelism_config: {parallelism_config_cp_size: 2}\n",
    good="distributed_type: FSDP\nnum_processes: 2\nfsdp_config: {fsdp_version: 2}\nparallelism_config: {parallelism_config_cp_size: 2}\n",
    given={"also": ["cp-labels-and-loss", "peers-counted-as-data", "shuffle-not-synchronised"]},
)
def cp_needs_fsdp2(run: Run) -> Iterator[Violation]:
    """torch's context parallelism runs without FSDP2.

    Gradients of the cp ranks are averaged by FSDP2, over the cp axis joined with dp_shard. Nothing else would average them.
    """
    version, sharding = run.sharding.fsdp_version, run.sharding
    if run.degree("cp") == 1 or not run.sequence.cp_by_torch or sharding.deepspeed.value or not sharding.by_mesh:
        return
    if sharding.fsdp.value and version is not None and version.value == 2:
        return
    cp = run.degrees["cp"]
    there = (
        f"FSDP runs as version {version.value} ({version.origin.text})"
        if sharding.fsdp.value and version
        else "FSDP is off"
    )
    related = notes(sharding.fsdp, version if sharding.fsdp.value else None)
    yield Violation(place(cp), f"{cp} needs FSDP2, but {there}", related, Fix(f"switch FSDP2 on: {sharding.switch}"))


@rule(
    "ND206",
    Severity.ERROR,
    Run,
    evidence="matrices/witnesses.yaml on CPU ranks, accelerate 1.15: a mesh is refused, FSDP alone is dropped and DDP runs",
    bad="distributed_type: FSDP\nuse_cpu: true\nnum_processes: 2\nfsdp_config: {fsdp_version: 2}\n",
    good="distributed_type: FSDP\nuse_cpu: false\nnum_processes: 2\nfsdp_config: {fsdp_version: 2}\n",
    unchecked=True,
)
def sharding_on_cpu(run: Run) -> Iterator[Violation]:
    """Parameters are to be sharded, and ranks have no GPU.

    accelerate shards on accelerators only. On CPU ranks it refuses a mesh; FSDP without a mesh it drops without a word, and
    every rank keeps a whole copy.
    """
    cpu = run.sharding.cpu
    if cpu is None or not cpu.value or run.ranks() == 1:
        return
    axes = run.explicit()
    if not axes and not run.sharding.fsdp.value:
        return
    named = " and ".join(str(value) for value in axes.values()) or "FSDP"
    outcome = "a mesh is refused on CPU ranks" if axes else "FSDP is dropped, and DDP runs"
    where = place(cpu, *axes.values())
    yield Violation(where, f"{cpu} with {named}: {outcome}", notes(*axes.values()), Fix("use GPUs, or one rank"))


@rule(
    "ND207",
    Severity.ERROR,
    Run,
    evidence="accelerate 1.15 utils/dataclasses.py, set_auto_wrap_policy: a ValueError when the model is prepared",
    bad=f"{WRAPPED}  fsdp_transformer_layer_cls_to_wrap: GPT2Block\n",
    good=f"{WRAPPED}  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer\n",
    given={"model_config": {"model_type": "llama"}},
    unchecked=True,
)
def wrapped_class_of_other_model(run: Run) -> Iterator[Violation]:
    """The layers to wrap are those of another model.

    FSDP looks the class up among the model's own modules, and stops when it finds none of this name. Classes that no model of
    transformers calls its layer are left alone: they may be the model's own.
    """
    wraps = run.sharding.wraps
    if wraps is None or not wraps.value or not run.sharding.fsdp.value:
        return
    model = run.model()
    own = layers().get(model.family.value if model.family else "")
    names = wraps.value if isinstance(wraps.value, list) else wraps.value.split(",")
    wanted = [name.strip() for name in names]
    if own is None or model.composite or not own.isdisjoint(wanted):
        return
    others = frozenset().union(*layers().values())
    for name in wanted:
        if name in others:
            layer = sorted(own)[0]
            edits = (SetValue(wraps.path, layer),) if wraps.path and len(wanted) == 1 else ()
            message = f"{name} is no layer of {model.family}: {' or '.join(sorted(own))} is"
            yield Violation(place(wraps), message, fix=Fix(f"write {layer}", edits=edits))


@cache
def layers() -> dict[str, frozenset[str]]:
    """Family -> classes of its layers, which transformers 5.24 never splits over devices (``_no_split_modules``)."""
    table = json.loads(files("ndcheck.rules").joinpath("layers.json").read_text(encoding="utf-8"))
    return {family: frozenset(names) for family, names in table.items()}


RULES: tuple[Rule[Run], ...] = (
    fsdp_required,
    fsdp_shard_of_one,
    FSDP_AND_DEEPSPEED,
    mesh_needs_fsdp2,
    cp_needs_fsdp2,
    sharding_on_cpu,
    wrapped_class_of_other_model,
)
