"""Rules that hold for axolotl alone: what its own code demands, drops or derives."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from ndcheck.findings import Fix, RemoveKey, Safety, SetValue, Severity, Violation, notes, place
from ndcheck.rules.conditions import above, equals, is_set, on, one_of
from ndcheck.rules.rule import Rule, conditional, rule
from ndcheck.run import Run
from ndcheck.settings import Settings

FLASH = "attn_implementation: flash_attention_2\n"
RING_BACKENDS = (
    "flash_attention_2",
    "flash_attention_3",
    "kernels-community/flash-attn2",
    "kernels-community/flash-attn3",
)

CP_FLASH_ATTENTION = conditional(
    "AX101",
    "cp-flash-attention",
    Severity.ERROR,
    Settings,
    summary="Context parallelism needs flash attention",
    why="axolotl's ring attention is built on the flash attention kernels; with any other backend each rank would "
    "attend to its own slice only, so axolotl refuses. Sparse attention kernels of GLM bring their own.",
    when=above("context_parallel_size", 1) & ~on("use_glm_dsa_kernels"),
    then=one_of("attn_implementation", *RING_BACKENDS),
    message="{context_parallel_size} needs flash attention, not {attn_implementation}",
    fix=Fix(
        "set attn_implementation: flash_attention_2", edits=(SetValue(("attn_implementation",), "flash_attention_2"),)
    ),
    evidence="axolotl 0.18 validation.py:1652",
    bad="context_parallel_size: 2\nattn_implementation: sdpa\n",
    good=f"context_parallel_size: 2\n{FLASH}",
    given={"world_size": 2},
)

CP_PACKING_MICRO_BATCH = conditional(
    "AX102",
    "cp-packing-micro-batch",
    Severity.ERROR,
    Settings,
    summary="Packing under context parallelism needs a micro batch of 1",
    why="The variable-length ring kernel takes one packed row at a time; axolotl refuses more.",
    when=above("context_parallel_size", 1) & on("sample_packing") & ~on("use_glm_dsa_kernels"),
    then=~above("micro_batch_size", 1),
    message="{micro_batch_size} with {sample_packing} and {context_parallel_size}: packed rows go through one at a time",
    fix=Fix(
        "set micro_batch_size: 1 and raise gradient_accumulation_steps instead",
        edits=(SetValue(("micro_batch_size",), "1"),),
    ),
    evidence="axolotl 0.18 validation.py:1659",
    bad=f"context_parallel_size: 2\nsample_packing: true\nmicro_batch_size: 2\n{FLASH}",
    good=f"context_parallel_size: 2\nsample_packing: true\nmicro_batch_size: 1\n{FLASH}",
    given={"world_size": 2},
)

ACCUMULATION_AND_BATCH_SIZE = conditional(
    "AX202",
    "accumulation-and-batch-size",
    Severity.ERROR,
    Settings,
    summary="gradient_accumulation_steps and batch_size are both set",
    why="Either follows from the other and micro_batch_size; axolotl refuses both, agreeing or not.",
    when=on("gradient_accumulation_steps", raw=True),
    then=~on("batch_size", raw=True),
    message="{batch_size} and {gradient_accumulation_steps} are both set",
    fix=Fix("remove batch_size"),
    evidence="axolotl 0.18 validation.py:272",
    bad="batch_size: 8\n",
    good="",
)


@rule(
    "AX201",
    Severity.ERROR,
    Settings,
    evidence="axolotl 0.18 validation.py:218: at least two of the three, 0 counts as missing; 0.19 wants one (run)",
    bad="gradient_accumulation_steps: null\n",
    good="gradient_accumulation_steps: 1\n",
    versions="axolotl<0.19",
)
def batch_fields_missing(settings: Settings) -> Iterator[Violation]:
    """Fewer than two of micro_batch_size, gradient_accumulation_steps and batch_size are written.

    axolotl looks at what is written before it fills in defaults, so a default does not count.
    """
    keys = ("micro_batch_size", "gradient_accumulation_steps", "batch_size")
    written = [settings.written(key) for key in keys]
    set_values = [value for value in written if value is not None and value.value]
    if len(set_values) < 2:
        missing = [key for key, value in zip(keys[:2], written, strict=False) if value not in set_values]
        message = f"set at least two of {', '.join(keys)}; defaults do not count"
        yield Violation(place(*set_values, *written), message, fix=Fix(f"add {' and '.join(missing)}"))


BATCH_FACTORS_MISSING = conditional(
    "AX205",
    "batch-factors-missing",
    Severity.ERROR,
    Settings,
    summary="Neither micro_batch_size nor gradient_accumulation_steps is written",
    why="From 0.19 on one of the two is enough for axolotl; without any it does not guess.",
    when=~on("micro_batch_size", raw=True),
    then=on("gradient_accumulation_steps", raw=True),
    message="neither micro_batch_size nor gradient_accumulation_steps is written; defaults do not count",
    fix=Fix("add micro_batch_size"),
    evidence="axolotl 0.19, run",
    bad="micro_batch_size: null\ngradient_accumulation_steps: null\n",
    good="micro_batch_size: null\ngradient_accumulation_steps: 1\n",
    given={"targets": {"axolotl": "0.19"}},
    versions="axolotl>=0.19",
)


@rule(
    "AX203",
    Severity.ERROR,
    Settings,
    evidence="axolotl 0.18 config/__init__.py:202, run: accumulation stays 1, while step counts use batch_size",
    bad="batch_size: 32\nmicro_batch_size: 4\n",
    good="gradient_accumulation_steps: 8\nmicro_batch_size: 4\n",
    given={"drop": ["gradient_accumulation_steps"]},
    unchecked=True,
)
def batch_size_without_effect(settings: Settings) -> Iterator[Violation]:
    """batch_size is written and gradient_accumulation_steps is not.

    axolotl computes the accumulation from batch_size only if gradient_accumulation_steps is empty, but
    that key's default is 1. The run accumulates nothing, while the number of steps, and with it the
    learning-rate schedule, is computed from batch_size.
    """
    total, micro = settings.written("batch_size"), settings.value("micro_batch_size")
    if total is None or not total.value or settings.written("gradient_accumulation_steps") is not None:
        return
    if micro is None or not micro.value or total.value == micro.value:
        return
    steps = max(total.value // micro.value, 1)
    message = (
        f"{total} has no effect: gradient_accumulation_steps defaults to 1, so a step takes {micro.value} rows a rank"
    )
    fix = Fix(f"write gradient_accumulation_steps: {steps} instead of batch_size")
    yield Violation(place(total), message, notes(micro), fix)


@rule(
    "AX204",
    Severity.ERROR,
    Settings,
    evidence="axolotl 0.18 validation.py:504 and 40, run: AttributeError and TypeError",
    bad="tokenizer_config:\n",
    good="tokenizer_config: org/model\n",
)
def empty_key_crashes(settings: Settings) -> Iterator[Violation]:
    """A key is written with nothing behind it, and axolotl trips over that.

    Empty keys mean "not set" nearly everywhere in axolotl; in these places a check asks the value a question before it
    looks whether there is one. A limit of axolotl 0.18, not of the config.
    """
    keys = ["base_model_config", "tokenizer_config"]
    if settings.get("pretraining_dataset"):
        keys.append("datasets")
    for key in keys:
        value = settings.written(key)
        if value is not None and value.value is None:
            message = f"{key} is empty, which axolotl 0.18 answers with a traceback"
            yield Violation((key,), message, fix=Fix("remove it", Safety.SAFE, (RemoveKey((key,)),)))


@rule(
    "AX206",
    Severity.ERROR,
    Settings,
    evidence="axolotl 0.18 config.py:305: under Ray the workers are the ranks; nothing compares them with the degrees",
    bad="use_ray: true\nray_num_workers: 4\ntensor_parallel_size: 2\n",
    good="use_ray: true\nray_num_workers: 2\ntensor_parallel_size: 2\n",
    unchecked=True,
)
def ray_workers_product(settings: Settings) -> Iterator[Violation]:
    """Under Ray, the degrees do not multiply to the number of workers.

    Each worker is a rank, so what holds for the world size holds for ray_num_workers.
    """
    workers = settings.value("ray_num_workers")
    if not settings.on("use_ray") or workers is None or workers.value is None:
        return
    keys = (
        "dp_replicate_size",
        "dp_shard_size",
        "context_parallel_size",
        "tensor_parallel_size",
        "expert_parallel_size",
    )
    degrees = [value for key in keys if (value := settings.value(key)) is not None and (value.value or 0) > 1]
    product = prod(value.value for value in degrees)
    if degrees and product != workers.value:
        message = f"{' x '.join(str(value) for value in degrees)} = {product}, but {workers}"
        yield Violation(place(workers, *degrees), message, notes(*degrees), Fix(f"set ray_num_workers: {product}"))


def _required(code: str, key: str, example: str) -> Rule[Settings]:
    return conditional(
        code,
        f"{key.replace('_', '-')}-required",
        Severity.ERROR,
        Settings,
        summary=f"{key} is missing",
        why="axolotl has no default for it and refuses the file.",
        when=~is_set(key),
        message=f"{key} is missing; axolotl has no default for it",
        fix=Fix(f"add {key}"),
        evidence="axolotl 0.18's required fields",
        bad="",
        good=f"{key}: {example}\n",
        given={"drop": [key]},
    )


BASE_MODEL_REQUIRED = _required("AX901", "base_model", "org/model")
LEARNING_RATE_REQUIRED = _required("AX902", "learning_rate", "1.0e-5")

DATASETS_REQUIRED = conditional(
    "AX903",
    "datasets-required",
    Severity.ERROR,
    Settings,
    summary="There is nothing to train on",
    why="axolotl needs datasets, or pretraining_dataset for streamed text.",
    when=~is_set("datasets"),
    then=is_set("pretraining_dataset"),
    message="datasets is missing, and so is pretraining_dataset",
    fix=Fix("add datasets"),
    evidence="axolotl 0.18 validation.py:79",
    bad="",
    good="datasets: [{path: org/data, type: alpaca}]\n",
    given={"drop": ["datasets"]},
)

FSDP1_DEPRECATED = conditional(
    "AX301",
    "fsdp1-deprecated",
    Severity.WARNING,
    Settings,
    summary="FSDP1 is deprecated",
    why="Without a version axolotl pins FSDP to 1, which PyTorch no longer develops and transformers is about to drop.",
    when=on("fsdp_config"),
    then=is_set("fsdp_version") & ~equals("fsdp_version", 1),
    message="FSDP runs as version 1, which is deprecated",
    fix=Fix("set fsdp_version: 2"),
    evidence="axolotl 0.18 validation.py:1036 and 1118",
    bad="fsdp_config: {offload_params: false}\n",
    good="fsdp_version: 2\nfsdp_config: {offload_params: false}\n",
)


@rule(
    "AX789",
    Severity.ERROR,
    Run,
    evidence="axolotl 0.18 loaders/utils.py:139, when the model is loaded",
    bad="tensor_parallel_size: 2\n",
    good="tensor_parallel_size: 1\n",
    given={"world_size": 2, "model_config": {"tie_word_embeddings": True, "num_attention_heads": 8}},
    unchecked=True,
)
def tp_tied_embeddings(run: Run) -> Iterator[Violation]:
    """Tensor parallelism on a model whose embedding and LM head are one matrix.

    axolotl refuses it when it loads the model: transformers' plan cuts the two in different ways.
    """
    tp = run.explicit().get("tp")
    if tp is None or tp.value == 1:
        return
    tied = run.model().tied_embeddings
    if tied is not None and tied.value:
        message = f"{tp}, but the model's embedding and LM head are one matrix ({tied.origin.text})"
        yield Violation(
            place(tp), message, fix=Fix("use a model without tie_word_embeddings, or no tensor parallelism")
        )


RULES: tuple[Rule[Settings] | Rule[Run], ...] = (
    CP_FLASH_ATTENTION,
    CP_PACKING_MICRO_BATCH,
    batch_fields_missing,
    ACCUMULATION_AND_BATCH_SIZE,
    batch_size_without_effect,
    BATCH_FACTORS_MISSING,
    empty_key_crashes,
    ray_workers_product,
    FSDP1_DEPRECATED,
    BASE_MODEL_REQUIRED,
    LEARNING_RATE_REQUIRED,
    DATASETS_REQUIRED,
    tp_tied_embeddings,
)
