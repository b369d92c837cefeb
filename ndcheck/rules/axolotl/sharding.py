"""axolotl's rules about FSDP's own options: which of them need which version, and which exclude each other."""

from __future__ import annotations

from collections.abc import Iterator

from ndcheck.findings import Fix, RemoveKey, Safety, SetValue, Severity, Violation, notes, place
from ndcheck.rules.conditions import above, at_least, equals, is_set, on, one_of
from ndcheck.rules.rule import Rule, conditional, rule
from ndcheck.settings import Settings

FSDP = on("fsdp_config") | on("fsdp")
VERSION_2 = equals("fsdp_version", 2)
"""Enough where an option of ``fsdp_config`` is asked for, which is FSDP by itself; unset means 1."""
FSDP2 = FSDP & VERSION_2
FSDP1 = FSDP & ~VERSION_2
V1 = {"also": ["fsdp1-deprecated"]}
"""``given`` of a rule about FSDP1, whose bad example is deprecated as well."""
ONE = "fsdp_version: 1\n"
TWO = "fsdp_version: 2\n"
SECTION = "fsdp_config: {reshard_after_forward: true}\n"
QLORA = f"""adapter: qlora
load_in_4bit: true
lora_target_linear: true
{TWO}fsdp_config: {{cpu_ram_efficient_loading: true}}
"""
FSDP2_LIST_OPTIONS = ("full_shard", "shard_grad_op", "offload", "auto_wrap")

UNPINNED_WITHOUT_OFFLOAD = conditional(
    "AX302",
    "unpinned-without-offload",
    Severity.ERROR,
    Settings,
    summary="cpu_offload_pin_memory is off where nothing is offloaded, or under FSDP1",
    why="The switch says that offloaded parameters may live in memory that can be swapped. FSDP1 always pins, "
    "and without offload_params there is nothing to pin; axolotl refuses both.",
    when=equals("fsdp_config.cpu_offload_pin_memory", False),
    then=on("fsdp_config.offload_params") & equals("fsdp_version", 2),
    message="{fsdp_config.cpu_offload_pin_memory} needs fsdp_version: 2 and offload_params: true, "
    "not {fsdp_version} and {fsdp_config.offload_params}",
    fix=Fix("remove cpu_offload_pin_memory, or set fsdp_version: 2 and offload_params: true"),
    evidence="axolotl 0.18 validation.py:1050",
    bad=f"{TWO}fsdp_config: {{offload_params: false, cpu_offload_pin_memory: false}}\n",
    good=f"{TWO}fsdp_config: {{offload_params: true, cpu_offload_pin_memory: false}}\n",
)

SIZE_WRAP_WITHOUT_SIZE = conditional(
    "AX303",
    "size-wrap-without-size",
    Severity.ERROR,
    Settings,
    summary="SIZE_BASED_WRAP does not say from what size on",
    why="Wrapping by size cuts the model wherever a module reaches min_num_params parameters; there is no default.",
    when=equals("fsdp_config.auto_wrap_policy", "SIZE_BASED_WRAP"),
    then=is_set("fsdp_config.min_num_params"),
    message="{fsdp_config.auto_wrap_policy} needs fsdp_config.min_num_params",
    fix=Fix("set min_num_params, or wrap by layer with TRANSFORMER_BASED_WRAP"),
    evidence="axolotl 0.18 schemas/fsdp.py:69",
    bad=f"{TWO}fsdp_config: {{auto_wrap_policy: SIZE_BASED_WRAP}}\n",
    good=f"{TWO}fsdp_config: {{auto_wrap_policy: SIZE_BASED_WRAP, min_num_params: 1}}\n",
)

WRAP_SIZE_NOT_POSITIVE = conditional(
    "AX304",
    "wrap-size-not-positive",
    Severity.ERROR,
    Settings,
    summary="min_num_params is below 1",
    why="It counts parameters, so axolotl takes whole numbers from 1 on.",
    when=is_set("fsdp_config.min_num_params"),
    then=at_least("fsdp_config.min_num_params", 1),
    message="{fsdp_config.min_num_params} must be at least 1",
    fix=Fix("write a number of parameters, such as 100000000"),
    evidence="axolotl 0.18 schemas/fsdp.py:90",
    bad=f"{TWO}fsdp_config: {{auto_wrap_policy: SIZE_BASED_WRAP, min_num_params: 0}}\n",
    good=f"{TWO}fsdp_config: {{auto_wrap_policy: SIZE_BASED_WRAP, min_num_params: 1}}\n",
)

FSDP_LIST_ALONE = conditional(
    "AX314",
    "fsdp-list-alone",
    Severity.ERROR,
    Settings,
    summary="The fsdp list stands without an fsdp_config",
    why="axolotl 0.18 accepts the file and then looks into fsdp_config without asking whether it is there, so the "
    "launcher ends in an AttributeError.",
    when=on("fsdp"),
    then=is_set("fsdp_config"),
    message="{fsdp} without fsdp_config crashes axolotl 0.18 at launch",
    fix=Fix("replace the list by fsdp_version: 2 and an fsdp_config"),
    evidence="axolotl 0.18 trainer.py:597, run: accepted by the validator",
    bad=f"{TWO}fsdp: [full_shard]\n",
    good=f"{TWO}fsdp_config: {{offload_params: false}}\n",
    given={"also": ["fsdp-list-deprecated"]},
    unchecked=True,
)

FSDP_LIST_DEPRECATED = conditional(
    "AX315",
    "fsdp-list-deprecated",
    Severity.WARNING,
    Settings,
    summary="The fsdp list is deprecated",
    why="Everything that it says is said by fsdp_config; axolotl marks the list as deprecated without logging it.",
    when=on("fsdp"),
    message="{fsdp}: the list is deprecated in favour of fsdp_config",
    fix=Fix("remove it and keep fsdp_config"),
    evidence="axolotl 0.18 schemas/config.py:1044",
    bad=f"{TWO}{SECTION}fsdp: [full_shard]\n",
    good=f"{TWO}{SECTION}",
)

CHECKPOINTING_TWICE = conditional(
    "AX317",
    "checkpointing-twice",
    Severity.ERROR,
    Settings,
    summary="Activations are checkpointed by FSDP and by the trainer",
    why="Both would wrap the same layers. The Trainer refuses the pair when it is built, which is after the model "
    "has been loaded. Only activation_offloading true, legacy or disk makes axolotl switch the trainer's half off.",
    when=on("fsdp_config.activation_checkpointing") & equals("gradient_checkpointing", True),
    then=one_of("activation_offloading", True, "legacy", "disk"),
    message="{gradient_checkpointing} and {fsdp_config.activation_checkpointing}: only one may be on",
    fix=Fix("set gradient_checkpointing: false", edits=(SetValue(("gradient_checkpointing",), "false"),)),
    evidence="transformers 5.14 trainer.py:837; axolotl's validator accepts it (run)",
    bad=f"gradient_checkpointing: true\n{TWO}fsdp_config: {{activation_checkpointing: true}}\n",
    good=f"gradient_checkpointing: false\n{TWO}fsdp_config: {{activation_checkpointing: true}}\n",
    unchecked=True,
)

CHECKPOINTING_REGATHERS = conditional(
    "AX318",
    "checkpointing-regathers",
    Severity.WARNING,
    Settings,
    summary="The trainer's gradient checkpointing runs under full sharding",
    why="FSDP frees a layer's parameters after its forward pass; recomputing from outside FSDP gathers them once "
    "more. FSDP's own activation checkpointing keeps the two together.",
    when=FSDP & equals("gradient_checkpointing", True) & ~equals("fsdp_config.reshard_after_forward", False),
    then=on("fsdp_config.activation_checkpointing") | on("activation_offloading"),
    message="{gradient_checkpointing} under full sharding gathers each layer's parameters twice in the backward pass",
    fix=Fix("set gradient_checkpointing: false and fsdp_config.activation_checkpointing: true"),
    evidence="transformers 5.14 training_args.py:2712",
    bad=f"gradient_checkpointing: true\n{TWO}{SECTION}",
    good=f"gradient_checkpointing: true\n{TWO}fsdp_config: {{reshard_after_forward: false}}\n",
)

RESHARD_UNDER_FSDP1 = conditional(
    "AX321",
    "reshard-under-fsdp1",
    Severity.ERROR,
    Settings,
    summary="reshard_after_forward is set under FSDP1",
    why="For version 1 the key names a sharding strategy, while axolotl takes only true or false: accelerate looks "
    "up the strategy TRUE or FALSE and ends in a KeyError. A file without fsdp_version is version 1.",
    when=~VERSION_2,
    then=~is_set("fsdp_config.reshard_after_forward"),
    message="{fsdp_config.reshard_after_forward} crashes FSDP1; it is for fsdp_version: 2, not {fsdp_version}",
    fix=Fix("set fsdp_version: 2 at top level, or remove reshard_after_forward"),
    evidence="accelerate 1.13 utils/dataclasses.py:1840, run: KeyError 'TRUE'",
    bad=f"{ONE}{SECTION}",
    good=f"{TWO}{SECTION}",
    given=V1,
    unchecked=True,
)

SYNC_STATES_OVERRIDDEN = conditional(
    "AX322",
    "sync-states-overridden",
    Severity.WARNING,
    Settings,
    summary="sync_module_states is off while only rank 0 loads weights",
    why="If rank 0 alone reads the checkpoint the others must get their weights from it, so accelerate switches "
    "sync_module_states on whatever the file says.",
    when=~VERSION_2 & on("fsdp_config.cpu_ram_efficient_loading"),
    then=~equals("fsdp_config.sync_module_states", False),
    message="{fsdp_config.sync_module_states} is overridden by {fsdp_config.cpu_ram_efficient_loading}",
    fix=Fix("remove sync_module_states"),
    evidence="accelerate 1.13 utils/dataclasses.py:1913",
    bad=f"{ONE}fsdp_config: {{cpu_ram_efficient_loading: true, sync_module_states: false}}\n",
    good=f"{TWO}fsdp_config: {{cpu_ram_efficient_loading: true, sync_module_states: false}}\n",
    given=V1,
    unchecked=True,
)


@rule(
    "AX323",
    Severity.WARNING,
    Settings,
    evidence="accelerate 1.13 utils/dataclasses.py:1913",
    bad=f"{TWO}fsdp_config: {{reshard_after_forward: true, use_orig_params: true}}\n",
    good=f"{TWO}fsdp_config: {{reshard_after_forward: true}}\n",
    unchecked=True,
)
def fsdp1_option_ignored(settings: Settings) -> Iterator[Violation]:
    """An option of FSDP1 is written under FSDP2, which ignores it.

    FSDP2 never flattens parameters and broadcasts weights by itself, so use_orig_params and
    sync_module_states mean nothing there; accelerate resets both. (axolotl demands use_orig_params for
    q_galore_adamw8bit all the same.)
    """
    version = settings.value("fsdp_version")
    if not FSDP2.holds(settings) or settings.get("optimizer") == "q_galore_adamw8bit":
        return
    for name in ("use_orig_params", "sync_module_states"):
        option = settings.value(f"fsdp_config.{name}")
        if option is not None and option.value and option.path is not None:
            fix = Fix("remove it", Safety.SAFE, (RemoveKey(option.path),))
            yield Violation(option.path, f"{option} has no effect under FSDP2", notes(version), fix)


@rule(
    "AX324",
    Severity.ERROR,
    Settings,
    evidence="transformers 5.14 training_args.py:2833",
    bad=f"{TWO}{SECTION}fsdp: [hybrid_shard]\n",
    good=f"{TWO}{SECTION}",
    given={"also": ["fsdp-list-deprecated"]},
    unchecked=True,
)
def fsdp_list_option_unknown(settings: Settings) -> Iterator[Violation]:
    """The fsdp list names an option that FSDP2 does not have.

    With version 2 transformers takes full_shard, shard_grad_op, offload and auto_wrap, and refuses the
    rest when the training arguments are built.
    """
    options = settings.value("fsdp")
    if options is None or not options.value or not FSDP2.holds(settings):
        return
    strange = [option for option in options.value if option not in FSDP2_LIST_OPTIONS]
    if strange:
        message = f"{', '.join(strange)} in fsdp: FSDP2 takes {', '.join(FSDP2_LIST_OPTIONS)} only"
        yield Violation(place(options), message, fix=Fix("remove the list and use fsdp_config"))


MIXED_PRECISION_UNREAD = conditional(
    "AX325",
    "mixed-precision-unread",
    Severity.WARNING,
    Settings,
    summary="fsdp_config.mixed_precision_policy is not read",
    why="axolotl accepts any string here and passes it to nobody; the precision follows from bf16 and fp16.",
    when=on("fsdp_config.mixed_precision_policy"),
    message="{fsdp_config.mixed_precision_policy} has no effect: axolotl never forwards it",
    fix=Fix("remove it and use bf16 or fp16"),
    evidence="axolotl 0.18, run",
    bad=f"{TWO}fsdp_config: {{mixed_precision_policy: bf16}}\n",
    good=f"{TWO}fsdp_config: {{mixed_precision_policy: null}}\n",
    unchecked=True,
)

FSDP_VERSION_UNKNOWN = conditional(
    "AX326",
    "fsdp-version-unknown",
    Severity.ERROR,
    Settings,
    summary="There is no such version of FSDP",
    why="axolotl takes any integer; accelerate treats all but 2 as version 1.",
    when=is_set("fsdp_version"),
    then=one_of("fsdp_version", 1, 2),
    message="{fsdp_version}: FSDP has versions 1 and 2",
    fix=Fix("set fsdp_version: 2"),
    evidence="axolotl 0.18, run: 3 is accepted",
    bad="fsdp_version: 3\nfsdp_config: {offload_params: false}\n",
    good="fsdp_version: 2\nfsdp_config: {offload_params: false}\n",
    unchecked=True,
)

RAM_EFFICIENT_LOADING_TP = conditional(
    "AX327",
    "ram-efficient-loading-tp",
    Severity.WARNING,
    Settings,
    summary="Tensor parallelism loads weights on every rank",
    why="Under tensor parallelism each rank reads the checkpoint itself, so cpu_ram_efficient_loading does not save "
    "the CPU memory that it is set for.",
    when=VERSION_2 & on("fsdp_config.cpu_ram_efficient_loading"),
    then=~above("tensor_parallel_size", 1),
    message="{fsdp_config.cpu_ram_efficient_loading} is not applied with {tensor_parallel_size}",
    fix=Fix("set cpu_ram_efficient_loading: false and plan CPU memory for a copy per rank"),
    evidence="axolotl 0.18 loaders/model.py:867",
    bad=f"tensor_parallel_size: 2\n{TWO}fsdp_config: {{cpu_ram_efficient_loading: true}}\n",
    good=f"tensor_parallel_size: 1\n{TWO}fsdp_config: {{cpu_ram_efficient_loading: true}}\n",
    given={"world_size": 2},
    unchecked=True,
)

RAM_EFFICIENT_LOADING_4BIT = conditional(
    "AX337",
    "ram-efficient-loading-4bit",
    Severity.ERROR,
    Settings,
    summary="FSDP2 loads a model of 4 bits on rank 0 only",
    why="bitsandbytes quantizes on rank 0 alone, and the others wait for pieces of another size: the scatter of the state never ends.",
    when=VERSION_2 & on("load_in_4bit"),
    then=~on("fsdp_config.cpu_ram_efficient_loading"),
    message="{fsdp_config.cpu_ram_efficient_loading} does not work with {load_in_4bit} under FSDP2",
    fix=Fix("set fsdp_config.cpu_ram_efficient_loading: false"),
    evidence="axolotl 0.19 validation.py:1268",
    bad=f"adapter: qlora\nload_in_4bit: true\nlora_target_linear: true\n{TWO}fsdp_config: {{cpu_ram_efficient_loading: true}}\n",
    good=f"adapter: qlora\nload_in_4bit: true\nlora_target_linear: true\n{TWO}fsdp_config: {{cpu_ram_efficient_loading: false}}\n",
    given={"targets": {"axolotl": "0.19"}},
    versions="axolotl>=0.19",
)

REINIT_WEIGHTS_IGNORED = conditional(
    "AX328",
    "reinit-weights-ignored",
    Severity.WARNING,
    Settings,
    summary="reinit_weights does nothing when quantized weights are loaded in shards",
    why="The sharded loader fills the model straight from the checkpoint and never calls the initialisation.",
    when=on("reinit_weights") & equals("adapter", "qlora") & on("fsdp_config.cpu_ram_efficient_loading"),
    then=~on("qlora_sharded_model_loading"),
    message="{reinit_weights} has no effect with {qlora_sharded_model_loading}",
    fix=Fix("remove reinit_weights, or set qlora_sharded_model_loading: false"),
    evidence="axolotl 0.18 loaders/model.py:887",
    bad=f"reinit_weights: true\nqlora_sharded_model_loading: true\n{QLORA}",
    good=f"reinit_weights: true\nqlora_sharded_model_loading: false\n{QLORA}",
)

RULES: tuple[Rule[Settings], ...] = (
    UNPINNED_WITHOUT_OFFLOAD,
    SIZE_WRAP_WITHOUT_SIZE,
    WRAP_SIZE_NOT_POSITIVE,
    FSDP_LIST_ALONE,
    FSDP_LIST_DEPRECATED,
    CHECKPOINTING_TWICE,
    CHECKPOINTING_REGATHERS,
    RESHARD_UNDER_FSDP1,
    SYNC_STATES_OVERRIDDEN,
    fsdp1_option_ignored,
    fsdp_list_option_unknown,
    MIXED_PRECISION_UNREAD,
    FSDP_VERSION_UNKNOWN,
    RAM_EFFICIENT_LOADING_TP,
    RAM_EFFICIENT_LOADING_4BIT,
    REINIT_WEIGHTS_IGNORED,
)
