"""A model's sizes by its name: folders, Hugging Face's cache, and the table of well-known models."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from ndcheck import models
from ndcheck.checker import Report, check
from ndcheck.facts import FactError, ModelShape, gather
from ndcheck.output import as_text
from tests.helpers import completed

COMMIT = "0123456789abcdef0123456789abcdef01234567"
ROWS: list[dict[str, Any]] = json.loads(files("ndcheck").joinpath("models.json").read_text(encoding="utf-8"))

BILLIONS = {
    "Llama-2-7b-hf": 6.74, "Llama-2-13b-hf": 13.02, "Llama-2-70b-hf": 68.98,
    "Meta-Llama-3-8B": 8.03, "Meta-Llama-3-70B": 70.55, "Meta-Llama-3.1-8B": 8.03, "Meta-Llama-3.1-70B": 70.55,
    "Llama-3.1-8B": 8.03, "Llama-3.1-70B": 70.55, "Llama-3.1-405B": 405.85,
    "Llama-3.2-1B": 1.236, "Llama-3.2-3B": 3.213, "Llama-3.3-70B-Instruct": 70.55, "TinyLlama-1.1B-Chat-v1.0": 1.10,
    "Mistral-7B-v0.1": 7.24, "Mistral-7B-v0.3": 7.25, "Mixtral-8x7B-v0.1": 46.70, "Mixtral-8x22B-v0.1": 140.6,
    "Qwen2.5-0.5B": 0.494, "Qwen2.5-1.5B": 1.54, "Qwen2.5-3B": 3.09, "Qwen2.5-7B": 7.62, "Qwen2.5-14B": 14.77,
    "Qwen2.5-32B": 32.76, "Qwen2.5-72B": 72.71,
    "Qwen3-0.6B": 0.596, "Qwen3-1.7B": 1.72, "Qwen3-4B": 4.02, "Qwen3-8B": 8.19, "Qwen3-14B": 14.77, "Qwen3-32B": 32.76,
    "Qwen3-30B-A3B": 30.53, "Qwen3-235B-A22B": 235.09,
    "gemma-2-2b": 2.61, "gemma-2-9b": 9.24, "gemma-2-27b": 27.23, "gemma-3-1b-pt": 1.00,
    "Phi-3-mini-4k-instruct": 3.82, "phi-4": 14.66, "gpt-oss-20b": 20.9, "gpt-oss-120b": 116.8, "DeepSeek-V3": 671.0,
    "SmolLM2-135M": 0.1345, "SmolLM2-360M": 0.3618, "SmolLM2-1.7B": 1.711, "gpt2": 0.124,
}  # fmt: skip
"""Parameters as published, in billions."""


def parameters(config: dict[str, Any]) -> float:
    """Matrices and embeddings of a transformer with these sizes."""
    hidden, heads, kv_heads = config["hidden_size"], config["num_attention_heads"], config["num_key_value_heads"]
    head_dim, layers = config.get("head_dim", hidden // heads), config["num_hidden_layers"]
    attention = hidden * head_dim * (2 * heads + 2 * kv_heads)
    if latent := config.get("kv_lora_rank"):
        rank, nope, rope = config["q_lora_rank"], config["qk_nope_head_dim"], config["qk_rope_head_dim"]
        value = config["v_head_dim"]
        attention = hidden * rank + rank * heads * (nope + rope) + hidden * (latent + rope)
        attention += latent * heads * (nope + value) + heads * value * hidden
    matrices = 2 if config["model_type"] == "gpt2" else 3
    dense = matrices * hidden * config["intermediate_size"]
    experts = next(
        (config[key] for key in ("num_experts", "num_local_experts", "n_routed_experts") if key in config), 0
    )
    width = config.get("moe_intermediate_size", config["intermediate_size"])
    sparse = (experts + config.get("n_shared_experts", 0)) * matrices * hidden * width
    first = config.get("first_k_dense_replace", 0) if experts else layers
    embeddings = config["vocab_size"] * hidden * (1 if config["tie_word_embeddings"] else 2)
    return embeddings + layers * attention + first * dense + (layers - first) * sparse


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["names"][0])
def test_sizes_make_the_published_number_of_parameters(row: dict[str, Any]) -> None:
    # biases, norms, routers and positions are left out: under a percent of any of these
    assert parameters(row["config"]) / 1e9 == pytest.approx(BILLIONS[row["names"][0]], rel=0.012)
    assert row["config"]["num_attention_heads"] % row["config"]["num_key_value_heads"] == 0
    assert row["source"]


def test_a_dozen_families_and_no_name_twice() -> None:
    assert len({row["config"]["model_type"] for row in ROWS}) >= 12
    names = [name.lower() for row in ROWS for name in row["names"]]
    assert len(names) == len(set(names))


def entry(hub: Path, name: str, config: str) -> None:
    folder = hub / f"models--{name.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs/main").write_text(COMMIT)
    (folder / "snapshots" / COMMIT).mkdir(parents=True)
    (folder / "snapshots" / COMMIT / "config.json").write_text(config)


@pytest.mark.parametrize(
    ("variables", "hub"),
    [
        ({"HF_HUB_CACHE": "{}/a"}, "a"),
        ({"HUGGINGFACE_HUB_CACHE": "{}/b"}, "b"),
        ({"HF_HOME": "{}/c"}, "c/hub"),
        ({"XDG_CACHE_HOME": "{}/d"}, "d/huggingface/hub"),
        ({"HF_HUB_CACHE": "{}/e", "HF_HOME": "{}/f"}, "e"),
    ],
)
def test_the_cache_is_found_by_its_variables(variables: dict[str, str], hub: str, tmp_path: Path) -> None:
    entry(tmp_path / hub, "org/model", '{"num_attention_heads": 6, "model_type": "llama"}')
    found = models.find("org/model", {key: text.format(tmp_path) for key, text in variables.items()})
    assert found is not None
    assert found.shape.heads is not None
    assert (found.shape.heads.value, found.assumed) == (6, "")
    assert COMMIT in found.shape.heads.origin.text


def test_what_is_on_the_disk_comes_before_the_table(tmp_path: Path) -> None:
    entry(tmp_path, "meta-llama/Llama-3.1-8B", '{"num_attention_heads": 2}')
    found = models.find("meta-llama/Llama-3.1-8B", {"HF_HUB_CACHE": str(tmp_path)})
    assert found is not None
    assert found.shape.heads is not None
    assert found.shape.heads.value == 2


@pytest.mark.parametrize("name", ["unsloth/Meta-Llama-3.1-8B", "meta-llama/meta-llama-3.1-8b", "Meta-Llama-3.1-8B"])
def test_mirrors_have_the_sizes_of_what_they_mirror(name: str, tmp_path: Path) -> None:
    found = models.find(name, {"HF_HOME": str(tmp_path)})
    assert found is not None
    assert found.shape.kv_heads is not None
    assert found.shape.kv_heads.value == 8
    assert found.assumed.startswith("Meta-Llama-3.1-8B (")


@pytest.mark.parametrize(
    "name", ["org/unheard-of", "", "a/b/c", "../etc", "x\0y", "~/models", "y" * 9000, "org/Llama-3.1-8B-finetune"]
)
def test_other_names_have_none(name: str, tmp_path: Path) -> None:
    assert models.find(name, {"HF_HOME": str(tmp_path)}) is None


@pytest.mark.parametrize("commit", ["../../secret", "", "main", "\xff"])
def test_a_strange_reference_is_not_followed(commit: str, tmp_path: Path) -> None:
    entry(tmp_path, "org/model", "{}")
    (tmp_path / "models--org--model/refs/main").write_bytes(commit.encode("latin-1"))
    assert models.find("org/model", {"HF_HUB_CACHE": str(tmp_path)}) is None


def test_a_broken_config_in_the_cache_is_an_error(tmp_path: Path) -> None:
    entry(tmp_path, "org/model", "{")
    with pytest.raises(FactError, match="is not JSON"):
        models.find("org/model", {"HF_HUB_CACHE": str(tmp_path)})


def test_assumed_sizes_are_said_to_be_assumed() -> None:
    text = completed("base_model: NousResearch/Meta-Llama-3.1-8B\ntensor_parallel_size: 16\n")
    report = check(text, "a.yaml", gather(world_size=16), "axolotl")
    [finding] = [one for one in report.findings if one.name == "tp-kv-heads"]
    assert "ndcheck's table for Meta-Llama-3.1-8B" in finding.message
    shown = as_text.render(Report(files=(report,)), {})
    assert "sizes of the model as published for Meta-Llama-3.1-8B (" in shown
    assert "--model-config gives those of yours" in shown


SIZES = {"num_attention_heads": 8, "num_key_value_heads": 4, "num_hidden_layers": 2}


@pytest.mark.parametrize(
    "config",
    [
        {"text_config": SIZES, "vision_config": {"num_attention_heads": 16}},
        {"llm_config": SIZES},
        {"language_config": SIZES, "hidden_size": 7},
        {"thinker_config": {"text_config": SIZES, "audio_config": {"num_attention_heads": 20}}, "talker_config": {}},
        {"text_config": {"model_type": "x"}, "decoder": SIZES},
        SIZES | {"text_config": {"num_attention_heads": 99}},
    ],
)
def test_the_part_that_writes_text_counts(config: dict[str, Any]) -> None:
    shape = ModelShape.from_mapping(config, "config.json")
    assert [value.value if value else None for value in (shape.heads, shape.kv_heads, shape.layers)] == [8, 4, 2]


def test_a_config_inside_itself_ends() -> None:
    config: dict[str, Any] = {}
    config["text_config"] = config
    assert ModelShape.from_mapping(config, "x").heads is None
