"""axolotl's keys and readings, as ``ndcheck.dialects.axolotl.resolve`` makes them; a test holds the two together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ndcheck.dialects.axolotl.config import DIALECT
from ndcheck.dialects.axolotl.keys import KEY_TYPES, annotation
from ndcheck.dialects.axolotl.model import DEFAULTS, AxolotlKeys, FsdpConfig
from ndcheck.dialects.axolotl.resolve import ATTENTION_FLAGS, CP_NAMES, RENAMED
from ndcheck.rules.axolotl.retired import DROPPED, OLDER_KEYS, REFUSED
from ndcheck.rules.conditions import on
from ndcheck.schema.kinds import ANYTHING, Kind, kind_of, satisfies
from ndcheck.schema.logic import Schema, all_of, negate
from ndcheck.schema.places import KeyPath, at
from ndcheck.schema.words import Case, Snippet, Words, descriptions

_NULL: Schema = {"type": "null"}
_NOT_NULL = negate(_NULL)


def _root() -> Kind:
    section = {key: kind_of(annotation(text)) for key, text in KEY_TYPES.items()}
    for key, info in AxolotlKeys.model_fields.items():
        kind = kind_of(info.annotation)
        section[key] = replace(kind, loose=kind.section is not None)
    unread = {CP_NAMES[1], *REFUSED, *DROPPED, *OLDER_KEYS} - section.keys()
    return Kind(section={**section, **dict.fromkeys(unread, ANYTHING)}, loose=True)


_ROOT = _root()


def _written(*path: str, like: Schema = True) -> Schema:
    return at(_ROOT, path, like)


def _context_parallel() -> tuple[Case, ...]:
    """The new name, then the older ones; the one that axolotl never read is read as it stands."""
    known, unknown = CP_NAMES
    names = (("context_parallel_size", None), (known, None), (unknown, Kind(null=True, integer=True, strict=True)))
    return tuple(Case(_written(name), (name,), kind=kind) for name, kind in names)


def _prefixed() -> dict[str, tuple[Case, ...]]:
    names = {name.removeprefix("fsdp_"): name for name in FsdpConfig.model_fields if name.startswith("fsdp_")}
    return {
        f"fsdp_config.{plain}": tuple(
            Case(_written("fsdp_config", name), ("fsdp_config", name)) for name in (plain, prefixed)
        )
        for plain, prefixed in names.items()
        if plain != "version"
    }


def _fsdp_version() -> tuple[Case, ...]:
    paths = (("fsdp_version",), ("fsdp_config", "version"), ("fsdp_config", "fsdp_version"))
    return (*(Case(_written(*path, like=_NOT_NULL), path) for path in paths), Case(True, None))


def _attention() -> tuple[Case, ...]:
    """The key, then the older flags in the order in which axolotl looks at them."""
    flags = tuple(
        Case(_written(flag, like=satisfies(_ROOT.entry(flag), "on", None)), (flag,), constant=(backend,))
        for flag, backend in ATTENTION_FLAGS.items()
    )
    return (Case(_written("attn_implementation"), ("attn_implementation",)), *flags)


def _renamed() -> dict[str, tuple[Case, ...]]:
    readings: dict[str, tuple[Case, ...]] = {}
    for old, (new, refused) in RENAMED.items():
        beside = _written(new) if refused else _written(new, like=_NOT_NULL)
        readings[new] = (Case(all_of(_written(old, like=_NOT_NULL), negate(beside)), (old,)),)
    return readings


def _offloading() -> dict[str, tuple[Case, ...]]:
    """``gradient_checkpointing: offload`` and ``offload_disk`` stand for two settings."""
    path = ("gradient_checkpointing",)
    word = {mode: _written(*path, like={"const": mode}) for mode in ("offload", "offload_disk")}
    return {
        "gradient_checkpointing": tuple(Case(guard, path, constant=(True,)) for guard in word.values()),
        "activation_offloading": (
            Case(word["offload"], path, constant=(True,)),
            Case(word["offload_disk"], path, constant=("disk",)),
        ),
    }


def _fsdp_section() -> tuple[Case, ...]:
    """Any entry switches FSDP on, a strange one too."""
    path = ("fsdp_config",)
    return (
        Case(_written(*path, like={"type": "object"}), path, kind=Kind(entries=ANYTHING)),
        Case(True, path, kind=_ROOT.entry(*path).flat()),
    )


def _old() -> dict[KeyPath, str]:
    prefixed = [name for name in FsdpConfig.model_fields if name.startswith("fsdp_")]
    return {
        **{(name,): "context_parallel_size" for name in CP_NAMES},
        **{(flag,): f"attn_implementation: {backend}" for flag, backend in ATTENTION_FLAGS.items()},
        **{(old,): new for old, (new, _) in RENAMED.items()},
        **{("fsdp_config", name): name.removeprefix("fsdp_") for name in prefixed if name != "fsdp_version"},
        ("fsdp_config", "version"): "fsdp_version at top level",
        ("fsdp_config", "fsdp_version"): "fsdp_version at top level",
        **{(key,): instead for key, instead in OLDER_KEYS.items()},
        **{(key,): instead for key, instead in DROPPED.items()},
    }


_FSDP = {
    "offload_params": False,
    "state_dict_type": "FULL_STATE_DICT",
    "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    "transformer_layer_cls_to_wrap": "LlamaDecoderLayer",
    "reshard_after_forward": True,
}


def _layout(label: str, description: str, **keys: Any) -> Snippet:
    return Snippet(label, description, {**keys, "fsdp_version": 2, "fsdp_config": _FSDP})


SNIPPETS = (
    _layout("FSDP", "FSDP2 over 8 ranks", dp_shard_size=8),
    _layout("HSDP", "2 replicas, each sharded over 4 ranks", dp_replicate_size=2, dp_shard_size=4),
    _layout("FSDP + TP", "4 shards of layers split over 2 ranks", dp_shard_size=4, tensor_parallel_size=2),
    _layout(
        "FSDP + CP",
        "4 shards, sequences split over 2 ranks",
        dp_shard_size=4,
        context_parallel_size=2,
        attn_implementation="flash_attention_2",
    ),
)


def words() -> Words:
    """axolotl as a schema sees it."""
    return Words(
        dialect=DIALECT,
        root=_ROOT,
        defaults=DEFAULTS,
        readings={
            "context_parallel_size": _context_parallel(),
            "fsdp_config": _fsdp_section(),
            "fsdp_version": _fsdp_version(),
            "attn_implementation": _attention(),
            **_prefixed(),
            **_renamed(),
            **_offloading(),
        },
        runs={"sharding.fsdp": on("fsdp_config") | on("fsdp"), "sharding.deepspeed": on("deepspeed")},
        old=_old(),
        descriptions={
            **descriptions(AxolotlKeys),
        },
        snippets=SNIPPETS,
        file_match=("*.axolotl.yaml", "*.axolotl.yml", "**/axolotl/**/*.yaml", "**/axolotl/**/*.yml"),
    )
