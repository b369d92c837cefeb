"""Reading JSON: the values that Python's json gives, positions of every key, and what is said of broken files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ndcheck.checker import check
from ndcheck.cli import main
from ndcheck.facts import Facts
from ndcheck.fixes import fix_text
from ndcheck.reader import read

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(JSON, st.sampled_from([None, 2, "\t"]), st.booleans())
def test_the_values_are_those_of_pythons_json(value, indent, ascii_only):
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)

    document = read(text, "a.json")

    assert document.problems == []
    assert document.data == value
    assert type(document.data) is type(value)


@given(st.dictionaries(st.text(max_size=5), JSON, min_size=1, max_size=4), st.sampled_from([None, 2]))
def test_every_entry_is_found_where_it_is_written(value, indent):
    text = json.dumps(value, indent=indent)
    document = read(text, "a.json")

    for key, inner in value.items():
        place = document.locate((key,))
        assert place is not None
        assert place.key is not None
        assert json.loads(text[place.key.start : place.key.end]) == key
        assert json.loads(text[place.value.start : place.value.end]) == inner


def test_an_exponent_without_a_dot_is_a_number_in_json_and_text_in_yaml():
    text = '{"optimizer": {"params": {"lr": 1e-5}}}'
    assert read(text, "ds.json").data["optimizer"]["params"]["lr"] == 1e-5
    assert read(text, "ds.yaml").data["optimizer"]["params"]["lr"] == "1e-5"


@pytest.mark.parametrize(
    ("text", "said", "column"),
    [
        ('{"a": 1,}', "a comma before the closing bracket", 8),
        ('{"a": 1} 2', "more follows", 10),
        ('{"a" 1}', "expected a colon after a, not 1", 6),
        ("{'a': 1}", "double quotes", 2),
        ('{"a": 1 // one\n}', "no comments", 9),
        ("# a comment\n{}", "no comments", 1),
        ('{"a": True}', "JSON writes true", 7),
        ('{"a": 01}', "expected a comma or }, not 1", 8),
        ('{"a": "x\ty"}', "does not end on its line", 7),
        ('{"a": "\\q"}', "Invalid \\escape", 7),
        ('{"a": [1, 2', "the file ends where ] or a comma was expected", 12),
        ('{"a": ', "the file ends where a value was expected", 7),
        ('\ufeff{"a": 1}', "byte order mark", 1),
    ],
)
def test_a_broken_file_is_told_where_and_why(text, said, column):
    [finding] = [
        found for found in check(text, "a.json", Facts(), "transformers").findings if found.name == "json-syntax"
    ]
    assert said in finding.message
    assert finding.region.column == column


def test_pythons_json_refuses_the_same_files():
    for text in ('{"a": 1,}', '{"a": 1} 2', '{"a": 01}', '{"a": "x\ty"}', '\ufeff{"a": 1}', '{"a": True}'):
        with pytest.raises(json.JSONDecodeError):
            json.loads(text)


def test_deep_nesting_and_huge_numbers_end_in_a_finding():
    deep = check("[" * 100_000, "a.json", Facts(), "transformers").findings
    assert [finding.name for finding in deep][:1] == ["yaml-nesting"]
    long = check('{"max_steps": ' + "9" * 10_000 + "}", "a.json", Facts(), "transformers").findings
    assert [finding.name for finding in long] == ["json-syntax"]


def test_a_key_twice_is_found():
    text = '{"bf16": true,\n "bf16": false, "output_dir": "out"}'
    [finding] = check(text, "a.json", Facts(), "transformers").findings
    assert finding.name == "duplicate-key"
    assert (finding.region.line, finding.region.column) == (2, 2)
    assert [region.line for region in finding.related] == [1]


def test_a_comment_in_a_string_silences_nothing():
    text = '{"output_dir": "out # ndcheck: ignore[unknown-argument]", "bf17": true}'
    assert [finding.name for finding in check(text, "a.json", Facts(), "transformers").findings] == ["unknown-argument"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            '{\n  "output_dir": "out",\n  "num_train_epoch": 3\n}\n',
            '{\n  "output_dir": "out",\n  "num_train_epochs": 3\n}\n',
        ),
        ('{"output_dir": "out", "average_tokens_across_devices": false}', None),
    ],
)
def test_repairs_are_json(before, after):
    def findings(text):
        return check(text, "a.json", Facts(), "transformers").findings

    changed, _ = fix_text(before, findings, path="a.json", unsafe=True)
    json.loads(changed)
    assert after is None or changed == after


def test_a_json_file_is_repaired_on_disk(tmp_path: Path, capsys):
    file = tmp_path / "args.json"
    file.write_text(
        '{\n  "num_train_epochs": 1,\n  "accelerator_config": {"even_batches": false},\n  "fsdp": true\n}\n'
    )
    code = main(["validate", str(file), "--world-size", "4", "--fix", "--unsafe-fixes", "--isolated"])
    capsys.readouterr()
    assert json.loads(file.read_text())["accelerator_config"] == {"even_batches": True}
    assert code == 0
