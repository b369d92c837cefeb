"""The config languages that ndcheck reads, and every rule there is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ndcheck.dialects import accelerate, axolotl, deepspeed, transformers
from ndcheck.dialects.dialect import Dialect
from ndcheck.rules.rule import Rule

DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect for dialect in (axolotl.DIALECT, accelerate.DIALECT, transformers.DIALECT, deepspeed.DIALECT)
}
"""Every dialect, by name."""

_BY_CODE = {rule.code: rule for dialect in DIALECTS.values() for rule in dialect.rules}
ALL: tuple[Rule[Any], ...] = tuple(_BY_CODE.values())
"""The catalogue: the rules of all frameworks first, then those of each."""


FOREIGN = {
    "LLaMA-Factory": frozenset({"finetuning_type", "cutoff_len", "dataset_dir", "template", "use_unsloth", "stage"}),
    "ms-swift": frozenset({"tuner_type", "train_type", "swift_version", "sequence_parallel_impl"}),
    "Megatron-LM": frozenset(
        {"tensor-model-parallel-size", "tensor_model_parallel_size", "pipeline_model_parallel_size"}
    ),
    "verl": frozenset({"actor_rollout_ref", "rollout", "actor"}),
    "torchtitan or nanotron": frozenset({"parallelism", "job"}),
    "NeMo": frozenset({"policy", "distributed", "cluster"}),
}
"""Framework without a dialect -> keys that tell its files from those of the others."""


class Detection(NamedTuple):
    """What the keys of a file say of its dialect: the one that they are of, dialect -> keys that only it has, and the
    framework that the file is of if there is no dialect for it."""

    dialect: Dialect | None
    keys: Mapping[str, tuple[str, ...]]
    foreign: str | None = None


def detect(mapping: Mapping[Any, Any]) -> Detection:
    """The dialect that has most keys of its own in the mapping; none if two have as many, or a framework without one does."""
    found = {name: keys for name, dialect in DIALECTS.items() if (keys := dialect.recognised_by(mapping))}
    foreign = next((name for name, keys in FOREIGN.items() if not keys.isdisjoint(mapping)), None)
    if foreign is not None and "axolotl" not in found:
        return Detection(None, found, foreign)
    ranked = sorted(found, key=lambda name: -len(found[name]))
    tied = len(ranked) > 1 and len(found[ranked[0]]) == len(found[ranked[1]])
    return Detection(DIALECTS[ranked[0]] if ranked and not tied else None, found)
