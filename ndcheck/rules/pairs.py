"""Rules about two files of one run: a launch file and what it starts, a trainer and its engine's config."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import isclose
from typing import Any

from ndcheck.findings import Edit, Fix, Note, SetValue, Severity, Violation, notes, place
from ndcheck.pairing import Driven, Launched, Pair
from ndcheck.rules.layout import world_size_product
from ndcheck.rules.rule import Rule, rule
from ndcheck.values import Source, Value, shown

LAUNCH = "distributed_type: MULTI_GPU\nnum_processes: 8\n"
AXOLOTL = (
    "base_model: org/model\ndatasets: [{path: org/data, type: alpaca}]\nlearning_rate: 1.0e-5\nmicro_batch_size: 1\n"
)
SHARDED = f"{AXOLOTL}fsdp_version: 2\nfsdp_config: {{reshard_after_forward: true}}\n"
FSDP = "distributed_type: FSDP\nnum_processes: 8\nfsdp_config: {fsdp_version: 2}\n"
TRAINING = "output_dir: out\nper_device_train_batch_size: 1\n"


@rule(
    "ND611",
    Severity.WARNING,
    Launched,
    evidence="transformers 5.24 training_args.py:1614: a type of the training file's replaces the launcher's environment",
    bad=f"{TRAINING}fp16: true\n",
    good=f"{TRAINING}bf16: true\n",
    given={"beside": f"{LAUNCH}mixed_precision: bf16\n"},
    unchecked=True,
)
def launch_precision_differs(pair: Launched) -> Iterator[Violation]:
    """The launch file and the training file name different precisions.

    The trainer replaces what the launcher says by its own, without a word; code that reads the launcher's environment before that
    gets the other one. One of the two lines is not what somebody meant.
    """
    launch, training = pair.first.precision, pair.second.precision
    if launch is None or training is None or launch.value == training.value:
        return
    wins = "the launch file's" if training.value == "no" else "the training file's"
    yield from _at_both(
        pair,
        launch,
        training,
        f"{{own}} differs from {{other}}: {wins} counts",
        Fix("write the same in both"),
        quote=_origin,
    )


@rule(
    "ND612",
    Severity.WARNING,
    Launched,
    evidence="accelerate 1.15 state.py: the environment of the launcher, which a trainer with FSDP of its own writes over",
    bad=f"{TRAINING}fsdp: true\nfsdp_config: {{version: 2}}\n",
    good=TRAINING,
    given={"beside": LAUNCH},
    unchecked=True,
)
def fsdp_in_one_file(pair: Launched) -> Iterator[Violation]:
    """FSDP is on in one file of the two.

    Where the trainer alone has it, the launch file does not say what runs; where the launcher alone has it, a trainer that does not
    know of it loads and saves the model as if it were whole on every rank. Some trainers leave FSDP to their launcher as readily,
    and then this is a note only.
    """
    launch, training = pair.first.sharding, pair.second.sharding
    if launch.deepspeed.value or training.deepspeed.value or bool(launch.fsdp.value) == bool(training.fsdp.value):
        return
    left_open = training.by_launcher and training.fsdp.path is None
    severity = Severity.INFO if launch.fsdp.value and left_open else None
    where = pair.names[0] if launch.fsdp.value else pair.names[1]
    fix = Fix("set FSDP up in both files, or in neither")
    message = f"FSDP is on in {where} only"
    yield from _at_both(pair, launch.fsdp, training.fsdp, message, fix, severity, quote=_origin)


@rule(
    "ND613",
    Severity.ERROR,
    Launched,
    evidence="transformers 5.24 integrations/deepspeed.py, fill_match: a ValueError when the engine is set up",
    bad=f"{TRAINING}gradient_accumulation_steps: 8\n",
    good=f"{TRAINING}gradient_accumulation_steps: 4\n",
    given={
        "beside": "distributed_type: DEEPSPEED\nnum_processes: 8\n"
        "deepspeed_config: {gradient_accumulation_steps: 4, zero_stage: 2}\n"
    },
)
def launch_value_differs(pair: Launched) -> Iterator[Violation]:
    """The launch file hands DeepSpeed another accumulation or norm than the training file states.

    The trainer compares the two before the first step and refuses the run. A launcher that does not mean to say anything says auto.
    """
    for launch, training in _twice(pair, ("accumulation",), ("max_grad_norm",)):
        edits = (SetValue(launch.path, "auto"),) if launch.path else ()
        fix = Fix("write auto in the launch file")
        message = "{own} differs from {other}"
        first, second = _at_both(pair, launch, training, message, fix)
        yield Violation(first.path, first.message, first.notes, Fix(fix.title, edits=edits), file=0)
        yield second


@rule(
    "ND614",
    Severity.ERROR,
    Launched,
    evidence="torch 2.13 device_mesh.py: a mesh must fill the ranks; accelerate 1.15 parallelism_config.py",
    bad=f"{SHARDED}dp_replicate_size: 2\ndp_shard_size: 2\n",
    good=f"{SHARDED}dp_replicate_size: 2\ndp_shard_size: 4\n",
    given={"beside": FSDP, "also": ("world-size-product",)},
)
def launched_ranks(pair: Launched) -> Iterator[Violation]:
    """The launch file starts another number of processes than the training file's degrees need.

    Every process is a rank of the mesh, and the product of the degrees is the number of ranks.
    """
    processes, training = pair.first.facts.world_size, pair.second
    if processes is None or processes.path is None:
        return
    started = replace(training, facts=replace(training.facts, world_size=processes))
    degrees = [value for value in training.explicit().values() if value.path]
    if not degrees or not any(world_size_product.check(started)):
        return
    product = training.product()
    factors = " x ".join(map(_said, degrees)) + (f" = {product}" if len(degrees) > 1 else "")
    related = tuple(Note(place(value), _said(value), file=1) for value in degrees)
    message = f"{_said(processes)} does not fit {factors} in {pair.names[1]}"
    yield Violation(place(processes), message, related, Fix(f"start {product} processes, or change the degrees"))


@rule(
    "ND615",
    Severity.WARNING,
    Launched,
    evidence="transformers 5.24 trainer.py: its own ParallelismConfig is handed over, and the launcher's environment is not read",
    bad=f"{SHARDED}dp_shard_size: 8\n",
    good=f"{SHARDED}dp_shard_size: 4\ndp_replicate_size: 2\n",
    given={
        "beside": f"{FSDP}parallelism_config: "
        "{parallelism_config_dp_shard_size: 4, parallelism_config_dp_replicate_size: 2}\n",
    },
    unchecked=True,
)
def launch_degree_differs(pair: Launched) -> Iterator[Violation]:
    """The launch file and the training file give an axis different degrees.

    The training file's degrees are used, all of them; the launcher's are dropped.
    """
    for axis, launch in pair.first.degrees.items():
        training = pair.second.degrees.get(axis)
        if training is not None and launch.path and training.path and launch.value != training.value:
            message = "{own} differs from {other}: the training file's counts"
            yield from _at_both(pair, launch, training, message, Fix("write the same in both, or in one only"))


@rule(
    "ND616",
    Severity.ERROR,
    Launched,
    evidence="accelerate 1.15 state.py:974 and 1010: DeepSpeed's environment is asked first",
    bad=f"{TRAINING}fsdp: true\nfsdp_config: {{version: 2}}\n",
    good=TRAINING,
    given={"beside": "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config: {zero_stage: 2}\n"},
    unchecked=True,
)
def engines_differ(pair: Launched) -> Iterator[Violation]:
    """One file sets up FSDP, the other one DeepSpeed.

    Both shard parameters and own the optimizer step; where both are set up, accelerate takes DeepSpeed, and the FSDP keys mean nothing.
    """
    launch, training = pair.first.sharding, pair.second.sharding
    if launch.deepspeed.value and training.fsdp.value:
        ours, theirs, text = launch.deepspeed, training.fsdp, ("DeepSpeed", "FSDP")
    elif launch.fsdp.value and training.deepspeed.value:
        ours, theirs, text = launch.fsdp, training.deepspeed, ("FSDP", "DeepSpeed")
    else:
        return
    message = f"{pair.names[0]} sets up {text[0]} and {pair.names[1]} {text[1]}; a run can have only one of them"
    yield from _at_both(pair, ours, theirs, message, Fix("choose one engine"), quote=_origin)


ZERO2 = "train_micro_batch_size_per_gpu: auto, zero_optimization: {stage: 2}"


@rule(
    "ND621",
    Severity.ERROR,
    Driven,
    evidence="transformers 5.24 integrations/deepspeed.py, fill_match of bf16.enabled and fp16.enabled",
    bad=f"{TRAINING}fp16: true\ndeepspeed: {{fp16: {{enabled: false}}, {ZERO2}}}\n",
    good=f"{TRAINING}fp16: true\ndeepspeed: {{fp16: {{enabled: auto}}, {ZERO2}}}\n",
)
def engine_precision_differs(pair: Driven) -> Iterator[Violation]:
    """The engine's config and the trainer's disagree about bf16 or fp16.

    The trainer compares the switches before the first step and refuses any difference; auto takes the trainer's.
    """
    for trainer, engine in _twice(pair, (), ("bf16", "fp16")):
        yield _difference(pair, engine, trainer)


@rule(
    "ND622",
    Severity.ERROR,
    Driven,
    evidence="transformers 5.24 integrations/deepspeed.py, fill_match: a ValueError that lists every difference",
    bad=f"{TRAINING}gradient_accumulation_steps: 1\ndeepspeed: {{gradient_accumulation_steps: 2, {ZERO2}}}\n",
    good=f"{TRAINING}gradient_accumulation_steps: 2\ndeepspeed: {{gradient_accumulation_steps: 2, {ZERO2}}}\n",
)
def engine_value_differs(pair: Driven) -> Iterator[Violation]:
    """The engine's config states a value that the trainer states otherwise.

    Rows, accumulation, the gradient's norm, the optimizer's arguments and the top of the schedule are compared before the first step,
    and any difference is refused; auto takes the trainer's.
    """
    names = ("max_grad_norm", "learning_rate", "adam_betas", "adam_epsilon", "weight_decay", "top_learning_rate")
    for trainer, engine in _twice(pair, ("micro", "accumulation"), names):
        yield _difference(pair, engine, trainer)


@rule(
    "ND623",
    Severity.WARNING,
    Driven,
    evidence="transformers 5.24 integrations/deepspeed.py, deepspeed_optim_sched: the config's optimizer and scheduler replace the trainer's",
    bad=f"{TRAINING}optim: lion_32bit\ndeepspeed: {{optimizer: {{type: AdamW}}, {ZERO2}}}\n",
    good=f"{TRAINING}optim: adamw_torch\ndeepspeed: {{optimizer: {{type: AdamW}}, {ZERO2}}}\n",
    unchecked=True,
)
def engine_replaces(pair: Driven) -> Iterator[Violation]:
    """The engine's config brings an optimizer or a schedule, and the trainer's own is dropped.

    Whatever the trainer names is then never built.
    """
    for name in ("optimizer", "scheduler"):
        engine, trainer = pair.second.stated.get(name), pair.first.stated.get(name)
        if engine is None or trainer is None or _stem(engine.value) == _stem(trainer.value):
            continue
        message = f"{_said(engine)} replaces {_said(trainer)} in {pair.names[0]}"
        related = (Note(trainer.path, _said(trainer)),) if trainer.path else ()
        yield Violation(place(engine), message, related, Fix(f"remove {name} here, or in {pair.names[0]}"), file=1)


@rule(
    "ND624",
    Severity.WARNING,
    Driven,
    evidence="axolotl 0.18 validation.py:1162 writes its own degree over autotp_size; transformers reads one of the two",
    bad=f"{AXOLOTL}tensor_parallel_size: 2\ndeepspeed: {{tensor_parallel: {{autotp_size: 4}}, {ZERO2}}}\n",
    good=f"{AXOLOTL}tensor_parallel_size: 4\ndeepspeed: {{tensor_parallel: {{autotp_size: 4}}, {ZERO2}}}\n",
    given={"also": ("deepspeed-inline",)},
    unchecked=True,
)
def engine_degree_differs(pair: Driven) -> Iterator[Violation]:
    """The engine's config and the trainer's split layers over different numbers of ranks.

    One of the two is written over.
    """
    engine, trainer = pair.second.degrees.get("tp"), pair.first.degrees.get("tp")
    if engine is not None and trainer is not None and engine.value != trainer.value:
        yield _difference(pair, engine, trainer, text=str(trainer.value))


def _at_both(
    pair: Pair,
    first: Value[Any],
    second: Value[Any],
    message: str,
    fix: Fix,
    severity: Severity | None = None,
    quote: Callable[[Value[Any]], str] | None = None,
) -> tuple[Violation, Violation]:
    """The same in each file, at its own value: ``{own}`` in the message, and ``{other}`` the other one's."""
    quote, values, found = quote or _said, (first, second), []
    for file, value in enumerate(values):
        other = values[1 - file]
        said = message.format(own=quote(value), other=f"{quote(other)} in {pair.names[1 - file]}")
        related = (Note(other.path, quote(other), file=1 - file),) if other.path else ()
        found.append(Violation(place(value), said, related, fix, severity, file=file))
    return found[0], found[1]


def _origin(value: Value[Any]) -> str:
    """Where a value was read, for one that a file spells in words of its own."""
    return value.origin.text


def _twice(pair: Pair, counts: tuple[str, ...], names: tuple[str, ...]) -> Iterator[tuple[Value[Any], Value[Any]]]:
    """What both files state, counts of the batch and other values by name, where it differs."""
    twice = [(getattr(pair.first.batch, count), getattr(pair.second.batch, count)) for count in counts]
    twice += [(pair.first.stated.get(name), pair.second.stated.get(name)) for name in names]
    for first, second in twice:
        if first is not None and second is not None and not _same(first.value, second.value):
            yield first, second


def _difference(pair: Driven, engine: Value[Any], trainer: Value[Any], text: str = "auto") -> Violation:
    edits: tuple[Edit, ...] = (SetValue(engine.path, text),) if engine.path else ()
    where = f" in {pair.names[0]}" if trainer.path else ""
    message = f"{_said(engine)} differs from {_said(trainer)}{where}"
    related = tuple(Note(note.path, _said(trainer)) for note in notes(trainer))
    return Violation(place(engine), message, related, Fix(f"write {text}", edits=edits), file=1)


def _same(one: object, other: object) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return isclose(one, other, rel_tol=1e-12)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other


def _said(value: Value[Any]) -> str:
    """As a message quotes it; a list item by item."""
    listed = isinstance(value.value, list | tuple)
    text = f"[{', '.join(map(shown, value.value))}]" if listed else shown(value.value)
    return f"{value.origin.text} {text}" if value.origin.source is Source.KEY else f"{text} ({value.origin.text})"


def _stem(name: object) -> str:
    """adamw_torch_fused and AdamW are one optimizer."""
    return str(name).lower().split("_")[0]


RULES: tuple[Rule[Launched] | Rule[Driven], ...] = (
    launch_precision_differs,
    fsdp_in_one_file,
    launch_value_differs,
    launched_ranks,
    launch_degree_differs,
    engines_differ,
    engine_precision_differs,
    engine_value_differs,
    engine_replaces,
    engine_degree_differs,
)
