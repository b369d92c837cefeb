"""accelerate's launch file and its readings, as ``ndcheck.dialects.accelerate.resolve`` makes them; a test holds the two together.

Where a section writes one key in both spellings, the last one counts, which a schema cannot see: it takes the plain one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from ndcheck.dialects.accelerate.config import DIALECT
from ndcheck.dialects.accelerate.model import DEFAULTS, AccelerateKeys, ParallelismConfig
from ndcheck.dialects.accelerate.resolve import KNOWN, OPTIONAL_PREFIX, PARALLELISM, PREFIXED, TOP
from ndcheck.rules.conditions import equals
from ndcheck.schema.kinds import ANYTHING, Kind, kind_of
from ndcheck.schema.places import KeyPath, at
from ndcheck.schema.words import Case, Snippet, Words, descriptions


def _root() -> Kind:
    section = {key: kind_of(info.annotation) for key, info in AccelerateKeys.model_fields.items()}
    section |= dict.fromkeys(TOP - section.keys(), ANYTHING)
    for name, (prefix, model) in PREFIXED.items():
        kinds = {key: kind_of(info.annotation) for key, info in model.model_fields.items()}
        section[name] = with_spellings(section[name], prefix, kinds, optional=name in OPTIONAL_PREFIX)
    return Kind(
        section={key: replace(kind, loose=kind.section is not None) for key, kind in section.items()}, loose=True
    )


def with_spellings(kind: Kind, prefix: str, kinds: Mapping[str, Kind], *, optional: bool) -> Kind:
    """A section of free keys as one whose keys are known, with their prefix and, if that is ``optional``, without."""
    spelled = {f"{prefix}{key}": inner for key, inner in kinds.items()} | (dict(kinds) if optional else {})
    return replace(kind, entries=None, section=spelled, loose=True)


def spelled(
    root: Kind, section: str, prefix: str, names: Mapping[str, Any], *, optional: bool
) -> dict[str, tuple[Case, ...]]:
    """The readings of a section's keys."""
    spellings = {name: (name, f"{prefix}{name}") if optional else (f"{prefix}{name}",) for name in names}
    return {
        f"{section}.{name}": tuple(Case(at(root, (section, key), True), (section, key)) for key in keys)
        for name, keys in spellings.items()
    }


_ROOT = _root()


def _mesh() -> dict[str, tuple[Case, ...]]:
    """A key of the mesh without its prefix is read as what it was meant to be."""
    readings: dict[str, tuple[Case, ...]] = {}
    for full in KNOWN[PARALLELISM]:
        plain = full.removeprefix(f"{PARALLELISM}_")
        kind = kind_of(ParallelismConfig.model_fields[full].annotation) if full.endswith("_size") else ANYTHING
        readings[f"{PARALLELISM}.{full}"] = (
            Case(at(_ROOT, (PARALLELISM, full), True), (PARALLELISM, full)),
            Case(at(_ROOT, (PARALLELISM, plain), True), (PARALLELISM, plain), kind=kind),
        )
    return readings


def _spelled_descriptions(section: str, prefix: str, model: type[BaseModel]) -> Iterator[tuple[KeyPath, str]]:
    yield from descriptions(model, section, prefix=prefix).items()
    if section in OPTIONAL_PREFIX:
        yield from descriptions(model, section).items()


_FSDP = {
    "fsdp_version": 2,
    "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    "fsdp_reshard_after_forward": True,
    "fsdp_state_dict_type": "SHARDED_STATE_DICT",
}


def _layout(label: str, description: str, **sizes: int) -> Snippet:
    mesh = {f"{PARALLELISM}_{axis}_size": size for axis, size in sizes.items()}
    body: dict[str, Any] = {
        "distributed_type": "FSDP",
        "mixed_precision": "bf16",
        "num_processes": 8,
        "fsdp_config": _FSDP,
    }
    return Snippet(label, description, {**body, PARALLELISM: mesh})


# no FSDP + TP: rule AC210 says why
SNIPPETS = (
    _layout("FSDP", "FSDP2 over 8 ranks", dp_shard=8),
    _layout("HSDP", "2 replicas, each sharded over 4 ranks", dp_replicate=2, dp_shard=4),
    _layout("FSDP + CP", "4 shards, sequences split over 2 ranks", dp_shard=4, cp=2),
)


def words() -> Words:
    """accelerate's launch file as a schema sees it."""
    readings = _mesh()
    readings |= {section: (Case(True, (section,), kind=Kind(null=True, entries=ANYTHING)),) for section in PREFIXED}
    for section, (prefix, model) in PREFIXED.items():
        readings |= spelled(_ROOT, section, prefix, model.model_fields, optional=section in OPTIONAL_PREFIX)
    return Words(
        dialect=DIALECT,
        root=_ROOT,
        defaults=DEFAULTS,
        readings=readings,
        runs={
            "sharding.fsdp": equals("distributed_type", "FSDP"),
            "sharding.deepspeed": equals("distributed_type", "DEEPSPEED"),
        },
        descriptions={
            **descriptions(AccelerateKeys),
            **{
                path: text
                for section, (prefix, model) in PREFIXED.items()
                for path, text in _spelled_descriptions(section, prefix, model)
            },
        },
        snippets=SNIPPETS,
        file_match=("*.accelerate.yaml", "**/accelerate/**/*.yaml", "default_config.yaml"),
    )
