"""JSON Schemas as a small algebra: what is always or never true folds away, and nothing is said twice."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

Schema = dict[str, Any] | bool
"""A subschema; True takes everything, False nothing."""


def all_of(*schemas: Schema) -> Schema:
    """Every one of them holds."""
    parts = _parts(schemas, "allOf", neutral=True)
    if any(part is False for part in parts):
        return False
    return parts[0] if len(parts) == 1 else {"allOf": parts} if parts else True


def any_of(*schemas: Schema) -> Schema:
    """At least one of them holds."""
    parts = _parts(schemas, "anyOf", neutral=False)
    if any(part is True for part in parts):
        return True
    return parts[0] if len(parts) == 1 else {"anyOf": parts} if parts else False


def negate(schema: Schema) -> Schema:
    """It does not hold."""
    if isinstance(schema, bool):
        return not schema
    return schema["not"] if schema.keys() == {"not"} else {"not": schema}


def _parts(schemas: Iterable[Schema], keyword: str, *, neutral: bool) -> list[Schema]:
    parts: list[Schema] = []
    for schema in schemas:
        inner = schema[keyword] if isinstance(schema, dict) and schema.keys() == {keyword} else [schema]
        parts += [part for part in inner if part is not neutral]
    return list({text(part): part for part in parts}.values())


def text(schema: Schema) -> str:
    """A schema as text: two are the same if and only if their texts are, where Python takes 0 for false."""
    return json.dumps(schema, sort_keys=True)


def present(key: str, schema: Schema = True) -> Schema:
    """The key is written, and its value is like this."""
    if schema is False:
        return False
    inside = {} if schema is True else {"properties": {key: schema}}
    return {"type": "object", "required": [key], **inside}


def where_present(key: str, schema: Schema) -> Schema:
    """The key is not written, or its value is like this; what is not an object passes."""
    return True if schema is True else {"type": "object", "properties": {key: schema}}
