"""``python -m ndcheck.schema.table``: which rules are in the schemas, and which cannot be, as a page (docs/schema-rules.md)."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from ndcheck.findings import Severity
from ndcheck.schema.export import WORDS, expressed, unexpressed
from ndcheck.schema.words import Words


def page() -> Iterator[str]:
    """The lines of the page."""
    yield "# Rules in the schemas, and rules that a schema cannot state"
    yield ""
    yield "Written by `python -m ndcheck.schema.table`."
    yield ""
    yield "| dialect | rules | in the schema | errors | in the schema | share |"
    yield "|---|---|---|---|---|---|"
    for words in WORDS.values():
        known, rules = expressed(words), words.dialect.rules
        errors = [rule for rule in rules if rule.severity is Severity.ERROR]
        both = sum(rule.code in known for rule in errors)
        inside = sum(rule.code in known for rule in rules)
        share = f"{100 * both / len(errors):.0f} %"
        yield f"| {words.dialect.name} | {len(rules)} | {inside} | {len(errors)} | {both} | {share} |"
    for words in WORDS.values():
        yield from _section(words)


def _section(words: Words) -> Iterator[str]:
    known = expressed(words)
    yield ""
    yield f"## {words.dialect.name}"
    yield ""
    inside = [f"{rule.code} `{rule.name}`" for rule in words.dialect.rules if rule.code in known]
    yield f"In the schema: {', '.join(inside)}."
    yield ""
    yield "| not in the schema | severity | because it |"
    yield "|---|---|---|"
    for rule, reason in unexpressed(words):
        yield f"| {rule.code} `{rule.name}` | {rule.severity.value} | {reason} |"


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in page())
