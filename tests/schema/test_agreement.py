"""A schema and the rule engine say the same of every config: the same rules, at the same keys."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

import jsonschema
import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ndcheck.dialects.dialect import examine
from ndcheck.facts import gather
from ndcheck.schema.export import WORDS, export
from tests.schema.configs import config, corpus, odd_config
from tests.schema.verdicts import Schema, by_engine, said, with_marks_refused


@cache
def schema(dialect: str, draft: str = "7") -> dict[str, Any]:
    return export(WORDS[dialect], draft=draft)


@cache
def compiled(dialect: str, draft: str = "7") -> Schema:
    return Schema(schema(dialect, draft))


@pytest.mark.parametrize("dialect", WORDS)
def test_every_config_breaks_the_same_rules_at_the_same_keys(dialect: str) -> None:
    words = WORDS[dialect]
    different = []
    broken = set()
    for one in corpus(dialect):
        engine = by_engine(words, one)
        broken |= {code for code, _ in engine}
        if engine != (told := compiled(dialect).says(one)):
            different.append((engine - told, told - engine, one))
    assert not different, f"{len(different)} of {len(corpus(dialect))}, the first: {different[0]}"
    # distributed_type cannot be two things, and DeepSpeed's file cannot switch FSDP on
    impossible = {"ND203"} if dialect in ("accelerate", "deepspeed") else set()
    assert broken == set(compiled(dialect).codes) - impossible, "every rule is broken by some config"


@pytest.mark.parametrize("draft", ["2019-09", "2020-12"])
def test_every_draft_says_the_same(draft: str) -> None:
    for dialect in WORDS:
        for one in corpus(dialect)[::20]:
            assert compiled(dialect, draft).says(one) == compiled(dialect).says(one)


@pytest.mark.parametrize("dialect", WORDS)
def test_the_library_that_people_use_says_the_same(dialect: str) -> None:
    whole = schema(dialect)
    validator = jsonschema.Draft7Validator(with_marks_refused(whole))
    for one in corpus(dialect)[::40]:
        errors = ((error.absolute_schema_path, error.absolute_path) for error in validator.iter_errors(one))
        refused = {code for code, _ in said(compiled(dialect).codes, errors)}
        assert refused == {code for code, _ in compiled(dialect).says(one)}


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(dialect=st.sampled_from(list(WORDS)), chance=st.randoms(use_true_random=False))
def test_no_config_can_be_found_that_they_disagree_on(dialect: str, chance: Random) -> None:
    one = config(dialect, chance)
    assert compiled(dialect).says(one) == by_engine(WORDS[dialect], one)


@pytest.mark.parametrize("dialect", WORDS)
def test_types_are_refused_at_the_same_keys(dialect: str) -> None:
    words, chance = WORDS[dialect], Random(7)
    types = jsonschema_rs.validator_for({key: part for key, part in schema(dialect).items() if key != "allOf"})
    for one in [*corpus(dialect)[::4], *(odd_config(words, chance) for _ in range(2000))]:
        settings_ = words.dialect.resolve(one)
        verdicts = examine(words.dialect, settings_, gather()).verdicts
        limits = {violation.path[0] for rule, violation in verdicts.violations if rule.code in ("AX982", "AX983")}
        bounds = {key for key in limits if not isinstance(one[key], str)}  # a schema cannot measure a number in quotes
        engine = {problem.path[0] for problem in settings_.problems} | bounds
        told = {error.instance_path[0] for error in types.iter_errors(one)}
        assert told == engine, (told ^ engine, one)
