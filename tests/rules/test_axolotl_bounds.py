"""Bounds of axolotl's fields: the last value inside and the first outside."""

from __future__ import annotations

import pytest

from ndcheck.rules.axolotl.bounds import BOUNDS
from tests.helpers import findings, message

EDGES = {
    "relora_prune_ratio": ("-0.01", "0", "1", "1.01"),
    "dynamic_checkpoint.check_interval": ("0", "1", "100000", None),
    "ebft.gt_length_multiplier": ("0.09", "0.1", "100", None),
    "ebft.stride": ("0", "1", "1000", None),
    "ebft.context_length": ("0", "1", "1000", None),
    "ebft.generate_max_len": ("0", "1", "1000", None),
    "ebft.n_samples_per_prompt": ("0", "1", "1000", None),
    "ebft.temperature": ("-0.1", "0", "100", None),
    "ebft.top_p": ("-0.1", "0", "1", "1.01"),
    "ebft.min_completion_prefix": ("-1", "0", "1000", None),
    "diffusion.min_mask_ratio": ("-0.1", "0", "1", "1.01"),
    "diffusion.max_mask_ratio": ("-0.1", "0", "1", "1.01"),
    "diffusion.num_diffusion_steps": ("0", "1", "1000", None),
    "diffusion.eps": ("-0.1", "0", "1", "1.01"),
    "diffusion.generation_interval": ("0", "1", "1000", None),
    "diffusion.num_generation_samples": ("0", "1", "1000", None),
    "diffusion.generation_steps": ("0", "1", "1000", None),
    "diffusion.generation_temperature": ("-0.1", "0", "100", None),
    "diffusion.generation_max_length": ("0", "1", "1000", None),
    "hatchery.lora_rank": ("0", "1", "256", "257"),
}
"""Key -> the first below, the least, the greatest or a large one, the first above; found with axolotl's own fields."""


def fragment(key: str, text: str) -> str:
    top, _, inner = key.partition(".")
    return f"{top}: {{{inner}: {text}}}\n" if inner else f"{top}: {text}\n"


def test_every_bound_has_edges() -> None:
    assert EDGES.keys() == BOUNDS.keys()


@pytest.mark.parametrize("key", EDGES)
def test_edges(key: str) -> None:
    below, least, most, above = EDGES[key]
    assert findings("AX982", fragment(key, str(below)))
    assert not findings("AX982", fragment(key, str(least)))
    assert not findings("AX982", fragment(key, str(most)))
    assert above is None or findings("AX982", fragment(key, above))
    assert not findings("AX982", fragment(key, "null"))


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("lora_rank_pattern: {q_proj: 0}\n", True),
        ("lora_rank_pattern: {q_proj: 1}\n", False),
        ("lora_rank_pattern: {q_proj: 4, k_proj: -1}\n", True),
        ("lora_alpha_pattern: {q_proj: 0}\n", True),
        ("lora_alpha_pattern: {q_proj: 1}\n", False),
        ("lora_alpha_pattern: {q_proj: many}\n", False),  # no number: the type is another matter
        ("lora_alpha_pattern:\n", False),
        ("relora_prune_ratio: .nan\n", True),
        ("ebft: {temperature: .nan}\n", True),
        ("ebft: {temperature: .inf}\n", False),
    ],
)
def test_numbers(text: str, broken: bool) -> None:
    assert bool(findings("AX982", text)) == broken


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("relora_prune_ratio: -3\n", "0"),
        ("relora_prune_ratio: 3\n", "1"),
        ("hatchery: {lora_rank: 1000}\n", "256"),
        ("ebft: {gt_length_multiplier: 0}\n", "0.1"),
    ],
)
def test_the_nearest_legal_value_is_offered(text: str, near: str) -> None:
    (finding,) = findings("AX982", text)
    assert finding.fix is not None
    assert [getattr(edit, "text", None) for edit in finding.fix.edits] == [near]


def test_bounds_are_said() -> None:
    assert message("AX982", "ebft: {stride: 0}\n") == "ebft.stride 0 must be at least 1"
    assert message("AX982", "hatchery: {lora_rank: 300}\n") == "hatchery.lora_rank 300 must be from 1 to 256"
    assert message("AX982", "lora_rank_pattern: {q_proj: 0}\n") == "lora_rank_pattern: 0 for q_proj must be at least 1"


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("datasets: []\n", True),
        ("datasets:\npretraining_dataset: [{path: a}]\n", False),
        ("pretraining_dataset: []\n", True),
        ("test_datasets: []\n", True),
        ("test_datasets: [{path: a}]\n", False),
        ("test_datasets:\n", False),
        ("rl: dpo\ndpo_loss_type: []\n", True),
        ("rl: dpo\ndpo_loss_type: [sigmoid]\ndpo_loss_weights: []\n", True),
        ("rl: dpo\ndpo_loss_type: [sigmoid]\ndpo_loss_weights: [1.0]\n", False),
        ("datasets: many\n", False),  # the wrong type is another rule's
    ],
)
def test_lists(text: str, broken: bool) -> None:
    assert bool(findings("AX983", text)) == broken
