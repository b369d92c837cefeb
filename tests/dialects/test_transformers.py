"""Arguments of transformers' and TRL's trainers: what is refused, what is dropped, and files that transformers writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import TrainingArguments

from ndcheck.checker import check
from ndcheck.facts import gather
from tests.helpers import diagnose

CASES = Path(__file__).parents[1] / "data/cases"
ARGUMENTS = "output_dir: out\nper_device_train_batch_size: 2\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ARGUMENTS, set()),
        (f"{ARGUMENTS}per_device_train_bach_size: 2\n", {("unknown-argument", 3)}),
        (f"{ARGUMENTS}my_own: 2\n", set()),  # the script's, perhaps
        (f"{ARGUMENTS}gradient_accumulation_steps: two\n", {("wrong-type", 3)}),
        (f"{ARGUMENTS}learning_rate: 2e-5\n", set()),  # text in YAML 1.1, which is converted
        (f"{ARGUMENTS}dispatch_batches: false\n", {("unknown-key", 3)}),
        (f"{ARGUMENTS}accelerator_config: {{spilt_batches: true}}\n", {("accelerator-argument-unknown", 3)}),
        (f"{ARGUMENTS}fsdp: true\ndeepspeed: zero.json\n", {("fsdp-and-deepspeed", 4)}),
        (f"{ARGUMENTS}fsdp: hybrid_shard\n", {("fsdp-words", 3)}),
        (f"{ARGUMENTS}fsdp: true\nfsdp_config: {{fsdp_version: 2, fsdp_use_orig_params: true}}\n", {("fsdp1-argument-under-fsdp2", 4)}),
        (f"{ARGUMENTS}fsdp: true\nfsdp_config: {{version: 1, use_orig_params: true}}\n", set()),
        (f"{ARGUMENTS}use_cpu: true\nfsdp: true\n", {("sharding-on-cpu", 3)}),
        (f"{ARGUMENTS}average_tokens_across_devices: false\n", {("tokens-not-averaged", 3)}),
        (f"{ARGUMENTS}optim: paged_adamw_8bit\nfsdp: true\n", {("optimizer-8bit-sharded", 3)}),
        (f"{ARGUMENTS}accelerator_config: {{split_batches: true}}\n", {("split-batches-divide", 2)}),
        # TRL
        (f"{ARGUMENTS}packing: true\nattn_implementation: flash_attention_2\nmax_length: null\n", {("packing-without-length", 5)}),
        (f"{ARGUMENTS}padding_free: true\nattn_implementation: flash_attention_2\n", {("padding-free-length", 3)}),
        (f"{ARGUMENTS}num_generations: 6\n", {("generation-groups", 3)}),  # 2 x 4 ranks
        (f"{ARGUMENTS}num_generations: 4\n", set()),
        (f"{ARGUMENTS}num_generations: 4\ngeneration_batch_size: 12\n", {("generation-groups", 4)}),
    ],
)  # fmt: skip
def test_findings(text: str, expected: set[tuple[str, int]]) -> None:
    assert diagnose(text, world_size=4) == expected


MESH = "parallelism_config:\n  {axis}_size: 2\nfsdp: true\nmodel_name_or_path: m\n"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("attn_implementation: eager\n", "cp-attention"),
        ("model_init_kwargs: {attn_implementation: flash_attention_2}\n", "cp-attention"),
        ("packing: true\n", "cp-packed-rows"),
        ("padding_free: true\nmax_length: null\n", "cp-packed-rows"),
        ("padding_side: left\n", "cp-left-padding"),
        ("dataset_streaming: true\nmax_steps: 5\n", "dispatch-splits-mesh"),
        ("accelerator_config: {dispatch_batches: true}\n", "dispatch-splits-mesh"),
        ("num_generations: 2\nper_device_train_batch_size: 2\n", "groups-with-cp"),
        ("max_length: 1023\n", "sequence-length-cp"),
    ],
)
def test_what_context_parallelism_does_not_bear(line: str, expected: str) -> None:
    mesh = MESH.format(axis="cp")
    assert expected in {name for name, _ in diagnose(mesh + line, world_size=2)}
    assert expected not in {name for name, _ in diagnose(MESH.format(axis="dp_shard") + line, world_size=2)}


def test_trl_switches_dispatching_off_for_streams_of_sft() -> None:
    text = MESH.format(axis="cp") + "dataset_streaming: true\nmax_steps: 5\ncompletion_only_loss: true\n"
    assert "dispatch-splits-mesh" not in {name for name, _ in diagnose(text, world_size=2)}


@pytest.mark.parametrize(
    ("shape", "bears"),
    [
        ({"sliding_window": 512}, False),
        ({"sliding_window": None}, True),
        ({"sliding_window": 512, "use_sliding_window": False}, True),
        ({"sliding_window": 512, "layer_types": ["full_attention"]}, True),
        ({"layer_types": ["full_attention", "sliding_attention"]}, False),
    ],
)
def test_windows_under_context_parallelism(shape: dict[str, Any], bears: bool) -> None:
    found = diagnose(MESH.format(axis="cp"), world_size=2, model_config={"model_type": "x", **shape})
    assert ("cp-sliding-window" not in {name for name, _ in found}) == bears


@pytest.mark.parametrize(
    ("name", "facts", "expected"),
    [
        ("R35", {}, ("fsdp-words", "warning")),
        ("R41", {"world_size": 2}, ("batch-factor-positive", "error")),
        ("R43", {"world_size": 3}, ("split-batches-divide", "error")),
        ("R45", {"world_size": 4}, ("unknown-key", "error")),
        ("R54", {"world_size": 2}, ("cp-packed-rows", "error")),
        ("R55", {"world_size": 2, "model_config": {"sliding_window": 512}}, ("cp-sliding-window", "error")),
        ("R71", {"world_size": 2}, ("tokens-not-averaged", "warning")),
    ],
)
def test_case(name: str, facts: dict[str, Any], expected: tuple[str, str]) -> None:
    found = check((CASES / f"{name}.yaml").read_text(), name, gather(**facts), "transformers").findings
    assert expected in {(one.name, one.severity.value) for one in found}


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"bf16": False, "gradient_accumulation_steps": 4, "max_steps": 10, "learning_rate": 2e-5},
        {"accelerator_config": {"split_batches": False, "dispatch_batches": False}},
        {"fsdp": True, "fsdp_config": {"version": 2, "reshard_after_forward": True}},
        {"activation_checkpointing": True, "optim": "adamw_torch"},
    ],
)
def test_what_transformers_writes_passes(arguments: dict[str, Any], tmp_path: Path) -> None:
    text = TrainingArguments(output_dir=str(tmp_path), use_cpu="fsdp" not in arguments, **arguments).to_json_string()
    assert diagnose(text, world_size=8) == set()
