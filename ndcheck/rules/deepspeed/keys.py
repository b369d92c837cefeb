"""Rules about the keys of DeepSpeed's config, and the batch that every file must state."""

from __future__ import annotations

from collections.abc import Iterator

from ndcheck.findings import Fix, RemoveKey, RenameKey, Severity, Violation
from ndcheck.rules.conditions import is_set, one_of
from ndcheck.rules.keys import nearest
from ndcheck.rules.rule import Rule, conditional, rule
from ndcheck.settings import Settings
from ndcheck.values import dotted, shown

REMOVED = {
    "amp": "use bf16, fp16 or torch_autocast",
    "compression_training": "compress with another tool",
    "curriculum_learning": "use data_efficiency",
    "eigenvalue": "remove it",
    "elasticity": "remove it",
    "graph_harvesting": "remove it",
    "nebula": "remove it",
    "progressive_layer_drop": "remove it",
    "quantize_training": "remove it",
    "sparse_attention": "remove it",
    "sparse_gradients": "remove it",
}
"""Key of an older DeepSpeed -> what to do instead."""


@rule(
    "DS101",
    Severity.ERROR,
    Settings,
    evidence="DeepSpeed 0.19 config_utils.py: its sections forbid what they do not know",
    bad="zero_optimization: {stage: 2, overlapp_comm: true}\n",
    good="zero_optimization: {stage: 2, overlap_comm: true}\n",
)
def deepspeed_unknown_key(settings: Settings) -> Iterator[Violation]:
    """A section has a key that DeepSpeed refuses.

    Keys of the top level that it does not know are dropped; those of zero_optimization, of offloading, of bf16, fp16 and
    tensor_parallel end the run before the first step.
    """
    for unknown in settings.unknown:
        if not unknown.refused:
            continue
        key = unknown.path[-1]
        near = nearest(key, unknown.known) if isinstance(key, str) else None
        where = dotted(unknown.path[:-1])
        hint = f"; did you mean {near}?" if near else ""
        fix = Fix(f"rename it to {near}", edits=(RenameKey(unknown.path, near),)) if near else Fix("remove it")
        yield Violation(unknown.path, f"DeepSpeed refuses {shown(key)} in {where}{hint}", fix=fix)


@rule(
    "DS102",
    Severity.ERROR,
    Settings,
    evidence="DeepSpeed 0.19.8 config.py, run: each of these keys is refused by name",
    bad="amp: {enabled: true}\n",
    good="bf16: {enabled: true}\n",
    versions="deepspeed>=0.19",
)
def deepspeed_removed_key(settings: Settings) -> Iterator[Violation]:
    """A section belongs to a feature that DeepSpeed no longer has.

    It refuses the file rather than train without what was asked for.
    """
    for key, advice in REMOVED.items():
        if key in settings.mapping:
            fix = Fix(advice, edits=(RemoveKey((key,)),) if advice == "remove it" else ())
            yield Violation((key,), f"DeepSpeed 0.19 has no {key} any more, and refuses the file", fix=fix)


BATCH_STATED = conditional(
    "DS103",
    "deepspeed-batch-missing",
    Severity.ERROR,
    Settings,
    summary="Neither train_batch_size nor train_micro_batch_size_per_gpu is stated",
    why="DeepSpeed derives the rest of the batch from one of the two. transformers and accelerate replace auto, and add nothing.",
    when=~is_set("train_batch_size") & ~is_set("train_micro_batch_size_per_gpu"),
    message="neither train_batch_size nor train_micro_batch_size_per_gpu is set: DeepSpeed cannot tell the batch",
    fix=Fix("set train_micro_batch_size_per_gpu, to auto under transformers"),
    evidence="DeepSpeed 0.19.8 config.py:590, an assertion",
    bad="gradient_accumulation_steps: 4\n",
    good="gradient_accumulation_steps: 4\ntrain_micro_batch_size_per_gpu: 1\n",
    given={"drop": ("train_micro_batch_size_per_gpu",)},
)


@rule(
    "DS104",
    Severity.WARNING,
    Settings,
    evidence="accelerate 1.15 utils/dataclasses.py:1276",
    bad="gradient_clipping: 1.0\n",
    good="gradient_clipping: 1.0\nzero_optimization: {stage: 1}\n",
    given={"drop": ("zero_optimization",)},
)
def zero_optimization_missing(settings: Settings) -> Iterator[Violation]:
    """There is no zero_optimization.

    DeepSpeed itself then shards nothing. accelerate, and so transformers and axolotl, refuse the file.
    """
    section = settings.value("zero_optimization")
    if section is None or (section.readable and section.value is None):
        message = "there is no zero_optimization: accelerate and transformers refuse the file"
        yield Violation((), message, fix=Fix("add zero_optimization with a stage"))


ALLREDUCE_WORD = conditional(
    "DS105",
    "gradient-allreduce-op",
    Severity.ERROR,
    Settings,
    summary="Gradients are to be reduced in an unknown way",
    why="DeepSpeed takes the mean over data ranks, or their sum.",
    when=is_set("gradient_allreduce_op"),
    then=one_of("gradient_allreduce_op", "mean", "sum"),
    message="{gradient_allreduce_op}: there are mean and sum",
    fix=Fix("use mean"),
    evidence="DeepSpeed 0.19.8 config.py",
    bad="gradient_allreduce_op: average\n",
    good="gradient_allreduce_op: mean\n",
)

WIRE_TYPE = conditional(
    "DS106",
    "communication-data-type",
    Severity.ERROR,
    Settings,
    summary="Gradients are to be sent in an unknown type",
    why="DeepSpeed sends fp32, fp16 or bf16.",
    when=is_set("communication_data_type"),
    then=one_of("communication_data_type", "fp32", "fp16", "bf16"),
    message="{communication_data_type}: there are fp32, fp16 and bf16",
    fix=Fix("use one of them"),
    evidence="DeepSpeed 0.19.8 config.py",
    bad="communication_data_type: float32\n",
    good="communication_data_type: fp32\n",
)

RULES: tuple[Rule[Settings], ...] = (
    deepspeed_unknown_key,
    deepspeed_removed_key,
    BATCH_STATED,
    zero_optimization_missing,
    ALLREDUCE_WORD,
    WIRE_TYPE,
)
