"""axolotl's rules about attention backends and context-parallel kernels."""

from __future__ import annotations

from collections.abc import Iterator

from ndcheck.findings import Fix, RemoveKey, Safety, Severity, Violation, notes, place
from ndcheck.rules.conditions import above, equals, is_set, matches, on, one_of
from ndcheck.rules.rule import Rule, conditional, rule
from ndcheck.run import Run
from ndcheck.settings import Settings

FLASH = "attn_implementation: flash_attention_2\n"
CP = f"context_parallel_size: 2\n{FLASH}"

VARLEN = equals("ring_attn_func", "varlen_llama3") | (~is_set("ring_attn_func") & on("sample_packing"))
"""The ring kernel in force is varlen_llama3: written, or chosen by axolotl for packed rows."""

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

KEY_STRIDE_UNREAD = conditional(
    "AX135",
    "key-stride-unread",
    Severity.WARNING,
    Settings,
    summary="heads_k_stride without the ring kernel that reads it",
    why="Only varlen_llama3 takes key heads in strides. axolotl chooses it for packed rows under context parallelism, "
    "and batch_ring for others.",
    when=is_set("heads_k_stride"),
    then=above("context_parallel_size", 1) & VARLEN,
    message="{heads_k_stride} has no effect: only varlen_llama3 reads it, under context parallelism",
    fix=Fix("remove it", Safety.SAFE, (RemoveKey(("heads_k_stride",)),)),
    evidence="axolotl 0.18 ring_attn/patch.py:200",
    bad=f"heads_k_stride: 2\nsample_packing: false\n{CP}",
    good=f"heads_k_stride: 2\nsample_packing: true\n{CP}",
    given={"world_size": 2},
    unchecked=True,
)

FLATTENING_LIGER_LOSS = conditional(
    "AX127",
    "flattening-beside-liger-loss",
    Severity.WARNING,
    Settings,
    summary="batch_flattening with Liger's GRPO loss",
    why="Liger's loss takes rows as they are, so that only scoring works on joined rows.",
    when=equals("batch_flattening", True),
    then=~on("trl.use_liger_loss"),
    message="{batch_flattening} reaches scoring only, for {trl.use_liger_loss}",
    fix=Fix("switch one of them off"),
    evidence="axolotl 0.18 validation.py:966",
    bad=f"batch_flattening: true\nmicro_batch_size: 2\ntrl: {{use_liger_loss: true}}\n{FLASH}",
    good=f"batch_flattening: true\nmicro_batch_size: 2\ntrl: {{use_liger_loss: false}}\n{FLASH}",
)

ATTENTION_UNKNOWN = conditional(
    "AX111",
    "attention-unknown",
    Severity.ERROR,
    Settings,
    summary="There is no such attention backend",
    why="axolotl takes the canonical names, or a kernel of the hub with a slash in its name; short forms are refused.",
    when=is_set("attn_implementation"),
    then=one_of(
        "attn_implementation",
        "eager",
        "sdpa",
        "flash_attention_2",
        "flash_attention_3",
        "flex_attention",
        "xformers",
        "sage",
        "fp8",
    )
    | matches("attn_implementation", "/"),
    message="{attn_implementation}: axolotl knows eager, sdpa, flash_attention_2, flash_attention_3, flex_attention, xformers, sage, fp8",
    fix=Fix("use the canonical name, such as flash_attention_2"),
    evidence="axolotl 0.18 config.py:1590",
    bad="attn_implementation: flash\n",
    good="attn_implementation: sdpa\n",
)

SCALING_SOFTMAX = conditional(
    "AX112",
    "scaling-softmax-backend",
    Severity.ERROR,
    Settings,
    summary="scaling_softmax without flex attention",
    why="Only that backend lets the scores be changed.",
    when=on("scaling_softmax"),
    then=equals("attn_implementation", "flex_attention"),
    message="{scaling_softmax} needs flex_attention, not {attn_implementation}",
    fix=Fix("set attn_implementation: flex_attention"),
    evidence="axolotl 0.18 validation.py:205",
    bad="scaling_softmax: true\nattn_implementation: sdpa\n",
    good="scaling_softmax: true\nattn_implementation: flex_attention\n",
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
    KEY_STRIDE_UNREAD,
    FLATTENING_LIGER_LOSS,
    ATTENTION_UNKNOWN,
    SCALING_SOFTMAX,
    PACKED_DOCUMENTS_MIX,
    HYBRID_ATTENTION,
    SAGE_UNPADDED,
    SAGE_FULL,
    SDPA_VARLEN_UNPACKED,
    RING_BATCH_PACKED,
    RING_VARLEN_ROWS,
    cp_above_padding,
    key_stride_divides_heads,
)
