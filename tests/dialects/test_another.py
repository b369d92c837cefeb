"""A dialect that nobody knew before: a typed model, a reading and a translation are all that the neutral rules ask of it."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import ndcheck.rules
from ndcheck.checker import Text, check, check_together
from ndcheck.dialects import DIALECTS
from ndcheck.dialects.dialect import Dialect, Role
from ndcheck.dialects.parse import parse
from ndcheck.facts import Facts, gather
from ndcheck.rules import NEUTRAL
from ndcheck.run import Batch, Kernels, Loader, Run, Sequence, Sharding
from ndcheck.settings import Settings
from ndcheck.values import default


class Keys(BaseModel):
    """A framework with four keys."""

    tp_ways: int | None = None
    shards: int | None = None
    rows: int | None = None
    half: bool | None = None


def resolve(mapping: Mapping[Any, Any]) -> Settings:
    parsed = parse(Keys, lambda _: None, mapping)
    settings = Settings("toy", parsed.typed, parsed.problems)
    settings.mapping = mapping
    return settings


def to_run(settings: Settings, facts: Facts) -> Run:
    keys = {"tp": "tp_ways", "dp_shard": "shards"}
    off = default(False, "toy")
    return Run(
        facts=facts,
        degrees={axis: value for axis, key in keys.items() if (value := settings.value(key)) is not None},
        degree_keys={axis: (key,) for axis, key in keys.items()},
        sharding=Sharding(fsdp=default(True, "toy"), fsdp_version=default(2, "toy"), deepspeed=off),
        batch=Batch(micro=settings.value("rows")),
        sequence=Sequence(zigzag=off, pads=True),
        loader=Loader(streaming=off, dispatch_batches=default(None, "toy"), split_batches=off, pads_to_length=off),
        kernels=Kernels(),
    )


TOY = Dialect(
    name="toy",
    summary="a toy",
    role=Role.TRAINING,
    packages={},
    keys=frozenset(Keys.model_fields),
    markers=frozenset({"tp_ways", "shards"}),
    telling=("tp_ways",),
    minimal={"rows": "1"},
    key_count=4,
    model=Keys,
    resolve=resolve,
    to_run=to_run,
    model_path=lambda settings: None,
    engine=lambda settings: None,
    rules=NEUTRAL,
)


@pytest.fixture(autouse=True)
def _toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DIALECTS, "toy", TOY)


def test_neutral_rules_speak_of_it_in_its_own_words() -> None:
    model = {"model_type": "llama", "num_attention_heads": 12, "num_key_value_heads": 12}
    report = check("tp_ways: 8\nshards: 4\n", "toy.yaml", gather(world_size=16, model_config=model))
    assert report.dialect == "toy"
    messages = {one.name: one.message for one in report.findings if one.severity.value == "error"}
    assert messages["world-size-product"].startswith("shards 4 x tp_ways 8 = 32, but there are 16 ranks")
    assert messages["tp-attention-heads"].startswith("tp_ways 8 does not divide 12 attention heads")


def test_a_wrong_type_in_it() -> None:
    report = check("tp_ways: many\nshards: 2\n", "toy.yaml", gather(world_size=3))
    assert [one.name for one in report.findings] == ["wrong-type"]


def test_it_pairs_with_a_launch_file() -> None:
    launch = "distributed_type: MULTI_GPU\nnum_processes: 8\n"
    reports = check_together([Text("toy.yaml", "tp_ways: 2\nshards: 2\n"), Text("launch.yaml", launch)], gather())
    found = {(report.path, one.name) for report in reports for one in report.findings}
    assert found >= {
        ("toy.yaml", "world-size-product"),
        ("launch.yaml", "launched-ranks"),
        ("toy.yaml", "fsdp-in-one-file"),
    }


@pytest.mark.parametrize("path", sorted(Path(ndcheck.rules.__file__).parent.glob("*.py")), ids=lambda path: path.stem)
def test_no_neutral_rule_asks_which_dialect_it_is(path: Path) -> None:
    """Frameworks are named in evidence and reasons; no code compares anything with such a name, or imports one's rules."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = set(DIALECTS)
    compared = [
        constant.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare | ast.Subscript)
        for constant in ast.walk(node)
        if isinstance(constant, ast.Constant)
    ]
    assert names.isdisjoint(map(str, compared))
    imported = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert not [module for module in imported if module.split(".")[-1] in names]
