"""Keys: unknown, misspelt, renamed, of the wrong type, or of a plug-in that is not listed."""

from __future__ import annotations

import pytest

from ndcheck.rules.keys import nearest
from tests.helpers import FLASH, FSDP2, LIGER, Seen, findings, message, seen


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("contxt_parallel_size", "context_parallel_size"),
        ("context_parapllel_size", "context_parallel_size"),
        ("tensor_paralel_size", "tensor_parallel_size"),
        ("Tensor_Parallel_Size", "tensor_parallel_size"),
        ("tensor-parallel-size", "tensor_parallel_size"),
        ("parallel_tensor_size", "tensor_parallel_size"),
        ("micro_batchsize", "micro_batch_size"),
        ("learningrate", "learning_rate"),
    ],
)
def test_a_slip_is_an_error_with_a_suggestion(key: str, meant: str) -> None:
    (finding,) = findings("ND801", f"{key}: 2\n")
    assert (finding.severity, finding.region.line, finding.key) == ("error", 1, key)
    assert finding.message.endswith(f"did you mean {meant}?")
    assert finding.fix is not None
    assert finding.fix.title == f"rename it to {meant}"


@pytest.mark.parametrize("key", ["my_note", "x", "tp", "zzzzzzzzzz", "ключ", "🙂"])
def test_a_stranger_is_a_warning(key: str) -> None:
    assert seen("ND801", f"{key}: 2\n") == [Seen("warning", 1, key)]
    assert "did you mean" not in message("ND801", f"{key}: 2\n")


@pytest.mark.parametrize(
    ("fragment", "line", "key", "text"),
    [
        ("fsdp_version: 2\nfsdp_config:\n  ofload_params: true\n", 3, "fsdp_config.ofload_params", "offload_params"),
        ("trl:\n  num_generation: 4\n", 2, "trl.num_generation", "num_generations"),
        ("datasets:\n  - path: a\n    typ: alpaca\n    shardz: 1\n", 4, "datasets[0].shardz", "shards"),
    ],
)
def test_inside_sections(fragment: str, line: int, key: str, text: str) -> None:
    (finding,) = [finding for finding in findings("ND801", fragment) if finding.key == key]
    assert (finding.severity, finding.region.line) == ("error", line)
    assert f"did you mean {text}?" in finding.message


@pytest.mark.parametrize(
    ("key", "section"),
    [("split_batches", "accelerator_config"), ("offload_params", "fsdp_config"), ("state_dict_type", "fsdp_config")],
)
def test_a_key_of_a_section_at_top_level(key: str, section: str) -> None:
    (finding,) = findings("ND801", f"{key}: true\n")
    assert finding.severity == "error"
    assert f"it belongs in {section}" in finding.message


@pytest.mark.parametrize(
    ("text", "shown"),
    [("on", "true"), ("3", "3"), ("null", "null"), ("2026-01-02", "2026-01-02"), ("1.5", "1.5")],
)
def test_a_key_that_yaml_reads_as_something_else(text: str, shown: str) -> None:
    assert f"YAML reads this key as {shown}, not as a name" in message("ND801", f"{text}: 1\n")


def test_an_empty_key_can_be_seen_in_the_message() -> None:
    assert "does not know '' and" in message("ND801", "'': 1\n")


def test_an_unknown_plugin_may_know_the_key() -> None:
    fragment = "my_note: 1\nplugins: [mine.Plugin]\n"
    assert seen("ND801", fragment) == [Seen("info", 1, "my_note")]
    assert "mine.Plugin" in message("ND801", fragment)


@pytest.mark.parametrize(
    ("word", "expected"),
    [("sequence_length", "sequence_len"), ("seq", None), ("", None), ("len_sequence", "sequence_len")],
)
def test_nearest(word: str, expected: str | None) -> None:
    assert nearest(word, ("sequence_len", "seed")) == expected


@pytest.mark.parametrize(
    ("fragment", "key", "text"),
    [
        ("tensor_parallel_size: two\n", "tensor_parallel_size", "must be an integer, not the string two"),
        ("tensor_parallel_size: 2.5\n", "tensor_parallel_size", "must be an integer, not 2.5, which is a number"),
        ("tensor_parallel_size: .inf\n", "tensor_parallel_size", "not inf, which is a number"),
        ("tensor_parallel_size: [2]\n", "tensor_parallel_size", "not a list of 1"),
        ("tensor_parallel_size: {a: 2}\n", "tensor_parallel_size", "not a mapping"),
        ("tensor_parallel_size: 2026-01-02\n", "tensor_parallel_size", "not 2026-01-02, which is a date"),
        (f"sequence_len: {'9' * 40}\n", "sequence_len", "an integer of at most 64 bits"),
        ("sequence_len: null\n", "sequence_len", "must be an integer, not null"),
        ("liger_rms_norm: maybe\n", "liger_rms_norm", "must be true or false, not the string maybe"),
        ("fsdp_config: true\n", "fsdp_config", "must be a mapping, not true, which is a boolean"),
        ("plugins: axolotl.integrations.liger.LigerPlugin\n", "plugins", "must be a list of strings"),
        ("datasets: {path: a}\n", "datasets", "must be a list of mappings, not a mapping"),
        ("rl: dppo\n", "rl", "did you mean dpo?"),
    ],
)
def test_wrong_type(fragment: str, key: str, text: str) -> None:
    assert seen("ND802", fragment) == [Seen("error", 1, key)]
    assert text in message("ND802", fragment)


def test_wrong_type_in_a_section_stands_at_the_value() -> None:
    (finding,) = findings("ND802", "fsdp_version: 2\nfsdp_config:\n  offload_params: perhaps\n")
    assert (finding.key, finding.region.line, finding.region.column) == ("fsdp_config.offload_params", 3, 19)


def test_each_wrong_type_is_a_finding() -> None:
    fragment = "tensor_parallel_size: a\ncontext_parallel_size: b\ndp_shard_size: 2\nmicro_batch_size: [1]\n"
    assert [item.line for item in seen("ND802", fragment)] == [1, 2, 4]


@pytest.mark.parametrize("value", ["2", '"2"', "2.0", "null", "", "02", "0x2"], ids=lambda value: value or "empty")
def test_what_axolotl_takes_for_an_integer(value: str) -> None:
    assert seen("ND802", f"tensor_parallel_size: {value}\n") == []


@pytest.mark.parametrize(
    ("fragment", "expected"),
    [
        ("sequence_parallel_degree: 2\n", [Seen("warning", 1, "sequence_parallel_degree")]),
        ("sequence_parallel_size: 2\n", [Seen("error", 1, "sequence_parallel_size")]),
        (
            "sequence_parallel_degree: 2\ncontext_parallel_size: 2\n",
            [Seen("warning", 1, "sequence_parallel_degree")],
        ),
        ("context_parallel_size: 2\n", []),
        ("flash_attention: true\n", [Seen("warning", 1, "flash_attention")]),
        ("fsdp_config: {fsdp_version: 2, offload_params: false}\n", [Seen("warning", 1, "fsdp_config.fsdp_version")]),
        (
            "fsdp_version: 2\nfsdp_config:\n  fsdp_offload_params: false\n",
            [Seen("warning", 3, "fsdp_config.fsdp_offload_params")],
        ),
        ("liger_swiglu: true\n" + LIGER, [Seen("warning", 1, "liger_swiglu")]),
        (FSDP2, []),
    ],
)
def test_older_spellings(fragment: str, expected: list[Seen]) -> None:
    assert seen("ND803", fragment) == expected
    assert seen("ND804", fragment) == []


@pytest.mark.parametrize(
    ("fragment", "key"),
    [
        ("sequence_parallel_degree: 2\ncontext_parallel_size: 4\n", "sequence_parallel_degree"),
        ("sequence_parallel_size: 2\ncontext_parallel_size: 4\n", "sequence_parallel_size"),
        ("sequence_parallel_degree: 2\ncontext_parallel_size: null\n", "sequence_parallel_degree"),
        ("flash_attention: true\nattn_implementation: sdpa\n", "flash_attention"),
        ("fsdp_config: {offload_params: true, fsdp_offload_params: false}\n", "fsdp_config.fsdp_offload_params"),
        ("fsdp_config: {fsdp_version: 1, offload_params: true}\nfsdp_version: 2\n", "fsdp_config.fsdp_version"),
        ("liger_swiglu: true\nliger_glu_activation: true\n" + LIGER, "liger_swiglu"),
    ],
)
def test_both_spellings_that_disagree(fragment: str, key: str) -> None:
    assert seen("ND804", fragment) == [Seen("error", 1, key)]
    (finding,) = findings("ND804", fragment)
    assert [region.label for region in finding.related] == ["the current spelling"]


def test_a_section_of_the_wrong_type_has_no_older_spellings() -> None:
    assert seen("ND803", "fsdp_config: [1]\n") + seen("ND804", "fsdp_config: [1]\n") == []


def test_the_older_name_counts_as_the_degree_it_sets() -> None:
    for name in ("sequence_parallel_degree", "sequence_parallel_size"):
        assert seen("ND101", f"{name}: 2\n{FLASH}", world_size=8) == [Seen("error", 1, name)]


@pytest.mark.parametrize(
    ("fragment", "expected"),
    [
        ("liger_rope: true\n", [Seen("error", 1, "liger_rope")]),
        ("liger_rope: true\nplugins: []\n", [Seen("error", 1, "liger_rope")]),
        (
            "liger_rope: true\nplugins: [axolotl.integrations.spectrum.SpectrumPlugin]\n",
            [Seen("error", 1, "liger_rope")],
        ),
        ("liger_rope: false\n", []),
        ("liger_rope: null\n", []),
        ("liger_rope: true\n" + LIGER, []),
    ],
)
def test_plugin_not_listed(fragment: str, expected: list[Seen]) -> None:
    assert seen("ND805", fragment) == expected


def test_a_plugin_that_is_not_listed_is_told_once_for_all_its_keys() -> None:
    (finding,) = findings("ND805", "liger_rope: true\nliger_rms_norm: true\nliger_glu_activation: true\n")
    assert finding.message.startswith("liger_rope, liger_rms_norm, liger_glu_activation are read by the plug-in liger")
    assert [region.line for region in finding.related] == [2, 3]
