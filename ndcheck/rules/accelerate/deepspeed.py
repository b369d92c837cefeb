"""Rules about ``deepspeed_config`` of a launch file."""

from __future__ import annotations

from collections.abc import Iterator

from ndcheck.findings import Fix, Note, Severity, Violation, place
from ndcheck.rules.conditions import at_least, is_set, one_of
from ndcheck.rules.rule import Rule, conditional, rule
from ndcheck.settings import Settings

KEY = "deepspeed_config."
DEVICES = ("none", "cpu", "nvme")
LEFT_TO_THE_FILE = (
    "gradient_accumulation_steps",
    "gradient_clipping",
    "zero_stage",
    "offload_optimizer_device",
    "offload_param_device",
    "offload_optimizer_nvme_path",
    "offload_param_nvme_path",
    "zero3_save_16bit_model",
)
"""Keys that accelerate refuses beside a JSON file. mixed_precision is one more, at top level."""


def section(**entries: object) -> str:
    """YAML of a launch file under DeepSpeed."""
    inner = ", ".join(f"{name}: {value}" for name, value in entries.items())
    return f"distributed_type: DEEPSPEED\ndeepspeed_config: {{{inner}}}\n"


@rule(
    "AC401",
    Severity.ERROR,
    Settings,
    evidence="accelerate 1.15 utils/dataclasses.py:1523, raised when the plug-in is built",
    bad=section(deepspeed_config_file="zero.json", zero_stage=2),
    good=section(deepspeed_config_file="zero.json"),
)
def deepspeed_file_and_keys(settings: Settings) -> Iterator[Violation]:
    """DeepSpeed's JSON file is named, and keys that it decides are set beside it.

    The file decides alone. accelerate refuses the launch file rather than choose between two values.
    """
    file = settings.value(f"{KEY}deepspeed_config_file")
    if file is None or not file.value or not _runs(settings):
        return
    beside = [value for name in LEFT_TO_THE_FILE if (value := settings.value(f"{KEY}{name}")) is not None]
    precision = settings.value("mixed_precision")
    beside += [precision] if precision is not None and precision.value is not None else []
    if beside:
        first, *others = beside
        related = tuple(Note(value.path, str(value)) for value in (*others, file) if value.path is not None)
        message = f"{', '.join(map(str, beside))}: {file} decides these alone"
        yield Violation(place(first), message, related, Fix("remove them here, and set them in the JSON file"))


def _runs(settings: Settings) -> bool:
    kind = settings.value("distributed_type")
    return kind is not None and kind.value == "DEEPSPEED"


ZERO_STAGE = conditional(
    "AC402",
    "zero-stage-known",
    Severity.ERROR,
    Settings,
    summary="There is no such ZeRO stage",
    why="Stage 0 shards nothing, 1 the optimizer's state, 2 gradients too, 3 parameters too.",
    when=is_set(f"{KEY}zero_stage"),
    then=at_least(f"{KEY}zero_stage", 0) & ~at_least(f"{KEY}zero_stage", 4),
    message=f"{{{KEY}zero_stage}}: there are 0 to 3",
    fix=Fix("use one of them"),
    evidence="DeepSpeed, zero/config.py",
    bad=section(zero_stage=4),
    good=section(zero_stage=3),
)

OPTIMIZER_DEVICE, PARAMETER_DEVICE = (
    conditional(
        code,
        f"offload-{what}-device",
        Severity.ERROR,
        Settings,
        summary="There is no such device to offload to",
        why="State is kept on the GPU (none), in the machine's memory (cpu), or on a disk (nvme).",
        when=is_set(f"{KEY}offload_{what}_device"),
        then=one_of(f"{KEY}offload_{what}_device", *DEVICES),
        message=f"{{{KEY}offload_{what}_device}}: there are none, cpu and nvme",
        fix=Fix("use one of them"),
        evidence="DeepSpeed, zero/offload_config.py",
        bad=section(zero_stage=3, **{f"offload_{what}_device": "gpu"}),
        good=section(zero_stage=3, **{f"offload_{what}_device": "cpu"}),
    )
    for code, what in (("AC403", "optimizer"), ("AC404", "param"))
)

PARAMETERS_STAGE = conditional(
    "AC405",
    "offload-parameters-stage",
    Severity.WARNING,
    Settings,
    summary="Parameters are to be offloaded, and ZeRO does not shard them",
    why="Only stage 3 cuts parameters, and only what it cuts can it keep elsewhere; below that the key has no effect.",
    when=one_of(f"{KEY}offload_param_device", "cpu", "nvme") & is_set(f"{KEY}zero_stage"),
    then=at_least(f"{KEY}zero_stage", 3),
    message=f"{{{KEY}offload_param_device}} has no effect with {{{KEY}zero_stage}}",
    fix=Fix("set zero_stage: 3, or offload_param_device: none"),
    evidence="DeepSpeed, zero/config.py: offload_param is read by stage 3",
    bad=section(zero_stage=2, offload_param_device="cpu"),
    good=section(zero_stage=3, offload_param_device="cpu"),
    unchecked=True,
)


RULES: tuple[Rule[Settings], ...] = (
    deepspeed_file_and_keys,
    ZERO_STAGE,
    OPTIMIZER_DEVICE,
    PARAMETER_DEVICE,
    PARAMETERS_STAGE,
)
