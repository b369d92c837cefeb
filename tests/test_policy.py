"""Which rules speak: selection, severities, version ranges, comments, settings files, baselines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ndcheck.checker import check
from ndcheck.cli import main
from ndcheck.dialects import ALL
from ndcheck.facts import Facts
from ndcheck.findings import Severity
from ndcheck.policy import Policy, PolicyError

HEAD = "base_model: org/model\ndatasets: [{path: d, type: alpaca}]\nlearning_rate: 1.0e-5\nmicro_batch_size: 1\ngradient_accumulation_steps: 1\n"
TWO = HEAD + "dp_shard_size: 8\nsequence_parallel_degree: 1\n"
"""Breaks fsdp-required (ND201, an error) on line 6 and renamed-key (ND803, a warning) on line 7."""


def names(text: str, policy: Policy | None = None, path: str = "a.yaml") -> list[str]:
    return [finding.name for finding in check(text, path, Facts(), "axolotl", policy).findings]


def test_everything_speaks_by_default() -> None:
    assert names(TWO) == ["fsdp-required", "renamed-key"]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Policy(select=("ND2",)), ["fsdp-required"]),
        (Policy(select=("ND201",)), ["fsdp-required"]),
        (Policy(select=("renamed-key",)), ["renamed-key"]),
        (Policy(ignore=("ND",)), []),
        (Policy(select=("ND2", "ND8"), ignore=("ND803",)), ["fsdp-required"]),
        (Policy(per_file_ignores={"*.yaml": ("ND201",)}), ["renamed-key"]),
        (Policy(per_file_ignores={"b.yaml": ("ND201",)}), ["fsdp-required", "renamed-key"]),
        (Policy(lowest=Severity.ERROR), ["fsdp-required"]),
        (Policy(severities={"fsdp-required": Severity.INFO}, lowest=Severity.WARNING), ["renamed-key"]),
    ],
)
def test_selection(policy: Policy, expected: list[str]) -> None:
    assert names(TWO, policy) == expected


def test_per_file_ignores_match_the_name_or_the_path() -> None:
    policy = Policy(per_file_ignores={"old/*": ("fsdp-required",)})
    assert names(TWO, policy, "old/a.yaml") == ["renamed-key"]
    assert names(TWO, policy, "new/a.yaml") == ["fsdp-required", "renamed-key"]


def test_a_misspelt_selector_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(PolicyError, match="did you mean fsdp-required"):
        Policy(ignore=("fsdp-requird",))


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("dp_shard_size: 8  # ndcheck: ignore[fsdp-required] our plug-in shards\n", []),
        ("dp_shard_size: 8  # ndcheck: ignore[ND201]\n", []),
        ("# ndcheck: ignore[fsdp-required] next line\ndp_shard_size: 8\n", []),
        ("# ndcheck: ignore[fsdp-required] one too far\n\ndp_shard_size: 8\n", ["fsdp-required", "unused-suppression"]),
        ("dp_shard_size: 8  # ndcheck: ignore[unknown-key]\n", ["fsdp-required", "unused-suppression"]),
        ("dp_shard_size: 8  # ndcheck: ignore\n", ["fsdp-required", "unused-suppression"]),
        ("dp_shard_size: 8  # ndcheck: ignore[fsdp-required, unknown-key]\n", ["unused-suppression"]),
        ("wandb_name: '# ndcheck: ignore[fsdp-required]'\ndp_shard_size: 8\n", ["fsdp-required"]),
    ],
)
def test_comments(comment: str, expected: list[str]) -> None:
    assert sorted(names(HEAD + comment)) == expected


def test_a_comment_before_the_first_key_speaks_of_the_whole_file() -> None:
    assert names("# ndcheck: ignore[fsdp-required] sharded elsewhere\n" + HEAD + "dp_shard_size: 8\n") == []


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.chdir(folder)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    return main(["validate", *arguments])


@pytest.mark.parametrize(
    ("name", "table"),
    [("ndcheck.toml", ""), ("pyproject.toml", "[tool.ndcheck]\n")],
)
def test_a_settings_file_is_found_above(
    name: str, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(f'{table}ignore = ["renamed-key"]\nworld-size = 8\n')
    inner = tmp_path / "configs"
    inner.mkdir()
    (inner / "a.yaml").write_text(TWO)
    assert run(inner, monkeypatch, "a.yaml", "--format", "json") == 1
    report = json.loads(capsys.readouterr().out)
    assert [finding["name"] for finding in report["files"][0]["findings"]] == ["fsdp-required"]
    assert report["files"][0]["derived"]["world_size"] == 8
    assert run(inner, monkeypatch, "a.yaml", "--format", "json", "--isolated") == 1
    assert json.loads(capsys.readouterr().out)["summary"]["warnings"] == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("world-size = 0\n", "world-size must be an integer of at least 1"),
        ("ignore = 'ND1'\n", "ignore must be a list"),
        ("wrold-size = 8\n", "there is no option 'wrold-size'"),
        ("severities = { unknown-key = 'fatal' }\n", "one of error, warning, info"),
        ("ignore = [\n", "ndcheck.toml"),
        ("ignore = ['ND99']\n", "no rule is called 'ND99'"),
        ("target = 'axolotl'\n", "axolotl==VERSION"),
    ],
)
def test_a_bad_settings_file_is_refused(
    content: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ndcheck.toml").write_text(content)
    (tmp_path / "a.yaml").write_text(HEAD)
    assert run(tmp_path, monkeypatch, "a.yaml") == 2
    assert said in capsys.readouterr().err


def test_a_baseline_hides_what_it_knows_and_nothing_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text(HEAD + "dp_shard_size: 8\n")
    assert run(tmp_path, monkeypatch, "a.yaml", "--write-baseline", "known.json") == 0
    assert json.loads((tmp_path / "known.json").read_text())["files"] == {"a.yaml": {"fsdp-required": 1}}
    (tmp_path / "a.yaml").write_text("\n\n" + HEAD + "dp_shard_size: 8\n")
    assert run(tmp_path, monkeypatch, "a.yaml", "--baseline", "known.json") == 0
    assert "1 finding known from the baseline" in capsys.readouterr().out
    (tmp_path / "a.yaml").write_text(TWO)
    run(tmp_path, monkeypatch, "a.yaml", "--baseline", "known.json", "--format", "json")
    findings = json.loads(capsys.readouterr().out)["files"][0]["findings"]
    assert [finding["name"] for finding in findings] == ["renamed-key"]


@pytest.mark.parametrize(
    "content", ["", "[]", '{"version": 2, "files": {}}', '{"version": 1, "files": {"a": {"b": -1}}}']
)
def test_a_damaged_baseline_is_refused(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text(HEAD)
    (tmp_path / "known.json").write_text(content)
    assert run(tmp_path, monkeypatch, "a.yaml", "--baseline", "known.json") == 2
    assert "known.json" in capsys.readouterr().err


def test_explain_shows_the_examples_and_how_to_silence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "nd201"]) == 0
    page = capsys.readouterr().out
    assert "ND201 fsdp-required (error)" in page
    assert "    dp_shard_size: 8\n" in page
    assert "# ndcheck: ignore[fsdp-required] why" in page
    assert main(["explain", "fsdp-requird"]) == 2
    assert "did you mean fsdp-required?" in capsys.readouterr().err


def test_rules_lists_every_rule(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "--format", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)["rules"]
    assert [rule["name"] for rule in listed] == [rule.name for rule in ALL]


def test_the_table_in_the_docs_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "--format", "markdown"]) == 0
    docs = Path(__file__).parents[1] / "docs" / "rules.md"
    assert docs.read_text(encoding="utf-8") == capsys.readouterr().out, (
        "run: ndcheck rules --format markdown > docs/rules.md"
    )
