"""Every rule's bad example breaks that rule and nothing else; its nearest legal neighbour breaks none."""

from __future__ import annotations

from typing import Any

import pytest

from ndcheck.checker import Text, check_together
from ndcheck.dialects import ALL
from ndcheck.dialects.examples import facts_of, language, whole
from ndcheck.facts import gather
from ndcheck.findings import Severity
from ndcheck.policy import Policy
from ndcheck.rules.rule import Rule

WITH_EXAMPLES = [rule for rule in ALL if rule.bad or rule.good]
WITHOUT = {
    "json-syntax",
    "not-utf8",
    "not-a-mapping",
    "unknown-dialect",
    "model-config-unreadable",
    "nodes-partly-used",
}


def findings(rule: Rule[Any], fragment: str) -> list[str]:
    policy = Policy(targets=rule.given.get("targets", {}))
    spoken = language(rule, fragment).name
    beside = [Text("beside.yaml", text)] if (text := rule.given.get("beside")) else []
    texts = [Text("example.yaml", whole(rule, fragment)), *beside]
    return [
        finding.name
        for report in check_together(texts, gather(**facts_of(rule)), spoken, policy)
        for finding in report.findings
        if not beside or finding.severity is not Severity.INFO
    ]


@pytest.mark.parametrize("rule", WITH_EXAMPLES, ids=lambda rule: rule.name)
def test_bad_example_breaks_this_rule_alone(rule: Rule[Any]) -> None:
    assert set(findings(rule, rule.bad)) == {rule.name, *rule.given.get("also", ())}


@pytest.mark.parametrize("rule", WITH_EXAMPLES, ids=lambda rule: rule.name)
def test_good_example_breaks_nothing(rule: Rule[Any]) -> None:
    # only what the key that the rule is about brings with it, such as being deprecated
    assert set(findings(rule, rule.good)) <= set(rule.given.get("also", ()))


def test_only_rules_about_bytes_and_files_lack_examples() -> None:
    assert {rule.name for rule in ALL} - {rule.name for rule in WITH_EXAMPLES} == WITHOUT


def test_codes_and_names_are_unique() -> None:
    assert len({rule.code for rule in ALL}) == len(ALL)
    assert len({rule.name for rule in ALL}) == len(ALL)


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.name)
def test_every_rule_is_explained(rule: Rule[Any]) -> None:
    assert rule.summary
    assert rule.why
    assert rule.evidence
