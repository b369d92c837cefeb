"""One rule as a page, and all rules as a table."""

from __future__ import annotations

import json
from collections.abc import Iterable
from textwrap import fill, indent
from typing import Any

from ndcheck.dialects.examples import facts_of, language
from ndcheck.reader import read
from ndcheck.rules.rule import Rule


def page(rule: Rule[Any]) -> str:
    """What, why, a bad and a good example, evidence, how to silence it."""
    parts = [
        f"{rule.code} {rule.name} ({rule.severity.value})",
        fill(f"{rule.summary.rstrip('.')}.", 100),
        fill(rule.why, 100),
    ]
    if beside := rule.given.get("beside"):
        parts.append(f"Beside this file of the same run:\n\n{indent(beside.rstrip(), '    ')}")
    for title, fragment in (("Breaks it", rule.bad), ("Does not", rule.good)):
        if fragment:
            parts.append(f"{title}{_facts(rule)}:\n\n{indent(_as_written(rule, fragment), '    ')}")
    if rule.unchecked:
        parts.append("The framework itself does not check this.")
    if rule.versions:
        parts.append(f"Holds for versions {rule.versions}.")
    parts.append(fill(f"Evidence: {rule.evidence}.", 100))
    parts.append(_silence(rule))
    return "\n\n".join(parts) + "\n"


def _as_written(rule: Rule[Any], fragment: str) -> str:
    """The example in the notation of its dialect."""
    if language(rule, fragment).writes == "json":
        return json.dumps(read(fragment).data, indent=2)
    return fragment.rstrip()


def _silence(rule: Rule[Any]) -> str:
    if rule.bad and language(rule, rule.bad).writes == "json":
        return f"""JSON has no comments. To silence it, name the file in pyproject.toml:

    [tool.ndcheck.per-file-ignores]
    "*.json" = ["{rule.name}"]"""
    return f"To silence it on a line, end the line with:  # ndcheck: ignore[{rule.name}] why"


def table(rules: Iterable[Rule[Any]], form: str) -> str:
    """All rules: ``text``, ``markdown`` or ``json``."""
    if form == "json":
        rows = [
            {
                "code": rule.code,
                "name": rule.name,
                "severity": rule.severity.value,
                "summary": rule.summary,
                "why": rule.why,
                "unchecked": rule.unchecked,
                "versions": rule.versions,
                "evidence": rule.evidence,
            }
            for rule in rules
        ]
        return json.dumps({"version": 1, "rules": rows}, indent=2) + "\n"
    if form == "markdown":
        lines = ["| code | name | severity | what it finds | evidence |", "|---|---|---|---|---|"]
        lines += [
            f"| {rule.code} | `{rule.name}` | {rule.severity.value} | {_cell(rule.summary)} | {_cell(rule.evidence)} |"
            for rule in rules
        ]
        return "\n".join(lines) + "\n"
    return "".join(f"{rule.code}  {rule.severity.value:<8} {rule.name:<32} {rule.summary}\n" for rule in rules)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _facts(rule: Rule[Any]) -> str:
    facts = facts_of(rule)
    known = [f"{name.replace('_', ' ')} {value}" for name, value in facts.items() if name != "model_config"]
    if "model_config" in facts:
        shape = ", ".join(f"{key} {value}" for key, value in facts["model_config"].items() if key != "model_type")
        known.append(f"a model with {shape}")
    return f" ({'; '.join(known)})" if known else ""
