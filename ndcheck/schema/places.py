"""Schemas about a key somewhere in the file: that it is there and how, that it is not, that it can be read at all."""

from __future__ import annotations

from ndcheck.schema.kinds import Kind, reads
from ndcheck.schema.logic import Schema, all_of, any_of, present, where_present

KeyPath = tuple[str, ...]
"""Keys from the top of the file."""


def kind_at(root: Kind, path: KeyPath) -> Kind:
    """The kind of the entry at a path."""
    for key in path:
        root = root.entry(key)
    return root


def at(root: Kind, path: KeyPath, schema: Schema) -> Schema:
    """Something is written at ``path``, every section around it can be read, and it is like ``schema``."""
    key, rest = path[0], path[1:]
    if not rest:
        return present(key, schema)
    kind = root.entry(key)
    inside = at(kind, rest, schema)
    return present(key, all_of(inside, _as_a_whole(kind)))


def written(path: KeyPath) -> Schema:
    """Something is written at ``path``, whatever it is."""
    key, rest = path[0], path[1:]
    return present(key, written(rest)) if rest else present(key)


def lacking(root: Kind, path: KeyPath) -> Schema:
    """Nothing is written at ``path``, and every section around it can be read."""
    return _where(root, path, False)


def readable(root: Kind, path: KeyPath, kind: Kind) -> Schema:
    """What is written at ``path`` and around it can be read, if anything is."""
    return _where(root, path, reads(kind))


def _where(root: Kind, path: KeyPath, schema: Schema) -> Schema:
    key, rest = path[0], path[1:]
    if not rest:
        return where_present(key, schema)
    kind = root.entry(key)
    inside = all_of({"type": "object"}, _where(kind, rest, schema), _as_a_whole(kind))
    other: Schema = {"not": {"type": "object"}} if kind.anything else _reads_flat(kind)
    return where_present(key, any_of(other, inside))


def _reads_flat(kind: Kind) -> Schema:
    flat = reads(kind.flat())
    return False if flat == {"type": []} else flat


def _as_a_whole(kind: Kind) -> Schema:
    """Nothing more is asked of a section that loses its wrong entries only, or has none that could be wrong."""
    return True if kind.loose or kind.section is None else reads(kind)
