"""FSDP and DeepSpeed against the mesh."""

from __future__ import annotations

from typing import Any

import pytest

from ndcheck.checker import check
from ndcheck.facts import gather
from ndcheck.rules.sharding import layers
from tests.helpers import FSDP1, FSDP2, LIGER, Seen, codes, findings, seen


@pytest.mark.parametrize(
    ("fragment", "expected"),
    [
        ("dp_shard_size: 8\n", True),
        ('dp_shard_size: "8"\n', True),
        ("dp_shard_size: 8\nfsdp_config: null\n", True),
        ("dp_shard_size: 8\nfsdp_config: {}\nfsdp: []\n", True),
        ("dp_shard_size: 8\nfsdp_version: 2\n", True),  # a version alone switches nothing on
        ("dp_shard_size: 8\ndeepspeed: zero3.json\n", True),
        (f"dp_shard_size: 8\n{FSDP2}", False),
        (f"dp_shard_size: 8\n{FSDP1}", False),
        ("dp_shard_size: 8\nfsdp: [full_shard]\n", False),
        ("dp_shard_size: 8\nfsdp_config: {ofload_params: true}\n", False),  # a misspelt entry switches it on too
        ("dp_shard_size: 1\n", False),
        ("dp_shard_size: null\n", False),
        ("dp_shard_size: 0\n", False),
        ("dp_shard_size: eight\n", False),
        ("dp_shard_size: 8\nfsdp_config: [1]\n", False),  # of the wrong type: nobody knows
        ("tensor_parallel_size: 8\n", False),
    ],
)
def test_fsdp_required(fragment: str, expected: bool) -> None:
    assert seen("ND201", fragment) == ([Seen("error", 1, "dp_shard_size")] if expected else [])


def test_fsdp_required_says_what_is_off() -> None:
    (finding,) = findings("ND201", "dp_shard_size: 8\nfsdp_config: {}\n")
    assert [(region.line, region.label) for region in finding.related] == [(2, "FSDP is off")]
    (finding,) = findings("ND201", "dp_shard_size: 8\ndeepspeed: zero3.json\n")
    assert "DeepSpeed shards by its own ZeRO stage" in finding.message


@pytest.mark.parametrize(
    ("fragment", "facts", "expected"),
    [
        (f"dp_shard_size: 1\n{FSDP2}", {"world_size": 8}, True),
        (f"dp_shard_size: 1\n{FSDP1}", {"world_size": 8}, True),
        (f"dp_shard_size: 1\ntensor_parallel_size: 8\n{FSDP2}", {"world_size": 8}, True),
        (f"dp_shard_size: 1\ntensor_parallel_size: 8\n{FSDP2}", {}, True),
        (f"dp_shard_size: 1\n{FSDP2}", {"world_size": 1}, False),
        (f"dp_shard_size: 1\n{FSDP2}", {}, False),
        (f"dp_shard_size: 1\ncontext_parallel_size: 8\n{FSDP2}", {"world_size": 8}, False),
        (f"dp_shard_size: 8\n{FSDP2}", {"world_size": 8}, False),
        (f"dp_shard_size: null\n{FSDP2}", {"world_size": 8}, False),
        (FSDP2, {"world_size": 8}, False),
        ("dp_shard_size: 1\n", {"world_size": 8}, False),
        ("dp_shard_size: 1\nfsdp_config: {}\n", {"world_size": 8}, False),
    ],
)
def test_fsdp_shard_of_one(fragment: str, facts: dict[str, Any], expected: bool) -> None:
    assert seen("ND202", fragment, **facts) == ([Seen("warning", 1, "dp_shard_size")] if expected else [])


@pytest.mark.parametrize(
    ("fragment", "expected"),
    [
        (f"deepspeed: zero2.json\n{FSDP2}", True),
        (f"deepspeed: zero2.json\n{FSDP1}", True),
        (f"deepspeed: {{zero_optimization: {{stage: 2}}}}\n{FSDP2}", True),
        ("deepspeed: zero2.json\nfsdp: [full_shard]\n", True),
        ("deepspeed: zero2.json\n", False),
        ("deepspeed: zero2.json\nfsdp_config: {}\n", False),
        (f"deepspeed: null\n{FSDP2}", False),
        (f"deepspeed: ''\n{FSDP2}", False),
        (f"deepspeed: {{}}\n{FSDP2}", False),
        (f"deepspeed: [zero2.json]\n{FSDP2}", False),
        (FSDP2, False),
        ("", False),
    ],
)
def test_fsdp_and_deepspeed(fragment: str, expected: bool) -> None:
    assert seen("ND203", fragment) == ([Seen("error", 1, "deepspeed")] if expected else [])


def test_fsdp_and_deepspeed_shows_both_places() -> None:
    (finding,) = findings("ND203", f"deepspeed: zero2.json\n{FSDP2}")
    assert [region.line for region in finding.related] == [3]


NO_VERSION = "fsdp_config: {offload_params: false}\n"


@pytest.mark.parametrize(
    ("fragment", "line"),
    [
        (f"dp_shard_size: 4\ntensor_parallel_size: 2\n{FSDP1}", 3),
        (f"dp_shard_size: 8\n{FSDP1}", 2),
        (f"dp_shard_size: 8\n{NO_VERSION}", 1),  # axolotl takes version 1 when none is written
        (f"dp_replicate_size: 8\n{FSDP1}", 2),
        (f"tensor_parallel_size: 8\n{FSDP1}", 2),
        ("dp_shard_size: 8\nfsdp_config: {fsdp_version: 1}\n", 2),
        (f"dp_shard_size: 8\n{FSDP2}", None),
        ("dp_shard_size: 8\nfsdp_config: {fsdp_version: 2}\n", None),
        ('dp_shard_size: 8\nfsdp_version: "2"\nfsdp_config: {offload_params: false}\n', None),
        (f"context_parallel_size: 8\n{FSDP1}", None),  # axolotl lets cp stand alone beside FSDP1
        (f"context_parallel_size: 8\ndp_shard_size: 1\n{FSDP1}", None),
        (f"context_parallel_size: 2\ndp_shard_size: 4\n{FSDP1}", 3),
        (FSDP1, None),
        (f"dp_shard_size: 1\n{FSDP1}", None),
        ("dp_shard_size: 8\nfsdp_version: 1\n", None),  # FSDP is off: ND201's
        ("dp_shard_size: 8\nfsdp_version: one\nfsdp_config: {offload_params: false}\n", None),
    ],
)
def test_mesh_needs_fsdp2(fragment: str, line: int | None) -> None:
    found = seen("ND204", fragment)
    assert [(item.severity, item.line) for item in found] == ([] if line is None else [("error", line)])


def test_nothing_of_the_kind_without_a_mesh() -> None:
    assert codes(LIGER, world_size=8).isdisjoint({"ND201", "ND202", "ND203", "ND204"})


ACCELERATE = (
    "distributed_type: FSDP\nnum_processes: 2\nfsdp_config: {fsdp_version: 2, fsdp_transformer_layer_cls_to_wrap: "
)


@pytest.mark.parametrize(
    ("wrapped", "model", "message"),
    [
        ("GPT2Block", {"model_type": "bert"}, "GPT2Block is no layer of bert (model_type in the model config): BertEmbeddings or BertLayer is"),
        ("LlamaDecoderLayer", {"model_type": "qwen3"}, "LlamaDecoderLayer is no layer of qwen3 (model_type in the model config): Qwen3DecoderLayer is"),
        ("Qwen3DecoderLayer", {"model_type": "qwen3"}, None),
        ("'LlamaDecoderLayer, Qwen3DecoderLayer'", {"model_type": "qwen3"}, None),  # one of them is there
        ("MyBlock", {"model_type": "qwen3"}, None),  # the model's own code may have it
        ("GPT2Block", {"model_type": "of-nobody"}, None),
        ("SiglipEncoderLayer", {"text_config": {"model_type": "llama", "num_attention_heads": 4}}, None),
        ("null", {"model_type": "qwen3"}, None),
    ],
)  # fmt: skip
def test_wrapped_classes(wrapped: str, model: dict[str, Any], message: str | None) -> None:
    found = check(f"{ACCELERATE}{wrapped}}}\n", "a.yaml", gather(model_config=model)).findings
    assert [one.message for one in found if one.code == "ND207"] == ([message] if message else [])


def test_layers_are_those_that_transformers_names() -> None:
    import transformers

    for family, module in (("llama", "Llama"), ("qwen3_moe", "Qwen3Moe"), ("gpt2", "GPT2"), ("gpt_oss", "GptOss")):
        known = getattr(transformers, f"{module}PreTrainedModel")._no_split_modules
        assert known
        assert set(known) <= layers()[family]
