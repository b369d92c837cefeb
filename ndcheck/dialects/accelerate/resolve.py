"""What accelerate's launcher makes of a file: optional prefixes, sections that are in force, keys that nothing reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from ndcheck.dialects.accelerate.model import (
    DEFAULTS,
    DYNAMO_KEYS,
    FP8_KEYS,
    MEGATRON_KEYS,
    OTHER_KEYS,
    AccelerateKeys,
    DeepspeedConfig,
    FsdpConfig,
    MegatronConfig,
    ParallelismConfig,
)
from ndcheck.dialects.parse import parse
from ndcheck.dialects.prefixes import read_section
from ndcheck.settings import Settings, UnknownKey
from ndcheck.values import Origin, Source, Value

PREFIXED: Mapping[str, tuple[str, type[BaseModel]]] = {
    "fsdp_config": ("fsdp_", FsdpConfig),
    "megatron_lm_config": ("megatron_lm_", MegatronConfig),
}
"""Section -> the prefix of its keys, and its model without it."""

KNOWN: Mapping[str, frozenset[str]] = {
    "fsdp_config": frozenset(FsdpConfig.model_fields),
    "megatron_lm_config": frozenset(f"megatron_lm_{name}" for name in MEGATRON_KEYS),
    "fp8_config": FP8_KEYS,
    "dynamo_config": DYNAMO_KEYS,
    "mpirun_config": frozenset({"mpirun_hostfile", "mpirun_ccl"}),
    "deepspeed_config": frozenset(DeepspeedConfig.model_fields),
    "parallelism_config": frozenset(ParallelismConfig.model_fields),
}
"""Section -> its keys, without an optional prefix."""

OPTIONAL_PREFIX = {"fsdp_config": "fsdp_", "fp8_config": "fp8_", "dynamo_config": "dynamo_"}
"""Section -> the prefix that its keys may carry; those of Megatron-LM and of the mesh must carry theirs."""

PARALLELISM = "parallelism_config"
SAGEMAKER = "AMAZON_SAGEMAKER"
TOP = frozenset(AccelerateKeys.model_fields) | OTHER_KEYS


def resolve(mapping: Mapping[Any, Any]) -> Settings:
    """The values in force, keys of sections without their prefix, with what was seen on the way."""
    parsed = parse(AccelerateKeys, lambda _: None, mapping)
    sections = [
        read_section(mapping, name, prefix, model, optional=name in OPTIONAL_PREFIX)
        for name, (prefix, model) in PREFIXED.items()
    ]
    problems = [*parsed.problems, *(problem for section in sections for problem in section.problems)]
    settings = Settings("accelerate", parsed.typed, problems, DEFAULTS)
    settings.mapping = mapping
    settings.unknown = () if mapping.get("compute_environment") == SAGEMAKER else tuple(_unknown(mapping))
    for section in sections:
        section.put_into(settings)
    _unprefixed(settings, mapping)
    return settings


def _unknown(mapping: Mapping[Any, Any]) -> Iterator[UnknownKey]:
    for key, value in mapping.items():
        if key not in TOP:
            yield UnknownKey((key,), tuple(sorted(TOP)), _home(key), refused=True)
        elif key in KNOWN and isinstance(value, Mapping):
            yield from _unknown_inside(key, value)


def _unknown_inside(section: str, value: Mapping[Any, Any]) -> Iterator[UnknownKey]:
    prefix, known = OPTIONAL_PREFIX.get(section, ""), KNOWN[section]
    for name in value:
        plain = name.removeprefix(prefix) if isinstance(name, str) else name
        if plain in known or name in known or (section == PARALLELISM and _prefixed(name) in known):
            continue
        spellings = known | {f"{prefix}{word}" for word in known}
        yield UnknownKey((section, name), tuple(sorted(spellings)))


def _home(key: object) -> str | None:
    """The section that a key of the top level belongs in."""
    if not isinstance(key, str):
        return None
    for section, known in KNOWN.items():
        if key in known or (
            key.startswith(prefix := OPTIONAL_PREFIX.get(section, "\0")) and key.removeprefix(prefix) in known
        ):
            return section
    return None


def _prefixed(name: object) -> str:
    return f"{PARALLELISM}_{name}"


def _unprefixed(settings: Settings, mapping: Mapping[Any, Any]) -> None:
    """A key of ``parallelism_config`` without its prefix is lost; it is read as what it was meant to be."""
    section = mapping.get(PARALLELISM)
    if not isinstance(section, Mapping):
        return
    for name, value in section.items():
        full = _prefixed(name)
        if full in KNOWN[PARALLELISM] and full not in section:
            origin = Origin(Source.KEY, f"{PARALLELISM}.{name}", (PARALLELISM, name))
            readable = not full.endswith("_size") or type(value) is int or value is None
            settings.put(f"{PARALLELISM}.{full}", Value(value, origin, readable=readable))
