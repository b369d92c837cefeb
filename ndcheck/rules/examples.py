"""The examples of a rule, as whole configs."""

from __future__ import annotations

from typing import Any

from ndcheck.rules.rule import Rule

MINIMAL = {
    "base_model": "org/model",
    "datasets": "[{path: org/data, type: alpaca}]",
    "learning_rate": "1.0e-5",
    "micro_batch_size": "1",
    "gradient_accumulation_steps": "1",
}
"""The smallest config that axolotl accepts: key -> YAML."""


def whole(rule: Rule[Any], fragment: str) -> str:
    """The fragment on the minimal config: its keys replace those, and ``given["drop"]`` takes keys away.

    ``given["target"]`` is the framework's version; ``given["also"]`` names rules that the bad example breaks as well, because it cannot help it.
    """
    dropped = set(rule.given.get("drop", ()))
    own = {line.split(":")[0] for line in fragment.splitlines() if line[:1].isalpha()}
    lines = [f"{key}: {text}\n" for key, text in MINIMAL.items() if key not in own | dropped]
    return "".join(lines) + fragment


def facts_of(rule: Rule[Any]) -> dict[str, Any]:
    """The arguments of ``facts.gather`` under which the examples hold."""
    return {name: value for name, value in rule.given.items() if name not in ("drop", "also", "target")}
