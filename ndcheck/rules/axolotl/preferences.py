"""axolotl's rules about preference training and reinforcement learning."""

from __future__ import annotations

from collections.abc import Iterator

from ndcheck.findings import Fix, SetValue, Severity, Violation, notes, place
from ndcheck.layout import divisors, listed
from ndcheck.rules.conditions import above, equals, is_set, on, one_of
from ndcheck.rules.rule import Rule, conditional, rule
from ndcheck.run import Run
from ndcheck.settings import Settings
from ndcheck.values import Value

GRPO = "rl: grpo\n"
FLASH = "attn_implementation: flash_attention_2\n"
FSDP2 = "fsdp_version: 2\nfsdp_config: {offload_params: false}\n"
QLORA = "adapter: qlora\nload_in_4bit: true\nlora_target_linear: true\n"

PACKING_WITH_RL = conditional(
    "AX801",
    "packing-with-rl",
    Severity.ERROR,
    Settings,
    summary="sample_packing with a preference method",
    why="Rows are pairs or groups there; packing would join what has to be told apart.",
    when=on("rl", raw=True),
    then=~on("sample_packing", raw=True),
    message="{sample_packing} cannot be combined with {rl}",
    fix=Fix("set sample_packing: false", edits=(SetValue(("sample_packing",), "false"),)),
    evidence="axolotl 0.18 validation.py:686",
    bad=f"rl: dpo\nsample_packing: true\n{FLASH}",
    good=f"rl: dpo\nsample_packing: false\n{FLASH}",
)

KTO_EVAL_PACKING = conditional(
    "AX802",
    "kto-eval-packing",
    Severity.ERROR,
    Settings,
    summary="KTO with packed evaluation rows",
    why="The same holds for evaluation.",
    when=equals("rl", "kto", raw=True),
    then=~on("eval_sample_packing", raw=True),
    message="{eval_sample_packing} cannot be combined with {rl}",
    fix=Fix("set eval_sample_packing: false"),
    evidence="axolotl 0.18 validation.py:693",
    bad="rl: kto\nremove_unused_columns: false\neval_sample_packing: true\n",
    good="rl: kto\nremove_unused_columns: false\n",
)

KTO_COLUMNS = conditional(
    "AX803",
    "kto-removes-columns",
    Severity.ERROR,
    Settings,
    summary="KTO without remove_unused_columns: false",
    why="The trainer reads columns that the model does not know; axolotl wants false to be written.",
    when=equals("rl", "kto", raw=True),
    then=equals("remove_unused_columns", False, raw=True),
    message="{rl} needs remove_unused_columns: false, not {remove_unused_columns}",
    fix=Fix(
        "set remove_unused_columns: false",
        edits=(SetValue(("remove_unused_columns",), "false"),),
    ),
    evidence="axolotl 0.18 validation.py:693",
    bad="rl: kto\n",
    good="rl: kto\nremove_unused_columns: false\n",
)

SIMPO_WARMUP_RATIO = conditional(
    "AX804",
    "simpo-warmup-ratio",
    Severity.ERROR,
    Settings,
    summary="SimPO with warmup_ratio",
    why="Its trainer takes steps only.",
    when=equals("rl", "simpo"),
    then=~on("warmup_ratio"),
    message="{rl} takes warmup_steps, not {warmup_ratio}",
    fix=Fix("write warmup_steps instead"),
    evidence="axolotl 0.18 validation.py:1572",
    bad="rl: simpo\nwarmup_ratio: 0.1\n",
    good="rl: simpo\nwarmup_steps: 10\n",
)

DPO_WEIGHTS_ALONE = conditional(
    "AX805",
    "dpo-weights-alone",
    Severity.ERROR,
    Settings,
    summary="dpo_loss_weights without dpo_loss_type",
    why="The weights belong to losses, one to each.",
    when=is_set("dpo_loss_weights"),
    then=is_set("dpo_loss_type"),
    message="{dpo_loss_weights} needs dpo_loss_type",
    fix=Fix("add dpo_loss_type"),
    evidence="axolotl 0.18 validation.py:753",
    bad="rl: dpo\ndpo_loss_weights: [1.0]\n",
    good="rl: dpo\ndpo_loss_type: [sigmoid]\ndpo_loss_weights: [1.0]\n",
)

DPO_LOSS_ELSEWHERE = conditional(
    "AX806",
    "dpo-loss-elsewhere",
    Severity.ERROR,
    Settings,
    summary="dpo_loss_type or dpo_loss_weights with another method than DPO",
    why="Only DPO reads them.",
    when=is_set("dpo_loss_type") | is_set("dpo_loss_weights"),
    then=equals("rl", "dpo"),
    message="{dpo_loss_type}, {dpo_loss_weights} need rl: dpo, not {rl}",
    fix=Fix("set rl: dpo, or remove them"),
    evidence="axolotl 0.18 validation.py:753",
    bad="rl: orpo\ndpo_loss_type: [sigmoid]\n",
    good="rl: dpo\ndpo_loss_type: [sigmoid]\n",
)


@rule(
    "AX807",
    Severity.ERROR,
    Settings,
    evidence="axolotl 0.18 validation.py:753",
    bad="rl: dpo\ndpo_loss_type: [sigmoid, ipo]\ndpo_loss_weights: [1.0]\n",
    good="rl: dpo\ndpo_loss_type: [sigmoid]\ndpo_loss_weights: [1.0]\n",
)
def dpo_weights_uneven(settings: Settings) -> Iterator[Violation]:
    """dpo_loss_weights has another length than dpo_loss_type.

    Each loss is multiplied by its own weight; one of either kind would be left over.
    """
    losses, weights = settings.value("dpo_loss_type"), settings.value("dpo_loss_weights")
    if losses and weights and losses.value and weights.value and len(losses.value) != len(weights.value):
        message = f"{len(weights.value)} weights for {len(losses.value)} losses"
        yield Violation(place(weights), message, notes(losses), Fix("give every loss a weight"))


QUANTIZED_PREFERENCE_FSDP2 = conditional(
    "AX808",
    "quantized-preference-fsdp2",
    Severity.ERROR,
    Settings,
    summary="A preference method on a quantized base model under FSDP2",
    why="The reference model is wrapped a second time, which FSDP2 does not do for packed weights. axolotl names dpo, "
    "kto, orpo and ipo.",
    when=one_of("rl", "dpo", "kto", "orpo", "ipo") & equals("fsdp_version", 2),
    then=~(on("load_in_4bit") | on("load_in_8bit")),
    message="{rl} under FSDP2 does not work with {load_in_4bit}, {load_in_8bit}",
    fix=Fix("do not quantize, or use DeepSpeed"),
    evidence="axolotl 0.18 validation.py:1067",
    bad=f"rl: dpo\n{QLORA}{FSDP2}",
    good=f"rl: dpo\nadapter: lora\nlora_target_linear: true\n{FSDP2}",
)


@rule(
    "AX811",
    Severity.ERROR,
    Run,
    evidence="axolotl 0.18 validation.py:787. TRL itself counts the batch over all ranks (grpo_config.py:1055)",
    bad=f"{GRPO}trl: {{num_generations: 4}}\nmicro_batch_size: 3\n",
    good=f"{GRPO}trl: {{num_generations: 4}}\nmicro_batch_size: 4\n",
    given={"world_size": 1},
)
def grpo_groups_do_not_fit(run: Run) -> Iterator[Violation]:
    """GRPO's groups of completions do not fit into the batch.

    The advantage of a completion is measured against the others of its group, so every batch holds whole groups of at
    least two. axolotl 0.18 counts the batch of one rank where TRL counts that of all, and so refuses more than TRL would.
    """
    groups = run.groups
    if groups is None or groups.method.value != "grpo" or groups.size is None:
        return
    size, rows = groups.size.value, groups.rows.value
    if size < 2:
        yield Violation(
            place(groups.size), f"{groups.size}: a group of one has no advantage", fix=Fix("set it to 2 or more")
        )
        return
    involved = notes(groups.generation_batch, run.batch.micro, run.batch.accumulation)
    if rows % size:
        above = -(-rows // size) * size
        message = f"{rows} rows a rank and step ({groups.rows.origin.text}) are no whole groups of {size}"
        yield Violation(place(groups.size), message, involved, Fix(f"make it {above} rows, or change num_generations"))
        return
    ranks = run.ranks()
    if ranks > 1 and rows < size * ranks:
        message = f"{rows} rows a rank and step ({groups.rows.origin.text}) are fewer than {size} x {ranks} ranks = {size * ranks}"
        limit = "axolotl 0.18 wants a group for every rank in each rank's batch"
        yield Violation(place(groups.size), f"{message}: {limit}", involved, Fix(f"make it {size * ranks} rows"))


@rule(
    "AX818",
    Severity.ERROR,
    Run,
    evidence="axolotl 0.18 core/trainers/grpo/trainer.py:121, at start-up only",
    bad=f"rl: gdpo\ntrl: {{num_generations: 4}}\nmicro_batch_size: 1\ncontext_parallel_size: 2\n{FLASH}",
    good=f"rl: gdpo\ntrl: {{num_generations: 2}}\nmicro_batch_size: 1\ncontext_parallel_size: 2\n{FLASH}",
    given={"world_size": 4, "also": ["cp-slices-preference-loss", "world-size-product"]},
    unchecked=True,
)
def groups_over_context_parallel(run: Run) -> Iterator[Violation]:
    """Under context parallelism, the ranks that generate together hold no whole groups.

    cp peers share their prompts, so world size / cp ranks count; their micro batches together must be a multiple of
    num_generations, which is at least 2 and at most all of them.
    """
    groups, micro = run.groups, run.batch.micro
    if groups is None or groups.size is None or micro is None or groups.method.value not in ("grpo", "gdpo"):
        return
    cp = run.degree("cp")
    if cp == 1:
        return
    together = run.world_size().value // cp
    rows, size = micro.value * together, groups.size.value
    if rows < 1 or (2 <= size <= rows and rows % size == 0):
        return
    legal = [degree for degree in divisors(rows) if degree >= 2]
    message = f"{micro} on {together} ranks that generate together ({run.degrees['cp']}) make {rows} rows, not whole groups of {size}"
    fix = Fix(f"set num_generations to {listed(tuple(legal))}" if legal else "raise micro_batch_size")
    yield Violation(place(groups.size), message, notes(micro, run.degrees["cp"]), fix)


GRPO_CP_LIGER = conditional(
    "AX812",
    "grpo-cp-liger",
    Severity.ERROR,
    Settings,
    summary="GRPO under context parallelism with Liger's loss",
    why="Liger's loss sees a slice of each completion only.",
    when=equals("rl", "grpo") & above("context_parallel_size", 1),
    then=~on("trl.use_liger_loss"),
    message="{rl} with {context_parallel_size} cannot use {trl.use_liger_loss}",
    fix=Fix("set trl.use_liger_loss: false", edits=(SetValue(("trl", "use_liger_loss"), "false"),)),
    evidence="axolotl 0.18 validation.py:704",
    bad=f"{GRPO}trl: {{use_liger_loss: true}}\ncontext_parallel_size: 2\n{FLASH}",
    good=f"{GRPO}trl: {{use_liger_loss: true}}\ncontext_parallel_size: 1\n{FLASH}",
)

CP_ASYNC_GENERATION = conditional(
    "AX813",
    "cp-async-generation",
    Severity.ERROR,
    Settings,
    summary="Context parallelism with asynchronous generation",
    why="The two trainers exclude each other; it shows when the trainer is chosen.",
    when=one_of("rl", "grpo", "gdpo") & above("context_parallel_size", 1),
    then=~(on("trl.async_prefetch") | on("trl.use_data_producer")),
    message="{context_parallel_size} cannot be combined with {trl.async_prefetch}, {trl.use_data_producer}",
    fix=Fix("switch one of them off"),
    evidence="axolotl 0.18 core/trainers/grpo/__init__.py:39",
    bad=f"{GRPO}trl: {{async_prefetch: true}}\ncontext_parallel_size: 2\n{FLASH}",
    good=f"{GRPO}trl: {{async_prefetch: true}}\ncontext_parallel_size: 1\n{FLASH}",
    unchecked=True,
)

CP_PREFERENCES = conditional(
    "AX814",
    "cp-slices-preference-loss",
    Severity.WARNING,
    Settings,
    summary="Context parallelism with a preference loss that sees a slice",
    why="axolotl gathers the logits over cp for grpo and ebft alone; other losses compare what one rank holds.",
    when=above("context_parallel_size", 1),
    then=~one_of("rl", "dpo", "ipo", "kto", "orpo", "simpo", "gdpo"),
    message="{rl} compares slices under {context_parallel_size}: logits are gathered for grpo and ebft only",
    fix=Fix("do without context parallelism"),
    evidence="axolotl 0.18 train.py:205 (read); the pair is accepted (run)",
    bad=f"rl: dpo\ncontext_parallel_size: 2\n{FLASH}",
    good=f"rl: dpo\ncontext_parallel_size: 1\n{FLASH}",
    unchecked=True,
)


@rule(
    "AX816",
    Severity.ERROR,
    Run,
    evidence="axolotl 0.18 validation.py:716",
    bad=f"rl: dpo\n{QLORA}gradient_checkpointing: true\ngradient_checkpointing_kwargs: {{use_reentrant: true}}\n",
    good=f"rl: dpo\n{QLORA}gradient_checkpointing: true\ngradient_checkpointing_kwargs: {{use_reentrant: false}}\n",
    given={"world_size": 2},
)
def reentrant_preference_qlora(run: Run) -> Iterator[Violation]:
    """A preference method with QLoRA on several ranks recomputes in the reentrant form.

    The model runs forward more than once for each backward pass, which DDP and that form of checkpointing do not survive together.
    """
    form = run.reentrant
    if form is None or not form.value or run.groups is None or run.quantized is None or not run.quantized.value:
        return
    if run.adapter is None or run.adapter.value != "qlora" or run.world_size().value == 1:
        return
    fix = Fix("set gradient_checkpointing_kwargs.use_reentrant: false", edits=_not_reentrant(form))
    yield Violation(
        place(form), f"{form} with {run.groups.method} and {run.adapter}", notes(run.groups.method, run.adapter), fix
    )


def _not_reentrant(form: Value[bool]) -> tuple[SetValue, ...]:
    return (SetValue(form.path, "false"),) if form.path else ()


GENERATION_AHEAD_FSDP = conditional(
    "AX817",
    "generation-ahead-fsdp",
    Severity.WARNING,
    Settings,
    summary="trl.async_prefetch under FSDP",
    why="Hangs were reported: one rank generates while the others gather parameters.",
    when=on("trl.async_prefetch"),
    then=~on("fsdp_config"),
    message="{trl.async_prefetch} under FSDP may hang",
    fix=Fix("set trl.async_prefetch: false"),
    evidence="axolotl's guide to training stability, table of common errors",
    bad=f"{GRPO}trl: {{async_prefetch: true}}\n{FSDP2}",
    good=f"{GRPO}trl: {{async_prefetch: false}}\n{FSDP2}",
    unchecked=True,
)

GDPO_AGGREGATION = conditional(
    "AX815",
    "gdpo-sums-first",
    Severity.ERROR,
    Settings,
    summary="GDPO that sums rewards before it normalizes them",
    why="That is GRPO under another name.",
    when=equals("rl", "gdpo"),
    then=~equals("trl.multi_objective_aggregation", "sum_then_normalize"),
    message="{rl} with {trl.multi_objective_aggregation} is GRPO",
    fix=Fix("set trl.multi_objective_aggregation: normalize_then_sum"),
    evidence="axolotl 0.18 validation.py:740",
    bad="rl: gdpo\ntrl: {multi_objective_aggregation: sum_then_normalize}\n",
    good="rl: gdpo\ntrl: {multi_objective_aggregation: normalize_then_sum}\n",
)

RULES: tuple[Rule[Settings] | Rule[Run], ...] = (
    PACKING_WITH_RL,
    KTO_EVAL_PACKING,
    KTO_COLUMNS,
    SIMPO_WARMUP_RATIO,
    DPO_WEIGHTS_ALONE,
    DPO_LOSS_ELSEWHERE,
    dpo_weights_uneven,
    QUANTIZED_PREFERENCE_FSDP2,
    grpo_groups_do_not_fit,
    groups_over_context_parallel,
    GRPO_CP_LIGER,
    CP_ASYNC_GENERATION,
    CP_PREFERENCES,
    reentrant_preference_qlora,
    GENERATION_AHEAD_FSDP,
    GDPO_AGGREGATION,
)
