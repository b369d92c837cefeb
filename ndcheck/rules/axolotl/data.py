"""axolotl's rules about loaders, streaming and the arithmetic of a batch."""

from __future__ import annotations

from collections.abc import Iterator

from ndcheck.findings import Fix, RemoveKey, RenameKey, SetValue, Severity, Violation, notes, place
from ndcheck.rules.conditions import above, equals, is_set, on
from ndcheck.rules.keys import nearest
from ndcheck.rules.rule import Rule, conditional, rule
from ndcheck.settings import Settings

STREAMED = on("pretraining_dataset") | on("streaming")
STREAM = "streaming: true\nmax_steps: 10\n"
PRETRAIN = "pretraining_dataset: [{path: org/text}]\nstreaming: true\nmax_steps: 10\n"


@rule(
    "AX501",
    Severity.ERROR,
    Settings,
    evidence="axolotl 0.18 core/builders/base.py:573: the section becomes arguments of accelerate's configuration",
    bad="accelerator_config: {prefetch_all: true}\n",
    good="accelerator_config: {even_batches: true}\n",
    unchecked=True,
)
def accelerator_option_unknown(settings: Settings) -> Iterator[Violation]:
    """accelerator_config holds a key that accelerate does not have.

    axolotl takes any mapping here and hands it on as arguments, so the trainer ends in a TypeError
    after the model has been loaded.
    """
    for unknown in settings.unknown:
        if unknown.path[0] == "accelerator_config" and len(unknown.path) > 1:
            near = nearest(str(unknown.path[1]), unknown.known)
            hint = f"; did you mean {near}?" if near else ""
            message = f"accelerate has no option {unknown.path[1]}: the trainer would end in a TypeError{hint}"
            fix = Fix(f"rename it to {near}", edits=(RenameKey(unknown.path, near),)) if near else Fix("remove it")
            yield Violation(unknown.path, message, fix=fix)


ACCUMULATION_TWICE = conditional(
    "AX502",
    "accumulation-twice",
    Severity.ERROR,
    Settings,
    summary="accumulation is set both for the Trainer and for accelerate",
    why="Each would divide the gradient steps on its own; the Trainer refuses when it is built.",
    when=is_set("accelerator_config.gradient_accumulation_kwargs.num_steps"),
    then=~above("gradient_accumulation_steps", 1),
    message="{gradient_accumulation_steps} and {accelerator_config.gradient_accumulation_kwargs.num_steps} are both set",
    fix=Fix("remove num_steps"),
    evidence="transformers 5.14 trainer.py:773",
    bad="gradient_accumulation_steps: 2\naccelerator_config: {gradient_accumulation_kwargs: {num_steps: 2}}\n",
    good="gradient_accumulation_steps: 1\naccelerator_config: {gradient_accumulation_kwargs: {num_steps: 2}}\n",
    unchecked=True,
)

EVEN_BATCHES_IGNORED = conditional(
    "AX503",
    "even-batches-ignored",
    Severity.INFO,
    Settings,
    summary="Packing switches even_batches off",
    why="A packed batch has no fixed number of rows that could be repeated to even the ranks out, so axolotl "
    "overrides the key.",
    when=on("sample_packing"),
    then=~on("accelerator_config.even_batches"),
    message="{accelerator_config.even_batches} has no effect with {sample_packing}",
    fix=Fix("remove even_batches"),
    evidence="axolotl 0.18 core/trainers/base.py:316",
    bad="sample_packing: true\nattn_implementation: flash_attention_2\naccelerator_config: {even_batches: true}\n",
    good="sample_packing: false\nattn_implementation: flash_attention_2\naccelerator_config: {even_batches: true}\n",
    unchecked=True,
)

PREFETCH_WITHOUT_WORKERS = conditional(
    "AX504",
    "prefetch-without-workers",
    Severity.ERROR,
    Settings,
    summary="dataloader_prefetch_factor is set without loader processes",
    why="It counts batches that each worker process prepares ahead. Writing it also switches axolotl's default "
    "number of workers off, which leaves none; transformers then refuses.",
    when=is_set("dataloader_prefetch_factor"),
    then=above("dataloader_num_workers", 0),
    message="{dataloader_prefetch_factor} needs {dataloader_num_workers} to be at least 1",
    fix=Fix("set dataloader_num_workers: 4, or remove dataloader_prefetch_factor"),
    evidence="transformers 5.14 training_args.py:1737, run",
    bad="dataloader_prefetch_factor: 2\ndataloader_num_workers: 0\n",
    good="dataloader_prefetch_factor: 2\ndataloader_num_workers: 1\n",
    unchecked=True,
)

MULTIMODAL_WITHOUT_WORKERS = conditional(
    "AX505",
    "multimodal-without-workers",
    Severity.WARNING,
    Settings,
    summary="Images are processed in the training process itself",
    why="With no loader processes every step waits for its images to be decoded and resized.",
    when=on("processor_type"),
    then=~equals("dataloader_num_workers", 0),
    message="{dataloader_num_workers}: with {processor_type} every step waits for its images",
    fix=Fix("set dataloader_num_workers: 4"),
    evidence="axolotl 0.18 core/builders/causal.py:55",
    bad="processor_type: AutoProcessor\ndataloader_num_workers: 0\n",
    good="processor_type: AutoProcessor\ndataloader_num_workers: 1\n",
)

STREAMING_WITHOUT_MAX_STEPS = conditional(
    "AX506",
    "streaming-without-max-steps",
    Severity.ERROR,
    Settings,
    summary="Streamed data has no length, and max_steps is not set",
    why="The learning-rate schedule needs to know where training ends; without a length only max_steps can say.",
    when=STREAMED,
    then=on("max_steps"),
    message="streamed data needs {max_steps} to be set",
    fix=Fix("set max_steps"),
    evidence="axolotl 0.18 validation.py:1312 and 1368",
    bad="streaming: true\nmax_steps: 0\n",
    good="streaming: true\nmax_steps: 1\n",
)

STREAMING_WITH_VAL_SPLIT = conditional(
    "AX507",
    "streaming-with-val-split",
    Severity.ERROR,
    Settings,
    summary="Rows are to be set aside from streamed data",
    why="A split draws rows at random from all of them, and a stream never has all of them.",
    when=STREAMED,
    then=~on("val_set_size"),
    message="{val_set_size} cannot be split off streamed data",
    fix=Fix("set val_set_size: 0 and name test_datasets"),
    evidence="axolotl 0.18 validation.py:1348",
    bad=f"{STREAM}val_set_size: 0.01\n",
    good=f"{STREAM}val_set_size: 0\n",
)

PRETRAINING_WITHOUT_STREAMING = conditional(
    "AX508",
    "pretraining-without-streaming",
    Severity.WARNING,
    Settings,
    summary="pretraining_dataset is streamed whether streaming is on or not",
    why="axolotl announces that it will one day ask for streaming: true here. Until then false is ignored.",
    when=on("pretraining_dataset"),
    then=on("streaming"),
    message="pretraining_dataset is streamed all the same: {streaming}",
    fix=Fix("set streaming: true", edits=(SetValue(("streaming",), "true"),)),
    evidence="axolotl 0.18 validation.py:86, run",
    bad=PRETRAIN.replace("streaming: true", "streaming: false"),
    good=PRETRAIN,
)

PRETRAINING_GROUPED_BY_LENGTH = conditional(
    "AX509",
    "pretraining-grouped-by-length",
    Severity.WARNING,
    Settings,
    summary="Grouping by length reads the whole stream first",
    why="Rows can only be sorted by length once all are there, so the data that was to be streamed is downloaded.",
    when=on("pretraining_dataset"),
    then=~on("group_by_length"),
    message="{group_by_length} downloads all of pretraining_dataset before the first step",
    fix=Fix("set group_by_length: false", edits=(SetValue(("group_by_length",), "false"),)),
    evidence="axolotl 0.18 validation.py:1321",
    bad=f"{PRETRAIN}group_by_length: true\n",
    good=f"{PRETRAIN}group_by_length: false\n",
)

PRETRAINING_TOKENS_PER_SECOND = conditional(
    "AX510",
    "pretraining-tokens-per-second",
    Severity.ERROR,
    Settings,
    summary="Tokens per second cannot be counted on a pretraining stream",
    why="The count takes the number of rows from the data set, which a stream does not have.",
    when=on("pretraining_dataset"),
    then=~on("include_tokens_per_second"),
    message="{include_tokens_per_second} does not work with pretraining_dataset",
    fix=Fix("remove it", edits=(RemoveKey(("include_tokens_per_second",)),)),
    evidence="axolotl 0.18 validation.py:567",
    bad=f"{PRETRAIN}include_tokens_per_second: true\n",
    good=f"{PRETRAIN}include_tokens_per_second: false\n",
)

STREAMING_DEDUPLICATION = conditional(
    "AX511",
    "streaming-deduplication",
    Severity.ERROR,
    Settings,
    summary="Streamed data is to be deduplicated",
    why="A duplicate is found by comparing with every row before it; axolotl does that on prepared data only.",
    when=on("dataset_exact_deduplication"),
    then=~STREAMED,
    message="{dataset_exact_deduplication} does not work on streamed data",
    fix=Fix("remove dataset_exact_deduplication, or prepare the data instead of streaming it"),
    evidence="axolotl 0.18 schemas/config.py:2189",
    bad=f"{STREAM}dataset_exact_deduplication: true\n",
    good=f"{STREAM}dataset_exact_deduplication: false\n",
)

DEDUPLICATION_SKIPPED = conditional(
    "AX512",
    "deduplication-skipped",
    Severity.ERROR,
    Settings,
    summary="Deduplication is part of the preparation that is skipped",
    why="Duplicates are dropped while the data is prepared; with skip_prepare_dataset none would be.",
    when=on("dataset_exact_deduplication"),
    then=~on("skip_prepare_dataset"),
    message="{dataset_exact_deduplication} has no effect with {skip_prepare_dataset}",
    fix=Fix("remove one of the two"),
    evidence="axolotl 0.18 schemas/config.py:2200",
    bad="dataset_exact_deduplication: true\nskip_prepare_dataset: true\n",
    good="dataset_exact_deduplication: true\nskip_prepare_dataset: false\n",
)


@rule(
    "AX513",
    Severity.ERROR,
    Settings,
    evidence="axolotl 0.18 validation.py:1378",
    bad=f"{STREAM}sample_packing: true\nattn_implementation: flash_attention_2\npad_to_sequence_len: true\n"
    "datasets: [{path: org/a, type: alpaca}, {path: org/b, type: alpaca}]\n",
    good=f"{STREAM}sample_packing: true\nattn_implementation: flash_attention_2\npad_to_sequence_len: true\n"
    "datasets: [{path: org/a, type: alpaca}]\n",
)
def streams_packed_together(settings: Settings) -> Iterator[Violation]:
    """Several streamed data sets are to be packed.

    axolotl 0.18 packs one stream at a time and does not mix several.
    """
    datasets = settings.value("datasets")
    if settings.on("streaming") and settings.on("sample_packing") and datasets is not None and datasets.value:
        count = len(datasets.value)
        if count > 1:
            message = f"{count} streamed data sets cannot be packed together; axolotl 0.18 takes one"
            fix = Fix("keep one data set, or set sample_packing: false")
            yield Violation(place(datasets), message, notes(settings.value("sample_packing")), fix)


STREAMING_PACKS_LONGER_ROWS = conditional(
    "AX514",
    "streaming-packs-longer-rows",
    Severity.INFO,
    Settings,
    summary="Packed streams turn micro_batch_size into longer rows",
    why="axolotl packs micro_batch_size x sequence_len tokens into one row as it streams, and then goes on with a "
    "micro batch of 1. The tokens per step are the same; a row is longer than sequence_len says.",
    when=STREAMED & on("sample_packing"),
    then=~above("micro_batch_size", 1),
    message="{micro_batch_size} becomes one row of that many times {sequence_len} tokens",
    fix=Fix("set micro_batch_size: 1 and a longer sequence_len to say the same openly"),
    evidence="axolotl 0.18 utils/data/streaming.py:185",
    bad=f"{STREAM}sample_packing: true\nattn_implementation: flash_attention_2\nmicro_batch_size: 2\n",
    good=f"{STREAM}sample_packing: true\nattn_implementation: flash_attention_2\nmicro_batch_size: 1\n",
    unchecked=True,
)


@rule(
    "AX515",
    Severity.WARNING,
    Settings,
    evidence="axolotl 0.18 validation.py:281",
    bad="micro_batch_size: 1\neval_batch_size: 2\n",
    good="micro_batch_size: 2\neval_batch_size: 2\n",
)
def eval_batch_size_differs(settings: Settings) -> Iterator[Violation]:
    """Evaluation runs with another batch than training.

    The allocator then keeps blocks of two sizes, and the larger batch may be the one that runs out of memory
    at the first evaluation. Left out, eval_batch_size follows micro_batch_size.
    """
    evaluation, micro = settings.value("eval_batch_size"), settings.written("micro_batch_size")
    if evaluation is None or micro is None or not evaluation.value or not micro.value:
        return
    if evaluation.value != micro.value:
        fix = Fix(f"set eval_batch_size: {micro.value}, or remove it")
        yield Violation(place(evaluation), f"{evaluation} differs from {micro}", notes(micro), fix)


@rule(
    "AX516",
    Severity.ERROR,
    Settings,
    evidence="axolotl 0.18 config/__init__.py:202, run",
    bad="gradient_accumulation_steps: null\nmicro_batch_size: 4\nbatch_size: 3\n",
    good="gradient_accumulation_steps: 2\nmicro_batch_size: 4\n",
    unchecked=True,
)
def batch_size_of_one_rank(settings: Settings) -> Iterator[Violation]:
    """Accumulation is left to be computed from batch_size.

    With gradient_accumulation_steps written as null axolotl divides batch_size by micro_batch_size and drops
    the rest, down to no step at all. The number of ranks is not divided out, so a batch_size of 32 makes 256
    rows a step on 8 ranks, although the key's own description says otherwise.
    """
    total, micro = settings.value("batch_size"), settings.value("micro_batch_size")
    steps = settings.written("gradient_accumulation_steps")
    if total is None or micro is None or steps is None or steps.value is not None:
        return
    if not total.value or micro.value is None or micro.value < 1:
        return
    count, rest = divmod(total.value, micro.value)
    fix = Fix(f"write gradient_accumulation_steps: {max(count, 1)} instead of batch_size")
    if count < 1:
        message = f"{total} is less than {micro}: axolotl accumulates 0 batches"
        yield Violation(place(total), message, notes(micro), fix)
    else:
        dropped = f" ({rest} left over)" if rest else ""
        message = f"{total} / {micro} makes {count} accumulated batches{dropped} on every rank, not over all ranks"
        yield Violation(place(total), message, notes(micro), fix, Severity.WARNING)


DDP_OFF = conditional(
    "AX517",
    "ddp-off",
    Severity.WARNING,
    Settings,
    summary="ddp is off, so axolotl counts the rows of one rank only",
    why="The key does not stop replicas from training together. It only keeps axolotl from multiplying the batch by the "
    "ranks, and the number of steps, with the learning-rate schedule, comes out too large.",
    when=equals("ddp", False),
    then=on("fsdp_config") | on("fsdp"),
    message="{ddp}: on several ranks steps are counted as if there were one",
    fix=Fix("remove it"),
    evidence="axolotl 0.18 config/__init__.py:230, run",
    bad="ddp: false\n",
    good="ddp: true\n",
    unchecked=True,
)

RULES: tuple[Rule[Settings], ...] = (
    accelerator_option_unknown,
    ACCUMULATION_TWICE,
    EVEN_BATCHES_IGNORED,
    PREFETCH_WITHOUT_WORKERS,
    MULTIMODAL_WITHOUT_WORKERS,
    STREAMING_WITHOUT_MAX_STEPS,
    STREAMING_WITH_VAL_SPLIT,
    PRETRAINING_WITHOUT_STREAMING,
    PRETRAINING_GROUPED_BY_LENGTH,
    PRETRAINING_TOKENS_PER_SECOND,
    STREAMING_DEDUPLICATION,
    DEDUPLICATION_SKIPPED,
    streams_packed_together,
    STREAMING_PACKS_LONGER_ROWS,
    eval_batch_size_differs,
    batch_size_of_one_rank,
    DDP_OFF,
)
