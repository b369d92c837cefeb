"""Scalars that YAML 1.1 reads otherwise than they look, and the value that was probably meant."""

from __future__ import annotations

import pytest
import yaml

from tests.helpers import findings


@pytest.mark.parametrize(
    ("written", "read", "in_1_2"),
    [
        ("010", "8", "10"),
        ("-017", "-15", "-17"),
        ("12:30:45", "45045", "text"),
        ("1:30", "90", "text"),
        ("1_000", "1000", "text"),
        ("0b101", "5", "text"),
    ],
)
def test_another_base(written: str, read: str, in_1_2: str) -> None:
    assert yaml.safe_load(written) == int(read)
    (finding,) = findings("ND921", f"seed: {written}\n")
    assert f"reads {written} as {read}; YAML 1.2 reads {in_1_2}" in finding.message
    assert (finding.region.line, finding.region.column) == (1, 7)
    assert finding.fix
    assert finding.fix.title == f"write {read}"


@pytest.mark.parametrize("written", ["10", "+10", "-3", "0", "0x10", '"010"', "1.5", "0o10"])
def test_plain_numbers_are_quiet(written: str) -> None:
    assert findings("ND921", f"wandb_name: {written}\n") == []


@pytest.mark.parametrize(("word", "value"), [("yes", "true"), ("No", "false"), ("ON", "true"), ("off", "false")])
def test_boolean_words(word: str, value: str) -> None:
    (finding,) = findings("ND922", f"bf16: {word}\n")
    assert finding.severity == "info"
    assert finding.fix
    assert finding.fix.title == f"write {value}"


@pytest.mark.parametrize("word", ["true", "False", "'yes'", "y", "n", "yesterday"])
def test_other_words_are_quiet(word: str) -> None:
    assert findings("ND922", f"wandb_name: {word}\n") == []


def test_none_is_text_unless_quoted_on_purpose() -> None:
    assert [finding.region.line for finding in findings("ND923", "wandb_name: None\nwandb_project: 'None'\n")] == [1]


@pytest.mark.parametrize(
    ("fragment", "fix"),
    [
        ("lr_scheduler_kwargs: {a: {b: 2e5}}\n", "write 2.0e+5"),
        ("lr_scheduler_kwargs: {a: 3.5e4}\n", "write 3.5e+4"),
        ("lr_scheduler_kwargs: {a: -1E-5}\n", "write -1.0e-5"),
        ("learning_rate: 2e-5\n", None),
        ("weight_decay: 1e-2\n", None),
        ("lr_scheduler_kwargs: {a: 1.0e-5}\n", None),
    ],
)
def test_exponents_without_a_dot(fragment: str, fix: str | None) -> None:
    found = findings("ND924", fragment)
    assert [finding.fix.title for finding in found if finding.fix] == ([fix] if fix else [])
    if fix:
        assert isinstance(yaml.safe_load(fix.removeprefix("write ")), float)


@pytest.mark.parametrize(
    ("fragment", "meant"),
    [
        ("fsdp: full_shard auto_wrap\n", "[full_shard, auto_wrap]"),
        ("plugins: axolotl.integrations.liger.LigerPlugin\n", "[axolotl.integrations.liger.LigerPlugin]"),
        ("max_steps: 1e3\n", "1000"),
        ("max_steps: '1,000'\n", "1000"),
        ("streaming: flase\n", "false"),
        ("fsdp_version: 2\nfsdp_config: {state_dict_type: full_state_dict}\n", "FULL_STATE_DICT"),
        ("rl: dpoo\n", "dpo"),
        ("rl: ppo\n", None),
        ("max_steps: many\n", None),
        ("datasets: org/data\n", None),
    ],
)
def test_the_value_that_was_meant(fragment: str, meant: str | None) -> None:
    (finding,) = findings("ND802", fragment)
    assert (finding.fix.title if finding.fix else None) == (f"write {meant}" if meant else None)


@pytest.mark.parametrize(
    ("fragment", "keys"),
    [
        ("tokenizer_config:\n", ["tokenizer_config"]),
        ("base_model_config: ~\nseed:\n", ["base_model_config"]),
        ("datasets:\npretraining_dataset: [{path: d}]\nstreaming: true\nmax_steps: 1\n", ["datasets"]),
        ("datasets:\n", []),
        ("tokenizer_type:\n", []),
    ],
)
def test_empty_keys_that_axolotl_trips_over(fragment: str, keys: list[str]) -> None:
    assert [finding.key for finding in findings("AX204", fragment)] == keys
