"""Rules about ``TrainingArguments``: what the Trainer refuses, drops, or takes for something else."""

from __future__ import annotations

from collections.abc import Iterator

from ndcheck.findings import Fix, RemoveKey, RenameKey, Safety, SetValue, Severity, Violation, notes, place
from ndcheck.rules.conditions import above, equals, is_mapping, is_set, on, one_of
from ndcheck.rules.keys import nearest
from ndcheck.rules.rule import Rule, conditional, rule
from ndcheck.settings import Settings
from ndcheck.values import Value, dotted, shown

FSDP = "fsdp: true\n"
FSDP1_WORDS = ("no_shard", "hybrid_shard", "hybrid_shard_zero2")
FSDP2_WORDS = {"full_shard": "true", "shard_grad_op": "false"}
FSDP1_KEYS = ("forward_prefetch", "backward_prefetch", "use_orig_params", "sync_module_states", "limit_all_gathers")


@rule(
    "TR101",
    Severity.ERROR,
    Settings,
    evidence="transformers 5.24 hf_argparser.py: keys that no dataclass of the script has are refused",
    bad="gradient_accumulation_step: 2\n",
    good="gradient_accumulation_steps: 2\n",
)
def unknown_argument(settings: Settings) -> Iterator[Violation]:
    """Neither transformers nor TRL has such an argument.

    A script reads the file into its dataclasses and stops at a key that none of them has. A key that is close to a known one
    is almost certainly a slip; another may be an argument of the script itself.
    """
    for unknown in settings.unknown:
        if not unknown.refused or len(unknown.path) > 1:
            continue
        key = unknown.path[0]
        near = nearest(key, unknown.known) if isinstance(key, str) else None
        if near is None:
            message = f"no argument of transformers or TRL is called {shown(key)}; the script's own may be"
            yield Violation(unknown.path, message, severity=Severity.INFO)
            continue
        fix = Fix(f"rename it to {near}", edits=(RenameKey(unknown.path, near),))
        yield Violation(unknown.path, f"there is no argument {key}; did you mean {near}?", fix=fix)


MESH_AS_MAPPING = conditional(
    "TR102",
    "parallelism-config-mapping",
    Severity.ERROR,
    Settings,
    summary="A mesh is written where only a Python object is understood",
    why="TrainingArguments takes parallelism_config as an object of accelerate. A file can only hold a mapping, which is let "
    "pass, and the Trainer ends in an AttributeError when it is built.",
    when=is_mapping("parallelism_config"),
    message="parallelism_config: the Trainer wants an object of accelerate, not a mapping, and crashes",
    fix=Fix("move the mesh to accelerate's launch file, or build a ParallelismConfig in the script"),
    evidence="transformers 5.24, run: AttributeError, 'dict' object has no attribute 'get_device_mesh'",
    bad="parallelism_config: {dp_shard_size: 2}\nfsdp: true\n",
    good="fsdp: true\n",
    given={"world_size": 2},
    unchecked=True,
)


@rule(
    "TR103",
    Severity.ERROR,
    Settings,
    evidence="transformers 5.24 training_args.py: the section becomes arguments of AcceleratorConfig",
    bad="accelerator_config: {dispatch: false}\n",
    good="accelerator_config: {dispatch_batches: false}\n",
)
def accelerator_argument_unknown(settings: Settings) -> Iterator[Violation]:
    """accelerator_config holds a key that accelerate does not have.

    The section is handed on as arguments, and a strange one is a TypeError when TrainingArguments are built.
    """
    for unknown in settings.unknown:
        if len(unknown.path) < 2 or not unknown.refused:
            continue
        near = nearest(str(unknown.path[1]), unknown.known)
        hint = f"; did you mean {near}?" if near else f"; there are {', '.join(unknown.known)}"
        fix = Fix(f"rename it to {near}", edits=(RenameKey(unknown.path, near),)) if near else Fix("remove it")
        yield Violation(unknown.path, f"accelerate has no option {dotted(unknown.path)}{hint}", fix=fix)


ACCUMULATION_TWICE = conditional(
    "TR104",
    "trainer-accumulation-twice",
    Severity.ERROR,
    Settings,
    summary="Accumulation is set for the Trainer and for accelerate",
    why="Each would divide the gradient's steps on its own; the Trainer refuses when it is built.",
    when=is_set("accelerator_config.gradient_accumulation_kwargs.num_steps"),
    then=~above("gradient_accumulation_steps", 1),
    message="{gradient_accumulation_steps} and {accelerator_config.gradient_accumulation_kwargs.num_steps} are both set",
    fix=Fix("remove num_steps"),
    evidence="transformers 5.24 trainer.py:814",
    bad="gradient_accumulation_steps: 2\naccelerator_config: {gradient_accumulation_kwargs: {num_steps: 2}}\n",
    good="gradient_accumulation_steps: 2\naccelerator_config: {gradient_accumulation_kwargs: {adjust_scheduler: true}}\n",
)

STREAM_WITHOUT_END = conditional(
    "TR105",
    "stream-without-max-steps",
    Severity.ERROR,
    Settings,
    summary="Data is streamed, and nothing says how long to train",
    why="A stream has no length, so epochs cannot be counted in steps. The Trainer refuses when it is built.",
    when=on("dataset_streaming") | on("streaming"),
    then=above("max_steps", 0),
    message="{max_steps}: streamed data needs a number of steps",
    fix=Fix("set max_steps"),
    evidence="transformers 5.24 trainer.py:728",
    bad="dataset_streaming: true\naccelerator_config: {dispatch_batches: false}\n",
    good="dataset_streaming: true\nmax_steps: 100\naccelerator_config: {dispatch_batches: false}\n",
)

BEST_OF_MODELS = conditional(
    "TR106",
    "best-without-optimizer",
    Severity.ERROR,
    Settings,
    summary="Checkpoints without the optimizer cannot be gone back to",
    why="Under FSDP and DeepSpeed the best checkpoint is loaded with all that belongs to it. The Trainer refuses the pair.",
    when=(on("fsdp") | on("deepspeed")) & on("save_only_model"),
    then=~on("load_best_model_at_end"),
    message="{load_best_model_at_end} with {save_only_model}",
    fix=Fix("switch one of the two off"),
    evidence="transformers 5.24 trainer.py:890",
    bad=f"{FSDP}save_only_model: true\nload_best_model_at_end: true\n",
    good=f"{FSDP}save_only_model: true\nload_best_model_at_end: false\n",
)

SHARDED_MODEL_ONLY = conditional(
    "TR107",
    "model-only-sharded",
    Severity.ERROR,
    Settings,
    summary="The model alone is to be saved, in shards",
    why="A model that is saved alone is saved whole. The Trainer refuses the pair.",
    when=on("fsdp") & on("save_only_model"),
    then=~equals("fsdp_config.state_dict_type", "SHARDED_STATE_DICT"),
    message="{fsdp_config.state_dict_type} with {save_only_model}",
    fix=Fix("use FULL_STATE_DICT"),
    evidence="transformers 5.24 trainer.py:907",
    bad=f"{FSDP}save_only_model: true\nfsdp_config: {{state_dict_type: SHARDED_STATE_DICT}}\n",
    good=f"{FSDP}save_only_model: true\nfsdp_config: {{state_dict_type: FULL_STATE_DICT}}\n",
)


@rule(
    "TR108",
    Severity.WARNING,
    Settings,
    evidence="transformers 5.24 training_args.py, _apply_legacy_fsdp_to_config",
    bad="fsdp: full_shard auto_wrap\n",
    good="fsdp: true\n",
)
def fsdp_words(settings: Settings) -> Iterator[Violation]:
    """FSDP is asked for in words, which are deprecated.

    ``fsdp`` is true now, and ``fsdp_config`` says the rest. The version is 2 unless written, whatever it was when the words
    were: strategies that only FSDP1 has are refused then.
    """
    value = settings.written("fsdp")
    if value is None or isinstance(value.value, bool | None) or not value.value:
        return
    words = value.value.split() if isinstance(value.value, str) else list(value.value)
    lower = [word.lower() for word in words]
    if lower in (["true"], ["false"]):
        return
    version = settings.value("fsdp_config.version")
    old = [word for word in lower if word in FSDP1_WORDS]
    if old and version is not None and version.value == 2:
        message = (
            f"{value}: {', '.join(old)} is FSDP1's, and FSDP runs as version {version.value} ({version.origin.text})"
        )
        fix = Fix("use full_shard or shard_grad_op, or fsdp_config.version: 1")
        yield Violation(place(value), message, notes(version), fix, Severity.ERROR)
        return
    yield Violation(
        place(value),
        f"{value}: words are deprecated, fsdp is true now",
        notes(version),
        _in_config(value, lower, version),
    )


def _in_config(value: Value[object], words: list[str], version: Value[int] | None) -> Fix:
    """Say the same in ``fsdp_config``, as far as the version's meaning of the words is plain."""
    assert value.path is not None, "it is written"
    edits: list[SetValue] = [SetValue(value.path, "true")]
    title = "write fsdp: true"
    for word in words:
        if word == "offload":
            edits.append(SetValue(("fsdp_config", "cpu_offload"), "true"))
            title += ", fsdp_config.cpu_offload: true"
        if FSDP2_WORDS.get(word) == "false" and version is not None and version.value == 2:
            edits.append(SetValue(("fsdp_config", "reshard_after_forward"), "false"))
            title += ", fsdp_config.reshard_after_forward: false"
    return Fix(title, edits=tuple(edits))


@rule(
    "TR109",
    Severity.WARNING,
    Settings,
    evidence="transformers 5.24 training_args.py, _process_fsdp_args: read for version 1 only",
    bad=f"{FSDP}fsdp_config: {{reshard_after_forward: true, backward_prefetch: BACKWARD_PRE}}\n",
    good=f"{FSDP}fsdp_config: {{reshard_after_forward: true}}\n",
    unchecked=True,
)
def fsdp1_argument_under_fsdp2(settings: Settings) -> Iterator[Violation]:
    """A key of FSDP1 is in ``fsdp_config``, and FSDP runs as version 2.

    The version is 2 unless written. What only FSDP1 has is not read then, and nobody says so.
    """
    version = settings.value("fsdp_config.version")
    if not settings.on("fsdp") or version is None or version.value != 2:
        return
    for name in FSDP1_KEYS:
        value = settings.value(f"fsdp_config.{name}")
        if value is not None and value.path is not None and value.value is not None:
            message = f"{value} has no effect: FSDP runs as version 2 ({version.origin.text})"
            yield Violation(
                place(value), message, notes(version), Fix("remove it", Safety.SAFE, (RemoveKey(value.path),))
            )


FSDP_UNREAD = conditional(
    "TR111",
    "fsdp-arguments-unread",
    Severity.WARNING,
    Settings,
    summary="fsdp_config is there, and fsdp is off",
    why="Without fsdp nothing reads the section, and every rank keeps a whole copy of the model, unless the launch file "
    "switches FSDP on.",
    when=on("fsdp_config"),
    then=on("fsdp"),
    message="fsdp_config has no effect without fsdp: true",
    fix=Fix("set fsdp: true"),
    evidence="transformers 5.24 training_args.py, _process_fsdp_args",
    bad="fsdp_config: {version: 2}\n",
    good="fsdp: true\nfsdp_config: {version: 2}\n",
    unchecked=True,
)

CHECKPOINTING_TWICE = conditional(
    "TR112",
    "activations-checkpointed-twice",
    Severity.ERROR,
    Settings,
    summary="Activation checkpointing is on in FSDP and in the Trainer",
    why="Each layer would be recomputed twice. The Trainer refuses the pair when it is built.",
    when=on("fsdp") & on("fsdp_config.activation_checkpointing"),
    then=~on("activation_checkpointing"),
    message="{activation_checkpointing} and {fsdp_config.activation_checkpointing}: one of the two",
    fix=Fix("keep the one in fsdp_config"),
    evidence="transformers 5.24 trainer.py:879",
    bad=f"{FSDP}gradient_checkpointing: true\nfsdp_config: {{activation_checkpointing: true}}\n",
    good=f"{FSDP}fsdp_config: {{activation_checkpointing: true}}\n",
)

WRAP_POLICY = conditional(
    "TR114",
    "wrap-policy",
    Severity.ERROR,
    Settings,
    summary="FSDP knows no such way to wrap",
    why="TrainingArguments are refused when they are built.",
    when=on("fsdp") & is_set("fsdp_config.auto_wrap_policy"),
    then=one_of("fsdp_config.auto_wrap_policy", "TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"),
    message="{fsdp_config.auto_wrap_policy}: there are TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP and NO_WRAP",
    fix=Fix("use one of them"),
    evidence="transformers 5.24 training_args.py:2835",
    bad=f"{FSDP}fsdp_config: {{auto_wrap_policy: transformer}}\n",
    good=f"{FSDP}fsdp_config: {{auto_wrap_policy: TRANSFORMER_BASED_WRAP}}\n",
)

SPLIT_COUNTED = conditional(
    "TR115",
    "split-batches-reported",
    Severity.INFO,
    Settings,
    summary="The Trainer reports too large a batch",
    why="With split_batches the batch is for all data ranks together, but what the Trainer logs as the total batch multiplies "
    "it by their number. The loss is right.",
    when=on("accelerator_config.split_batches"),
    message="{accelerator_config.split_batches}: the total batch that the Trainer logs is too large",
    evidence="transformers 5.24 trainer.py:2565, run: 8 reported for 4",
    bad="accelerator_config: {split_batches: true}\n",
    good="accelerator_config: {split_batches: false}\n",
    unchecked=True,
)

NON_BLOCKING = conditional(
    "TR116",
    "non-blocking-unpinned",
    Severity.INFO,
    Settings,
    summary="Copies are not to wait, and memory is not pinned",
    why="Only pinned memory can be copied in the background; without it non_blocking gains nothing.",
    when=on("accelerator_config.non_blocking"),
    then=on("dataloader_pin_memory"),
    message="{accelerator_config.non_blocking} gains nothing with {dataloader_pin_memory}",
    fix=Fix("set dataloader_pin_memory: true"),
    evidence="transformers 5.24 trainer.py:843",
    bad="accelerator_config: {non_blocking: true}\ndataloader_pin_memory: false\n",
    good="accelerator_config: {non_blocking: true}\ndataloader_pin_memory: true\n",
)


RULES: tuple[Rule[Settings], ...] = (
    unknown_argument,
    MESH_AS_MAPPING,
    accelerator_argument_unknown,
    ACCUMULATION_TWICE,
    STREAM_WITHOUT_END,
    BEST_OF_MODELS,
    SHARDED_MODEL_ONLY,
    fsdp_words,
    fsdp1_argument_under_fsdp2,
    FSDP_UNREAD,
    CHECKPOINTING_TWICE,
    WRAP_POLICY,
    SPLIT_COUNTED,
    NON_BLOCKING,
)
