"""Configs from public reports about accelerate, transformers and TRL: each has the severity that its report asks for, or a reason why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ndcheck.checker import check
from ndcheck.facts import gather

CASES = Path(__file__).parent / "data/cases"
BERT = {"model_type": "bert", "architectures": ["BertForSequenceClassification"]}
KV4 = {"num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128}
PARTS = {"base-model-required", "datasets-required", "learning-rate-required", "batch-fields-missing"}
"""Said because the reports quote a few keys of a config only."""


@pytest.mark.parametrize(
    ("name", "facts", "expected"),
    [
        ("R01", {"world_size": 2}, ("error", "fsdp-shard-of-one")),
        ("R03", {"world_size": 8}, ("error", "world-size-product")),
        ("R14", {"world_size": 8, "model_config": KV4}, ("error", "tp-kv-heads")),
        ("R27", {"world_size": 2, "model_config": BERT}, ("error", "wrapped-class-of-other-model")),
        ("R29", {"world_size": 8}, ("warning", "fsdp1-key-under-fsdp2")),
        ("R33", {"world_size": 8}, ("warning", "ram-efficient-and-offload")),
        ("R35", {"world_size": 4}, ("warning", "fsdp-words")),
        ("R39", {"world_size": 4}, ("warning", "dispatch-unequal-rows")),
        ("R41", {"world_size": 2}, ("error", "batch-factor-positive")),
        ("R43", {"world_size": 3}, ("error", "split-batches-divide")),
        ("R54", {"world_size": 2}, ("error", "cp-packed-rows")),
        ("R61", {"world_size": 2}, ("error", "cp-needs-fsdp2")),
        ("R71", {"world_size": 2}, ("warning", "tokens-not-averaged")),
        ("R79", {"world_size": 4}, ("error", "grpo-groups-do-not-fit")),
        ("R91", {"world_size": 2}, ("error", "checkpointing-twice")),
        ("R99", {"world_size": 16}, ("warning", "sharded-final-weights")),
        ("R111", {"world_size": 2}, ("warning", "mixed-precision-unread")),
    ],
)
def test_told_by_its_keys_and_found(name: str, facts: dict[str, Any], expected: tuple[str, str]) -> None:
    report = check((CASES / f"{name}.yaml").read_text(), f"{name}.yaml", gather(**facts))
    found = {(one.severity.value, one.name) for one in report.findings if one.name not in PARTS}
    assert expected in found
    worst = "error" if any(severity == "error" for severity, _ in found) else "warning"
    assert worst == expected[0], "nothing worse than the report says"


@pytest.mark.parametrize("dialect", ["accelerate", "transformers"])
def test_a_window_under_context_parallelism_in_the_report_s_framework(dialect: str) -> None:
    """R55 has ``base_model``, which makes it axolotl's, and accelerate's spelling of cp: it is one or the other."""
    facts = gather(world_size=2, model_config={"sliding_window": 512})
    found = check((CASES / "R55.yaml").read_text(), "R55.yaml", facts, dialect).findings
    assert ("error", "cp-sliding-window") in {(one.severity.value, one.name) for one in found}


@pytest.mark.parametrize(
    "name",
    [
        # needs the index of the checkpoint's tensors, which no config holds
        "R37",
        # of older versions: transformers 5.24 and accelerate 1.15 clip mixed tensors to the norm of one process
        "R105",
    ],
)
def test_a_report_that_is_not_followed(name: str) -> None:
    report = check((CASES / f"{name}.yaml").read_text(), f"{name}.yaml", gather(world_size=2))
    assert {one.name for one in report.findings} <= PARTS
