"""Rules about ``parallelism_config``."""

from __future__ import annotations

from collections.abc import Iterator

from ndcheck.findings import Fix, RenameKey, Severity, Violation, notes, place
from ndcheck.rules.conditions import above, equals, is_set, matches, on, one_of
from ndcheck.rules.rule import Rule, conditional, rule
from ndcheck.run import Run
from ndcheck.settings import Settings
from ndcheck.values import Value

SECTION = "parallelism_config"
KEY = f"{SECTION}.{SECTION}_"
FSDP2 = "distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\n"
DEEPSPEED = "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 1}\n"


def mesh(**entries: object) -> str:
    """YAML of the section: ``mesh(tp_size=2)``."""
    inner = ", ".join(f"{SECTION}_{name}: {value}" for name, value in entries.items())
    return f"{SECTION}: {{{inner}}}\n"


@rule(
    "AC201",
    Severity.ERROR,
    Settings,
    evidence="accelerate 1.15 launch.py:1269, run: the key is set on the arguments and never read; FSDP2 shards over all ranks",
    bad=f"{FSDP2}{SECTION}: {{dp_shard_size: 8}}\n",
    good=f"{FSDP2}{mesh(dp_shard_size=8)}",
    unchecked=True,
)
def parallelism_key_unprefixed(settings: Settings) -> Iterator[Violation]:
    """A key of ``parallelism_config`` lacks the prefix, and nothing reads it.

    Unlike those of ``fsdp_config``, the keys of this section must begin with ``parallelism_config_``. Without it accelerate
    drops them in silence: the degree stays 1, and the run goes on without the parallelism.
    """
    section = settings.mapping.get(SECTION)
    known = [f"{SECTION}_{axis}_size" for axis in ("dp_replicate", "dp_shard", "tp", "cp", "sp")]
    known += [f"{SECTION}_{name}" for name in ("cp_backend", "cp_comm_strategy", "sp_backend")]
    known += [f"{SECTION}_sp_{name}" for name in ("seq_length", "seq_length_is_variable", "attn_implementation")]
    for name in section if isinstance(section, dict) else ():
        full = f"{SECTION}_{name}"
        if full in known:
            fix = Fix(f"rename it to {full}", edits=(RenameKey((SECTION, name), full),))
            yield Violation((SECTION, name), f"accelerate reads {full}, and drops {name} without a word", fix=fix)


CP_AND_SP = conditional(
    "AC202",
    "cp-and-sp",
    Severity.ERROR,
    Settings,
    summary="Both ways to split sequences are on",
    why="cp cuts rows for ring attention, sp trades tokens for heads. accelerate takes one of them.",
    when=above(f"{KEY}cp_size", 1),
    then=~above(f"{KEY}sp_size", 1),
    message=f"{{{KEY}sp_size}} and {{{KEY}cp_size}}: a run can have only one of them",
    fix=Fix("set one of them to 1"),
    evidence="accelerate 1.15 parallelism_config.py:329",
    bad=f"{DEEPSPEED}{mesh(cp_size=2, sp_size=8)}",
    good=f"{DEEPSPEED}{mesh(cp_size=1, sp_size=8)}",
    given={"also": ["cp-labels-and-loss", "peers-counted-as-data"]},
)

CP_BACKEND = conditional(
    "AC203",
    "cp-backend",
    Severity.ERROR,
    Settings,
    summary="There is no such backend for context parallelism",
    why="accelerate cuts rows by torch's context_parallel, and by nothing else.",
    when=is_set(f"{KEY}cp_backend"),
    then=equals(f"{KEY}cp_backend", "torch"),
    message=f"{{{KEY}cp_backend}}: the only one is torch",
    fix=Fix("write torch, or leave it out"),
    evidence="accelerate 1.15 parallelism_config.py:319",
    bad=f"{FSDP2}{mesh(cp_size=8, cp_backend='ring')}",
    good=f"{FSDP2}{mesh(cp_size=8, cp_backend='torch')}",
    given={"also": ["cp-labels-and-loss", "peers-counted-as-data", "shuffle-not-synchronised"]},
)

SP_BACKEND = conditional(
    "AC204",
    "sp-backend",
    Severity.ERROR,
    Settings,
    summary="There is no such backend for Ulysses",
    why="accelerate leaves sp to DeepSpeed.",
    when=is_set(f"{KEY}sp_backend"),
    then=equals(f"{KEY}sp_backend", "deepspeed"),
    message=f"{{{KEY}sp_backend}}: the only one is deepspeed",
    fix=Fix("write deepspeed, or leave it out"),
    evidence="accelerate 1.15 parallelism_config.py:325",
    bad=f"{DEEPSPEED}{mesh(sp_size=8, sp_backend='torch')}",
    good=f"{DEEPSPEED}{mesh(sp_size=8, sp_backend='deepspeed')}",
)

CP_STRATEGY = conditional(
    "AC205",
    "cp-comm-strategy",
    Severity.ERROR,
    Settings,
    summary="There is no such strategy for context parallelism",
    why="Keys and values are gathered from all cp ranks at once, or passed on from rank to rank.",
    when=above(f"{KEY}cp_size", 1) & is_set(f"{KEY}cp_comm_strategy"),
    then=one_of(f"{KEY}cp_comm_strategy", "allgather", "alltoall"),
    message=f"{{{KEY}cp_comm_strategy}}: there are allgather and alltoall",
    fix=Fix("use one of them"),
    evidence="accelerate 1.15 utils/dataclasses.py:2246",
    bad=f"{FSDP2}{mesh(cp_size=8, cp_comm_strategy='ring')}",
    good=f"{FSDP2}{mesh(cp_size=8, cp_comm_strategy='alltoall')}",
    given={"also": ["cp-labels-and-loss", "peers-counted-as-data", "shuffle-not-synchronised"]},
)

SP_WITHOUT_DEEPSPEED = conditional(
    "AC206",
    "sp-without-deepspeed",
    Severity.ERROR,
    Settings,
    summary="sp is on without DeepSpeed",
    why="Ulysses is DeepSpeed's. Without it no sequence is cut, no mesh is built, and each rank reads as a data rank: the "
    "batch is sp times what it should be, and nobody says so.",
    when=above(f"{KEY}sp_size", 1) & is_set("distributed_type") & ~equals("distributed_type", "DEEPSPEED"),
    message=f"{{{KEY}sp_size}} with {{distributed_type}}: sequences are not cut",
    fix=Fix("set distributed_type: DEEPSPEED, or use cp_size with FSDP2"),
    evidence="matrices/witnesses.yaml on CPU ranks, accelerate 1.15: rows diverge, with no error",
    bad=f"distributed_type: MULTI_GPU\n{mesh(sp_size=8)}",
    good=f"{DEEPSPEED}{mesh(sp_size=8)}",
    unchecked=True,
)


@rule(
    "AC207",
    Severity.ERROR,
    Settings,
    evidence="accelerate 1.15 parallelism_config.py:370 leaves the product unchecked beside sp; its guide demands it",
    bad=f"{DEEPSPEED}{mesh(sp_size=2, dp_shard_size=2)}",
    good=f"{DEEPSPEED}{mesh(sp_size=2, dp_shard_size=4)}",
    unchecked=True,
)
def sp_product(settings: Settings) -> Iterator[Violation]:
    """dp_replicate x dp_shard x sp is not the number of ranks.

    Beside sp accelerate does not check the product, and computes the batch size from the data degrees as written.
    """
    sp, processes = settings.value(f"{KEY}sp_size"), settings.value("num_processes")
    if sp is None or sp.value is None or sp.value <= 1 or processes is None or not processes.value:
        return
    data = [
        value for axis in ("dp_replicate", "dp_shard") if (value := settings.value(f"{KEY}{axis}_size")) is not None
    ]
    factors: list[Value[int]] = [value for value in (*data, sp) if value.value is not None]
    product = 1
    for factor in factors:
        product *= factor.value
    if product != processes.value and min(factor.value for factor in factors) >= 1:
        arithmetic = " x ".join(str(factor) for factor in factors)
        total = f" = {product}" if len(factors) > 1 else ""
        message = f"{arithmetic}{total}, but {processes}"
        fix = Fix("set dp_shard_size to what is left of the ranks")
        yield Violation(place(sp), message, notes(processes, *data), fix)


SP_ATTENTION = conditional(
    "AC208",
    "sp-attention",
    Severity.ERROR,
    Settings,
    summary="Ulysses cannot work with this attention implementation",
    why="It replaces flash attention 2 or 3, sdpa, or a flash kernel from the hub, and refuses all others.",
    when=above(f"{KEY}sp_size", 1) & is_set(f"{KEY}sp_attn_implementation"),
    then=one_of(f"{KEY}sp_attn_implementation", "flash_attention_2", "flash_attention_3", "sdpa")
    | (matches(f"{KEY}sp_attn_implementation", "/") & matches(f"{KEY}sp_attn_implementation", "flash-attn")),
    message=f"{{{KEY}sp_attn_implementation}} cannot be used with sp",
    fix=Fix("use sdpa, flash_attention_2 or flash_attention_3"),
    evidence="accelerate 1.15 utils/dataclasses.py:2298",
    bad=f"{DEEPSPEED}{mesh(sp_size=8, sp_attn_implementation='eager')}",
    good=f"{DEEPSPEED}{mesh(sp_size=8, sp_attn_implementation='sdpa')}",
)

SP_LENGTH = conditional(
    "AC209",
    "sp-length",
    Severity.ERROR,
    Settings,
    summary="Rows of one length are promised, and the length is not said",
    why="With sp_seq_length_is_variable off, the length must be there.",
    when=above(f"{KEY}sp_size", 1) & is_set(f"{KEY}sp_seq_length_is_variable") & ~on(f"{KEY}sp_seq_length_is_variable"),
    then=is_set(f"{KEY}sp_seq_length"),
    message=f"{{{KEY}sp_seq_length_is_variable}} needs {SECTION}_sp_seq_length",
    fix=Fix("add the length"),
    evidence="accelerate 1.15 utils/dataclasses.py:2282",
    bad=f"{DEEPSPEED}{mesh(sp_size=8, sp_seq_length_is_variable='false')}",
    good=f"{DEEPSPEED}{mesh(sp_size=8, sp_seq_length_is_variable='false', sp_seq_length=4096)}",
)


@rule(
    "AC210",
    Severity.ERROR,
    Run,
    evidence="matrices/stack.yaml on 8 CPU ranks, accelerate 1.13 to 1.16, transformers 5.14 to 5.25 (docs/versions.md): no such cell trains",
    bad=f"{FSDP2}{mesh(tp_size=2, dp_shard_size=4)}",
    good=f"{FSDP2}{mesh(tp_size=1, dp_shard_size=8)}",
    given={"also": ["tp-needs-loaded-model", "peers-counted-as-data"]},
    versions="transformers>=5.14",
    unchecked=True,
)
def tp_beside_sharding(run: Run) -> Iterator[Violation]:
    """tp is combined with dp_shard or cp, and accelerate is to bring it about.

    transformers 5 loads a model over tp alone only if tp fills all ranks, and no longer has the class by which accelerate
    fits replicated parameters into its mesh: loading fails, or prepare() does. What works is transformers' own
    DistributedConfig, launched with distributed_type MULTI_GPU and no parallelism_config.
    """
    beside = [run.degrees[axis] for axis in ("dp_shard", "cp") if run.degree(axis) > 1]
    if run.degree("tp") == 1 or not beside or not run.sharding.by_mesh:
        return
    tp = run.degrees["tp"]
    message = f"{tp} with {' and '.join(map(str, beside))} cannot be had through accelerate since transformers 5"
    fix = Fix("drop one axis, or shard in the script by transformers' DistributedConfig(tp_size=..., fsdp_size=...)")
    yield Violation(place(tp), message, notes(*beside), fix)


@rule(
    "AC211",
    Severity.INFO,
    Run,
    evidence="matrices/witnesses.yaml, accelerate 1.15: a model loaded whole is refused without FSDP2, and with it trained without tp",
    bad=mesh(tp_size=8),
    good=mesh(tp_size=1),
    given={"also": ["peers-counted-as-data", "shuffle-not-synchronised"]},
    unchecked=True,
)
def tp_needs_loaded_model(run: Run) -> Iterator[Violation]:
    """tp is asked for, and the script has to load the model that way.

    accelerate does not cut a model over tp; it takes one that ``from_pretrained`` has cut. A model that was loaded whole it
    refuses, or, beside FSDP2, trains without tp after a warning.
    """
    if run.degree("tp") > 1 and run.sharding.by_mesh:
        tp = run.degrees["tp"]
        message = f"{tp}: the script must load the model with DistributedConfig(tp_size={tp.value})"
        yield Violation(place(tp), message)


@rule(
    "AC212",
    Severity.INFO,
    Run,
    evidence="matrices/witnesses.yaml, accelerate 1.15, cp 2: either way the first loss is off (6e-4 and more), with no error",
    bad=f"{FSDP2}{mesh(cp_size=8)}",
    good=f"{FSDP2}{mesh(dp_shard_size=8)}",
    given={"also": ["peers-counted-as-data", "shuffle-not-synchronised"]},
    unchecked=True,
)
def cp_labels_and_loss(run: Run) -> Iterator[Violation]:
    """With cp, a training loop of one's own has to shift the labels and divide the loss itself.

    Each cp rank sees a slice of the row. Labels that the model shifts within a slice miss the token after it, and a mean over
    a slice weighs its tokens by how many labels the slice happens to have. transformers' Trainer sees to both.
    """
    if run.degree("cp") > 1:
        message = "in a loop of your own, pass shift_labels made before the row is cut, and divide by the label tokens of all ranks"
        yield Violation(place(run.degrees["cp"]), f"{run.degrees['cp']}: {message}")


@rule(
    "AC213",
    Severity.INFO,
    Run,
    evidence="accelerate 1.15, run on 2 CPU ranks: 48 rows gathered as 96, a schedule of 2 steps a step (reports/upstream)",
    bad=f"{FSDP2}{mesh(cp_size=8)}",
    good=f"{FSDP2}{mesh(dp_shard_size=8)}",
    given={"also": ["cp-labels-and-loss", "shuffle-not-synchronised"]},
    unchecked=True,
)
def peers_counted_as_data(run: Run) -> Iterator[Violation]:
    """tp and cp peers are counted as if they read rows of their own.

    ``gather_for_metrics`` returns the rows of every peer, and a prepared scheduler steps once for every rank. With tp or cp,
    metrics count rows more than once and the learning rate runs ahead. transformers' Trainer prepares no scheduler.
    """
    inner = [run.degrees[axis] for axis in ("tp", "cp") if run.degree(axis) > 1]
    if not inner or not run.sharding.by_mesh:
        return
    named = " and ".join(map(str, inner))
    message = f"{named}: in a loop of your own, gather_for_metrics repeats rows, and a prepared scheduler steps for every rank"
    yield Violation(place(*inner), message)


@rule(
    "AC214",
    Severity.INFO,
    Run,
    evidence="matrices/witnesses.yaml, accelerate 1.15, tp 2: ranks that are seeded apart read other rows, with no error",
    bad=mesh(tp_size=8),
    good=f"{FSDP2}{mesh(dp_shard_size=8)}",
    given={"also": ["tp-needs-loaded-model", "peers-counted-as-data"]},
    unchecked=True,
)
def shuffle_not_synchronised(run: Run) -> Iterator[Violation]:
    """No two ranks read different rows, so that accelerate does not synchronise how they shuffle.

    It sends the first rank's random state to the others only where there are several data ranks. With tp or cp alone, ranks that
    a script seeds differently draw different orders, and peers train on different rows. Trainer seeds all ranks alike.
    """
    inner = [run.degrees[axis] for axis in ("tp", "cp") if run.degree(axis) > 1]
    outer = max(run.degree("dp_replicate"), run.degree("dp_shard"))
    if inner and outer == 1 and run.sharding.by_mesh and not run.beside_mesh():
        named = " and ".join(map(str, inner))
        message = f"{named} alone: in a loop of your own, seed every rank alike before the loader is built"
        yield Violation(place(*inner), message)


RULES: tuple[Rule[Settings] | Rule[Run], ...] = (
    parallelism_key_unprefixed,
    CP_AND_SP,
    CP_BACKEND,
    SP_BACKEND,
    CP_STRATEGY,
    SP_WITHOUT_DEEPSPEED,
    sp_product,
    SP_ATTENTION,
    SP_LENGTH,
    tp_beside_sharding,
    tp_needs_loaded_model,
    cp_labels_and_loss,
    peers_counted_as_data,
    shuffle_not_synchronised,
)
