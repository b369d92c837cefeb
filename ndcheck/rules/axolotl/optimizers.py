"""axolotl's rules about optimizers' own options."""

from __future__ import annotations

from collections.abc import Iterator

from ndcheck.findings import Fix, SetValue, Severity, Violation, notes, place
from ndcheck.rules.conditions import above, equals, is_set, on, one_of
from ndcheck.rules.rule import Rule, conditional, rule
from ndcheck.run import Run
from ndcheck.settings import Settings
from ndcheck.values import Value

LOW_RANK = (
    "galore_adamw",
    "galore_adamw_8bit",
    "galore_adafactor",
    "galore_adamw_layerwise",
    "galore_adamw_8bit_layerwise",
    "galore_adafactor_layerwise",
    "apollo_adamw",
    "apollo_adamw_layerwise",
)

LAYERWISE = tuple(name for name in LOW_RANK if name.endswith("layerwise"))

BETAS_TOGETHER = (
    "muon",
    "dion",
    "sinkgd",
    "optimi_adamw",
    "ao_adamw_fp8",
    "adopt_adamw",
    "q_galore_adamw8bit",
    "flash_adamw",
    "flash_adam",
    "flash_lion",
)
"""Optimizers that axolotl builds itself, handing the betas on only as a pair."""

WITHOUT_BETAS = (
    "sgd",
    "adagrad",
    "rmsprop",
    "rmsprop_bnb",
    "rmsprop_bnb_8bit",
    "rmsprop_bnb_32bit",
    "adafactor",
    "galore_adafactor",
    "galore_adafactor_layerwise",
    "flash_sgd",
    "flash_sgdw",
)
"""Optimizers that take none of Adam's options."""

CUT_BY_NOBODY = frozenset(
    "muon dion sinkgd q_galore_adamw8bit flash_adamw flash_adam flash_sgd flash_sgdw flash_lion".split()
)

ADAM_UNREAD = conditional(
    "AX601",
    "adam-options-unread",
    Severity.WARNING,
    Settings,
    summary="Options of Adam beside an optimizer that has none of them",
    why="adam_beta1, adam_beta2 and adam_epsilon reach only optimizers that are related to Adam. axolotl's own warning "
    "goes by the name and also names those that read them.",
    when=on("adam_beta1") | on("adam_beta2") | on("adam_epsilon"),
    then=~one_of("optimizer", *WITHOUT_BETAS),
    message="{optimizer} does not read {adam_beta1}, {adam_beta2}, {adam_epsilon}",
    fix=Fix("remove them; what this optimizer takes goes into optim_args"),
    evidence="axolotl 0.18 core/builders/base.py:303; transformers 5.14 trainer_optimizer.py",
    bad="optimizer: adafactor\nadam_beta2: 0.95\n",
    good="optimizer: adamw_torch_fused\nadam_beta2: 0.95\n",
)

ONE_BETA = conditional(
    "AX602",
    "adam-beta-alone",
    Severity.WARNING,
    Settings,
    summary="One of adam_beta1 and adam_beta2 is written, and this optimizer takes both or none",
    why="axolotl builds some optimizers itself, and hands them the betas only if both are written.",
    when=one_of("optimizer", *BETAS_TOGETHER) & (on("adam_beta1") | on("adam_beta2")),
    then=on("adam_beta1") & on("adam_beta2"),
    message="{adam_beta1}, {adam_beta2}: {optimizer} gets both or neither, so the one that is written is dropped",
    fix=Fix("write both"),
    evidence="axolotl 0.18 core/builders/base.py:304 (read)",
    bad="optimizer: muon\nadam_beta2: 0.95\n",
    good="optimizer: muon\nadam_beta1: 0.9\nadam_beta2: 0.95\n",
    unchecked=True,
)

CAME_UNREAD = conditional(
    "AX603",
    "came-options-unread",
    Severity.WARNING,
    Settings,
    summary="adam_beta3 or adam_epsilon2 with another optimizer than CAME",
    why="No other optimizer has a third beta or a second epsilon.",
    when=on("adam_beta3") | on("adam_epsilon2"),
    then=equals("optimizer", "came_pytorch"),
    message="{optimizer} does not read {adam_beta3}, {adam_epsilon2}",
    fix=Fix("remove them, or set optimizer: came_pytorch"),
    evidence="axolotl 0.18 core/builders/base.py:376 (read)",
    bad="optimizer: adamw_torch\nadam_beta3: 0.9999\n",
    good="optimizer: came_pytorch\nadam_beta3: 0.9999\n",
    unchecked=True,
)

LOW_RANK_TARGETS = conditional(
    "AX604",
    "low-rank-targets-missing",
    Severity.ERROR,
    Settings,
    summary="A low-rank optimizer without optim_target_modules",
    why="GaLore and APOLLO project the gradients of chosen layers, and have no default for which.",
    when=one_of("optimizer", *LOW_RANK),
    then=is_set("optim_target_modules"),
    message="{optimizer} needs optim_target_modules",
    fix=Fix("add optim_target_modules, such as [attn, mlp]"),
    evidence="transformers 5.14 trainer_optimizer.py:121 (read); for q_galore_adamw8bit axolotl has a default",
    bad="optimizer: galore_adamw\n",
    good="optimizer: galore_adamw\noptim_target_modules: [attn, mlp]\n",
    unchecked=True,
)

LAYERWISE_ACCUMULATES = conditional(
    "AX605",
    "layerwise-accumulates",
    Severity.ERROR,
    Settings,
    summary="A layerwise optimizer with gradient accumulation",
    why="It steps each layer while the backward pass is still under way, so there is nothing to accumulate into.",
    when=one_of("optimizer", *LAYERWISE),
    then=~above("gradient_accumulation_steps", 1),
    message="{optimizer} needs gradient_accumulation_steps: 1, not {gradient_accumulation_steps}",
    fix=Fix("set gradient_accumulation_steps: 1, or take the optimizer that is not layerwise"),
    evidence="transformers 5.14 trainer_optimizer.py:165 (read)",
    bad="optimizer: galore_adamw_layerwise\noptim_target_modules: [attn]\ngradient_accumulation_steps: 2\n",
    good="optimizer: galore_adamw_layerwise\noptim_target_modules: [attn]\ngradient_accumulation_steps: 1\n",
    unchecked=True,
)


@rule(
    "AX606",
    Severity.ERROR,
    Run,
    evidence="transformers 5.14 trainer_optimizer.py:116: NotImplementedError (read)",
    bad="optimizer: galore_adamw_layerwise\noptim_target_modules: [attn]\n",
    good="optimizer: galore_adamw\noptim_target_modules: [attn]\n",
    given={"world_size": 2},
    unchecked=True,
)
def layerwise_on_several_ranks(run: Run) -> Iterator[Violation]:
    """A layerwise optimizer is to run on several ranks.

    It steps a layer as soon as its gradient is there, before the ranks have averaged it.
    """
    optimizer = run.optimizer
    if optimizer is None or optimizer.value not in LAYERWISE or run.world_size().value == 1:
        return
    message = f"{optimizer} runs on one rank, not on {run.world_size()}"
    yield Violation(place(optimizer), message, fix=Fix(f"use {optimizer.value.removesuffix('_layerwise')}"))


@rule(
    "AX607",
    Severity.ERROR,
    Settings,
    evidence="axolotl 0.18 utils/optimizers/sinkgd.py:572 (read)",
    bad="optimizer: sinkgd\noptim_args: {sinkgd_spectral_target: adam}\n",
    good="optimizer: sinkgd\noptim_args: {sinkgd_spectral_target: muon}\n",
    unchecked=True,
)
def sinkgd_target_unknown(settings: Settings) -> Iterator[Violation]:
    """SinkGD's spectral target is neither unit nor muon.

    axolotl finds out when it makes the optimizer.
    """
    target = _sinkgd(settings, "spectral_target")
    if target is not None and target.value is not None and target.value not in ("unit", "muon"):
        yield Violation(place(target), f"{target}: there are unit and muon", fix=Fix("use one of them"))


@rule(
    "AX608",
    Severity.ERROR,
    Settings,
    evidence="axolotl 0.18 utils/optimizers/sinkgd.py:589 (read)",
    bad="optimizer: sinkgd\noptim_args: {sinkgd_base_width: 256, sinkgd_spectral_norm: true, sinkgd_spectral_target: muon}\n",
    good="optimizer: sinkgd\noptim_args: {sinkgd_base_width: 256, sinkgd_spectral_norm: true, sinkgd_spectral_target: unit}\n",
    unchecked=True,
)
def sinkgd_width_twice(settings: Settings) -> Iterator[Violation]:
    """SinkGD corrects for a layer's width in two ways at once.

    sinkgd_base_width divides by it, and the spectral target muon accounts for it as well.
    """
    width, norm, target = (_sinkgd(settings, name) for name in ("base_width", "spectral_norm", "spectral_target"))
    if width is None or width.value is None or norm is None or target is None or target.value != "muon":
        return
    if _true(norm.value):
        message = f"{width} and {target} both correct for the width"
        yield Violation(place(width), message, notes(norm, target), Fix("keep one of the two"))


def _sinkgd(settings: Settings, name: str) -> Value[object] | None:
    """An option of SinkGD, where options are written as a mapping; as one string they are not looked into."""
    return settings.written(f"optim_args.sinkgd_{name}") if settings.get("optimizer") == "sinkgd" else None


def _true(value: object) -> bool:
    """As SinkGD reads a switch: words count as well."""
    return value.strip().lower() in ("1", "true", "yes", "on") if isinstance(value, str) else bool(value)


@rule(
    "AX609",
    Severity.WARNING,
    Run,
    evidence="axolotl 0.18 accepts muon with tensor_parallel_size 2 (run); no code in its optimizers speaks of tp",
    bad="optimizer: muon\ntensor_parallel_size: 2\n",
    good="optimizer: adamw_torch_fused\ntensor_parallel_size: 2\n",
    given={"world_size": 2},
    unchecked=True,
)
def optimizer_tp(run: Run) -> Iterator[Violation]:
    """An optimizer that looks at whole matrices, or that brings kernels of its own, steps what tp has cut.

    Each rank holds a part of the matrix. axolotl does not look, and nothing is known to work.
    """
    optimizer = run.optimizer
    if optimizer is None or optimizer.value not in CUT_BY_NOBODY or run.degree("tp") == 1:
        return
    tp = run.degrees["tp"]
    message = f"{optimizer} with {tp} is not known to work"
    yield Violation(place(optimizer), message, notes(tp), Fix("use adamw_torch_fused, or FSDP2 instead of tp"))


Q_GALORE_ALL_LINEAR = conditional(
    "AX611",
    "q-galore-every-matrix",
    Severity.WARNING,
    Settings,
    summary="q_galore_adamw8bit with optim_target_modules: all_linear",
    why="axolotl looks for each item of the list in a parameter's name. Given one word it takes that apart into letters, "
    "and some letter is in every name: embeddings are projected as well.",
    when=equals("optimizer", "q_galore_adamw8bit"),
    then=~equals("optim_target_modules", "all_linear"),
    message="{optimizer} reads {optim_target_modules} letter by letter, and projects every matrix",
    fix=Fix("write optim_target_modules: [attn, mlp]", edits=(SetValue(("optim_target_modules",), "[attn, mlp]"),)),
    evidence="axolotl 0.18 utils/optimizers/qgalore.py:64 (read)",
    bad="optimizer: q_galore_adamw8bit\noptim_target_modules: all_linear\n",
    good="optimizer: q_galore_adamw8bit\noptim_target_modules: [attn, mlp]\n",
    unchecked=True,
)

RULES: tuple[Rule[Settings] | Rule[Run], ...] = (
    ADAM_UNREAD,
    ONE_BETA,
    CAME_UNREAD,
    LOW_RANK_TARGETS,
    LAYERWISE_ACCUMULATES,
    layerwise_on_several_ranks,
    sinkgd_target_unknown,
    sinkgd_width_twice,
    optimizer_tp,
    Q_GALORE_ALL_LINEAR,
)
