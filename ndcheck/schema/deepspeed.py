"""DeepSpeed's config and its readings, as ``ndcheck.dialects.deepspeed.resolve`` makes them; a test holds the two together."""

from __future__ import annotations

from dataclasses import replace

from ndcheck.dialects.deepspeed.config import DIALECT
from ndcheck.dialects.deepspeed.model import STRICT, TOP, Bf16, DeepspeedKeys
from ndcheck.rules.conditions import on
from ndcheck.schema.kinds import ANYTHING, Kind, kind_of
from ndcheck.schema.logic import all_of, any_of, negate, present
from ndcheck.schema.places import KeyPath, at, written
from ndcheck.schema.words import Case, Snippet, Words, descriptions


def _root() -> Kind:
    section = {key: kind_of(info.annotation) for key, info in DeepspeedKeys.model_fields.items()}
    root = Kind(section=section | dict.fromkeys(TOP - section.keys(), ANYTHING), loose=True)
    return _with_all_keys(root, ())


def _with_all_keys(kind: Kind, path: KeyPath) -> Kind:
    """The sections that DeepSpeed reads strictly, with the keys that no rule reads as well."""
    if kind.section is None:
        return kind
    section = {key: _with_all_keys(inner, (*path, key)) for key, inner in kind.section.items()}
    known = STRICT.get(".".join(path), frozenset())
    return replace(kind, section=section | dict.fromkeys(known - section.keys(), ANYTHING), loose=True)


_ROOT = _root()
_FSDP = on("fsdp")
"""Never: no key of DeepSpeed's switches FSDP on, and one of this name has no meaning."""


def _bf16() -> dict[str, tuple[Case, ...]]:
    """The older name counts where the newer one is not written."""
    newer = negate(written(("bf16",)))
    unreadable = present("bfloat16", {"not": {"type": "object"}})
    readings: dict[str, tuple[Case, ...]] = {}
    for name in Bf16.model_fields:
        old = ("bfloat16", name)
        readings[f"bf16.{name}"] = (Case(all_of(newer, any_of(unreadable, at(_ROOT, old, True))), old),)
    return readings


def words() -> Words:
    """DeepSpeed's config as a schema sees it."""
    return Words(
        dialect=DIALECT,
        root=_ROOT,
        defaults={},
        readings={**_bf16(), "fsdp": (Case(True, None),)},
        runs={"sharding.fsdp": _FSDP, "sharding.deepspeed": ~_FSDP},
        old={("bfloat16",): "bf16"},
        descriptions=descriptions(DeepspeedKeys),
        snippets=(
            Snippet(
                "ZeRO-2 under transformers",
                "stage 2, everything else as the trainer says",
                {
                    "train_micro_batch_size_per_gpu": "auto",
                    "gradient_accumulation_steps": "auto",
                    "gradient_clipping": "auto",
                    "bf16": {"enabled": "auto"},
                    "zero_optimization": {"stage": 2, "overlap_comm": True},
                },
            ),
            Snippet(
                "ZeRO-3 under transformers",
                "stage 3, everything else as the trainer says",
                {
                    "train_micro_batch_size_per_gpu": "auto",
                    "gradient_accumulation_steps": "auto",
                    "gradient_clipping": "auto",
                    "bf16": {"enabled": "auto"},
                    "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True},
                },
            ),
        ),
        file_match=("ds_config*.json", "**/deepspeed*/*.json", "*zero[0-3]*.json"),
    )
