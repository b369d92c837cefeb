"""The model's sizes against tp."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers import LLAMA_8B, Seen, findings, message, seen

ALL = ("ND301", "ND302", "ND303", "ND304")


def broken(tp: Any, changes: dict[str, Any] | None = None) -> list[str]:
    """The codes that a degree breaks on Llama 8B (32 heads, 8 KV heads, MLP 14336, vocabulary 128256), changed."""
    model = {**LLAMA_8B, **(changes or {})}
    return [code for code in ALL if seen(code, f"tensor_parallel_size: {tp}\n", model_config=model)]


@pytest.mark.parametrize(
    ("tp", "changes", "expected"),
    [
        (1, {}, []),
        (2, {}, []),
        (4, {}, []),
        (8, {}, []),
        (16, {}, ["ND302"]),  # 32 heads do, 8 KV heads do not
        (32, {}, ["ND302"]),
        (3, {}, ["ND301", "ND302", "ND303"]),  # 14336 = 2^11 x 7; 128256 = 3 x 42752
        (7, {}, ["ND301", "ND302", "ND304"]),
        (64, {}, ["ND301", "ND302"]),
        ("null", {}, []),
        ('"3"', {}, ["ND301", "ND302", "ND303"]),
        ("three", {}, []),
        ("0", {}, []),
        ("-3", {}, []),
        (8, {"num_key_value_heads": 4}, ["ND302"]),
        (4, {"num_key_value_heads": 4}, []),
        (2, {"num_key_value_heads": 1}, ["ND302"]),
        (8, {"num_key_value_heads": None}, []),  # multi-head attention: as many as heads
        (5, {"num_attention_heads": 40, "num_key_value_heads": 10, "intermediate_size": 5, "vocab_size": 5}, []),
        (8, {"num_attention_heads": None, "num_key_value_heads": None}, []),
        (8, {"intermediate_size": 14332}, ["ND303"]),
        (8, {"intermediate_size": None}, []),
        (4, {"vocab_size": 128258}, ["ND304"]),
        (2, {"vocab_size": 50257}, ["ND304"]),
        (16, {"model_type": "phi3"}, []),  # gathers its projections
        (3, {"model_type": "gpt_oss"}, ["ND303"]),
        (3, {"model_type": "olmo2"}, ["ND303"]),
        (16, {"model_type": "deepseek_v2"}, []),  # one latent vector instead of KV heads
        (3, {"model_type": "deepseek_v2"}, ["ND301", "ND303"]),
        (16, {"model_type": "qwen3"}, ["ND302"]),
        (16, {"model_type": None}, ["ND302"]),
    ],
)
def test_sizes(tp: Any, changes: dict[str, Any], expected: list[str]) -> None:
    assert broken(tp, changes) == expected


def test_severities() -> None:
    found = [seen(code, "tensor_parallel_size: 11\n", model_config=LLAMA_8B) for code in ALL]
    key = "tensor_parallel_size"
    assert found == [[Seen(severity, 1, key)] for severity in ("error", "error", "warning", "warning")]


def test_without_the_model_nothing_is_said() -> None:
    assert [seen(code, "tensor_parallel_size: 7\n", world_size=7) for code in ALL] == [[], [], [], []]


def test_heads_name_the_numbers_their_source_and_what_would_fit() -> None:
    text = message("ND301", "tensor_parallel_size: 3\n", model_config=LLAMA_8B)
    assert "tensor_parallel_size 3 does not divide 32 attention heads (num_attention_heads in the model config)" in text
    assert "1, 2, 4 or 8" in text


@pytest.mark.parametrize(("tp", "repair"), [(3, "2"), (7, "4"), (16, "8"), (12, "8")])
def test_repair_is_the_next_smaller_degree_that_fits_both_head_counts(tp: int, repair: str) -> None:
    (finding,) = findings("ND302", f"tensor_parallel_size: {tp}\n", model_config=LLAMA_8B)
    assert finding.fix is not None
    assert finding.fix.title == f"set it to {repair}"


def test_uneven_shards_are_counted() -> None:
    # 14336 over 3: 4779 + 4779 + 4778
    text = message("ND303", "tensor_parallel_size: 3\n", model_config=LLAMA_8B)
    assert "14336" in text
    assert "4779 on the first ranks, 4778 on the last" in text
