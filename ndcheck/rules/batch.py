"""Rules about rows per step, and about how a loader hands them to ranks."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from ndcheck.findings import Fix, SetValue, Severity, Violation, notes, place
from ndcheck.layout import counted
from ndcheck.rules.rule import Rule, rule
from ndcheck.run import Run

STREAM = "streaming: true\nmax_steps: 10\n"


@rule(
    "ND501",
    Severity.ERROR,
    Run,
    evidence="rows per step are micro batch x accumulation x data ranks: a factor below 1 leaves none",
    bad="micro_batch_size: -1\n",
    good="micro_batch_size: 1\n",
    unchecked=True,
)
def batch_factor_positive(run: Run) -> Iterator[Violation]:
    """A factor of the batch is below 1.

    The global batch is micro batch x accumulation steps x data ranks. cp, tp and pp ranks share their
    rows and do not multiply it.
    """
    for value in (run.batch.micro, run.batch.accumulation):
        if value is not None and value.value < 1 and value.path is not None:
            yield Violation(
                place(value), f"{value}: rows are counted from 1", fix=Fix("write an integer of at least 1")
            )


@rule(
    "ND511",
    Severity.WARNING,
    Run,
    evidence="transformers #26548, accelerate #2325: the dispatcher concatenates one batch per rank and refuses unequal shapes",
    bad=f"{STREAM}pad_to_sequence_len: false\n",
    good=f"{STREAM}pad_to_sequence_len: false\naccelerator_config: {{dispatch_batches: false}}\n",
    given={"world_size": 4},
    unchecked=True,
)
def dispatch_unequal_rows(run: Run) -> Iterator[Violation]:
    """Streamed rows of unequal length are dispatched from rank 0.

    For data that can only be iterated, accelerate lets rank 0 read for everybody unless told otherwise.
    It joins the ranks' batches into one tensor, and rows padded to different lengths cannot be joined.
    """
    loader = run.loader
    if not loader.streaming.value or loader.dispatch_batches.value is False or run.ranks() == 1:
        return
    if loader.pads_to_length.value:
        return
    chosen = "is on" if loader.dispatch_batches.value else "is unset, which means on for streamed data"
    message = f"dispatch_batches {chosen}, and rows are not padded to one length: rank 0 cannot join them"
    yield Violation(
        place(loader.dispatch_batches, loader.streaming),
        message,
        notes(loader.streaming, loader.pads_to_length),
        Fix("set accelerator_config.dispatch_batches: false, or pad_to_sequence_len: true"),
    )


@rule(
    "ND512",
    Severity.ERROR,
    Run,
    evidence="matrices/stack.yaml on 8 CPU ranks, accelerate 1.15: every such cell diverges at its first step, with no error",
    bad=f"{STREAM}context_parallel_size: 2\nattn_implementation: flash_attention_2\npad_to_sequence_len: true\n",
    good=f"{STREAM}context_parallel_size: 2\nattn_implementation: flash_attention_2\npad_to_sequence_len: true\n"
    "accelerator_config: {dispatch_batches: false}\n",
    given={"world_size": 2},
    unchecked=True,
)
def dispatch_splits_mesh(run: Run) -> Iterator[Violation]:
    """Batches are dispatched from rank 0 to a mesh that the dispatcher does not know.

    accelerate's dispatcher cuts the batch by rank. With cp, peers that must see the same rows get different
    ones; so do tp peers with split_batches. With tp and several data ranks, but without split_batches, all ranks
    get one batch, and the others are lost. Nothing fails; the gradients are wrong, and the loss looks plausible.
    """
    loader = run.loader
    wrong = [run.degrees["cp"]] if run.degree("cp") > 1 else []
    if run.degree("tp") > 1 and (run.degree("tp") < run.ranks() or loader.split_batches.value):
        wrong.append(run.degrees["tp"])
    if not _dispatched(run) or not wrong:
        return
    how = "on" if loader.dispatch_batches.value else "unset, which means on for streamed data"
    message = f"dispatch_batches is {how}: with {' and '.join(str(value) for value in wrong)}, ranks get wrong rows"
    where = place(loader.dispatch_batches, loader.streaming)
    edits = (SetValue(loader.dispatch_batches.path, "false"),) if loader.dispatch_batches.path else ()
    yield Violation(where, message, notes(*wrong, loader.streaming), Fix("set dispatch_batches: false", edits=edits))


def _dispatched(run: Run) -> bool:
    """Rank 0 reads for all: because the config says so, or because it says nothing and the data is streamed."""
    chosen = run.loader.dispatch_batches.value
    return bool(chosen or (chosen is None and run.loader.streaming.value))


@rule(
    "ND514",
    Severity.WARNING,
    Run,
    evidence="matrices/stack.yaml, tp 8 on CPU ranks, accelerate 1.15 under transformers 5.24: Trainer starts the data anew at step 2",
    bad="tensor_parallel_size: 2\naccelerator_config: {dispatch_batches: true}\n",
    good="tensor_parallel_size: 2\naccelerator_config: {dispatch_batches: false}\n",
    given={"world_size": 2},
    unchecked=True,
)
def dispatch_shortens_epoch(run: Run) -> Iterator[Violation]:
    """A dispatching loader under tp says that it has fewer batches than it has.

    accelerate's dispatcher counts the batches as if every rank got its own, while tp peers get the same. Whoever
    plans by the length of the loader, as transformers.Trainer does, ends each epoch after 1/tp of the data: rows
    at the end of the data set are never trained on.
    """
    loader, tp = run.loader, run.degree("tp")
    if tp == 1 or tp != run.ranks() or not _dispatched(run) or loader.streaming.value or loader.split_batches.value:
        return
    message = f"dispatch_batches is on: with {run.degrees['tp']}, each epoch ends after 1/{tp} of the rows"
    edits = (SetValue(loader.dispatch_batches.path, "false"),) if loader.dispatch_batches.path else ()
    fix = Fix("set dispatch_batches: false", edits=edits)
    yield Violation(place(loader.dispatch_batches), message, notes(run.degrees["tp"]), fix)


@rule(
    "ND513",
    Severity.ERROR,
    Run,
    evidence="accelerate 1.13 data_loader.py:153; accelerate #358",
    bad="micro_batch_size: 3\naccelerator_config: {split_batches: true}\n",
    good="micro_batch_size: 4\naccelerator_config: {split_batches: true}\n",
    given={"world_size": 2},
    unchecked=True,
)
def split_batches_divide(run: Run) -> Iterator[Violation]:
    """split_batches cannot give every data rank the same number of rows.

    With split_batches the loader's batch is for all data ranks together and is cut into equal parts.
    """
    if not run.loader.split_batches.value or run.batch.micro is None:
        return
    inner = run.degree("tp") * run.degree("cp")
    world = run.world_size().value
    data_ranks, micro = world // inner if world % inner == 0 else 0, run.batch.micro
    if not data_ranks or micro.value < 1 or micro.value % data_ranks == 0:
        return
    above = -(-micro.value // data_ranks) * data_ranks
    message = f"{micro} is split over {data_ranks} data ranks and is not a multiple of them"
    edits = (SetValue(micro.path, str(above)),) if micro.path else ()
    where = place(micro, run.loader.split_batches)
    yield Violation(where, message, notes(run.loader.split_batches), Fix(f"set it to {above}", edits=edits))


@rule(
    "ND515",
    Severity.WARNING,
    Run,
    evidence="matrices/witnesses.yaml, dp_shard 2 with 44 rows, accelerate 1.15: the ranks wait for each other until they are ended",
    bad="fsdp: true\nmax_length: 4096\naccelerator_config: {even_batches: false}\n",
    good="fsdp: true\nmax_length: 4096\naccelerator_config: {even_batches: true}\n",
    given={"world_size": 4},
    unchecked=True,
)
def uneven_batches(run: Run) -> Iterator[Violation]:
    """Ranks may have different numbers of batches, and every step needs all of them.

    With even_batches off, the last rows go to some ranks only. Under FSDP, tp or cp the others wait in a collective that never
    comes, unless the rows are a multiple of the global batch or the tail is dropped.
    """
    even = run.loader.even_batches
    if even is None or even.value or run.ranks() <= run.degree("tp") * run.degree("cp"):
        return  # one data rank has every row
    sharded = [run.degrees[axis] for axis in ("dp_shard", "tp", "cp") if run.degree(axis) > 1]
    if not sharded and not run.sharding.fsdp.value:
        return
    named = " and ".join(map(str, sharded)) or "FSDP"
    edits = (SetValue(even.path, "true"),) if even.path else ()
    message = f"{even} with {named}: ranks that have run out of rows leave the others waiting"
    yield Violation(place(even), message, notes(*sharded), Fix("set even_batches: true", edits=edits))


@rule(
    "ND516",
    Severity.WARNING,
    Run,
    evidence="matrices/witnesses.yaml, transformers 5.24: under dp_shard each rank takes its own mean; under tp 2 loss and gradients double",
    bad="average_tokens_across_devices: false\n",
    good="average_tokens_across_devices: true\n",
    given={"world_size": 2},
    unchecked=True,
)
def tokens_not_averaged(run: Run) -> Iterator[Violation]:
    """Each rank divides its loss by its own label tokens.

    Ranks with few label tokens then weigh as much as those with many: the mean of means is not the mean. With tp the count is
    divided by tp although nothing was summed, and loss and gradients are tp times what they should be.
    """
    average = run.average_tokens
    if average is None or average.value or run.ranks() == 1:
        return
    tp = run.degree("tp")
    outcome = f"loss and gradients are {tp} times too large" if tp > 1 else "the loss is a mean of means"
    edits = (SetValue(average.path, "true"),) if average.path else ()
    severity = Severity.ERROR if tp > 1 else None
    related = notes(run.degrees["tp"]) if tp > 1 else ()
    message = f"{average} on {run.ranks()} ranks: {outcome}"
    yield Violation(place(average), message, related, Fix("set it to true", edits=edits), severity)


@rule(
    "ND517",
    Severity.ERROR,
    Run,
    evidence="DeepSpeed 0.19.8 config.py:590, an assertion on the three",
    bad="train_batch_size: 32\ntrain_micro_batch_size_per_gpu: 2\ngradient_accumulation_steps: 1\n",
    good="train_batch_size: 32\ntrain_micro_batch_size_per_gpu: 2\ngradient_accumulation_steps: 2\n",
    given={"world_size": 8},
)
def batch_total(run: Run) -> Iterator[Violation]:
    """The stated rows of a step are not what its factors make.

    Rows of an optimizer step = micro batch x accumulation x data ranks. Ranks that split layers or sequences share their rows and
    count once. A factor that is not stated is derived, and must come out whole.
    """
    total, micro, accumulation = run.batch.total, run.batch.micro, run.batch.accumulation
    factors = [value for value in (micro, accumulation) if value is not None]
    if total is None or any(value.value < 1 for value in (total, *factors)):
        return
    data_ranks = _data_ranks(run)
    if not data_ranks:
        return
    product = data_ranks * prod(value.value for value in factors)
    whole = total.value == product if len(factors) == 2 else total.value % product == 0
    if whole:
        return
    text = " x ".join([*(str(value) for value in factors), counted(data_ranks, "data rank")])
    nearest = max(total.value // product, 1) * product if len(factors) < 2 else product
    edits = (SetValue(total.path, str(nearest)),) if total.path else ()
    wrong = f"is not a multiple of {text}" if len(factors) < 2 else f"is not {text}"
    fix = Fix(f"set it to {nearest}", edits=edits)
    yield Violation(place(total), f"{total} {wrong} = {product}", notes(*factors), fix)


def _data_ranks(run: Run) -> int:
    """Ranks that read rows of their own; 0 if they are not a whole number."""
    ulysses = run.sequence.ulysses
    beside = ulysses.value if ulysses is not None and ulysses.value else 1
    inner = run.degree("tp") * run.degree("cp") * run.degree("pp") * max(beside, 1)
    world = run.world_size().value
    return world // inner if world % inner == 0 else 0


RULES: tuple[Rule[Run], ...] = (
    batch_factor_positive,
    batch_total,
    dispatch_unequal_rows,
    dispatch_splits_mesh,
    split_batches_divide,
    dispatch_shortens_epoch,
    uneven_batches,
    tokens_not_averaged,
)
