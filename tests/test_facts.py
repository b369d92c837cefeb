"""What is known beside the file: precedence, contradictions, and the shape of a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ndcheck.checker import check
from ndcheck.facts import FactError, Facts, ModelShape, from_context, gather, read_model_config
from ndcheck.values import Source


def numbers(facts: Facts) -> tuple[int | None, int | None, int | None]:
    """World size, nodes, GPUs a node."""
    given = (facts.world_size, facts.nodes, facts.gpus_per_node)
    world, nodes, gpus = (value.value if value else None for value in given)
    return world, nodes, gpus


@pytest.mark.parametrize(
    ("given", "environment", "expected"),
    [
        ({}, {}, (None, None, None)),
        ({"world_size": 8}, {}, (8, None, None)),
        ({}, {"WORLD_SIZE": "4"}, (4, None, None)),
        ({}, {"WORLD_SIZE": " 4 "}, (4, None, None)),
        ({}, {"WORLD_SIZE": ""}, (None, None, None)),
        ({"world_size": 8}, {"WORLD_SIZE": "4"}, (8, None, None)),
        ({"world_size": 8}, {"WORLD_SIZE": "four"}, (8, None, None)),
        ({"nodes": 2}, {}, (None, 2, None)),
        ({"gpus_per_node": 8}, {}, (None, None, 8)),
        ({"nodes": 2, "gpus_per_node": 8}, {}, (16, 2, 8)),
        ({"nodes": 2, "gpus_per_node": 8, "world_size": 16}, {}, (16, 2, 8)),
        ({"world_size": 16, "nodes": 2}, {}, (16, 2, 8)),
        ({"nodes": 2}, {"WORLD_SIZE": "16"}, (16, 2, 8)),
        ({"world_size": 16, "gpus_per_node": 8}, {}, (16, None, 8)),
    ],
)
def test_counts(given: dict[str, int], environment: dict[str, str], expected: tuple[int | None, ...]) -> None:
    assert numbers(gather(**given, environment=environment)) == expected


@pytest.mark.parametrize(
    ("given", "environment", "message"),
    [
        ({"world_size": 0}, {}, "world_size must be an integer of at least 1, not 0"),
        ({"nodes": -1}, {}, "nodes must be"),
        ({"gpus_per_node": 0}, {}, "gpus_per_node must be"),
        ({"world_size": 8.0}, {}, "world_size must be"),
        ({"world_size": True}, {}, "world_size must be"),
        ({"world_size": "8"}, {}, "world_size must be"),
        ({"world_size": 10**10}, {}, "at most 1000000000"),
        ({"nodes": 10**6, "gpus_per_node": 10**6}, {}, "at most 1000000000"),
        ({}, {"WORLD_SIZE": "eight"}, "WORLD_SIZE must be an integer of at least 1, not 'eight'"),
        ({}, {"WORLD_SIZE": "0"}, "WORLD_SIZE"),
        ({}, {"WORLD_SIZE": "-8"}, "WORLD_SIZE"),
        ({}, {"WORLD_SIZE": "9" * 5000}, "WORLD_SIZE"),
        ({"nodes": 2, "gpus_per_node": 8, "world_size": 8}, {}, "2 nodes x 8 GPUs = 16, but the world size is 8"),
        ({"nodes": 2, "gpus_per_node": 8}, {"WORLD_SIZE": "8"}, r"8 \(WORLD_SIZE\)"),
        ({"nodes": 3, "world_size": 8}, {}, "8 ranks cannot be spread evenly over 3 nodes"),
    ],
)
def test_unusable_counts_say_what_is_wrong(given: dict[str, Any], environment: dict[str, str], message: str) -> None:
    with pytest.raises(FactError, match=message):
        gather(**given, environment=environment)


def test_origin_is_named_as_the_user_spelled_it() -> None:
    assert str(gather(world_size=8).world_size) == "8 (world_size)"
    assert str(gather(world_size=8, flags=True).world_size) == "8 (--world-size)"
    assert str(gather(environment={"WORLD_SIZE": "8"}).world_size) == "8 (WORLD_SIZE)"
    assert str(gather(nodes=2, gpus_per_node=4, flags=True).world_size) == "8 (--nodes x --gpus-per-node)"
    value = gather(environment={"WORLD_SIZE": "8"}).world_size
    assert value is not None
    assert value.origin.source is Source.ENVIRONMENT


def sizes(shape: ModelShape) -> dict[str, Any]:
    names = ("family", "heads", "kv_heads", "head_dim", "hidden", "intermediate", "layers", "vocab", "experts")
    found = {name: getattr(shape, name) for name in (*names, "max_positions", "tied_embeddings")}
    return {name: value.value for name, value in found.items() if value is not None}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        pytest.param(
            {
                "model_type": "llama",
                "num_attention_heads": 32,
                "num_key_value_heads": 8,
                "hidden_size": 4096,
                "intermediate_size": 14336,
                "num_hidden_layers": 32,
                "vocab_size": 128256,
                "max_position_embeddings": 8192,
                "tie_word_embeddings": False,
                "head_dim": None,
            },
            {
                "family": "llama",
                "heads": 32,
                "kv_heads": 8,
                "hidden": 4096,
                "intermediate": 14336,
                "layers": 32,
                "vocab": 128256,
                "max_positions": 8192,
                "tied_embeddings": False,
            },
            id="llama",
        ),
        pytest.param(
            {"model_type": "gpt2", "n_head": 12, "n_embd": 768, "n_layer": 12, "n_positions": 1024, "n_inner": None},
            {"family": "gpt2", "heads": 12, "kv_heads": 12, "hidden": 768, "layers": 12, "max_positions": 1024},
            id="gpt2",
        ),
        pytest.param(
            {"model_type": "mpt", "n_heads": 32, "d_model": 4096, "n_layers": 32, "max_seq_len": 2048},
            {"family": "mpt", "heads": 32, "kv_heads": 32, "hidden": 4096, "layers": 32, "max_positions": 2048},
            id="mpt",
        ),
        pytest.param(
            {"model_type": "falcon", "num_attention_heads": 71, "num_kv_heads": 1, "ffn_hidden_size": 18176},
            {"family": "falcon", "heads": 71, "kv_heads": 1, "intermediate": 18176},
            id="falcon",
        ),
        pytest.param(
            {"model_type": "mixtral", "num_attention_heads": 32, "num_key_value_heads": 8, "num_local_experts": 8},
            {"family": "mixtral", "heads": 32, "kv_heads": 8, "experts": 8},
            id="mixtral",
        ),
        pytest.param(
            {"model_type": "deepseek_v3", "num_attention_heads": 128, "n_routed_experts": 256},
            {"family": "deepseek_v3", "heads": 128, "kv_heads": 128, "experts": 256},
            id="deepseek",
        ),
        pytest.param(
            {
                "model_type": "gemma3",
                "text_config": {"model_type": "gemma3_text", "num_attention_heads": 8, "num_key_value_heads": 4},
                "vision_config": {"num_attention_heads": 16},
            },
            {"family": "gemma3_text", "heads": 8, "kv_heads": 4},
            id="text part of a composite model",
        ),
        pytest.param({}, {}, id="empty"),
        pytest.param({"num_attention_heads": "32", "vocab_size": 3.0, "model_type": 7}, {}, id="wrong types"),
        pytest.param({"num_attention_heads": True, "hidden_size": None}, {}, id="bool and null are no sizes"),
        pytest.param({"num_attention_heads": 0, "vocab_size": -1, "hidden_size": 10**12}, {}, id="impossible sizes"),
        pytest.param({"text_config": [1], "num_attention_heads": [2]}, {}, id="lists"),
    ],
)
def test_shape_of_a_family(config: dict[str, Any], expected: dict[str, Any]) -> None:
    assert sizes(ModelShape.from_mapping(config, "config.json")) == expected


def test_shape_says_where_it_was_read(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text('{"n_head": 12}')
    for path in (file, tmp_path):
        shape = read_model_config(path)
        assert shape.heads is not None
        assert shape.heads.origin.text == f"n_head in {file}"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"\xff\xfe\x00", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"n_head": ' + b"9" * 5000 + b"}", "is not JSON"),
        (b"[]", "holds no JSON object"),
        (b"null", "holds no JSON object"),
        (b'"x"', "holds no JSON object"),
    ],
)
def test_broken_model_config(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with pytest.raises(FactError, match=message) as caught:
        gather(model_config=file)
    assert str(file) in str(caught.value)


def test_model_config_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FactError, match="cannot read model config"):
        gather(model_config=tmp_path / "none.json")
    with pytest.raises(FactError, match="cannot read model config"):
        gather(model_config=tmp_path)


@pytest.mark.parametrize("context", [None, {}, {"other": 1}, Facts()])
def test_pydantic_context_without_facts(context: Any) -> None:
    assert from_context(context) == Facts()


def test_pydantic_context() -> None:
    assert numbers(from_context({"nodes": 2, "gpus_per_node": 4})) == (8, 2, 4)
    shape = from_context({"model_config": {"n_head": 6}}).model
    assert shape is not None
    assert shape.source == "the model config"
    with pytest.raises(FactError, match="not list"):
        from_context([8])


def tp_config(directory: Path) -> str:
    return f"base_model: {json.dumps(str(directory))}\ntensor_parallel_size: 4\n"


def test_base_model_that_is_a_directory_gives_the_shape(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"num_attention_heads": 6, "num_key_value_heads": 6}')
    report = check(tp_config(tmp_path), "x.yaml", gather())
    assert {"ND301", "ND302"} <= {finding.code for finding in report.findings}
    assert "model_config" not in report.not_run


def test_model_config_given_outranks_base_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"num_attention_heads": 6}')
    report = check(tp_config(tmp_path), "x.yaml", gather(model_config={"num_attention_heads": 8}))
    assert not {"ND301", "ND302"} & {finding.code for finding in report.findings}


def test_base_model_on_the_hub_gives_no_shape_and_the_silent_rules_are_counted() -> None:
    report = check("base_model: org/model\ntensor_parallel_size: 4\n", "x.yaml", gather())
    assert report.not_run["model_config"] >= {"tp-attention-heads", "tp-kv-heads"}
    assert "world-size-product" in report.not_run["world_size"]


def test_base_model_directory_without_config_is_a_warning_at_its_line(tmp_path: Path) -> None:
    report = check(tp_config(tmp_path), "x.yaml", gather())
    (finding,) = [finding for finding in report.findings if finding.code == "ND913"]
    assert (finding.severity, finding.region.line) == ("warning", 1)
    assert str(tmp_path) in finding.message


@pytest.mark.parametrize("name", ['""', "null", '"a\\0b"', "x" * 5000, "[a]", "/dev/null"])
def test_base_model_that_is_no_directory(name: str) -> None:
    report = check(f"base_model: {name}\nmicro_batch_size: 1\n", "x.yaml", gather())
    assert "ND913" not in {finding.code for finding in report.findings}
