"""Rules about zero_optimization: stages, offloading, optimizers."""

from __future__ import annotations

from collections.abc import Iterator

from ndcheck.findings import Fix, RemoveKey, RenameKey, SetValue, Severity, Violation, notes, place
from ndcheck.rules.conditions import at_least, equals, is_set, one_of
from ndcheck.rules.rule import Rule, conditional, rule
from ndcheck.settings import Settings

ZERO = "zero_optimization."
STAGE = f"{ZERO}stage"
OPTIMIZER_DEVICE, PARAM_DEVICE = f"{ZERO}offload_optimizer.device", f"{ZERO}offload_param.device"


def zero(**entries: object) -> str:
    """The section in YAML."""
    inner = ", ".join(f"{name}: {value}" for name, value in entries.items())
    return f"zero_optimization: {{{inner}}}\n"


STAGE_KNOWN = conditional(
    "DS301",
    "deepspeed-zero-stage",
    Severity.ERROR,
    Settings,
    summary="There is no such ZeRO stage",
    why="Stage 0 shards nothing, 1 the optimizer's state, 2 gradients too, 3 parameters too.",
    when=is_set(STAGE),
    then=one_of(STAGE, 0, 1, 2, 3),
    message=f"{{{STAGE}}}: there are 0 to 3",
    fix=Fix("use one of them"),
    evidence="DeepSpeed 0.19.8 zero/config.py",
    bad=zero(stage=4),
    good=zero(stage=3),
)

PARAM_STAGE = conditional(
    "DS302",
    "deepspeed-offload-param-stage",
    Severity.WARNING,
    Settings,
    summary="Parameters are to be offloaded, and ZeRO does not shard them",
    why="Only stage 3 cuts parameters, and only what it cuts can it keep elsewhere; below that the section has no effect.",
    when=one_of(PARAM_DEVICE, "cpu", "nvme"),
    then=at_least(STAGE, 3),
    message=f"{{{PARAM_DEVICE}}} has no effect with {{{STAGE}}}",
    fix=Fix("set stage: 3, or remove offload_param"),
    evidence="DeepSpeed 0.19.8 zero/config.py: offload_param is read by stage 3",
    bad=zero(stage=2, offload_param="{device: cpu}"),
    good=zero(stage=3, offload_param="{device: cpu}"),
    unchecked=True,
)

OPTIMIZER_STAGE = conditional(
    "DS303",
    "deepspeed-offload-optimizer-stage",
    Severity.WARNING,
    Settings,
    summary="The optimizer is to be offloaded, and ZeRO does not shard it",
    why="Stage 0 has no optimizer of its own that could keep its state elsewhere.",
    when=one_of(OPTIMIZER_DEVICE, "cpu", "nvme"),
    then=at_least(STAGE, 1),
    message=f"{{{OPTIMIZER_DEVICE}}} has no effect with {{{STAGE}}}",
    fix=Fix("set stage to 1 or more, or remove offload_optimizer"),
    evidence="DeepSpeed 0.19.8 zero/config.py",
    bad=zero(stage=0, offload_optimizer="{device: cpu}"),
    good=zero(stage=1, offload_optimizer="{device: cpu}"),
    unchecked=True,
)

NVME_STAGE = conditional(
    "DS304",
    "deepspeed-nvme-stage",
    Severity.ERROR,
    Settings,
    summary="Offloading to a disk below stage 3",
    why="Only the optimizer of stage 3 swaps with a disk; those of stages 1 and 2 know the CPU's memory.",
    when=equals(OPTIMIZER_DEVICE, "nvme") & one_of(STAGE, 1, 2),
    message=f"{{{OPTIMIZER_DEVICE}}} needs stage 3, not {{{STAGE}}}",
    fix=Fix("set stage: 3, or device: cpu"),
    evidence="DeepSpeed's docs/config-json: nvme is for stage 3",
    bad=zero(stage=2, offload_optimizer="{device: nvme, nvme_path: /nvme}"),
    good=zero(stage=3, offload_optimizer="{device: nvme, nvme_path: /nvme}"),
    unchecked=True,
)

NVME_OPTIMIZER, NVME_PARAM = (
    conditional(
        code,
        f"deepspeed-nvme-path-{what}",
        Severity.ERROR,
        Settings,
        summary="Offloading to a disk without a folder",
        why="State is swapped to files in nvme_path; without one DeepSpeed fails when the first is opened.",
        when=equals(f"{ZERO}offload_{what}.device", "nvme"),
        then=is_set(f"{ZERO}offload_{what}.nvme_path"),
        message=f"{{{ZERO}offload_{what}.device}} needs nvme_path",
        fix=Fix("set nvme_path to a folder on a fast local disk"),
        evidence="DeepSpeed 0.19.8 zero/offload_config.py",
        bad=zero(stage=3, **{f"offload_{what}": "{device: nvme}"}),
        good=zero(stage=3, **{f"offload_{what}": "{device: nvme, nvme_path: /nvme}"}),
        unchecked=True,
    )
    for code, what in (("DS305", "optimizer"), ("DS306", "param"))
)


@rule(
    "DS307",
    Severity.ERROR,
    Settings,
    evidence="DeepSpeed 0.19.8 zero/offload_config.py: 0 to 1; zero/config.py: below 1 under stage 3 only",
    bad=zero(stage=2, offload_optimizer="{device: cpu, ratio: 0.5}"),
    good=zero(stage=3, offload_optimizer="{device: cpu, ratio: 0.5}"),
)
def offload_ratio(settings: Settings) -> Iterator[Violation]:
    """A share of the optimizer's state is to be offloaded, and cannot be.

    The share is between 0 and 1. Twin-Flow, which splits the state between GPU and CPU, is a part of stage 3.
    """
    ratio, stage = settings.value(f"{ZERO}offload_optimizer.ratio"), settings.value(STAGE)
    if ratio is None or not isinstance(ratio.value, int | float):
        return
    if not 0 <= ratio.value <= 1:
        yield Violation(place(ratio), f"{ratio} is not between 0 and 1", fix=Fix("use a number between 0 and 1"))
    elif ratio.value < 1 and stage is not None and stage.value in (0, 1, 2):
        fix = Fix("set stage: 3, or remove ratio")
        yield Violation(place(ratio), f"{ratio} needs stage 3, not {stage}", notes(stage), fix)


NORM_STAGE = conditional(
    "DS308",
    "compute-grad-norm-stage",
    Severity.ERROR,
    Settings,
    summary="The norm of gradients is switched off outside stages 1 and 2",
    why="Stage 3 and stage 0 need it, and DeepSpeed refuses to go without.",
    when=equals(f"{ZERO}compute_grad_norm", False),
    then=one_of(STAGE, 1, 2),
    message=f"{{{ZERO}compute_grad_norm}} needs stage 1 or 2: {{{STAGE}}}",
    fix=Fix("remove compute_grad_norm"),
    evidence="DeepSpeed 0.19.8 zero/config.py",
    bad=zero(stage=3, compute_grad_norm="false"),
    good=zero(stage=2, compute_grad_norm="false"),
)

SUM_STAGE = conditional(
    "DS309",
    "gradient-sum-stage",
    Severity.ERROR,
    Settings,
    summary="Gradients are summed under stage 3",
    why="Its reduce-scatter divides by the ranks; DeepSpeed refuses the sum.",
    when=equals("gradient_allreduce_op", "sum"),
    then=~at_least(STAGE, 3),
    message=f"{{gradient_allreduce_op}} does not work with {{{STAGE}}}",
    fix=Fix("use mean", edits=(SetValue(("gradient_allreduce_op",), "mean"),)),
    evidence="DeepSpeed 0.19.8 config.py",
    bad=f"gradient_allreduce_op: sum\n{zero(stage=3)}",
    good=f"gradient_allreduce_op: sum\n{zero(stage=2)}",
)

ELASTIC = conditional(
    "DS310",
    "elastic-checkpoint",
    Severity.ERROR,
    Settings,
    summary="elastic_checkpoint no longer exists",
    why="DeepSpeed dropped it; universal checkpoints are what replaced it.",
    when=equals(f"{ZERO}elastic_checkpoint", True),
    message=f"{{{ZERO}elastic_checkpoint}}: DeepSpeed no longer supports it",
    fix=Fix("remove it", edits=(RemoveKey(("zero_optimization", "elastic_checkpoint")),)),
    evidence="DeepSpeed 0.19.8 zero/config.py",
    bad=zero(stage=1, elastic_checkpoint="true"),
    good=zero(stage=1, elastic_checkpoint="false"),
)

OLDER = {
    "cpu_offload": ("offload_optimizer", None),
    "cpu_offload_param": ("offload_param", None),
    "cpu_offload_use_pin_memory": ("offload_optimizer.pin_memory", None),
    "stage3_gather_fp16_weights_on_model_save": (
        "stage3_gather_16bit_weights_on_model_save",
        "stage3_gather_16bit_weights_on_model_save",
    ),
}
"""Older key of the section -> what replaces it, and its name where the value stays as it is."""


@rule(
    "DS311",
    Severity.WARNING,
    Settings,
    evidence="DeepSpeed 0.19.8 zero/config.py: deprecated fields",
    bad=zero(stage=2, cpu_offload="true"),
    good=zero(stage=2, offload_optimizer="{device: cpu}"),
)
def zero_older_key(settings: Settings) -> Iterator[Violation]:
    """A key of zero_optimization has an older name.

    DeepSpeed still reads it, and says that it will not for long.
    """
    section = settings.mapping.get("zero_optimization")
    for old, (new, name) in OLDER.items():
        if isinstance(section, dict) and old in section:
            path = ("zero_optimization", old)
            edits = (RenameKey(path, name),) if name and name not in section else ()
            yield Violation(path, f"{old} is replaced by {new}", fix=Fix(f"write {new}", edits=edits))


CPU_OPTIMIZERS = frozenset({"adam", "adamw", "adagrad", "lion"})
"""Optimizers of which DeepSpeed has a form for the CPU, by their names in small letters."""


@rule(
    "DS312",
    Severity.ERROR,
    Settings,
    evidence="DeepSpeed 0.19.8 engine.py: CPU forms of Adam, AdamW, Adagrad and Lion; others run under offloading only if untested ones are allowed",
    bad=f"optimizer: {{type: Lamb}}\n{zero(stage=2, offload_optimizer='{device: cpu}')}",
    good=f"optimizer: {{type: AdamW}}\n{zero(stage=2, offload_optimizer='{device: cpu}')}",
)
def offloaded_optimizer(settings: Settings) -> Iterator[Violation]:
    """The optimizer has no form for the CPU, where its state is to live.

    DeepSpeed has Adam, AdamW, Adagrad and Lion for the CPU. Another optimizer under offloading is refused, unless
    zero_force_ds_cpu_optimizer is off and zero_allow_untested_optimizer is on.
    """
    kind, device = settings.value("optimizer.type"), settings.value(OPTIMIZER_DEVICE)
    if kind is None or kind.value is None or device is None or device.value not in ("cpu", "nvme"):
        return
    if kind.value.lower() in CPU_OPTIMIZERS:
        return
    forced = settings.value("zero_force_ds_cpu_optimizer")
    if forced is not None and forced.value is False and settings.on("zero_allow_untested_optimizer"):
        return
    yield Violation(place(kind), f"{kind} has no form for the CPU: {device}", notes(device), Fix("use AdamW"))


UNTESTED = frozenset({"adam", "adamw", "lamb", "adagrad", "lion", "muon"})


@rule(
    "DS313",
    Severity.ERROR,
    Settings,
    evidence="DeepSpeed 0.19.8 engine.py: an assertion on zero_allow_untested_optimizer",
    bad=f"optimizer: {{type: SGD}}\n{zero(stage=2)}",
    good=f"optimizer: {{type: SGD}}\nzero_allow_untested_optimizer: true\n{zero(stage=2)}",
)
def untested_optimizer(settings: Settings) -> Iterator[Violation]:
    """ZeRO was not tested with this optimizer.

    DeepSpeed stops unless the file says that this is meant.
    """
    kind, stage = settings.value("optimizer.type"), settings.value(STAGE)
    if kind is None or kind.value is None or stage is None or not stage.value:
        return
    if kind.value.lower() in UNTESTED or settings.on("zero_allow_untested_optimizer"):
        return
    if (offload := settings.get(OPTIMIZER_DEVICE)) and offload != "none":
        return  # offloaded_optimizer speaks
    fix = Fix("set zero_allow_untested_optimizer: true", edits=(SetValue(("zero_allow_untested_optimizer",), "true"),))
    yield Violation(place(kind), f"{kind} is untested with {stage}", notes(stage), fix)


NORM_IN_PARAMS = conditional(
    "DS314",
    "max-grad-norm-in-params",
    Severity.WARNING,
    Settings,
    summary="max_grad_norm stands in the optimizer's params",
    why="DeepSpeed sets it to 0 there when ZeRO is on, and clips by gradient_clipping.",
    when=is_set("optimizer.params.max_grad_norm"),
    message="{optimizer.params.max_grad_norm} has no effect: DeepSpeed clips by gradient_clipping",
    fix=Fix("set gradient_clipping instead"),
    evidence="DeepSpeed 0.19.8 config.py: a warning",
    bad="optimizer: {type: AdamW, params: {max_grad_norm: 1.0}}\n",
    good="optimizer: {type: AdamW, params: {lr: 1.0e-5}}\ngradient_clipping: 1.0\n",
)

WARMUP = conditional(
    "DS315",
    "warmup-steps-positive",
    Severity.ERROR,
    Settings,
    summary="The warm-up has no steps",
    why="The schedule divides by them. Older versions took 2 instead and said nothing; 0.19.6 refuses.",
    when=is_set("scheduler.params.warmup_num_steps") & ~equals("scheduler.params.warmup_num_steps", "auto"),
    then=at_least("scheduler.params.warmup_num_steps", 1),
    message="{scheduler.params.warmup_num_steps} is not positive",
    fix=Fix("set it to at least 1"),
    evidence="DeepSpeed 0.19.6 lr_schedules.py; transformers 5.24 integrations/deepspeed.py fills at least 1 for this reason",
    bad="scheduler: {type: WarmupLR, params: {warmup_num_steps: 0}}\n",
    good="scheduler: {type: WarmupLR, params: {warmup_num_steps: 10}}\n",
    versions="deepspeed>=0.19.6",
)

RULES: tuple[Rule[Settings], ...] = (
    STAGE_KNOWN,
    PARAM_STAGE,
    OPTIMIZER_STAGE,
    NVME_STAGE,
    NVME_OPTIMIZER,
    NVME_PARAM,
    offload_ratio,
    NORM_STAGE,
    SUM_STAGE,
    ELASTIC,
    zero_older_key,
    offloaded_optimizer,
    untested_optimizer,
    NORM_IN_PARAMS,
    WARMUP,
)
