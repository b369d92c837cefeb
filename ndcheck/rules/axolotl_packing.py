"""axolotl's rules about attention backends, packing and context-parallel kernels."""

from __future__ import annotations

from collections.abc import Iterator

from ndcheck.findings import Fix, RemoveKey, Safety, SetValue, Severity, Violation, notes, place
from ndcheck.rules.conditions import above, equals, is_set, on, one_of
from ndcheck.rules.rule import Rule, conditional, rule
from ndcheck.run import Run
from ndcheck.settings import Settings

FLASH = "attn_implementation: flash_attention_2\n"
CP = f"context_parallel_size: 2\n{FLASH}"
PACKED = f"sample_packing: true\n{FLASH}"
ISOLATING = (
    "flash_attention_2",
    "flash_attention_3",
    "flex_attention",
    "xformers",
    "sage",
    "kernels-community/flash-attn2",
    "kernels-community/flash-attn3",
    "kernels-community/sage-attention",
    "sdpa",
    "eager",
)

PACKED_DOCUMENTS_MIX = conditional(
    "AX113",
    "packed-documents-mix",
    Severity.WARNING,
    Settings,
    summary="Packing with a backend that does not keep documents apart",
    why="Documents in one packed row must not attend to each other; axolotl knows how to arrange that for some backends only.",
    when=on("sample_packing") & is_set("attn_implementation"),
    then=one_of("attn_implementation", *ISOLATING),
    message="{sample_packing} with {attn_implementation}: documents in a row may see each other",
    fix=Fix("use flash_attention_2 or another backend that packs"),
    evidence="axolotl 0.18 validation.py:186",
    bad="sample_packing: true\nattn_implementation: fp8\n",
    good="sample_packing: true\nattn_implementation: sdpa\n",
)

HYBRID_ATTENTION = conditional(
    "AX114",
    "gemma4-hybrid-backend",
    Severity.ERROR,
    Settings,
    summary="gemma4_hybrid_attn_impl with another backend than flash_attention_2",
    why="The hybrid mixes flash attention with a second kernel for wide heads.",
    when=on("gemma4_hybrid_attn_impl") & on("attn_implementation", raw=True),
    then=equals("attn_implementation", "flash_attention_2", raw=True),
    message="{gemma4_hybrid_attn_impl} needs flash_attention_2, not {attn_implementation}",
    fix=Fix("set attn_implementation: flash_attention_2"),
    evidence="axolotl 0.18 config.py:1535",
    bad="gemma4_hybrid_attn_impl: true\nattn_implementation: sdpa\n",
    good=f"gemma4_hybrid_attn_impl: true\n{FLASH}",
)

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

SAGE_UNPADDED = conditional(
    "AX121",
    "sage-unpadded",
    Severity.WARNING,
    Settings,
    summary="Sage attention on rows of uneven length",
    why="Losses that explode were seen without packing or full padding.",
    when=equals("attn_implementation", "sage"),
    then=on("sample_packing") | on("pad_to_sequence_len"),
    message="{attn_implementation} needs sample_packing or pad_to_sequence_len",
    fix=Fix("set pad_to_sequence_len: true"),
    evidence="axolotl 0.18 config.py:1698",
    bad="attn_implementation: sage\nadapter: lora\nlora_target_linear: true\n",
    good="attn_implementation: sage\nadapter: lora\nlora_target_linear: true\npad_to_sequence_len: true\n",
)

SAGE_FULL = conditional(
    "AX122",
    "sage-without-adapter",
    Severity.WARNING,
    Settings,
    summary="Sage attention in a full fine-tune",
    why="Losses that drop to zero were seen; it is tried with adapters only.",
    when=equals("attn_implementation", "sage"),
    then=on("adapter"),
    message="{attn_implementation} is tried with adapters only",
    fix=Fix("use another backend, or an adapter"),
    evidence="axolotl 0.18 config.py:1698",
    bad="attn_implementation: sage\npad_to_sequence_len: true\n",
    good="attn_implementation: sage\npad_to_sequence_len: true\nadapter: lora\nlora_target_linear: true\n",
)

SDPA_VARLEN_UNPACKED = conditional(
    "AX123",
    "sdpa-varlen-unpacked",
    Severity.WARNING,
    Settings,
    summary="sdpa_varlen without packing",
    why="It changes how packed documents are kept apart, and nothing else.",
    when=on("sdpa_varlen"),
    then=on("sample_packing"),
    message="{sdpa_varlen} has no effect without sample_packing",
    fix=Fix("remove it", Safety.SAFE, (RemoveKey(("sdpa_varlen",)),)),
    evidence="axolotl 0.18 config.py:1682",
    bad="sdpa_varlen: true\nattn_implementation: sdpa\n",
    good="sdpa_varlen: true\nattn_implementation: sdpa\nsample_packing: true\n",
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

RING_BATCH_PACKED = conditional(
    "AX131",
    "ring-kernel-mixes-documents",
    Severity.ERROR,
    Settings,
    summary="batch_ring with packing",
    why="The kernel for whole batches knows no borders between documents, so they leak into each other. Left unset, axolotl chooses the other.",
    when=above("context_parallel_size", 1) & on("sample_packing"),
    then=~equals("ring_attn_func", "batch_ring"),
    message="{ring_attn_func} lets packed documents see each other",
    fix=Fix("remove ring_attn_func", edits=(RemoveKey(("ring_attn_func",)),)),
    evidence="axolotl 0.18, run: accepted (defect of its checks); ring_attn/patch.py:148",
    bad=f"ring_attn_func: batch_ring\nsample_packing: true\n{CP}",
    good=f"ring_attn_func: varlen_llama3\nsample_packing: true\n{CP}",
    given={"world_size": 2},
    unchecked=True,
)

RING_VARLEN_ROWS = conditional(
    "AX132",
    "ring-kernel-takes-one-row",
    Severity.ERROR,
    Settings,
    summary="varlen_llama3 with a micro batch above 1",
    why="The kernel asserts a batch of one row in its forward pass.",
    when=above("context_parallel_size", 1) & equals("ring_attn_func", "varlen_llama3") & ~on("sample_packing"),
    then=~above("micro_batch_size", 1),
    message="{ring_attn_func} takes one row at a time, not {micro_batch_size}",
    fix=Fix("set micro_batch_size: 1, or remove ring_attn_func"),
    evidence="axolotl 0.18 ring_attn/patch.py:99; accepted by its checks (run)",
    bad=f"ring_attn_func: varlen_llama3\nmicro_batch_size: 2\n{CP}",
    good=f"ring_attn_func: varlen_llama3\nmicro_batch_size: 1\n{CP}",
    given={"world_size": 2},
    unchecked=True,
)


@rule(
    "AX133",
    Severity.ERROR,
    Run,
    evidence="axolotl 0.18 ctx_managers/sequence_parallel.py:96: rows are padded to a multiple of at most 64",
    bad=f"context_parallel_size: 96\nsequence_len: 9600\n{FLASH}",
    good=f"context_parallel_size: 64\nsequence_len: 6400\n{FLASH}",
    unchecked=True,
)
def cp_above_padding(run: Run) -> Iterator[Violation]:
    """cp above 64 cuts rows unevenly.

    axolotl pads each row to a multiple of cp, but of 64 at most; beyond that slices differ in length, unless all rows are
    padded to sequence_len and cp divides it.
    """
    length = run.sequence.length
    full = run.loader.pads_to_length.value and length is not None and not length.value % run.degree("cp")
    if run.degree("cp") > 64 and not full:
        cp = run.degrees["cp"]
        yield Violation(place(cp), f"{cp}: rows are padded to a multiple of 64 only", fix=Fix("use 64 or fewer"))


@rule(
    "AX134",
    Severity.ERROR,
    Run,
    evidence="axolotl 0.18 config.py:1113, ring_attn/patch.py:200: documented, not checked",
    bad=f"heads_k_stride: 3\n{PACKED}context_parallel_size: 2\n",
    good=f"heads_k_stride: 4\n{PACKED}context_parallel_size: 2\n",
    given={"world_size": 2, "model_config": {"num_attention_heads": 32, "num_key_value_heads": 8}},
    unchecked=True,
)
def key_stride_divides_heads(run: Run) -> Iterator[Violation]:
    """heads_k_stride does not divide the number of key/value heads.

    The ring kernel takes that many key heads at a time, and expects them to come out even.
    """
    stride = run.kernels.key_stride
    if run.degree("cp") == 1 or stride is None or stride.value < 1:
        return
    heads = run.model().kv_heads
    if heads is not None and heads.value % stride.value:
        message = f"{stride} does not divide {heads.value} key/value heads ({heads.origin.text})"
        yield Violation(place(stride), message, notes(run.degrees["cp"]), Fix("use a divisor, or leave it out"))


RULES: tuple[Rule[Settings] | Rule[Run], ...] = (
    PACKED_DOCUMENTS_MIX,
    HYBRID_ATTENTION,
    FLATTENING_BACKEND,
    FLATTENING_PACKED,
    FLATTENING_ONE_ROW,
    PACKED_UNPADDED,
    PACKED_EVAL_TABLE,
    CAUSAL_EVAL_PACKED,
    SAGE_UNPADDED,
    SAGE_FULL,
    SDPA_VARLEN_UNPACKED,
    CUDAGRAPHS_PACKED,
    FP16_FULL,
    MULTIMODAL_PACKED,
    RING_BATCH_PACKED,
    RING_VARLEN_ROWS,
    cp_above_padding,
    key_stride_divides_heads,
)
