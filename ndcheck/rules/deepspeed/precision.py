"""Rules about bf16 and fp16 of DeepSpeed's config."""

from __future__ import annotations

from collections.abc import Iterator

from ndcheck.findings import Fix, SetValue, Severity, Violation, place
from ndcheck.rules.conditions import above, at_least, equals, on
from ndcheck.rules.rule import Rule, conditional, rule
from ndcheck.settings import Settings

STAGE = "zero_optimization.stage"

BOTH = conditional(
    "DS201",
    "deepspeed-bf16-and-fp16",
    Severity.ERROR,
    Settings,
    summary="bf16 and fp16 are both enabled",
    why="A run computes in one of the two.",
    when=equals("bf16.enabled", True) & equals("fp16.enabled", True),
    message="{bf16.enabled} and {fp16.enabled}: DeepSpeed takes one",
    fix=Fix("disable fp16", edits=(SetValue(("fp16", "enabled"), "false"),)),
    evidence="DeepSpeed 0.19.8 config.py:512",
    bad="bf16: {enabled: true}\nfp16: {enabled: true}\n",
    good="bf16: {enabled: true}\nfp16: {enabled: false}\n",
)

MASTER_BF16, MASTER_FP16 = (
    conditional(
        code,
        f"{kind}-master-weights-stage",
        Severity.ERROR,
        Settings,
        summary=f"Master weights in {kind} without ZeRO",
        why="The optimizers of ZeRO stages 1 to 3 can do without float32 master weights; that of stage 0 cannot.",
        when=on(f"{kind}.{kind}_master_weights_and_grads"),
        then=at_least(STAGE, 1),
        message=f"{{{kind}.{kind}_master_weights_and_grads}} needs a ZeRO stage of 1 to 3: {{{STAGE}}}",
        fix=Fix("set zero_optimization.stage to 1 or more"),
        evidence="DeepSpeed 0.19.8 config.py",
        bad=f"{kind}: {{enabled: true, {kind}_master_weights_and_grads: true}}\nzero_optimization: {{stage: 0}}\n",
        good=f"{kind}: {{enabled: true, {kind}_master_weights_and_grads: true}}\nzero_optimization: {{stage: 1}}\n",
    )
    for code, kind in (("DS202", "bf16"), ("DS203", "fp16"))
)

STATES = conditional(
    "DS204",
    "bf16-optimizer-states",
    Severity.ERROR,
    Settings,
    summary="Optimizer state in bfloat16 beside float32 master weights",
    why="The state follows the master weights: DeepSpeed refuses one in bfloat16 and the other not.",
    when=on("bf16.bf16_optimizer_states"),
    then=on("bf16.bf16_master_weights_and_grads"),
    message="{bf16.bf16_optimizer_states} needs bf16_master_weights_and_grads: true",
    fix=Fix("set bf16_master_weights_and_grads: true"),
    evidence="DeepSpeed 0.19.8 config.py",
    bad="bf16: {enabled: true, bf16_optimizer_states: true}\n",
    good="bf16: {enabled: true, bf16_optimizer_states: true, bf16_master_weights_and_grads: true}\n",
)


@rule(
    "DS205",
    Severity.ERROR,
    Settings,
    evidence="DeepSpeed 0.19.8 precision_config.py: a field of at least 0",
    bad="fp16: {enabled: true, loss_scale: -1}\n",
    good="fp16: {enabled: true, loss_scale: 0}\n",
)
def loss_scale_negative(settings: Settings) -> Iterator[Violation]:
    """The loss scale is negative.

    0 lets DeepSpeed find the scale; any other value is the scale itself.
    """
    scale = settings.value("fp16.loss_scale")
    if scale is not None and isinstance(scale.value, int | float) and scale.value < 0:
        yield Violation(place(scale), f"{scale} is negative", fix=Fix("set it to 0, for a dynamic one"))


STATIC_SCALE = conditional(
    "DS206",
    "loss-scale-in-bf16",
    Severity.WARNING,
    Settings,
    summary="A loss scale is set, and fp16 is off",
    why="Only float16 needs one: bfloat16 has the range of float32, and the value has no effect.",
    when=above("fp16.loss_scale", 0) & equals("bf16.enabled", True),
    message="{fp16.loss_scale} has no effect with {bf16.enabled}",
    fix=Fix("remove the fp16 section"),
    evidence="DeepSpeed 0.19.8 config.py: the scale is read with fp16 only",
    bad="bf16: {enabled: true}\nfp16: {enabled: false, loss_scale: 128}\n",
    good="bf16: {enabled: true}\nfp16: {enabled: false, loss_scale: 0}\n",
    unchecked=True,
)

RULES: tuple[Rule[Settings], ...] = (BOTH, MASTER_BF16, MASTER_FP16, STATES, loss_scale_negative, STATIC_SCALE)
