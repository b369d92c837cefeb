"""What transformers makes of a file of arguments: the optional prefix in ``fsdp_config``, older words, strange keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ndcheck.dialects.parse import parse
from ndcheck.dialects.prefixes import read_section
from ndcheck.dialects.transformers.keys import KEYS, annotation
from ndcheck.dialects.transformers.model import DEFAULTS, AcceleratorConfig, FsdpKeys, TransformersKeys
from ndcheck.settings import Settings, UnknownKey
from ndcheck.values import Value

FSDP_KEYS = frozenset(FsdpKeys.model_fields)
ACCELERATOR_KEYS = frozenset(AcceleratorConfig.model_fields)
KNOWN = frozenset(KEYS) | frozenset(TransformersKeys.model_fields)
SCRIPTS_OWN = ("streaming", "padding_side", "max_length")
"""Typed keys that are the argument of a script rather than of a trainer."""
_SORTED = tuple(sorted(KNOWN))


def resolve(mapping: Mapping[Any, Any]) -> Settings:
    """The values in force, with what was seen on the way."""
    parsed = parse(TransformersKeys, annotation, mapping)
    fsdp = read_section(mapping, "fsdp_config", "fsdp_", FsdpKeys, optional=True)
    settings = Settings("transformers", parsed.typed, [*parsed.problems, *fsdp.problems], DEFAULTS)
    settings.mapping = mapping
    settings.unknown = tuple(_unknown(mapping))
    fsdp.put_into(settings)
    _older_words(settings)
    _mesh(settings, mapping)
    return settings


def _unknown(mapping: Mapping[Any, Any]) -> Iterator[UnknownKey]:
    for key, value in mapping.items():
        if key not in KNOWN:
            elsewhere = _section_of(key)
            yield UnknownKey((key,), _SORTED, elsewhere, refused=elsewhere is None)
        elif key == "accelerator_config" and isinstance(value, Mapping):
            known = tuple(sorted(ACCELERATOR_KEYS))
            yield from (UnknownKey((key, name), known, refused=True) for name in value if name not in ACCELERATOR_KEYS)
        elif key == "fsdp_config" and isinstance(value, Mapping):
            known = tuple(sorted(FSDP_KEYS))
            for name in value:
                if not isinstance(name, str) or name.removeprefix("fsdp_") not in FSDP_KEYS:
                    yield UnknownKey((key, name), known)


def _section_of(key: object) -> str | None:
    """The section that a key of the top level belongs in."""
    if key in ACCELERATOR_KEYS:
        return "accelerator_config"
    prefixed = isinstance(key, str) and key.startswith("fsdp_") and key.removeprefix("fsdp_") in FSDP_KEYS
    return "fsdp_config" if prefixed else None


def _older_words(settings: Settings) -> None:
    """``gradient_checkpointing`` is read where ``activation_checkpointing`` is not written."""
    old, new = settings.written("gradient_checkpointing"), settings.written("activation_checkpointing")
    if old is not None and (new is None or (new.readable and new.value is None)):
        settings.put("activation_checkpointing", old)


def _mesh(settings: Settings, mapping: Mapping[Any, Any]) -> None:
    """A mesh written as a mapping is no use to Trainer; it is read as what it was meant to be."""
    section = mapping.get("parallelism_config")
    for name, value in section.items() if isinstance(section, Mapping) else ():
        if isinstance(name, str) and type(value) is int:
            plain = name.removeprefix("parallelism_config_")
            written = settings.written(f"parallelism_config.{name}")
            assert written is not None, "it is in the file"
            settings.put(f"parallelism_config.{plain}", Value(value, written.origin))
