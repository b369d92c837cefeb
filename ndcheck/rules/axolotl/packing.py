"""axolotl's rules about packing and flattening."""

from __future__ import annotations

from ndcheck.findings import Fix, SetValue, Severity
from ndcheck.rules.axolotl.attention import ISOLATING
from ndcheck.rules.conditions import above, equals, is_set, on, one_of
from ndcheck.rules.rule import Rule, conditional
from ndcheck.settings import Settings

FLASH = "attn_implementation: flash_attention_2\n"
PACKED = f"sample_packing: true\n{FLASH}"


FLATTENING_BACKEND = conditional(
    "AX115",
    "flattening-backend",
    Severity.ERROR,
    Settings,
    summary="batch_flattening with a backend that does not keep documents apart",
    why="Flattening joins the rows of a batch into one, as packing does.",
    when=equals("batch_flattening", True),
    then=one_of("attn_implementation", *ISOLATING[:8]),
    message="{batch_flattening} needs a backend that packs, not {attn_implementation}",
    fix=Fix("set attn_implementation: flash_attention_2"),
    evidence="axolotl 0.18 validation.py:966",
    bad="batch_flattening: true\nmicro_batch_size: 2\nattn_implementation: sdpa\n",
    good=f"batch_flattening: true\nmicro_batch_size: 2\n{FLASH}",
)

FLATTENING_PACKED = conditional(
    "AX116",
    "flattening-packed",
    Severity.ERROR,
    Settings,
    summary="batch_flattening and sample_packing",
    why="Packed rows are flat already.",
    when=equals("batch_flattening", True),
    then=~on("sample_packing"),
    message="{batch_flattening} cannot be combined with {sample_packing}",
    fix=Fix("set batch_flattening: false"),
    evidence="axolotl 0.18 validation.py:966",
    bad=f"batch_flattening: true\nmicro_batch_size: 2\n{PACKED}",
    good=f"batch_flattening: true\nmicro_batch_size: 2\nsample_packing: false\n{FLASH}",
)

FLATTENING_ONE_ROW = conditional(
    "AX117",
    "flattening-one-row",
    Severity.WARNING,
    Settings,
    summary="batch_flattening with a micro batch of 1",
    why="There is one row, and nothing to join.",
    when=equals("batch_flattening", True),
    then=above("micro_batch_size", 1),
    message="{batch_flattening} has no effect with {micro_batch_size}",
    fix=Fix("raise micro_batch_size, or remove batch_flattening"),
    evidence="axolotl 0.18 validation.py:966",
    bad=f"batch_flattening: true\n{FLASH}",
    good=f"batch_flattening: true\nmicro_batch_size: 2\n{FLASH}",
)

PACKED_UNPADDED = conditional(
    "AX118",
    "packed-rows-unpadded",
    Severity.WARNING,
    Settings,
    summary="Packing without padding to the full length",
    why="Rows of many lengths leave the allocator with many sizes of blocks; memory grows over the run.",
    when=on("sample_packing"),
    then=~equals("pad_to_sequence_len", False),
    message="{pad_to_sequence_len} with {sample_packing} fragments memory",
    fix=Fix("set pad_to_sequence_len: true"),
    evidence="axolotl 0.18 validation.py:228",
    bad=f"pad_to_sequence_len: false\n{PACKED}",
    good=f"pad_to_sequence_len: true\n{PACKED}",
)

PACKED_EVAL_TABLE = conditional(
    "AX119",
    "packed-evaluation-table",
    Severity.ERROR,
    Settings,
    summary="A table of predictions from packed evaluation rows",
    why="The table takes one row for one sample.",
    when=on("sample_packing") & on("eval_table_size"),
    then=equals("eval_sample_packing", False),
    message="{eval_table_size} needs eval_sample_packing: false",
    fix=Fix("set eval_sample_packing: false", edits=(SetValue(("eval_sample_packing",), "false"),)),
    evidence="axolotl 0.18 validation.py:135",
    bad=f"eval_table_size: 5\n{PACKED}",
    good=f"eval_table_size: 5\neval_sample_packing: false\n{PACKED}",
    given={"also": ["older-generation-key"]},
)

CAUSAL_EVAL_PACKED = conditional(
    "AX120",
    "causal-evaluation-packed",
    Severity.ERROR,
    Settings,
    summary="do_causal_lm_eval with packed evaluation rows",
    why="Texts are generated from single samples. Where sample_packing is on, evaluation rows are packed unless told otherwise.",
    when=on("do_causal_lm_eval"),
    then=~on("eval_sample_packing") & (is_set("eval_sample_packing") | ~on("sample_packing")),
    message="{do_causal_lm_eval} needs eval_sample_packing: false",
    fix=Fix("set eval_sample_packing: false", edits=(SetValue(("eval_sample_packing",), "false"),)),
    evidence="axolotl 0.18 validation.py:485",
    bad="do_causal_lm_eval: true\neval_sample_packing: true\n",
    good="do_causal_lm_eval: true\neval_sample_packing: false\n",
)

CUDAGRAPHS_PACKED = conditional(
    "AX124",
    "cudagraphs-packed",
    Severity.WARNING,
    Settings,
    summary="CUDA graphs with packing",
    why="A graph is recorded for one shape; packed rows come in many.",
    when=on("sample_packing") & on("torch_compile"),
    then=~equals("torch_compile_mode", "reduce-overhead"),
    message="{torch_compile_mode} records graphs, which {sample_packing} defeats",
    fix=Fix("use another mode"),
    evidence="axolotl 0.18 config.py:1641, for the option triton.cudagraphs; the mode switches the same on",
    bad=f"torch_compile: true\ntorch_compile_mode: reduce-overhead\n{PACKED}",
    good=f"torch_compile: true\ntorch_compile_mode: default\n{PACKED}",
    unchecked=True,
)

FP16_FULL = conditional(
    "AX125",
    "fp16-packed-full",
    Severity.WARNING,
    Settings,
    summary="A full fine-tune in fp16 with packing and no flash attention",
    why="Half precision without a scale for each block overflows early in such runs.",
    when=on("sample_packing") & (on("fp16") | on("float16")) & ~on("adapter"),
    then=on("bf16")
    | on("bfloat16")
    | one_of("attn_implementation", "flash_attention_2", "flash_attention_3", "kernels-community/flash-attn3"),
    message="{fp16} in a full fine-tune with packing is likely to fail",
    fix=Fix("use bf16, LoRA, or flash attention"),
    evidence="axolotl 0.18 validation.py:407",
    bad="sample_packing: true\nfp16: true\nbf16: false\nattn_implementation: sdpa\n",
    good=f"fp16: true\nbf16: false\n{PACKED}",
)

MULTIMODAL_PACKED = conditional(
    "AX126",
    "multimodal-packed",
    Severity.WARNING,
    Settings,
    summary="Packing for a multimodal model",
    why="Images belong to samples, and packing joins samples; axolotl documents it as unsupported and does not look.",
    when=on("processor_type"),
    then=~on("sample_packing"),
    message="{sample_packing} is not supported with {processor_type}",
    fix=Fix("set sample_packing: false", edits=(SetValue(("sample_packing",), "false"),)),
    evidence="axolotl's guide to multimodal training",
    bad=f"processor_type: AutoProcessor\ndataloader_num_workers: 2\n{PACKED}",
    good=f"processor_type: AutoProcessor\ndataloader_num_workers: 2\nsample_packing: false\n{FLASH}",
    unchecked=True,
)

RULES: tuple[Rule[Settings], ...] = (
    FLATTENING_BACKEND,
    FLATTENING_PACKED,
    FLATTENING_ONE_ROW,
    PACKED_UNPADDED,
    PACKED_EVAL_TABLE,
    CAUSAL_EVAL_PACKED,
    CUDAGRAPHS_PACKED,
    FP16_FULL,
    MULTIMODAL_PACKED,
)
