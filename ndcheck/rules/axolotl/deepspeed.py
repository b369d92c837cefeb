"""axolotl's rules about DeepSpeed, as far as the config itself decides; what a JSON file says has rules of its own."""

from __future__ import annotations

from collections.abc import Iterator

from ndcheck.findings import Fix, RemoveKey, Severity, Violation, place
from ndcheck.rules.conditions import above, equals, is_mapping, matches, on
from ndcheck.rules.rule import Rule, conditional, rule
from ndcheck.run import Run
from ndcheck.settings import Settings

ZERO3 = matches("deepspeed", "zero3") | equals("deepspeed.zero_optimization.stage", 3)
"""Stage 3, by the name that axolotl ships it under or as written inline."""
INLINE = "deepspeed: {train_micro_batch_size_per_gpu: auto, zero_optimization: {stage: 1}}\n"
LORA = "adapter: lora\nlora_target_linear: true\n"

DEEPCOMPILE_WITHOUT_DEEPSPEED = conditional(
    "AX401",
    "deepcompile-without-deepspeed",
    Severity.ERROR,
    Settings,
    summary="deepcompile is on without DeepSpeed",
    why="It is DeepSpeed's own compiler and has nothing to work on without it.",
    when=on("deepcompile"),
    then=on("deepspeed"),
    message="{deepcompile} needs {deepspeed}",
    fix=Fix("set deepspeed to a config, or use torch_compile: true instead"),
    evidence="axolotl 0.18 validation.py:1188",
    bad="deepcompile: true\n",
    good="deepcompile: true\ndeepspeed: zero1.json\n",
)

ZERO3_NOT_REENTRANT = conditional(
    "AX402",
    "zero3-not-reentrant",
    Severity.WARNING,
    Settings,
    summary="ZeRO-3 with an adapter and non-reentrant checkpointing",
    why="Stage 3 empties a layer's parameters between forward and backward. Non-reentrant checkpointing compares the "
    "shapes that it saved with the recomputed ones and raises a CheckpointError on the empty ones. axolotl warns "
    "for qlora only, and takes the stage from the file's name.",
    when=on("adapter") & ZERO3,
    then=~equals("gradient_checkpointing_kwargs.use_reentrant", False),
    message="{gradient_checkpointing_kwargs.use_reentrant} may end in a CheckpointError under {deepspeed}",
    fix=Fix("set gradient_checkpointing_kwargs.use_reentrant: true"),
    evidence="axolotl 0.18 validation.py:626 and its page on DeepSpeed",
    bad=f"{LORA}deepspeed: zero3.json\ngradient_checkpointing_kwargs: {{use_reentrant: false}}\n",
    good=f"{LORA}deepspeed: zero3.json\ngradient_checkpointing_kwargs: {{use_reentrant: true}}\n",
)

ZERO3_FINDS_BATCH_SIZE = conditional(
    "AX403",
    "zero3-finds-batch-size",
    Severity.ERROR,
    Settings,
    summary="auto_find_batch_size does not work under ZeRO-3",
    why="Each attempt would have to rebuild an engine that has already cut the parameters up; the Trainer refuses.",
    when=on("auto_find_batch_size"),
    then=~ZERO3,
    message="{auto_find_batch_size} does not work under ZeRO-3: {deepspeed}",
    fix=Fix("remove auto_find_batch_size", edits=(RemoveKey(("auto_find_batch_size",)),)),
    evidence="transformers 5.14 trainer.py:858",
    bad="auto_find_batch_size: true\ndeepspeed: deepspeed_configs/zero3.json\n",
    good="auto_find_batch_size: true\ndeepspeed: deepspeed_configs/zero2.json\n",
    unchecked=True,
)

ZERO3_8BIT = conditional(
    "AX407",
    "zero3-8bit",
    Severity.ERROR,
    Settings,
    summary="8-bit weights under ZeRO-3",
    why="bitsandbytes quantizes while loading, which needs a device map; ZeRO-3 cuts weights while loading and refuses one.",
    when=on("load_in_8bit"),
    then=~ZERO3,
    message="{load_in_8bit} does not load under ZeRO-3: {deepspeed}",
    fix=Fix("use ZeRO stage 2, or load_in_8bit: false"),
    evidence="peft #306",
    bad=f"{LORA}load_in_8bit: true\ndeepspeed: deepspeed_configs/zero3.json\n",
    good=f"{LORA}load_in_8bit: true\ndeepspeed: deepspeed_configs/zero2.json\n",
    unchecked=True,
)

DEEPSPEED_INLINE = conditional(
    "AX404",
    "deepspeed-inline",
    Severity.ERROR,
    Settings,
    summary="axolotl cannot complete a DeepSpeed config that is written inline",
    why="With tensor parallelism or deepcompile axolotl 0.18 adds a section to the DeepSpeed config. It opens the "
    "value as a file to do so, and a mapping ends in a TypeError, although the key's type allows one.",
    when=is_mapping("deepspeed"),
    then=~above("tensor_parallel_size", 1) & ~on("deepcompile"),
    message="axolotl 0.18 crashes on an inline deepspeed config with {tensor_parallel_size} and {deepcompile}",
    fix=Fix("move the mapping into a JSON file and name that"),
    evidence="axolotl 0.18 validation.py:1162 and 1195, run: TypeError",
    bad=f"{INLINE}deepcompile: true\n",
    good=f"{INLINE}deepcompile: false\n",
)


@rule(
    "AX405",
    Severity.WARNING,
    Run,
    evidence="axolotl 0.18 docs/training_stability.qmd: a DummyOptim error",
    bad="deepspeed: zero1.json\n",
    good="deepspeed: null\n",
    given={"world_size": 1},
    unchecked=True,
)
def deepspeed_on_one_rank(run: Run) -> Iterator[Violation]:
    """DeepSpeed is on in a run of one rank.

    There is nothing to shard over, and axolotl's own guide knows the set-up as one that fails because
    the optimizer stays a placeholder.
    """
    if run.sharding.deepspeed.value and run.world_size().value == 1:
        message = f"{run.sharding.deepspeed.origin.text} is set, and the run has one rank"
        yield Violation(place(run.sharding.deepspeed), message, fix=Fix("remove deepspeed"))


RULES: tuple[Rule[Settings] | Rule[Run], ...] = (
    DEEPCOMPILE_WITHOUT_DEEPSPEED,
    ZERO3_NOT_REENTRANT,
    ZERO3_FINDS_BATCH_SIZE,
    ZERO3_8BIT,
    DEEPSPEED_INLINE,
    deepspeed_on_one_rank,
)
