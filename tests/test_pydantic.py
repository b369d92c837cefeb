"""The same rules as a pydantic model."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

import ndcheck
from ndcheck import AxolotlConfig

GOOD: dict[str, Any] = {
    "base_model": "org/model",
    "datasets": [{"path": "org/data", "type": "alpaca"}],
    "learning_rate": "2e-5",
    "micro_batch_size": 1,
    "gradient_accumulation_steps": 2,
}


def broken(config: dict[str, Any], context: Any = None) -> set[tuple[str, tuple[Any, ...]]]:
    with pytest.raises(ValidationError) as caught:
        AxolotlConfig.model_validate(config, context=context)
    return {(error["type"], error["loc"]) for error in caught.value.errors()}


def test_a_good_config_is_a_model() -> None:
    config = AxolotlConfig.model_validate({**GOOD, "tensor_parallel_size": 2, "sequence_len": "2048", "my_note": 1})
    assert config.tensor_parallel_size == 2
    assert config.sequence_len == 2048
    assert config.model_extra is not None
    assert config.model_extra["my_note"] == 1


def test_every_violated_error_rule_is_one_entry_of_one_exception() -> None:
    config = {
        **GOOD,
        "tensor_parallel_size": 2,
        "dp_shard_size": 2,
        "optimizer": "paged_adamw_8bit",
        "fsdp_version": 2,
        "fsdp_config": {"offload_params": "maybe"},
        "contxt_parallel_size": 1,
    }
    assert broken(config, {"world_size": 8}) == {
        ("world-size-product", ("dp_shard_size",)),
        ("optimizer-8bit-sharded", ("optimizer",)),
        ("wrong-type", ("fsdp_config", "offload_params")),
        ("unknown-key", ("contxt_parallel_size",)),
    }


def test_message_and_code() -> None:
    with pytest.raises(ValidationError) as caught:
        AxolotlConfig.model_validate({**GOOD, "tensor_parallel_size": 3}, context={"world_size": 8})
    (error,) = caught.value.errors()
    assert error["msg"].startswith("tensor_parallel_size 3, but there are 8 ranks (world_size)")
    assert error["ctx"]["code"] == "ND101"


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        (None, set()),
        ({}, set()),
        ({"world_size": 3}, set()),
        ({"world_size": 8}, {("world-size-product", ("tensor_parallel_size",))}),
        (
            {"model_config": {"num_attention_heads": 8}},
            {("tp-attention-heads", ("tensor_parallel_size",)), ("tp-kv-heads", ("tensor_parallel_size",))},
        ),
    ],
)
def test_facts_come_through_the_context(context: Any, expected: set[Any]) -> None:
    config = {**GOOD, "tensor_parallel_size": 3, "sequence_len": 300}
    if expected:
        assert broken(config, context) == expected
    else:
        assert AxolotlConfig.model_validate(config, context=context).tensor_parallel_size == 3


def test_warnings_do_not_raise() -> None:
    config = AxolotlConfig.model_validate({**GOOD, "sequence_parallel_degree": 1})
    assert config.sequence_parallel_degree == 1


@pytest.mark.parametrize("data", [None, 3, "base_model: a", [GOOD]])
def test_what_is_no_mapping_is_refused_by_pydantic(data: Any) -> None:
    with pytest.raises(ValidationError):
        AxolotlConfig.model_validate(data)


@pytest.mark.parametrize("context", [[8], "8", {"world_size": 0}, {"world_size": "8"}])
def test_an_unusable_context_is_said(context: Any) -> None:
    with pytest.raises(ValueError, match=r"context must be|world_size must be"):
        AxolotlConfig.model_validate(GOOD, context=context)


def test_validate_takes_text_or_a_path(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "base_model: org/model\ntensor_parallel_size: 3\n"
    path = tmp_path / "a.yaml"
    path.write_text(text)
    reports = [ndcheck.validate(source, world_size=8) for source in (text, path, str(path))]
    assert [report.files[0].path for report in reports] == ["<text>", str(path), str(path)]
    assert len({tuple(finding.code for finding in report.findings) for report in reports}) == 1
    assert "ND101" in {finding.code for finding in reports[0].findings}
    assert not reports[0].ok
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert "ND101" not in {finding.code for finding in ndcheck.validate(path).findings}


def test_validate_raises_for_what_is_no_fault_of_the_config(tmp_path: Any) -> None:
    with pytest.raises(OSError, match=r"none\.yaml"):
        ndcheck.validate(tmp_path / "none.yaml")
    with pytest.raises(ValueError, match="world_size must be"):
        ndcheck.validate("base_model: a\n", world_size=0)


def test_public_names() -> None:
    for name in ndcheck.__all__:
        assert getattr(ndcheck, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        ndcheck.nothing  # noqa: B018
