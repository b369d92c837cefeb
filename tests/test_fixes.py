"""Repairs: only what must change changes, and what was repaired is no longer found."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ndcheck import fixes
from ndcheck.checker import check
from ndcheck.cli import main
from ndcheck.dialects import ALL
from ndcheck.dialects.examples import facts_of, language, whole
from ndcheck.facts import Facts, gather
from ndcheck.findings import Finding, Safety
from ndcheck.rules.rule import Rule

HEAD = "base_model: org/model\ndatasets: [{path: d, type: alpaca}]\nlearning_rate: 1.0e-5\nmicro_batch_size: 1\ngradient_accumulation_steps: 1\n"


def checker(facts: Facts | None = None, dialect: str = "axolotl") -> Callable[[str], tuple[Finding, ...]]:
    return lambda text: check(text, "config.yaml", facts or Facts(), dialect).findings


def fixed(text: str, *, unsafe: bool = False, facts: Facts | None = None, dialect: str = "axolotl") -> str:
    return fixes.fix_text(text, checker(facts, dialect), unsafe=unsafe)[0]


def checker_of(rule: Rule[Any]) -> Callable[[str], tuple[Finding, ...]]:
    return checker(gather(**facts_of(rule)), language(rule, rule.bad).name)


def fixable_examples() -> list[Rule[Any]]:
    found = []
    for rule in ALL:
        if rule.bad:
            findings = checker_of(rule)(whole(rule, rule.bad))
            if any(finding.name == rule.name and finding.fix and finding.fix.edits for finding in findings):
                found.append(rule)
    return found


@pytest.mark.parametrize("rule", fixable_examples(), ids=lambda rule: rule.name)
def test_a_repaired_finding_is_gone_and_repairing_again_changes_nothing(rule: Rule[Any]) -> None:
    examine = checker_of(rule)
    after = fixes.fix_text(whole(rule, rule.bad), examine, unsafe=True)[0]
    assert rule.name not in {finding.name for finding in examine(after)}
    assert fixes.fix_text(after, examine, unsafe=True)[0] == after


@pytest.mark.parametrize("rule", fixable_examples(), ids=lambda rule: rule.name)
def test_safe_repairs_leave_no_safe_repair_behind(rule: Rule[Any]) -> None:
    examine = checker_of(rule)
    after = fixes.fix_text(whole(rule, rule.bad), examine, unsafe=False)[0]
    left = [finding for finding in examine(after) if finding.fix and finding.fix.edits]
    assert all(finding.fix and finding.fix.safety is Safety.UNSAFE for finding in left)


def test_comments_quotes_order_and_line_ends_stay() -> None:
    text = (
        '# head\r\nbase_model:   "org/model"  # quoted\r\n\r\n'
        "datasets: [{path: d, type: alpaca}]\r\nlearning_rate: 1.0e-5\r\nmicro_batch_size: 1\r\n"
        "gradient_accumulation_steps: 1\r\n'sequence_parallel_degree':  1   # why\r\n# tail\r\n"
    )
    assert fixed(text) == text.replace("'sequence_parallel_degree'", "'context_parallel_size'")


def test_an_older_flag_becomes_key_and_value() -> None:
    assert fixed(HEAD + "flash_attention: true  # fast\n") == HEAD + "attn_implementation: flash_attention_2  # fast\n"


def test_a_flag_that_is_off_goes_with_its_line() -> None:
    assert fixed(HEAD + "sdp_attention: false\nseed: 1\n") == HEAD + "seed: 1\n"


def test_a_nested_version_moves_to_top_level() -> None:
    before = HEAD + "fsdp_config:\n  fsdp_version: 2  # two\n  offload_params: false\n"
    after = fixed(before)
    assert yaml.safe_load(after)["fsdp_version"] == 2
    assert yaml.safe_load(after)["fsdp_config"] == {"offload_params": False}


def test_a_prefix_goes_inside_a_flow_mapping() -> None:
    before = HEAD + "fsdp_version: 2\nfsdp_config: {fsdp_offload_params: false, reshard_after_forward: true}\n"
    assert fixed(before) == before.replace("fsdp_offload_params", "offload_params")


def test_an_unsafe_repair_waits_to_be_asked_for() -> None:
    text = (
        HEAD
        + "tensor_parallel_size: 2\ndp_shard_size: 2\nfsdp_version: 2\nfsdp_config: {reshard_after_forward: true}\n"
    )
    facts = gather(world_size=8)
    assert fixed(text, facts=facts) == text
    assert fixed(text, unsafe=True, facts=facts) == text.replace("dp_shard_size: 2", "dp_shard_size: 4")


def test_a_missing_degree_is_added_at_the_end() -> None:
    text = HEAD + "tensor_parallel_size: 2\nfsdp_version: 2\nfsdp_config: {reshard_after_forward: true}"
    assert fixed(text, unsafe=True, facts=gather(world_size=8)) == text + "\ndp_shard_size: 4"


def test_a_value_behind_an_anchor_is_left_alone() -> None:
    text = HEAD + "seed: &n 4095\nsequence_len: *n\ncontext_parallel_size: 2\nattn_implementation: flash_attention_2\n"
    after = fixed(text, unsafe=True, facts=gather(world_size=2))
    assert "seed: &n 4095\n" in after


def test_diff_applies_with_git(tmp_path: Path) -> None:
    before, after = "a: 1\nb: 2", "a: 1\nb: 3"
    (tmp_path / "x.yaml").write_text(before)
    patch = fixes.diff(before, after, "x.yaml")
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=patch, text=True, check=True)
    assert (tmp_path / "x.yaml").read_text() == after


def test_a_file_is_replaced_with_its_mode_and_through_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "real.yaml", tmp_path / "link.yaml"
    target.write_bytes(b"\xef\xbb\xbf" + (HEAD + "sequence_parallel_degree: 1\n").encode())
    target.chmod(0o640)
    link.symlink_to(target)
    assert main(["validate", str(link), "--fix", "--isolated", "--world-size", "1"]) == 0
    assert link.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert target.read_bytes() == b"\xef\xbb\xbf" + (HEAD + "context_parallel_size: 1\n").encode()
    assert sorted(os.listdir(tmp_path)) == ["link.yaml", "real.yaml"]


def test_a_failed_write_leaves_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "a.yaml"
    target.write_text("a: 1\n")

    def refuse(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="disk full"):
        fixes.write_file(target, b"b: 2\n")
    assert target.read_text() == "a: 1\n"
    assert os.listdir(tmp_path) == ["a.yaml"]


def test_diff_changes_nothing_and_says_so_by_its_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "a.yaml"
    target.write_text(HEAD + "flash_attention: true\n")
    assert main(["validate", str(target), "--diff", "--isolated"]) == 1
    assert "+attn_implementation: flash_attention_2" in capsys.readouterr().out
    assert target.read_text() == HEAD + "flash_attention: true\n"
    target.write_text(HEAD)
    assert main(["validate", str(target), "--diff", "--isolated"]) == 0
    assert capsys.readouterr().out == ""
