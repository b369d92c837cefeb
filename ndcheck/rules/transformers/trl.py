"""Rules about the arguments of TRL's trainers."""

from __future__ import annotations

from collections.abc import Iterator

from ndcheck.findings import Fix, SetValue, Severity, Violation, notes, place
from ndcheck.rules.conditions import equals, is_set, matches, on, one_of
from ndcheck.rules.rule import Rule, conditional, rule
from ndcheck.run import Run
from ndcheck.settings import Settings

GRPO = "num_generations: 8\nper_device_train_batch_size: 8\n"


@rule(
    "TR201",
    Severity.ERROR,
    Run,
    evidence="TRL 1.10 grpo_config.py:1053; a mesh in accelerate's launch file it does not see",
    bad=f"{GRPO}parallelism_config: {{cp_size: 2}}\nfsdp: true\n",
    good=f"{GRPO}fsdp: true\n",
    given={"world_size": 2, "also": ["parallelism-config-mapping"]},
)
def groups_with_cp(run: Run) -> Iterator[Violation]:
    """GRPO or RLOO is combined with context parallelism.

    The trainer builds its rows after generation, and does not cut them over ranks.
    """
    if run.groups is not None and run.degree("cp") > 1 and run.sequence.cp_by_torch:
        cp = run.degrees["cp"]
        yield Violation(
            place(cp, run.groups.size), f"{cp}: {run.groups.method.value.upper()} does not cut its rows over cp"
        )


GENERATION_TWICE = conditional(
    "TR202",
    "generation-batch-twice",
    Severity.ERROR,
    Settings,
    summary="The batch of a generation is set in two ways",
    why="generation_batch_size is per_device_train_batch_size x ranks x steps_per_generation; TRL takes one of the two.",
    when=is_set("generation_batch_size"),
    then=~is_set("steps_per_generation"),
    message="{steps_per_generation} and {generation_batch_size}: one of the two",
    fix=Fix("remove one of them"),
    evidence="TRL 1.10 grpo_config.py:1093",
    bad=f"{GRPO}generation_batch_size: 32\nsteps_per_generation: 4\n",
    good=f"{GRPO}generation_batch_size: 32\n",
    given={"world_size": 4},
)


@rule(
    "TR203",
    Severity.ERROR,
    Run,
    evidence="TRL 1.10 grpo_config.py:1088 to 1125",
    bad="num_generations: 7\nper_device_train_batch_size: 4\n",
    good="num_generations: 8\nper_device_train_batch_size: 4\n",
    given={"world_size": 4},
)
def generation_groups(run: Run) -> Iterator[Violation]:
    """Groups of completions do not fit into the batch of a generation.

    The advantage of a completion is measured against the others of its group. TRL generates for all ranks at once,
    per_device_train_batch_size x ranks x steps_per_generation completions, and that must be whole groups of at least two.
    """
    groups, micro = run.groups, run.batch.micro
    if groups is None or groups.size is None:
        return
    size = groups.size
    if size.value < 2:
        yield Violation(place(size), f"{size}: a group of one has no advantage", fix=Fix("set it to 2 or more"))
        return
    ranks, batch = run.world_size().value, groups.generation_batch
    total = batch.value if batch is not None else groups.rows.value * ranks
    each = micro.value * ranks if micro is not None else 0
    if batch is not None and each > 0 and batch.value % each:
        message = f"{batch} is not a multiple of {micro} x {ranks} ranks = {each}"
        yield Violation(place(batch), message, notes(micro), Fix(f"set it to {-(-batch.value // each) * each}"))
    elif total % size.value:
        told = str(batch) if batch is not None else f"{groups.rows.value} completions a rank x {ranks} ranks = {total}"
        message = f"{told} are no whole groups of {size.value}"
        yield Violation(place(size), message, notes(batch, micro), Fix("change num_generations or the batch"))


AUTO_BATCH = conditional(
    "TR204",
    "groups-auto-batch",
    Severity.ERROR,
    Settings,
    summary="GRPO's batch is to be halved until it fits",
    why="A batch holds whole groups of completions, and halves of them do not. TRL refuses.",
    when=is_set("num_generations") & on("auto_find_batch_size"),
    message="{auto_find_batch_size}: a halved batch holds no whole groups",
    fix=Fix("set auto_find_batch_size: false", edits=(SetValue(("auto_find_batch_size",), "false"),)),
    evidence="TRL 1.10 grpo_config.py:1074",
    bad=f"{GRPO}auto_find_batch_size: true\n",
    good=f"{GRPO}auto_find_batch_size: false\n",
    given={"world_size": 4},
)

PACKING_LENGTH = conditional(
    "TR205",
    "packing-without-length",
    Severity.ERROR,
    Settings,
    summary="Rows are packed to no length",
    why="Documents are packed until a row is max_length tokens long. TRL refuses packing without it.",
    when=on("packing"),
    then=is_set("max_length"),
    message="{packing} needs max_length",
    fix=Fix("set max_length"),
    evidence="TRL 1.10 sft_trainer.py:1607",
    bad="packing: true\nmax_length: null\nattn_implementation: flash_attention_2\n",
    good="packing: true\nmax_length: 4096\nattn_implementation: flash_attention_2\n",
)


@rule(
    "TR206",
    Severity.ERROR,
    Settings,
    evidence="TRL 1.10 sft_trainer.py:1248",
    bad="padding_free: true\ncompletion_only_loss: true\nattn_implementation: flash_attention_2\n",
    good="padding_free: true\nmax_length: null\ncompletion_only_loss: true\nattn_implementation: flash_attention_2\n",
)
def padding_free_length(settings: Settings) -> Iterator[Violation]:
    """SFT flattens batches, and would not cut rows to ``max_length``.

    Without packing, rows go into the flat batch as long as they are. ``max_length``, which is 1024 unless it is null, would
    not be kept, and SFTTrainer refuses.
    """
    flat, length = settings.value("padding_free"), settings.value("max_length")
    if flat is None or not flat.value or settings.on("packing") or (length is not None and length.value is None):
        return
    told = str(length) if length is not None and length.path else "max_length 1024 (TRL's default)"
    yield Violation(
        place(flat), f"{flat} without packing does not keep {told}", notes(length), Fix("set max_length: null")
    )


PACKING_ATTENTION = conditional(
    "TR207",
    "packing-attention",
    Severity.WARNING,
    Settings,
    summary="Rows of several documents, and attention that may not keep them apart",
    why="Flash attention takes the documents' lengths. Others rely on position_ids, which count only where there is neither a "
    "mask nor a cache; TRL warns.",
    when=on("packing") | on("padding_free"),
    then=matches("attn_implementation", "flash") | matches("model_init_kwargs.attn_implementation", "flash"),
    message="{attn_implementation}: documents of one row are kept apart reliably by flash attention only",
    fix=Fix("set attn_implementation: flash_attention_2"),
    evidence="TRL 1.10 sft_trainer.py:1211; measured on CPU, sdpa keeps them apart as SFTTrainer calls it",
    bad="packing: true\nmax_length: 4096\nattn_implementation: sdpa\n",
    good="packing: true\nmax_length: 4096\nattn_implementation: flash_attention_2\n",
)

CHUNKED_LIGER = conditional(
    "TR208",
    "chunked-loss-with-liger",
    Severity.ERROR,
    Settings,
    summary="Two ways to save the logits' memory",
    why="TRL's chunked loss and Liger's fused one both take the place of the head. SFTTrainer refuses the pair.",
    when=on("use_liger_kernel"),
    then=~equals("loss_type", "chunked_nll"),
    message="{loss_type} with {use_liger_kernel}",
    fix=Fix("leave loss_type out, or switch Liger off"),
    evidence="TRL 1.10 sft_trainer.py:1329",
    bad="use_liger_kernel: true\nloss_type: chunked_nll\n",
    good="use_liger_kernel: true\nloss_type: nll\n",
)

SFT_LOSS = conditional(
    "TR209",
    "sft-loss",
    Severity.ERROR,
    Settings,
    summary="SFT has no such loss",
    why="There are nll, dft and chunked_nll.",
    when=is_set("loss_type") & (is_set("packing") | is_set("completion_only_loss") | is_set("assistant_only_loss")),
    then=one_of("loss_type", "nll", "dft", "chunked_nll"),
    message="{loss_type}: there are nll, dft and chunked_nll",
    fix=Fix("use one of them"),
    evidence="TRL 1.10 sft_trainer.py:1325",
    bad="loss_type: cross_entropy\ncompletion_only_loss: true\n",
    good="loss_type: dft\ncompletion_only_loss: true\n",
)


RULES: tuple[Rule[Settings] | Rule[Run], ...] = (
    groups_with_cp,
    GENERATION_TWICE,
    generation_groups,
    AUTO_BATCH,
    PACKING_LENGTH,
    padding_free_length,
    PACKING_ATTENTION,
    CHUNKED_LIGER,
    SFT_LOSS,
)
