"""What a dialect is: a typed model, a reading of its own words, a translation into a Run, and its rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel

from ndcheck.document import Document
from ndcheck.facts import Facts
from ndcheck.rules.judge import Verdicts, judge
from ndcheck.rules.rule import Rule
from ndcheck.run import Run
from ndcheck.settings import Settings
from ndcheck.values import Value


class Role(IntEnum):
    """What a file is to a run, in the order in which the files are read."""

    LAUNCH = 0
    TRAINING = 1
    ENGINE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One framework's config language.

    ``keys`` are those that it knows at top level, ``markers`` those of them that no other framework's file has there, and ``telling`` a
    few of these for a message.
    ``packages``: the framework's, and the versions that its rules were written against.
    ``minimal`` is the smallest config that the framework accepts, key -> YAML. ``key_count``: how many keys it knows.
    ``model_path`` finds the value that may name a local model directory, ``engine`` the one that names, or holds, the config of
    an engine such as DeepSpeed. ``writes``: the notation that its files are commonly in.
    """

    name: str
    summary: str
    role: Role
    packages: Mapping[str, str]
    writes: Literal["yaml", "json"] = "yaml"
    keys: frozenset[str]
    markers: frozenset[str]
    telling: tuple[str, ...]
    minimal: Mapping[str, str]
    key_count: int
    model: type[BaseModel]
    resolve: Callable[[Mapping[Any, Any]], Settings]
    to_run: Callable[[Settings, Facts], Run]
    model_path: Callable[[Settings], Value[str] | None]
    engine: Callable[[Settings], Value[Any] | None]
    rules: tuple[Rule[Any], ...]

    def recognised_by(self, mapping: Mapping[Any, Any]) -> tuple[str, ...]:
        """The keys of the mapping that only this dialect has."""
        return tuple(key for key in mapping if isinstance(key, str) and key in self.markers)

    def knows(self, mapping: Mapping[Any, Any]) -> tuple[str, ...]:
        """The keys of the mapping that this dialect has as well."""
        return tuple(key for key in mapping if isinstance(key, str) and key in self.keys)


class Examination(NamedTuple):
    """One config, read and judged."""

    settings: Settings
    run: Run
    verdicts: Verdicts


def examine(
    dialect: Dialect,
    settings: Settings,
    facts: Facts,
    document: Document | None = None,
    complete: Callable[[Run], Run] = lambda run: run,
) -> Examination:
    """Translate settings that ``dialect.resolve`` made, and put every rule of the dialect to the question.

    With ``document``, the rules about the text itself run too; ``complete`` adds what other files of the run say.
    """
    run = complete(dialect.to_run(settings, facts))
    subjects = (settings, run) if document is None else (document, settings, run)
    return Examination(settings, run, judge(dialect.rules, *subjects))
