"""Types of keys as text (``int | null``, ``"a" | "b" | str``, ``list[str]``, ``{Section}``), so that a table of keys can hold them.

They become Python types only when a file uses such a key: building all of them costs more than checking a file.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal, Union

_ATOMS: dict[str, Any] = {
    "int": int,
    "float": float,
    "bool": bool,
    "str": str,
    "dict": dict[Any, Any],
    "tuple": tuple[Any, ...],
    "null": None,
    "Any": Any,
}


def build(text: str, section: Callable[[str], Any] | None = None) -> Any:
    """The Python type of a type text; ``section`` makes the type of a section from its name."""
    parts = text.split(" | ")  # no list here holds a union
    words = tuple(json.loads(part) for part in parts if part.startswith('"'))
    branches = [_branch(part, section) for part in parts if not part.startswith('"')]
    return Union[(Literal[words], *branches) if words else tuple(branches)]  # noqa: UP007  (built at run time)


def _branch(text: str, section: Callable[[str], Any] | None) -> Any:
    if text.startswith("{"):
        assert section is not None, "this table of keys has no sections"
        return section(text[1:-1])
    if text.startswith("list["):
        return list[build(text[5:-1], section)]  # type: ignore[misc]
    if text.startswith("tuple["):
        return tuple[tuple(build(part, section) for part in text[6:-1].split(", "))]  # type: ignore[misc]
    return _ATOMS[text]
