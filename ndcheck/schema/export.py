"""The JSON Schema of a dialect: every key with its type and what it means, and every rule that can be said of one file alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ndcheck.dialects import ASSUMED
from ndcheck.document import Document
from ndcheck.findings import Severity
from ndcheck.pairing import Driven, Launched
from ndcheck.rules.rule import Rule
from ndcheck.rules.versions import in_range
from ndcheck.run import Run
from ndcheck.schema import accelerate, axolotl, deepspeed, transformers
from ndcheck.schema.clauses import Compiler, Definitions, clause
from ndcheck.schema.extras import extras
from ndcheck.schema.kinds import Kind, reads
from ndcheck.schema.places import KeyPath
from ndcheck.schema.sharing import share
from ndcheck.schema.words import Snippet, Words

WORDS = {
    words.dialect.name: words
    for words in (axolotl.words(), accelerate.words(), transformers.words(), deepspeed.words())
}
"""Dialect -> what a schema needs to know of it."""

DRAFTS = {
    "7": ("http://json-schema.org/draft-07/schema#", "definitions"),
    "2019-09": ("https://json-schema.org/draft/2019-09/schema", "$defs"),
    "2020-12": ("https://json-schema.org/draft/2020-12/schema", "$defs"),
}
"""Draft -> its meta-schema, and where definitions stand. Editors for YAML understand the first best."""


_MOST_RULES = 8  # that a hover lists


def export(words: Words, *, draft: str = "7", strict: bool = False) -> dict[str, Any]:
    """The schema. ``strict`` refuses keys that nobody knows, which otherwise pass."""
    meta, definitions_at = DRAFTS[draft]
    definitions = Definitions(f"#/{definitions_at}/")
    more = extras(words)
    compiler = Compiler(words, definitions)
    clauses = [clause(rule, compiler) for rule in conditional_rules(words)]
    clauses += [extra.clause for extra in more if extra.clause is not None]
    limits = {extra.path: extra.limits for extra in more if extra.limits}
    names = sorted(definitions.schemas)
    conditions = [definitions.schemas[name] for name in names] + [part["if"] for part in clauses]
    shorter, shared = share(conditions, definitions.pointer)
    for part, condition in zip(clauses, shorter[len(names) :], strict=True):
        part["if"] = condition
    return {
        "$schema": meta,
        "$comment": _comment(words),
        "description": f"{words.dialect.summary[0].upper()}{words.dialect.summary[1:]}, as ndcheck reads it.",
        "type": "object",
        "properties": _properties(words, words.root, (), limits, strict=strict),
        **({"additionalProperties": False} if strict else {}),
        "allOf": clauses,
        "defaultSnippets": [_snippet(snippet) for snippet in words.snippets],
        definitions_at: dict(zip(names, shorter[: len(names)], strict=True)) | shared,
    }


def conditional_rules(words: Words) -> list[Rule[Any]]:
    """The rules that are conditions, as far as they hold for the versions that a schema is made for."""
    return [
        rule for rule in words.dialect.rules if rule.clause is not None and in_range(rule.versions, ASSUMED, ASSUMED)
    ]


def expressed(words: Words) -> set[str]:
    """The codes of all rules that the schema states."""
    return {rule.code for rule in conditional_rules(words)} | {extra.code for extra in extras(words)} | {"ND802"}


def unexpressed(words: Words) -> list[tuple[Rule[Any], str]]:
    """The rules that it does not state, each with the reason."""
    known = expressed(words)
    return [(rule, _reason(rule)) for rule in words.dialect.rules if rule.code not in known]


def _reason(rule: Rule[Any]) -> str:
    if rule.reads is Document:
        return "is about the text, of which a schema sees nothing"
    if rule.reads is Run:
        return "multiplies, divides or compares numbers, or needs a fact from outside the file"
    if rule.reads in (Launched, Driven):
        return "compares two files"
    if rule.clause is not None:
        return "holds for other versions"
    return "looks through lists and names, or compares values with each other"


def _comment(words: Words) -> str:
    left = unexpressed(words)
    errors = sum(rule.severity is Severity.ERROR for rule, _ in left)
    codes = ", ".join(sorted(rule.code for rule, _ in left))
    return (
        f"Made by `ndcheck schema`, not by hand. {len(words.dialect.rules) - len(left)} of {len(words.dialect.rules)} rules are in it. "
        f"A schema cannot state the other {len(left)}, {errors} of them errors; `ndcheck validate` checks them too: {codes}."
    )


def _snippet(snippet: Snippet) -> dict[str, Any]:
    return {"label": snippet.label, "description": snippet.description, "body": dict(snippet.body)}


def _properties(
    words: Words, kind: Kind, above: KeyPath, limits: Mapping[KeyPath, dict[str, Any]], *, strict: bool
) -> dict[str, Any]:
    assert kind.section is not None
    rules = _rules_by_name(words) if not above else {}
    return {
        key: _property(words, inner, (*above, key), limits, rules.get(key, ()), strict=strict)
        for key, inner in sorted(kind.section.items())
    }


def _property(
    words: Words,
    kind: Kind,
    path: KeyPath,
    limits: Mapping[KeyPath, dict[str, Any]],
    rules: Iterable[Rule[Any]],
    *,
    strict: bool,
) -> dict[str, Any]:
    schema = reads(kind)
    found: dict[str, Any] = dict(schema) if isinstance(schema, dict) else {}
    if found:
        found["errorMessage"] = f"{'.'.join(path)} must be {kind.described} [ND802 wrong-type]"
    found |= limits.get(path, {})
    if kind.section is not None:
        found["properties"] = _properties(words, kind, path, limits, strict=strict)
        if strict:
            found["additionalProperties"] = False
    return found | _annotations(words, kind, path, rules)


def _annotations(words: Words, kind: Kind, path: KeyPath, rules: Iterable[Rule[Any]]) -> dict[str, Any]:
    name = ".".join(path)
    found: dict[str, Any] = {}
    description = words.descriptions.get(path, "")
    instead = words.old.get(path)
    if instead is not None:
        found["deprecationMessage"] = _instead(instead)
    if description:
        found["description"] = description
    default = words.defaults.get(name)
    if default is not None:
        found["default"] = default
    if kind.words and kind.boolean:
        found["examples"] = [*kind.words, True, False]
    found["markdownDescription"] = _markdown(kind, description, default, instead, rules)
    return found


def _instead(instead: str) -> str:
    return "nothing reads this key any more" if instead == "nothing" else f"deprecated: write {instead}"


def _markdown(kind: Kind, description: str, default: Any, instead: str | None, rules: Iterable[Rule[Any]]) -> str:
    parts = [description] if description else []
    parts.append(f"Takes {kind.described}." + (f" Default: `{default}`." if default is not None else ""))
    if instead is not None:
        parts.append(f"**{_instead(instead)}**")
    if lines := [f"- `ndcheck explain {rule.code}`: {rule.summary.rstrip('.')}" for rule in rules]:
        more = [f"- and {len(lines) - _MOST_RULES} more"] if len(lines) > _MOST_RULES else []
        parts.append("Rules that look at it:\n\n" + "\n".join(lines[:_MOST_RULES] + more))
    return "\n\n".join(parts)


def _rules_by_name(words: Words) -> dict[str, list[Rule[Any]]]:
    """Top-level key -> the rules whose condition names it."""
    found: dict[str, list[Rule[Any]]] = {}
    for rule in conditional_rules(words):
        assert rule.clause is not None
        for key in dict.fromkeys(name.split(".")[0] for name in rule.clause.names):
            found.setdefault(key, []).append(rule)
    return found
