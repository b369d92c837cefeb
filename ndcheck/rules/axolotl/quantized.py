"""axolotl's rules about quantized base models, low precision and quantization-aware training."""

from __future__ import annotations

from collections.abc import Iterator

from ndcheck.findings import Fix, Severity, Violation, notes, place
from ndcheck.rules.axolotl.adapters import LORA, QLORA, QUANTIZED
from ndcheck.rules.conditions import above, on, one_of
from ndcheck.rules.rule import Rule, conditional, rule
from ndcheck.run import Run
from ndcheck.settings import Settings

QAT_QUANTIZED = conditional(
    "AX721",
    "qat-on-quantized-model",
    Severity.ERROR,
    Settings,
    summary="Quantization-aware training of a quantized model",
    why="QAT imitates the rounding on whole weights; a model that is quantized already has none.",
    when=on("qat", raw=True),
    then=~(on("load_in_4bit", raw=True) | on("load_in_8bit", raw=True) | on("peft", raw=True)),
    message="qat cannot be combined with {load_in_4bit}, {load_in_8bit}, or a peft section",
    fix=Fix("remove load_in_4bit, load_in_8bit and peft"),
    evidence="axolotl 0.18 config.py:2084",
    bad=f"{LORA}load_in_8bit: true\nqat: {{weight_dtype: int8}}\n",
    good=f"{LORA}load_in_8bit: true\n",
    given={"also": ["qat-with-adapter"]},
)

QAT_ADAPTER = conditional(
    "AX722",
    "qat-with-adapter",
    Severity.WARNING,
    Settings,
    summary="Quantization-aware training with an adapter",
    why="axolotl documents the two as exclusive, but its check looks at the section `peft`, not at `adapter`.",
    when=on("qat"),
    then=~on("adapter"),
    message="qat and {adapter} exclude each other",
    fix=Fix("remove one of the two"),
    evidence="axolotl 0.18, run: accepted",
    bad=f"{LORA}qat: {{weight_dtype: int8}}\n",
    good="qat: {weight_dtype: int8}\n",
    unchecked=True,
)

QUANTIZED_TWICE = conditional(
    "AX723",
    "model-quantized-twice",
    Severity.ERROR,
    Settings,
    summary="model_quantization_config and load_in_4bit or load_in_8bit",
    why="The checkpoint's own quantization and bitsandbytes' exclude each other.",
    when=on("model_quantization_config", raw=True),
    then=~(on("load_in_4bit", raw=True) | on("load_in_8bit", raw=True)),
    message="{model_quantization_config} cannot be combined with {load_in_4bit}, {load_in_8bit}",
    fix=Fix("keep one of them"),
    evidence="axolotl 0.18 validation.py:1231",
    bad=f"{QLORA}model_quantization_config: Mxfp4Config\n",
    good=QLORA,
)

ONEBIT_ADAPTER = conditional(
    "AX724",
    "onebit-with-adapter",
    Severity.ERROR,
    Settings,
    summary="One-bit models do not take LoRA",
    why="Their linear layers are of another kind than LoRA knows.",
    when=on("use_onebitllms"),
    then=~one_of("adapter", "lora", "qlora"),
    message="{use_onebitllms} cannot be combined with {adapter}",
    fix=Fix("remove the adapter"),
    evidence="axolotl 0.18 validation.py:620",
    bad=f"{LORA}use_onebitllms: true\n",
    good="use_onebitllms: true\n",
)

MOE_EXPERTS_QUANTIZED = conditional(
    "AX725",
    "quantized-experts-unsupported",
    Severity.ERROR,
    Settings,
    summary="quantize_moe_experts needs LoRA on a quantized base model, without lora_target_linear",
    why="Experts are quantized while the model is loaded for an adapter; lora_target_linear would look for linear layers that are gone.",
    when=on("quantize_moe_experts", raw=True),
    then=one_of("adapter", "lora", "qlora") & QUANTIZED & ~on("lora_target_linear"),
    message="{quantize_moe_experts} needs adapter lora or qlora, 4 or 8 bits, and no lora_target_linear: here {adapter}, {lora_target_linear}",
    fix=Fix("set an adapter and load_in_4bit, and name lora_target_modules"),
    evidence="axolotl 0.18 config.py:1874",
    bad=f"{QLORA}quantize_moe_experts: true\n",
    good="adapter: qlora\nload_in_4bit: true\nlora_target_modules: [q_proj]\nquantize_moe_experts: true\n",
)


@rule(
    "AX731",
    Severity.WARNING,
    Run,
    evidence="transformers' tp_plan has no support for bitsandbytes weights (read); axolotl 0.18 accepts the pair (run)",
    bad=f"{QLORA}tensor_parallel_size: 2\n",
    good=QLORA,
    unchecked=True,
)
def quantized_tp(run: Run) -> Iterator[Violation]:
    """A quantized base model is cut over tp.

    Tensor parallelism cuts whole matrices while they are loaded; packed weights of 4 or 8 bits cannot
    be cut like that. axolotl does not look, and nothing is known to work.
    """
    quantized = run.quantized
    if run.degree("tp") > 1 and quantized is not None and quantized.value:
        tp = run.degrees["tp"]
        yield Violation(
            place(tp), f"{tp} with {quantized} is not known to work", notes(quantized), Fix("use FSDP2 instead of tp")
        )


LOW_PRECISION_TP = conditional(
    "AX610",
    "low-precision-tp",
    Severity.WARNING,
    Settings,
    summary="float8 or quantization-aware training with tensor parallelism",
    why="Both swap the linear layers that tensor parallelism has cut. axolotl does not look, and nothing is known to work.",
    when=above("tensor_parallel_size", 1),
    then=~(on("fp8") | on("qat")),
    message="{tensor_parallel_size} with {fp8}, {qat} is not known to work",
    fix=Fix("use FSDP2 instead of tp"),
    evidence="axolotl 0.18 loaders/model.py:847: no rule (run: accepted)",
    bad="tensor_parallel_size: 2\nqat: {weight_dtype: int8}\n",
    good="tensor_parallel_size: 1\nqat: {weight_dtype: int8}\n",
    given={"world_size": 2},
    unchecked=True,
)

HALF_PRECISION_TWICE = conditional(
    "AX790",
    "half-precision-twice",
    Severity.WARNING,
    Settings,
    summary="bf16 and fp16 are both on",
    why="axolotl runs in one of the two: with bf16 on, it switches fp16 off and says nothing.",
    when=on("bf16", raw=True),
    then=~on("fp16", raw=True),
    message="{bf16}, {fp16}: the run is in bf16",
    fix=Fix("remove one of them"),
    evidence="axolotl 0.18 normalize_config",
    bad="bf16: true\nfp16: true\n",
    good="bf16: true\nfp16: false\n",
    unchecked=True,
)

RULES: tuple[Rule[Settings] | Rule[Run], ...] = (
    QAT_QUANTIZED,
    QAT_ADAPTER,
    QUANTIZED_TWICE,
    ONEBIT_ADAPTER,
    MOE_EXPERTS_QUANTIZED,
    quantized_tp,
    LOW_PRECISION_TP,
    HALF_PRECISION_TWICE,
)
