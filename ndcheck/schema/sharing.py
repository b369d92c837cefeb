"""Subschemas that occur more than once move into the definitions, so that a file of a few hundred rules stays small."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ndcheck.schema.logic import Schema, text

_SHORTEST = 60  # characters of JSON below which a reference saves nothing
_LISTS = ("allOf", "anyOf")
_SINGLE = ("not", "if", "contains", "items", "propertyNames", "additionalProperties")
_MAPPINGS = ("properties",)


def share(schemas: list[Schema], pointer: str) -> tuple[list[Schema], dict[str, Schema]]:
    """The schemas with references in place of what they have in common, and the definitions that these refer to."""
    counts: Counter[str] = Counter()
    for schema in schemas:
        _count(schema, counts)
    sharing = _Sharing({key for key, count in counts.items() if count > 1 and len(key) > _SHORTEST}, pointer)
    return [sharing.within(schema) for schema in schemas], sharing.definitions


def _count(schema: Schema, counts: Counter[str]) -> None:
    key = text(schema)
    counts[key] += 1
    if counts[key] == 1:  # what is inside a copy would be counted in vain: it moves with the whole
        for inner in _children(schema):
            _count(inner, counts)


def _children(schema: Schema) -> list[Schema]:
    if isinstance(schema, bool):
        return []
    found: list[Any] = [part for key in _LISTS for part in schema.get(key, ())]
    found += [schema[key] for key in _SINGLE if isinstance(schema.get(key), dict)]
    return found + [inner for key in _MAPPINGS for inner in schema.get(key, {}).values()]


def _unsuggested(schema: Schema) -> Schema:
    """A key that a condition looks at is no suggestion: yaml-language-server would offer it, older names and all."""
    return schema if isinstance(schema, bool) else {**schema, "doNotSuggest": True}


class _Sharing:
    def __init__(self, common: set[str], pointer: str) -> None:
        self._common = common
        self._pointer = pointer
        self._names: dict[str, str] = {}
        self.definitions: dict[str, Schema] = {}

    def __call__(self, schema: Schema) -> Schema:
        key = text(schema)
        if isinstance(schema, bool) or key not in self._common:
            return self.within(schema)
        if key not in self._names:
            self._names[key] = name = f"shared.{len(self._names) + 1}"
            self.definitions[name] = self.within(schema)
        return {"$ref": f"{self._pointer}{self._names[key]}"}

    def within(self, schema: Schema) -> Schema:
        """The schema itself, with references inside."""
        if isinstance(schema, bool):
            return schema
        found = dict(schema)
        for key in _LISTS:
            if key in found:
                found[key] = [self(part) for part in found[key]]
        for key in _SINGLE:
            if isinstance(found.get(key), dict):
                found[key] = self(found[key])
        for key in _MAPPINGS:
            if key in found:
                found[key] = {name: _unsuggested(self(inner)) for name, inner in found[key].items()}
        return found
