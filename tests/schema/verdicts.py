"""What the rule engine says of a config, and what a schema says, in the same words: (code, key at which it is said)."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import jsonschema_rs

from ndcheck.dialects.dialect import examine
from ndcheck.facts import gather
from ndcheck.findings import Severity
from ndcheck.schema.export import conditional_rules
from ndcheck.schema.extras import extras
from ndcheck.schema.words import Words

Said = set[tuple[str, tuple[str | int, ...]]]


def by_engine(words: Words, config: dict[str, Any]) -> Said:
    """The rules of the schema's clauses that a config breaks."""
    codes = {rule.code for rule in conditional_rules(words)} | {extra.code for extra in extras(words) if extra.clause}
    verdicts = examine(words.dialect, words.dialect.resolve(config), gather()).verdicts
    return {(rule.code, violation.path) for rule, violation in verdicts.violations if rule.code in codes}


def with_marks_refused(schema: dict[str, Any]) -> dict[str, Any]:
    """The clauses of a schema alone, and a key that a warning marks is refused like that of an error."""
    clauses = copy.deepcopy(schema["allOf"])
    for clause in clauses:
        _refuse(clause)
    definitions = "definitions" if "definitions" in schema else "$defs"
    return {"$schema": schema["$schema"], "allOf": clauses, definitions: schema[definitions]}


def _refuse(clause: dict[str, Any]) -> None:
    then = clause["then"]
    if then == {}:
        clause["then"] = False  # a warning with no key to stand at
    elif "if" in then:
        _refuse(then)
        if "else" not in then and "deprecationMessage" in str(then):
            then["else"] = False
    else:
        _refuse_marked(then)
    if isinstance(clause.get("else"), dict):
        inner = {"then": clause["else"]}
        _refuse(inner)
        clause["else"] = inner["then"]


def _refuse_marked(then: dict[str, Any]) -> None:
    for key, inner in then.get("properties", {}).items():
        if isinstance(inner, dict):
            if "deprecationMessage" in inner:
                then["properties"][key] = False
            else:
                _refuse_marked(inner)


class Schema:
    """A schema's clauses, compiled by jsonschema-rs."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.codes = [clause["$comment"].split()[0] for clause in schema["allOf"]]
        self._validator = jsonschema_rs.validator_for(with_marks_refused(schema))

    def says(self, config: dict[str, Any]) -> Said:
        """The rules that a config breaks."""
        return said(
            self.codes, ((error.schema_path, error.instance_path) for error in self._validator.iter_errors(config))
        )


def said(codes: list[str], errors: Iterable[tuple[Iterable[Any], Iterable[Any]]]) -> Said:
    """Errors by path in the schema and in the config, as rules and keys."""
    return {(codes[next(part for part in where if isinstance(part, int))], tuple(path)) for where, path in errors}


def errors_only(words: Words, found: Said) -> Said:
    """Without warnings."""
    severe = {rule.code for rule in words.dialect.rules if rule.severity is Severity.ERROR}
    return {(code, path) for code, path in found if code in severe}
