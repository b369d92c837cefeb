"""A second validator, strict about every keyword: it compiles the schemas and says the same."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest

from ndcheck.schema.export import DRAFTS, WORDS, export
from tests.schema.configs import corpus
from tests.schema.node import HERE, install, needs_node
from tests.schema.verdicts import Schema, with_marks_refused

pytestmark = needs_node


def ajv(schema: dict[str, Any], configs: list[dict[str, Any]]) -> list[list[tuple[str, str]]]:
    install()
    asked = json.dumps({"schema": schema, "configs": configs})
    done = subprocess.run(
        ["node", str(HERE / "ajv.cjs")], input=asked, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr, f"strict mode has something to say: {done.stderr}"
    found: list[list[tuple[str, str]]] = json.loads(done.stdout)
    return found


def clause_number(where: str) -> int:
    match = re.match(r"#/allOf/(\d+)/", where)
    assert match is not None, where
    return int(match[1])


@pytest.mark.parametrize("dialect", WORDS)
def test_ajv_refuses_what_the_other_validators_refuse(dialect: str) -> None:
    schema = export(WORDS[dialect])
    compiled = Schema(schema)
    configs = list(corpus(dialect))
    for config, errors in zip(configs, ajv(with_marks_refused(schema), configs), strict=True):
        refused = {compiled.codes[clause_number(where)] for where, _ in errors}
        assert refused == {code for code, _ in compiled.says(config)}, config


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("strict", [False, True])
def test_every_export_compiles(draft: str, strict: bool) -> None:
    for words in WORDS.values():
        minimal = {"strange": 1}
        (errors,) = ajv(export(words, draft=draft, strict=strict), [minimal])
        assert ("#/additionalProperties" in {where for where, _ in errors}) is strict
