"""The examples of a rule, as whole configs."""

from __future__ import annotations

from typing import Any

from ndcheck.dialects import DIALECTS, detect
from ndcheck.dialects.dialect import Dialect
from ndcheck.reader import read
from ndcheck.rules.rule import Rule


def language(rule: Rule[Any], fragment: str) -> Dialect:
    """The dialect of an example: the rule's own; of a rule of them all, the one that the keys tell, else the first."""
    own = [dialect for dialect in DIALECTS.values() if any(rule is one for one in dialect.rules)]
    if len(own) == 1:
        return own[0]
    data = read(fragment).data
    told = detect(data).dialect if isinstance(data, dict) else None
    return told or own[0]


def whole(rule: Rule[Any], fragment: str) -> str:
    """The fragment on the dialect's minimal config: its keys replace those, and ``given["drop"]`` takes keys away.

    ``given["targets"]`` are versions of frameworks; ``given["beside"]`` is a file of the same run. ``given["also"]`` names
    rules that the bad example breaks as well, because it cannot help it.
    """
    dropped = set(rule.given.get("drop", ()))
    own = {line.split(":")[0] for line in fragment.splitlines() if line[:1].isalpha()}
    minimal = language(rule, fragment).minimal
    lines = [f"{key}: {text}\n" for key, text in minimal.items() if key not in own | dropped]
    return "".join(lines) + fragment


def facts_of(rule: Rule[Any]) -> dict[str, Any]:
    """The arguments of ``facts.gather`` under which the examples hold."""
    return {name: value for name, value in rule.given.items() if name not in ("drop", "also", "targets", "beside")}
