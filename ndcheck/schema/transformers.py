"""Arguments of transformers and TRL and their readings, as ``ndcheck.dialects.transformers.resolve`` makes them; a test holds
the two together."""

from __future__ import annotations

from ndcheck.dialects.transformers.config import DIALECT
from ndcheck.dialects.transformers.keys import KEYS, annotation
from ndcheck.dialects.transformers.model import DEFAULTS, FsdpKeys, TransformersKeys
from ndcheck.rules.conditions import on
from ndcheck.schema.accelerate import spelled, with_spellings
from ndcheck.schema.kinds import ANYTHING, Kind, kind_of
from ndcheck.schema.logic import negate
from ndcheck.schema.places import at
from ndcheck.schema.words import Case, Snippet, Words, descriptions


def _root() -> Kind:
    section = {key: kind_of(annotation(key)) for key in KEYS}
    section |= {key: kind_of(info.annotation) for key, info in TransformersKeys.model_fields.items()}
    kinds = {key: kind_of(info.annotation) for key, info in FsdpKeys.model_fields.items()}
    section["fsdp_config"] = with_spellings(section["fsdp_config"], "fsdp_", kinds, optional=True)
    return Kind(section=section, loose=True)


_ROOT = _root()


def _checkpointing() -> tuple[Case, ...]:
    """The older name counts where the newer one is not written, or null."""
    new, old = ("activation_checkpointing",), ("gradient_checkpointing",)
    return (Case(at(_ROOT, new, negate({"type": "null"})), new), Case(at(_ROOT, old, True), old))


_FSDP = {"version": 2, "auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "reshard_after_forward": True}

SNIPPETS = (
    Snippet(
        "FSDP",
        "FSDP2; the degrees of a mesh stand in accelerate's launch file",
        {"fsdp": True, "fsdp_config": _FSDP, "bf16": True},
    ),
    Snippet(
        "FSDP + CP",
        "FSDP2 with rows that context parallelism can split",
        {
            "fsdp": True,
            "fsdp_config": _FSDP,
            "bf16": True,
            "attn_implementation": "sdpa",
            "max_length": 4096,
            "pad_to_multiple_of": 16,
        },
    ),
)


def words() -> Words:
    """A file of arguments as a schema sees it."""
    return Words(
        dialect=DIALECT,
        root=_ROOT,
        defaults=DEFAULTS,
        readings={
            **spelled(_ROOT, "fsdp_config", "fsdp_", FsdpKeys.model_fields, optional=True),
            "activation_checkpointing": _checkpointing(),
            "fsdp_config": (Case(True, ("fsdp_config",), kind=Kind(null=True, string=True, entries=ANYTHING)),),
        },
        runs={"sharding.fsdp": on("fsdp"), "sharding.deepspeed": on("deepspeed")},
        old={("gradient_checkpointing",): "activation_checkpointing"},
        descriptions={
            **descriptions(TransformersKeys),
            **descriptions(FsdpKeys, "fsdp_config"),
            **descriptions(FsdpKeys, "fsdp_config", prefix="fsdp_"),
        },
        snippets=SNIPPETS,
        file_match=("*.trainer.yaml", "**/trl/**/*.yaml"),
    )
