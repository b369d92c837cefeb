"""The schemas as files and on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from jsonschema.validators import validator_for

from ndcheck.cli import main
from ndcheck.findings import Severity
from ndcheck.reader import read
from ndcheck.schema.export import DRAFTS, WORDS, export, expressed, unexpressed
from ndcheck.schema.files import published, written
from ndcheck.schema.table import page

EXAMPLES = Path(__file__).parents[1] / "data" / "examples"
LABELS: dict[str, dict[str, str]] = json.loads((EXAMPLES / "labels.json").read_bytes())
DOCS = Path(__file__).parents[2] / "docs"

REFUSED_RIGHTLY = {
    "qwen3.5__122b-a10b-moe-qlora-fsdp.yaml": "checkpointing twice: transformers refuses it when the Trainer is made",
    "qwen3.5__27b-fft.yaml": "checkpointing twice, too",
}
"""File that axolotl accepts -> what is wrong with it all the same."""


@pytest.mark.parametrize("dialect", WORDS)
def test_the_published_schema_is_the_generated_one(dialect: str) -> None:
    assert published(dialect).read_text() == written(export(WORDS[dialect])), "run: python -m ndcheck.schema.command"


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("dialect", WORDS)
def test_it_is_a_schema_of_its_draft(dialect: str, draft: str) -> None:
    schema = export(WORDS[dialect], draft=draft)
    meta = validator_for(schema, default=None)
    assert meta.META_SCHEMA["$schema"] == schema["$schema"].removesuffix("#") + ("#" if draft == "7" else "")
    meta.check_schema(schema)


def test_six_of_ten_error_rules_of_axolotl_are_expressed() -> None:
    words = WORDS["axolotl"]
    errors = {rule.code for rule in words.dialect.rules if rule.severity is Severity.ERROR}
    assert len(errors & expressed(words)) >= 0.6 * len(errors)
    conditions = {rule.code for rule in words.dialect.rules if rule.clause is not None}
    held_elsewhere = {rule.code for rule, why in unexpressed(words) if why == "holds for other versions"}
    assert conditions - held_elsewhere <= expressed(words)


def test_examples_that_axolotl_accepts_are_accepted() -> None:
    schema = jsonschema_rs.validator_for(export(WORDS["axolotl"]))
    accepted = [name for name, label in LABELS.items() if label["verdict"] == "accept"]
    refused = {name for name in accepted if not schema.is_valid(_data(EXAMPLES / name))}
    assert len(accepted) > 50
    assert refused == REFUSED_RIGHTLY.keys()


def _data(path: Path) -> Any:
    return json.loads(json.dumps(read(path.read_text()).data, default=str))


def test_strict_refuses_keys_that_nobody_knows() -> None:
    config = {"base_model": "a", "learning_rate": 1, "datasets": [{"path": "a"}], "micro_batch_size": 1}
    config |= {"gradient_accumulation_steps": 1, "sample_paking": True}
    assert jsonschema_rs.is_valid(export(WORDS["axolotl"]), config)
    assert not jsonschema_rs.is_valid(export(WORDS["axolotl"], strict=True), config)


@pytest.mark.parametrize("dialect", WORDS)
def test_snippets_are_configs_without_a_finding(
    dialect: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = WORDS[dialect]
    assert words.snippets
    for snippet in words.snippets:
        text = {key: yaml.safe_load(value) for key, value in words.dialect.minimal.items()} | dict(snippet.body)
        path = tmp_path / "snippet.yaml"
        path.write_text(yaml.safe_dump(text))
        assert main(["validate", "--world-size", "8", "--dialect", dialect, str(path)]) == 0, capsys.readouterr().out


def test_every_deprecated_key_names_another() -> None:
    schema = export(WORDS["axolotl"])
    old = {
        key: part["deprecationMessage"] for key, part in schema["properties"].items() if "deprecationMessage" in part
    }
    assert old["sequence_parallel_degree"] == "deprecated: write context_parallel_size"
    assert old["sdp_attention"] == "deprecated: write attn_implementation: sdpa"
    assert old["gptq_groupsize"] == "nothing reads this key any more"


def test_the_command_writes_what_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "schema.json"
    assert main(["schema", "--dialect", "accelerate", "--strict", "--draft", "2020-12", "-o", str(file)]) == 0
    assert json.loads(file.read_text()) == export(WORDS["accelerate"], draft="2020-12", strict=True)
    assert main(["schema"]) == 0
    assert capsys.readouterr().out == published("axolotl").read_text()


def test_the_modeline_names_a_file_that_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "--print-modeline"]) == 0
    assert capsys.readouterr().out == f"# yaml-language-server: $schema={published('axolotl').as_uri()}\n"


def test_vscode_settings_are_added_to(tmp_path: Path) -> None:
    settings = tmp_path / ".vscode" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{"editor.rulers": [120], "yaml.schemas": {"other.json": "x.yaml"}}')
    assert main(["schema", "--vscode", str(tmp_path)]) == 0
    found = json.loads(settings.read_text())
    assert found["editor.rulers"] == [120]
    assert found["yaml.schemas"]["other.json"] == "x.yaml"
    assert "*.axolotl.yaml" in found["yaml.schemas"][published("axolotl").as_uri()]


@pytest.mark.parametrize("text", ["// mine\n{}", "[]", '{"yaml.schemas": 3}'])
def test_vscode_settings_that_cannot_be_kept_are_left_alone(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / ".vscode" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(text)
    assert main(["schema", "--vscode", str(tmp_path)]) == 2
    assert settings.read_text() == text
    assert "add to it by hand" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_an_error_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "-o", str(tmp_path)]) == 2
    assert main(["schema", "--vscode", str(tmp_path / "nowhere")]) == 2
    assert capsys.readouterr().err.count("ndcheck: cannot write") == 2


def test_the_table_of_rules_in_the_docs_is_the_present_one() -> None:
    assert (DOCS / "schema-rules.md").read_text() == "".join(f"{line}\n" for line in page()), (
        "run: python -m ndcheck.schema.table > docs/schema-rules.md"
    )
