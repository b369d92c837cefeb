"""The documented JSON: names, types and values that programs rely on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ndcheck.checker import Report, check
from ndcheck.facts import gather
from ndcheck.output import as_json
from tests.helpers import FSDP2, completed

FILE = {"path": str, "dialect": (str, type(None)), "findings": list, "derived": dict}
REGION = {"line": int, "column": int, "end_line": int, "end_column": int}
FINDING = {
    "code": str,
    "name": str,
    "severity": str,
    "key": str,
    **REGION,
    "message": str,
    "related": list,
    "fix": (dict, type(None)),
}
DERIVED = {
    "world_size": (int, type(None)),
    "layout": (dict, type(None)),
    "global_batch_size": (int, type(None)),
}
SUMMARY = {"files": int, "errors": int, "warnings": int, "not_run": dict}


def rendered(*texts: str, unreadable: dict[str, str] | None = None, **facts: Any) -> dict[str, Any]:
    files = tuple(check(text, f"{number}.yaml", gather(**facts)) for number, text in enumerate(texts))
    output: dict[str, Any] = json.loads(as_json.render(Report(files=files), unreadable or {}))
    return output


def has_shape(value: dict[str, Any], shape: dict[str, Any]) -> None:
    for key, wanted in shape.items():
        assert isinstance(value[key], wanted), key
        assert not (wanted is int and isinstance(value[key], bool)), key


@pytest.mark.parametrize(
    "text",
    [
        completed("tensor_parallel_size: 3\ndp_shard_size: 2\n"),
        completed(""),
        "base_model: [a\n",
        "",
        "model: x\n",
        "base_model: a\nbase_model: b\non: 1\n",
        "base_model: " + "9" * 50 + "\n",
    ],
)
@pytest.mark.parametrize("world_size", [None, 8])
def test_shape(text: str, world_size: int | None) -> None:
    output = rendered(text, world_size=world_size)
    assert output["version"] == 1
    has_shape(output["summary"], SUMMARY)
    (file,) = output["files"]
    has_shape(file, FILE)
    has_shape(file["derived"], DERIVED)
    for finding in file["findings"]:
        has_shape(finding, FINDING)
        assert finding["severity"] in ("error", "warning", "info")
        assert (finding["line"], finding["column"]) <= (finding["end_line"], finding["end_column"])
        for region in finding["related"]:
            has_shape(region, {**REGION, "label": str})
        if finding["fix"]:
            assert finding["fix"]["safety"] in ("safe", "unsafe")
            assert finding["fix"]["title"]
    counts = [sum(finding["severity"] == word for finding in file["findings"]) for word in ("error", "warning")]
    assert counts == [output["summary"]["errors"], output["summary"]["warnings"]]


def test_one_finding_in_full() -> None:
    output = rendered(completed("dp_shard_size: 8\nfsdp_config: {}\n"), world_size=8)
    (finding,) = [finding for finding in output["files"][0]["findings"] if finding["code"] == "ND201"]
    assert finding["name"] == "fsdp-required"
    assert finding["severity"] == "error"
    assert finding["key"] == "dp_shard_size"
    assert {key: finding[key] for key in REGION} == {"line": 1, "column": 1, "end_line": 1, "end_column": 14}
    assert finding["message"] == "dp_shard_size 8, but FSDP is off, so nothing is sharded"
    assert finding["related"] == [{"line": 2, "column": 1, "end_line": 2, "end_column": 12, "label": "FSDP is off"}]
    assert finding["fix"]["title"] == "switch FSDP2 on: fsdp_version: 2 and an fsdp_config"


def test_derived() -> None:
    fragment = f"tensor_parallel_size: 2\ndp_shard_size: 4\ngradient_accumulation_steps: 8\n{FSDP2}"
    (file,) = rendered(completed(fragment), world_size=8)["files"]
    assert file["derived"]["world_size"] == 8
    assert file["derived"]["layout"] == {"dp_replicate": 1, "dp_shard": 4, "cp": 1, "tp": 2, "ep": 1, "pp": 1}
    assert file["derived"]["global_batch_size"] == 32


def test_silent_rules_are_counted_once_over_all_files() -> None:
    text = completed("tensor_parallel_size: 2\n")
    once, twice = rendered(text)["summary"], rendered(text, text)["summary"]
    assert once["not_run"] == twice["not_run"]
    assert set(once["not_run"]) >= {"world_size", "model_config"}
    assert (once["files"], twice["files"]) == (1, 2)


def test_files_that_could_not_be_opened() -> None:
    output = rendered(unreadable={"a.yaml": "Permission denied"})
    assert output["files"] == []
    assert output["unreadable"] == [{"path": "a.yaml", "message": "Permission denied"}]


def test_text_is_ascii_and_exact() -> None:
    text = "base_model: org/модель\nключ🙂: 1\n"
    raw = as_json.render(Report(files=(check(text, "\udcffx", gather()),)), {})
    assert raw.isascii()
    assert "ключ🙂" in [finding["key"] for finding in json.loads(raw)["files"][0]["findings"]]
