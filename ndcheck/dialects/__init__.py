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

ASSUMED: dict[str, str] = {name: version for dialect in DIALECTS.values() for name, version in dialect.packages.items()}
"""Package -> the version that its rules were written against: assumed where nobody says another."""

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
    """What the keys of a file say of its dialect: the one that they are of, dialect -> keys that tell it, and the
    framework that the file is of if there is no dialect for it."""

    dialect: Dialect | None
    keys: Mapping[str, tuple[str, ...]]
    foreign: str | None = None


def detect(mapping: Mapping[Any, Any]) -> Detection:
    """The dialect that has most keys of its own in the mapping; none if a framework without one does.

    Where that does not decide, the one that knows most keys of the file; without any key of one's own it must know them all, two at
    least. Where that does not either, the one that reads the values without a wrong type. None if two are still as good.
    """
    found = {name: keys for name, dialect in DIALECTS.items() if (keys := dialect.recognised_by(mapping))}
    foreign = next((name for name, keys in FOREIGN.items() if not keys.isdisjoint(mapping)), None)
    if foreign is not None and "axolotl" not in found:
        return Detection(None, found, foreign)
    best = _best({name: len(keys) for name, keys in found.items()})
    if len(best) == 1:
        return Detection(DIALECTS[best[0]], found)
    known = {name: DIALECTS[name].knows(mapping) for name in best or DIALECTS}
    if not found:
        known = {name: keys for name, keys in known.items() if len(keys) == len(mapping) > 1}
    best = _best({name: len(keys) for name, keys in known.items()})
    if len(best) > 1:
        best = _best({name: -len(DIALECTS[name].resolve(mapping).problems) for name in best})
    return Detection(DIALECTS[best[0]], known) if len(best) == 1 else Detection(None, found or known)


def _best(scores: Mapping[str, int]) -> list[str]:
    return [name for name, score in scores.items() if score == max(scores.values())]
