"""Rules about the text itself, as findings with code, line and column."""

from __future__ import annotations

import pytest

from ndcheck.checker import FileReport, check
from ndcheck.facts import gather


def whole(content: bytes | str, dialect: str | None = "axolotl") -> FileReport:
    return check(content, "config.yaml", gather(), dialect)


@pytest.mark.parametrize(
    ("content", "code", "line", "column"),
    [
        ("base_model: [a\n", "ND901", 2, 1),
        ("base_model: a\nmicro_batch_size: 1\t# rows\n", "ND901", 2, 20),
        ("base_model: a\n---\nbase_model: b\n", "ND901", 2, 1),
        ("base_model: a\nbase_model: b\n", "ND902", 2, 1),
        ("base_model: a\nbase_model: a\n", "ND903", 2, 1),
        ("base_model: !!python/object:os.system x\n", "ND904", 1, 13),
        ("base_model: a\nwandb_name: 2026-13-45\n", "ND905", 2, 13),
        ("base_model: &a [*a]\n", "ND906", 1, 17),
        ("base_model: a\n<<: 3\n", "ND907", 2, 5),
        ("base_model: a\n[b]: 3\n", "ND908", 2, 1),
        ("base_model: " + "[" * 101 + "]" * 101 + "\n", "ND909", 1, 112),
        (b"base_model: a\nwandb_name: \xff\n", "ND910", 2, 13),
        (b"\xff\xfeb\0a\0", "ND910", 1, 1),
        ("", "ND911", 1, 1),
        ("# nothing\n", "ND911", 1, 1),
        ("null\n", "ND911", 1, 1),
        ("- base_model: a\n", "ND911", 1, 1),
        ("base_model\n", "ND911", 1, 1),
    ],
)
def test_finding(content: bytes | str, code: str, line: int, column: int) -> None:
    found = [finding for finding in whole(content).findings if finding.code.startswith("ND9")]
    assert [(finding.code, finding.region.line, finding.region.column) for finding in found] == [(code, line, column)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\n", "axolotl by keys such as"),
        ("{}\n", "accelerate by keys such as"),
        ("on: 1\n", "transformers by keys such as"),
        ("model:\n  name: llama\nparallelism: {tp: 2}\n", "a file of torchtitan or nanotron"),
        ("finetuning_type: lora\nper_device_train_batch_size: 1\n", "a file of LLaMA-Factory"),
        ("num_processes: 2\nper_device_train_batch_size: 1\n", "say which by --dialect"),
    ],
)
def test_a_file_of_no_known_dialect_is_not_guessed_at(text: str, said: str) -> None:
    report = whole(text, dialect=None)
    (finding,) = report.findings
    assert (finding.code, finding.severity, report.dialect) == ("ND912", "error", None)
    assert "nothing was checked" in finding.message
    assert said in finding.message


def test_broken_yaml_is_one_finding_not_two() -> None:
    assert [finding.code for finding in whole("a: [1\n", dialect=None).findings] == ["ND901"]


def test_the_rest_of_a_file_is_checked_beside_a_duplicate() -> None:
    codes = {finding.code for finding in whole("base_model: a\nbase_model: b\ntensor_parallel_size: two\n").findings}
    assert {"ND902", "ND802"} <= codes
