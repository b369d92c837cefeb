"""Rules of axolotl that count: values at the edge, worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers import findings

FLASH = "attn_implementation: flash_attention_2\n"
QLORA = "adapter: qlora\nload_in_4bit: true\nlora_target_modules: [q_proj]\n"
REENTRANT = "gradient_checkpointing: true\ngradient_checkpointing_kwargs: {use_reentrant: true}\n"
FSDP2 = "fsdp_version: 2\nfsdp_config: {reshard_after_forward: true}\n"


def grpo(size: int, micro: int = 1, steps: int = 1, generation: int | None = None) -> str:
    batch = f", generation_batch_size: {generation}" if generation else ""
    trl = f"trl: {{num_generations: {size}{batch}}}\n"
    return f"rl: grpo\n{trl}micro_batch_size: {micro}\ngradient_accumulation_steps: {steps}\n"


@pytest.mark.parametrize(
    ("fragment", "world_size", "says"),
    [
        (grpo(1, 4), 1, "a group of one"),
        (grpo(2, 2), 1, None),
        (grpo(2, 3), 1, "3 rows a rank and step"),
        (grpo(4, 2, 2), 1, None),  # 2 x 2 rows are one group
        (grpo(4, 2, 3), 1, "6 rows a rank and step"),
        (grpo(4, 8), 2, None),  # exactly one group for each of 2 ranks
        (grpo(4, 4), 2, "4 rows a rank and step (micro_batch_size x gradient_accumulation_steps) are fewer than 4 x 2"),
        (grpo(4, 4), 1, None),
        (grpo(4, 3, 1, 8), 1, None),  # the batch of generations counts, where it is written
        (grpo(4, 4, 1, 6), 1, "6 rows"),
        (grpo(4, 3).replace("grpo", "gdpo"), 1, None),
        ("rl: grpo\n", 8, None),
    ],
)
def test_grpo_groups(fragment: str, world_size: int, says: str | None) -> None:
    found = findings("AX811", fragment, world_size=world_size)
    assert [says in finding.message for finding in found if says] == ([True] if says else [])
    assert bool(found) == (says is not None)


@pytest.mark.parametrize(
    ("degree", "broken"), [(1, False), (63, False), (64, False), (65, True), (96, True), (128, True), (130, True)]
)
def test_slices_beyond_the_padding(degree: int, broken: bool) -> None:
    assert bool(findings("AX133", f"context_parallel_size: {degree}\n{FLASH}")) == broken


@pytest.mark.parametrize(
    ("rows", "broken"),
    [
        ("pad_to_sequence_len: true\nsequence_len: 12800\n", False),  # 100 tokens a rank
        ("sample_packing: true\nsequence_len: 12800\n", False),
        ("sequence_len: 12800\n", True),  # rows of any length
        ("pad_to_sequence_len: true\nsequence_len: 12864\n", True),  # a multiple of 64 only
    ],
)
def test_slices_of_full_rows(rows: str, broken: bool) -> None:
    assert bool(findings("AX133", f"context_parallel_size: 128\n{FLASH}{rows}")) == broken


@pytest.mark.parametrize(("stride", "broken"), [(0, False), (1, False), (2, False), (3, True), (8, False), (16, True)])
def test_key_stride(stride: int, broken: bool) -> None:
    model = {"num_attention_heads": 32, "num_key_value_heads": 8}
    text = f"heads_k_stride: {stride}\ncontext_parallel_size: 2\n{FLASH}"
    assert bool(findings("AX134", f"{text}sample_packing: true\n", model_config=model)) == broken
    assert bool(findings("AX134", f"{text}ring_attn_func: varlen_llama3\n", model_config=model)) == broken
    # batch_ring does not read it
    assert not findings("AX134", text, model_config=model)
    assert not findings("AX134", f"{text}sample_packing: true\nring_attn_func: batch_ring\n", model_config=model)


@pytest.mark.parametrize(
    ("fragment", "world_size", "broken"),
    [
        (f"rl: dpo\n{QLORA}{REENTRANT}", 2, True),
        (f"rl: dpo\n{QLORA}{REENTRANT}", 1, False),
        (f"rl: dpo\nadapter: lora\nload_in_8bit: true\n{REENTRANT}", 2, False),
        (f"{QLORA}{REENTRANT}", 2, False),
        (f"rl: dpo\n{QLORA}gradient_checkpointing_kwargs: {{use_reentrant: true}}\n", 2, False),
        (f"rl: dpo\nload_in_4bit: true\n{REENTRANT}", 2, False),
    ],
)
def test_reentrant_preferences(fragment: str, world_size: int, broken: bool) -> None:
    assert bool(findings("AX816", fragment, world_size=world_size)) == broken


@pytest.mark.parametrize(
    ("experts", "degree", "broken"), [(60, 4, False), (60, 8, True), (60, 1, False), (None, 2, True), (None, 1, False)]
)
def test_experts(experts: int | None, degree: int, broken: bool) -> None:
    model: dict[str, Any] = {"num_attention_heads": 32, **({"num_experts": experts} if experts else {})}
    assert bool(findings("AX155", f"expert_parallel_size: {degree}\n", model_config=model)) == broken


@pytest.mark.parametrize(
    ("save", "broken"),
    [
        ("[mm]", True),
        ("[attention]", False),
        ("[matmul, attention]", True),
        ("[aten]", True),
        ("[softmax]", False),
        ("[]", False),
    ],
)
def test_kept_products(save: str, broken: bool) -> None:
    text = f"gradient_checkpointing: true\nadapter: lora\nselective_checkpointing: {{save: {save}}}\n"
    assert bool(findings("AX645", text)) == broken
    assert findings("AX645", text.replace("adapter: lora\n", "")) == []


@pytest.mark.parametrize(
    ("workers", "degrees", "broken"),
    [
        (2, "tensor_parallel_size: 2\n", False),
        (4, "tensor_parallel_size: 2\n", True),
        (4, f"tensor_parallel_size: 2\ndp_shard_size: 2\n{FSDP2}", False),
        (4, "tensor_parallel_size: 1\n", False),
        (4, "tensor_parallel_size:\ndp_shard_size: 0\n", False),
        (4, "", False),
    ],
)
def test_ray_workers(workers: int, degrees: str, broken: bool) -> None:
    assert bool(findings("AX206", f"use_ray: true\nray_num_workers: {workers}\n{degrees}")) == broken
    assert findings("AX206", f"ray_num_workers: {workers}\n{degrees}") == []


@pytest.mark.parametrize(
    ("fragment", "broken"),
    [
        ("batch_size: 4\nmicro_batch_size: 4\ngradient_accumulation_steps: 1\n", False),
        ("seed: 1\n", False),
    ],
)
def test_batch_size_that_counts(fragment: str, broken: bool) -> None:
    assert bool(findings("AX203", fragment)) == broken


@pytest.mark.parametrize(("family", "layer_norm"), [("llama", True), ("qwen2_vl", False), (None, False)])
def test_layer_norm_by_family(family: str | None, layer_norm: bool) -> None:
    model = {"num_attention_heads": 32, **({"model_type": family} if family else {})}
    assert bool(findings("AX753", "liger_layer_norm: true\n", model_config=model)) == layer_norm


@pytest.mark.parametrize(("family", "broken"), [("glm4", True), ("llama", False), (None, False)])
def test_rotary_kernel_by_family(family: str | None, broken: bool) -> None:
    model = {"num_attention_heads": 32, **({"model_type": family} if family else {})}
    assert bool(findings("AX751", "liger_rope: true\n", model_config=model)) == broken


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("fsdp_config: {fsdp_version: 2, offload_params: false}\n", "does not look for it"),
        ("fsdp_version: 1\nfsdp_config: {offload_params: false}\n", "runs as version 1"),
    ],
)
def test_why_the_kernels_are_refused(version: str, why: str) -> None:
    (finding,) = findings("AX713", f"adapter: lora\nlora_mlp_kernel: true\n{version}")
    assert why in finding.message


@pytest.mark.parametrize(
    ("code", "fragment", "facts", "broken"),
    [
        # the dispatcher and a mesh of two data ranks, or of ranks that no degree names
        (
            "ND512",
            f"tensor_parallel_size: 2\ndp_shard_size: 2\n{FSDP2}accelerator_config: {{dispatch_batches: true}}\n",
            {},
            True,
        ),
        ("ND512", "tensor_parallel_size: 2\naccelerator_config: {dispatch_batches: true}\n", {"world_size": 4}, True),
        ("ND512", "tensor_parallel_size: 2\naccelerator_config: {dispatch_batches: true}\n", {"world_size": 2}, False),
        ("ND202", f"dp_shard_size: 1\n{FSDP2}", {"world_size": 2}, True),
        ("ND202", f"dp_shard_size: 1\n{FSDP2}", {"world_size": 1}, False),
        # axolotl lets cp and ep stand beside FSDP1
        (
            "ND204",
            f"context_parallel_size: 2\nexpert_parallel_size: 2\n{FLASH}fsdp_version: 1\nfsdp_config: {{offload_params: false}}\n",
            {},
            False,
        ),
        ("ND401", f"context_parallel_size: 2\nsequence_len: 1\n{FLASH}", {}, True),
        ("ND402", "tensor_parallel_size: 2\nsequence_len: 1\n", {}, True),
        ("ND301", "tensor_parallel_size: 2\n", {"model_config": {"num_attention_heads": 3}}, True),
        (
            "ND302",
            "tensor_parallel_size: 2\n",
            {"model_config": {"num_attention_heads": 6, "num_key_value_heads": 3}},
            True,
        ),
        (
            "ND303",
            "tensor_parallel_size: 2\n",
            {"model_config": {"num_attention_heads": 2, "intermediate_size": 5}},
            True,
        ),
        ("ND304", "tensor_parallel_size: 2\n", {"model_config": {"num_attention_heads": 2, "vocab_size": 5}}, True),
    ],
)
def test_smallest_degrees(code: str, fragment: str, facts: dict[str, Any], broken: bool) -> None:
    assert bool(findings(code, fragment, **facts)) == broken


def test_a_product_shows_the_other_factors() -> None:
    text = f"dp_shard_size: 2\ntensor_parallel_size: 2\ncontext_parallel_size: 4\n{FLASH}{FSDP2}"
    (finding,) = findings("ND101", text, world_size=8)
    assert {finding.key, *(region.label.split()[0] for region in finding.related)} == {
        "dp_shard_size",
        "tensor_parallel_size",
        "context_parallel_size",
    }


@pytest.mark.parametrize(
    ("size", "micro", "world_size", "broken"),
    [
        (2, 1, 4, False),  # cp 2 on 4 ranks: 2 generate together
        (4, 1, 4, True),
        (4, 2, 4, False),
        (1, 1, 4, True),
        (3, 3, 2, False),  # 3 rows on the one rank that generates
        (2, 3, 2, True),
    ],
)
def test_groups_over_context_parallel(size: int, micro: int, world_size: int, broken: bool) -> None:
    text = f"{grpo(size, micro)}context_parallel_size: 2\n{FLASH}"
    assert bool(findings("AX818", text, world_size=world_size)) == broken
    assert (
        findings("AX818", text.replace("context_parallel_size: 2", "context_parallel_size: 1"), world_size=world_size)
        == []
    )
    assert findings("AX818", text.replace("rl: grpo", "rl: dpo"), world_size=world_size) == []
