"""Rules about ``fsdp_config``: what holds for one version of FSDP only, and what accelerate refuses."""

from __future__ import annotations

from collections.abc import Iterator

from ndcheck.findings import Fix, RemoveKey, RenameKey, Safety, SetValue, Severity, Violation, notes, place
from ndcheck.rules.conditions import Condition, equals, is_set, on, one_of
from ndcheck.rules.rule import Rule, conditional, rule
from ndcheck.settings import Settings
from ndcheck.values import Value

KEY = "fsdp_config."
FSDP: Condition = equals("distributed_type", "FSDP")
FSDP2: Condition = FSDP & equals(f"{KEY}version", 2)
TRUE_WORDS = ("true", "yes", "y", "t", "on", "1")
FALSE_WORDS = ("false", "no", "n", "f", "off", "0")
RESHARDS = {
    "FULL_SHARD": "true",
    "HYBRID_SHARD": "true",
    "SHARD_GRAD_OP": "false",
    "HYBRID_SHARD_ZERO2": "false",
    "NO_SHARD": "false",
}
"""Strategy of FSDP1 -> what `accelerate to-fsdp2` makes of it: whether parameters are freed after forward."""


def section(version: int | None = 2, **entries: object) -> str:
    """YAML of a launch file under FSDP."""
    named = {"version": version, **entries} if version else entries
    inner = ", ".join(f"fsdp_{name}: {value}" for name, value in named.items())
    return f"distributed_type: FSDP\nfsdp_config: {{{inner}}}\n"


VERSION = conditional(
    "AC301",
    "fsdp-version-known",
    Severity.ERROR,
    Settings,
    summary="There is no such version of FSDP",
    why="accelerate asks whether the version is 2 in one place and whether it is 1 in another. Any other passes its launcher "
    "and behaves like neither.",
    when=FSDP & is_set(f"{KEY}version"),
    then=equals(f"{KEY}version", 1) | equals(f"{KEY}version", 2),
    message=f"{{{KEY}version}}: there are 1 and 2",
    fix=Fix("write 2"),
    evidence="accelerate 1.15 utils/dataclasses.py:1831",
    bad=section(3),
    good=section(2),
    unchecked=True,
)


def _version(settings: Settings) -> Value[int] | None:
    """The version in force under FSDP, else None."""
    kind = settings.value("distributed_type")
    return settings.value(f"{KEY}version") if kind is not None and kind.value == "FSDP" else None


@rule(
    "AC302",
    Severity.WARNING,
    Settings,
    evidence="accelerate 1.15 utils/dataclasses.py:1903 to 1956: some are warned about, most dropped without a word",
    bad=section(2, use_orig_params="true"),
    good=section(2, offload_params="true", cpu_ram_efficient_loading="false"),
    unchecked=True,
)
def fsdp1_key_under_fsdp2(settings: Settings) -> Iterator[Violation]:
    """A key of FSDP1 has no effect under FSDP2.

    FSDP2 always keeps the original parameters, plans its own prefetching and needs no broadcast of its own. The sharding
    strategy has become a switch, ``fsdp_reshard_after_forward``, and replicas are an axis of ``parallelism_config``.
    """
    version = _version(settings)
    if version is None or version.value != 2:
        return
    for name in (
        "backward_prefetch",
        "backward_prefetch_policy",
        "forward_prefetch",
        "use_orig_params",
        "sync_module_states",
    ):
        value = settings.written(f"{KEY}{name}") or settings.value(f"{KEY}{name}")
        if value is not None and value.path is not None and value.value is not None:
            fix = Fix("remove it", Safety.SAFE, (RemoveKey(value.path),))
            yield Violation(place(value), f"{value} has no effect under FSDP2", notes(version), fix)
    yield from _strategy(settings, version)


def _strategy(settings: Settings, version: Value[int]) -> Iterator[Violation]:
    strategy, reshard = settings.value(f"{KEY}sharding_strategy"), settings.value(f"{KEY}reshard_after_forward")
    if strategy is None or strategy.path is None or strategy.value is None:
        return
    message = f"{strategy} has no effect under FSDP2"
    meant = RESHARDS.get(str(strategy.value))
    if reshard is not None:
        fix = Fix(f"remove it: {reshard} decides", Safety.SAFE, (RemoveKey(strategy.path),))
    elif meant == "true":
        renamed = RenameKey(strategy.path, "fsdp_reshard_after_forward")
        fix = Fix("write fsdp_reshard_after_forward: true", Safety.SAFE, (renamed, SetValue(strategy.path, meant)))
    elif meant == "false":
        renamed = RenameKey(strategy.path, "fsdp_reshard_after_forward")
        fix = Fix("write fsdp_reshard_after_forward: false", edits=(renamed, SetValue(strategy.path, meant)))
    else:
        fix = Fix("remove it", Safety.SAFE, (RemoveKey(strategy.path),))
    if str(strategy.value).startswith("HYBRID"):
        message += "; replicas are parallelism_config_dp_replicate_size now"
    yield Violation(place(strategy), message, notes(version), fix)


RESHARD = conditional(
    "AC303",
    "reshard-not-boolean",
    Severity.ERROR,
    Settings,
    summary="FSDP2 is told a strategy of FSDP1 where it wants true or false",
    why="fsdp_reshard_after_forward took the strategy's name under FSDP1. FSDP2 reads it as a boolean, and stops at anything "
    "else when the plug-in is built.",
    when=FSDP2 & is_set(f"{KEY}reshard_after_forward"),
    then=one_of(f"{KEY}reshard_after_forward", *TRUE_WORDS, *FALSE_WORDS),
    message=f"{{{KEY}reshard_after_forward}} must be true or false under FSDP2",
    fix=Fix("write true (like FULL_SHARD) or false (like SHARD_GRAD_OP)"),
    evidence="accelerate 1.15 utils/dataclasses.py:1862",
    bad=section(2, reshard_after_forward="FULL_SHARD"),
    good=section(2, reshard_after_forward="true"),
)

STATE_DICT = conditional(
    "AC304",
    "local-state-dict",
    Severity.ERROR,
    Settings,
    summary="FSDP2 has no local state dict",
    why="Checkpoints are full or sharded.",
    when=FSDP2,
    then=~equals(f"{KEY}state_dict_type", "LOCAL_STATE_DICT"),
    message=f"{{{KEY}state_dict_type}} does not exist under FSDP2",
    fix=Fix("use SHARDED_STATE_DICT or FULL_STATE_DICT"),
    evidence="accelerate 1.15 utils/dataclasses.py:2069",
    bad=section(2, state_dict_type="LOCAL_STATE_DICT"),
    good=section(2, state_dict_type="SHARDED_STATE_DICT"),
)

RAM_WITHOUT_SYNC = conditional(
    "AC305",
    "ram-efficient-without-sync",
    Severity.ERROR,
    Settings,
    summary="Weights are loaded on rank 0 only, and are not to be sent on",
    why="With fsdp_cpu_ram_efficient_loading, which is on unless it is switched off, the other ranks start with empty "
    "parameters. The launcher refuses it without fsdp_sync_module_states, also under FSDP2, where that key means nothing.",
    when=FSDP & on(f"{KEY}cpu_ram_efficient_loading"),
    then=on(f"{KEY}sync_module_states"),
    message=f"{{{KEY}sync_module_states}} with {{{KEY}cpu_ram_efficient_loading}} is refused",
    fix=Fix("set fsdp_sync_module_states: true"),
    evidence="accelerate 1.15 utils/launch.py:306",
    bad=section(1, cpu_ram_efficient_loading="true", sync_module_states="false"),
    good=section(1, cpu_ram_efficient_loading="true", sync_module_states="true"),
)

CHECKPOINTING_OFFLOAD = conditional(
    "AC306",
    "checkpointing-offload",
    Severity.ERROR,
    Settings,
    summary="Checkpointed activations are to be offloaded, and none are",
    why="Offloading is part of FSDP2's activation checkpointing; accelerate refuses it without that, and under FSDP1.",
    when=FSDP & on(f"{KEY}activation_checkpointing_offload"),
    then=on(f"{KEY}activation_checkpointing") & equals(f"{KEY}version", 2),
    message=f"{{{KEY}activation_checkpointing_offload}} needs fsdp_activation_checkpointing and FSDP2",
    fix=Fix("set fsdp_activation_checkpointing: true and fsdp_version: 2"),
    evidence="accelerate 1.15 utils/dataclasses.py:1967",
    bad=section(2, auto_wrap_policy="TRANSFORMER_BASED_WRAP", activation_checkpointing_offload="true"),
    good=section(
        2,
        auto_wrap_policy="TRANSFORMER_BASED_WRAP",
        activation_checkpointing="true",
        activation_checkpointing_offload="true",
    ),
)

CHECKPOINTING_UNWRAPPED = conditional(
    "AC307",
    "checkpointing-unwrapped",
    Severity.ERROR,
    Settings,
    summary="Activations are to be checkpointed, and no layer is wrapped",
    why="Checkpoints are set around the units that the wrap policy makes. With NO_WRAP, which is the default, there are none, "
    "and prepare() fails.",
    when=on(f"{KEY}activation_checkpointing") & equals(f"{KEY}auto_wrap_policy", "NO_WRAP") & FSDP2,
    message=f"{{{KEY}activation_checkpointing}} with {{{KEY}auto_wrap_policy}}: there is no unit to checkpoint",
    fix=Fix("set fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP"),
    evidence="accelerate 1.15 fsdp_utils.py:721, run: TypeError",
    bad=section(2, activation_checkpointing="true"),
    good=section(2, activation_checkpointing="true", auto_wrap_policy="TRANSFORMER_BASED_WRAP"),
)

RAM_AND_OFFLOAD = conditional(
    "AC308",
    "ram-efficient-and-offload",
    Severity.WARNING,
    Settings,
    summary="RAM-efficient loading is combined with parameter offload",
    why="Before accelerate 1.13 some tensors ended up on the wrong device, and the first forward failed.",
    when=FSDP2 & on(f"{KEY}offload_params"),
    then=~on(f"{KEY}cpu_ram_efficient_loading"),
    message=f"{{{KEY}cpu_ram_efficient_loading}} with {{{KEY}offload_params}} fails in older releases of accelerate",
    fix=Fix("switch one of the two off, unless accelerate is newer than its fix"),
    evidence="accelerate #3910; LLaMA-Factory #10318",
    bad=section(2, offload_params="true", cpu_ram_efficient_loading="true"),
    good=section(2, offload_params="true", cpu_ram_efficient_loading="false"),
    unchecked=True,
)


@rule(
    "AC309",
    Severity.INFO,
    Settings,
    evidence="accelerate 1.15 launch.py:513: the launcher's default is 1",
    bad=section(None, offload_params="true"),
    good=section(2, offload_params="true", cpu_ram_efficient_loading="false"),
)
def fsdp_version_unset(settings: Settings) -> Iterator[Violation]:
    """The version of FSDP is not written, and is 1.

    FSDP1 is deprecated in torch, and knows no mesh. Files that name the version mean the same with every release.
    """
    version, kind = _version(settings), settings.value("distributed_type")
    if version is not None and version.path is None:
        yield Violation(
            place(kind), "FSDP runs as version 1 unless fsdp_version says 2", fix=Fix("add fsdp_version: 2")
        )


RULES: tuple[Rule[Settings], ...] = (
    VERSION,
    fsdp1_key_under_fsdp2,
    RESHARD,
    STATE_DICT,
    RAM_WITHOUT_SYNC,
    CHECKPOINTING_OFFLOAD,
    CHECKPOINTING_UNWRAPPED,
    RAM_AND_OFFLOAD,
    fsdp_version_unset,
)
