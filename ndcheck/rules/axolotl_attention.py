"""axolotl's rules about options of attention that nothing reads, or that do half of what they say."""

from __future__ import annotations

from ndcheck.findings import Fix, RemoveKey, Safety, Severity
from ndcheck.rules.conditions import above, equals, is_set, on
from ndcheck.rules.rule import Rule, conditional
from ndcheck.settings import Settings

FLASH = "attn_implementation: flash_attention_2\n"
CP = f"context_parallel_size: 2\n{FLASH}"

VARLEN = equals("ring_attn_func", "varlen_llama3") | (~is_set("ring_attn_func") & on("sample_packing"))
"""The ring kernel in force is varlen_llama3: written, or chosen by axolotl for packed rows."""

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

RULES: tuple[Rule[Settings], ...] = (KEY_STRIDE_UNREAD, FLATTENING_LIGER_LOSS)
