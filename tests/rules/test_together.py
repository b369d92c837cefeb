"""The rules beside each other: no two of them pull at one key in different directions, and none of them is silent for ever."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest
import yaml

from ndcheck.checker import Text, check, check_together
from ndcheck.dialects import ALL
from ndcheck.dialects.examples import facts_of, language, whole
from ndcheck.facts import gather
from ndcheck.findings import Finding, RemoveKey, SetValue
from ndcheck.policy import Policy

DATA = Path(__file__).parents[1] / "data"
WITHOUT_EXAMPLES = {
    "not-utf8",
    "json-syntax",
    "not-a-mapping",
    "unknown-dialect",
    "model-config-unreadable",
    "nodes-partly-used",
}


def corpus() -> list[tuple[str, tuple[Finding, ...]]]:
    """Every kept label, every real example and every rule's bad example, with what is found in it."""
    facts = gather(world_size=8)
    texts = [(path.name, path.read_text(encoding="utf-8")) for path in sorted((DATA / "examples").glob("*.y*ml"))]
    for line in (DATA / "axolotl_verdicts.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        texts.append((row["id"], yaml.safe_dump(row["config"], sort_keys=False)))
    found = [(name, check(text, name, facts, "axolotl").findings) for name, text in texts]
    for rule in ALL:
        if rule.bad or rule.good:
            policy = Policy(targets=rule.given.get("targets", {}))
            spoken = language(rule, rule.bad).name
            beside = [Text("beside.yaml", text)] if (text := rule.given.get("beside")) else []
            texts = [Text(rule.name, whole(rule, rule.bad)), *beside]
            reports = check_together(texts, gather(**facts_of(rule)), spoken, policy)
            found += [(f"{rule.name} in {report.path}", report.findings) for report in reports]
    return found


@pytest.fixture(scope="module")
def findings() -> list[tuple[str, tuple[Finding, ...]]]:
    return corpus()


def test_every_rule_fires_somewhere(findings: list[tuple[str, tuple[Finding, ...]]]) -> None:
    fired = {finding.name for _, found in findings for finding in found}
    assert {rule.name for rule in ALL} - fired == WITHOUT_EXAMPLES


def test_no_two_repairs_demand_opposites(findings: list[tuple[str, tuple[Finding, ...]]]) -> None:
    """Of one key, two repairs may want the same value or the same removal, never two values."""
    opposites = []
    for name, found in findings:
        wanted: dict[tuple[str | int, ...], set[str]] = defaultdict(set)
        by: dict[tuple[str | int, ...], list[str]] = defaultdict(list)
        for finding in found:
            for edit in finding.fix.edits if finding.fix else ():
                if isinstance(edit, SetValue | RemoveKey):
                    wanted[edit.path].add(edit.text if isinstance(edit, SetValue) else "(gone)")
                    by[edit.path].append(finding.name)
        opposites += [(name, path, values, by[path]) for path, values in wanted.items() if len(values) > 1]
    assert opposites == []
