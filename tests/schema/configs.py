"""Configs that rules can have an opinion on: examples of rules with their keys overwritten by plausible and implausible values.

No value is an integral float (``2.0``): a JSON Schema takes it for an integer, and cannot do otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from ndcheck.dialects.examples import language, whole
from ndcheck.reader import read
from ndcheck.rules.conditions import Both, Condition, Either, Not, Test
from ndcheck.schema.export import WORDS, conditional_rules
from ndcheck.schema.words import Words

VERDICTS = Path(__file__).parents[1] / "data" / "axolotl_verdicts.jsonl"
GENERATED = {"axolotl": 5000, "accelerate": 1000, "transformers": 1000, "deepspeed": 1000}

SWITCHES = (True, True, False, None)
TEXTS = ("true", "no", "1", "0", "x", "", "yes", "ON", "None")
NUMBERS = (0, 1, 2, 3, 4, 8, -1, 1.5, 0.5, -0.5)
NUMBER_TEXTS = (
    "0",
    "1",
    "2",
    " 3 ",
    "-1",
    "1.0",
    "1_0",
    "+2",
    "0.0",
    "1e-5",
    "nan",
    "-inf",
    "00",
    "007",
    ".5",
    "5.",
    "0e5",
    "-0",
)
CONTAINERS: tuple[Any, ...] = (
    [],
    ["x"],
    [1],
    ["axolotl.integrations.kernels.KernelsPlugin"],
    {},
    {"a": 1},
    {"stage": 3},
)
PREFIXES = ("fsdp_", "megatron_lm_")

KeyPath = tuple[str, ...]


def tests_of(condition: Condition) -> Iterator[Test]:
    """Every test in a condition."""
    match condition:
        case Test():
            yield condition
        case Not(inner):
            yield from tests_of(inner)
        case Both(left, right) | Either(left, right):
            yield from tests_of(left)
            yield from tests_of(right)


@cache
def operands(dialect: str) -> dict[KeyPath, tuple[Any, ...]]:
    """Every key that a condition reads, in each of its spellings, with the values that it is compared with."""
    words = WORDS[dialect]
    found: dict[KeyPath, list[Any]] = {}
    for rule in conditional_rules(words):
        assert rule.clause is not None
        for test in tests_of(rule.clause.broken):
            for inner in tests_of(words.runs[test.name]) if test.name in words.runs else (test,):
                for case in words.cases(inner.name):
                    if case.path is not None:
                        found.setdefault(case.path, []).extend(_near(inner))
    return {path: tuple(values) for path, values in sorted(found.items())}


def _near(test: Test) -> list[Any]:
    operand = test.operand
    if isinstance(operand, frozenset):
        return sorted(operand, key=str)
    if test.operator in ("matches", "lists"):
        return [operand.strip("^$").replace("\\", "").split("|")[0].strip("(")]
    if isinstance(operand, float):
        return [0]
    return [] if operand is None else [operand, operand + 1] if type(operand) is int else [operand]


def value(chance: Random, near: tuple[Any, ...]) -> Any:
    """A value: one that a rule asks for, or one of the usual and the unusual kinds."""
    choice = chance.random()
    if near and choice < 0.4:
        return chance.choice(near)
    for limit, pool in ((0.65, SWITCHES), (0.72, TEXTS), (0.82, NUMBERS), (0.92, NUMBER_TEXTS), (1.0, CONTAINERS)):
        if choice < limit:
            return chance.choice(pool)
    raise AssertionError


@cache
def examples(dialect: str) -> tuple[dict[str, Any], ...]:
    """The bad and the good example of every rule of a dialect, and an empty config."""
    words = WORDS[dialect]
    found: list[dict[str, Any]] = [{}]
    for rule in words.dialect.rules:
        for fragment in (rule.bad, rule.good):
            if language(rule, fragment) is words.dialect:
                found += _as_json(read(whole(rule, fragment)).data)
    return tuple(found)


def _as_json(data: Any) -> list[dict[str, Any]]:
    """What an editor makes of a file, numbers as keys become text; nothing if it has dates or is no mapping."""
    try:
        return [json.loads(json.dumps(data, allow_nan=False))] if isinstance(data, dict) else []
    except (TypeError, ValueError):
        return []


def config(dialect: str, chance: Random) -> dict[str, Any]:
    """One config."""
    known = operands(dialect)
    found: dict[str, Any] = json.loads(json.dumps(chance.choice(examples(dialect))))
    for path in chance.sample(list(known), chance.choice((1, 2, 3, 5, 8, 20))):
        section = found
        for key in path[:-1]:
            if not isinstance(section.get(key), dict):
                section[key] = {}
            section = section[key]
        section[path[-1]] = value(chance, known[path])
    return found if dialect == "axolotl" else _spelled_once(found)


def _spelled_once(found: dict[str, Any]) -> dict[str, Any]:
    """With one spelling of each key: where both are written the last one counts, and a schema sees no order."""
    for section in found.values():
        for key in list(section) if isinstance(section, dict) else ():
            if any(f"{prefix}{key}" in section for prefix in PREFIXES):
                del section[key]
    return found


@cache
def corpus(dialect: str) -> tuple[dict[str, Any], ...]:
    """Examples, generated configs, and for axolotl the labelled ones."""
    labelled: list[dict[str, Any]] = []
    if dialect == "axolotl":
        labelled = [json.loads(line)["config"] for line in VERDICTS.read_text().splitlines()]
    chance = Random(dialect)  # the name is the seed
    generated = [config(dialect, chance) for _ in range(GENERATED[dialect])]
    return (*examples(dialect), *labelled, *generated)


def odd_config(words: Words, chance: Random) -> dict[str, Any]:
    """A config with values of all kinds for any keys of the dialect, for the types alone."""
    assert words.root.section is not None
    keys = chance.sample(sorted(words.root.section), 6)
    return {key: value(chance, ()) for key in keys}
