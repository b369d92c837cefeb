"""Mistakes that people reported, as minimal configs: what ndcheck says of each, as far as its rules go.

Left out, because no file can show it: a stale launcher default (R25), the version of a data loader under DeepSpeed's tp
(R49; the product of its degrees is wrong besides), and preparing a large data set before the launch (R125).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.helpers import completed, report

CASES = Path(__file__).parent / "data/cases"
KV4 = {"num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128}


def problems(name: str, **facts: Any) -> set[tuple[str, int]]:
    """Code and line of the errors in a case; its own lines come first."""
    text = completed((CASES / f"{name}.yaml").read_text())
    return {(found.code, found.region.line) for found in report(text, **facts).findings if found.severity == "error"}


@pytest.mark.parametrize(
    ("name", "facts", "expected"),
    [
        ("R07", {"world_size": 8}, {("ND103", 3)}),  # DDP cannot hold what tp has cut
        ("R08", {"world_size": 8}, {("ND101", 3)}),  # 3 does not divide 8
        ("R14", {"world_size": 8, "model_config": KV4}, {("ND302", 4)}),  # 4 KV heads over 8 ranks
        ("R14", {"world_size": 8}, set()),  # nobody knows the heads
        ("R24", {"world_size": 8}, set()),  # FSDP2 as it should be: no false alarm
        ("R75", {"world_size": 8}, set()),
        ("R74", {"world_size": 2}, set()),
        ("R81", {"world_size": 4}, {("AX335", 3)}),  # integer weights cannot be flattened by FSDP1
        ("R83", {"world_size": 2}, {("AX336", 4)}),  # 4-bit weights stored in another type than the rest
        ("R87", {"world_size": 8}, set()),  # lora with 4 bits: a warning, see below
        ("R101", {"world_size": 1}, {("AX930", 3)}),  # 100 is no multiple of 30
        ("R119", {}, {("AX525", 2)}),  # a template in Jinja, and no template
        ("R109", {"world_size": 4}, {("ND203", 3), ("DS103", 3)}),  # two engines, and DeepSpeed is told no batch
        ("R117", {"world_size": 1}, set()),  # null is "not set"
        ("R121", {"world_size": 4}, {("ND801", 3), ("ND101", 4)}),  # a slip, and what it leaves: 2 ranks of 4
    ],
)
def test_case(name: str, facts: dict[str, Any], expected: set[tuple[str, int]]) -> None:
    assert problems(name, **facts) == expected


def test_lora_in_4_bits_is_not_quantized() -> None:
    text = completed((CASES / "R87.yaml").read_text())
    assert "AX706" in {found.code for found in report(text).findings if found.severity == "warning"}


def test_dispatch_and_split_over_tp() -> None:
    # 2 rows cut over 4 ranks / tp 2 = 2 data ranks fit; but rank 0 would hand tp peers different rows
    assert ("ND512", 12) in problems("R47", world_size=4)


def test_context_parallel_ranks_do_not_multiply_the_batch() -> None:
    # 2 rows x 2 steps x 1 data rank: the two cp ranks share theirs
    text = completed((CASES / "R74.yaml").read_text())
    assert report(text, world_size=2).derived.global_batch_size == 4


def test_tensor_parallel_ranks_do_not_either() -> None:
    # 4 rows x 1 step x 2 data ranks
    text = completed((CASES / "R75.yaml").read_text())
    assert report(text, world_size=8).derived.global_batch_size == 8
