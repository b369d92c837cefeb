"""Sections whose keys may, or must, begin with a prefix: read by their plain names, and placed where they stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel

from ndcheck.dialects.parse import parse
from ndcheck.settings import Settings, TypeProblem
from ndcheck.values import Origin, Source, Value, dotted


@dataclass(frozen=True, slots=True)
class Prefixed:
    """A section: typed values by plain name, plain name -> the key as written, and what is of a wrong type."""

    name: str
    typed: Mapping[str, Any]
    spelled: Mapping[str, str]
    problems: tuple[TypeProblem, ...]

    def put_into(self, settings: Settings) -> None:
        """Let the values be in force under their plain names."""
        wrong = {problem.path[1] for problem in self.problems}
        for plain, key in self.spelled.items():
            path = (self.name, key)
            if plain in self.typed or key in wrong:
                value, readable = self.typed.get(plain), key not in wrong
                settings.put(
                    f"{self.name}.{plain}", Value(value, Origin(Source.KEY, dotted(path), path), readable=readable)
                )


def read_section(
    mapping: Mapping[Any, Any], name: str, prefix: str, model: type[BaseModel], *, optional: bool
) -> Prefixed:
    """The section ``name``; keys without the prefix count only if it is ``optional``."""
    section = mapping.get(name)
    names = [key for key in section if isinstance(key, str)] if isinstance(section, Mapping) else []
    spelled = {key.removeprefix(prefix): key for key in names if optional or key.startswith(prefix)}
    parsed = parse(model, lambda _: None, {plain: section[key] for plain, key in spelled.items()} if section else {})
    problems = tuple(
        replace(problem, path=(name, spelled[str(problem.path[0])], *problem.path[1:])) for problem in parsed.problems
    )
    return Prefixed(name, parsed.typed, spelled, problems)
