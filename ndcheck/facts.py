"""What is known beside the file: number of ranks, nodes, and the shape of the model.

Nothing is guessed: a fact that was not given is None, and the rules that need it stay silent and are
counted. Nothing is fetched: the model's shape comes from a ``config.json`` on this disk or not at all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path as FilePath
from typing import Any

from ndcheck.values import Origin, Source, Value, shown


class FactMissing(Exception):  # noqa: N818  (not an error: it tells a rule to stay silent)
    """A rule needs a fact that nobody gave. ``fact`` is a key of FLAGS."""

    def __init__(self, fact: str):
        super().__init__(fact)
        self.fact = fact


class FactError(ValueError):
    """A fact was given and is unusable; the message says which and what to do."""


FLAGS = {
    "world_size": "--world-size",
    "gpus_per_node": "--gpus-per-node",
    "model_config": "--model-config",
    "engine_config": "--with and the engine's config, which is named and not here",
}
"""Every fact that a rule can ask for -> the flag that gives it."""

MAX_COUNT = 10**9
"""More ranks, or a larger size of a model, is a slip of the keyboard."""

_SHAPE_KEYS = {
    "family": ("model_type",),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num"),
    "head_dim": ("head_dim",),
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "intermediate": ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"),
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "vocab": ("vocab_size",),
    "max_positions": ("max_position_embeddings", "n_positions", "max_seq_len"),
    "tied_embeddings": ("tie_word_embeddings",),
    "experts": ("num_experts", "num_local_experts", "n_routed_experts"),
}
"""Field of ModelShape -> its names in config.json, by family."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """What a model's config.json says of its sizes; None where it says nothing."""

    source: str
    family: Value[str] | None = None
    heads: Value[int] | None = None
    kv_heads: Value[int] | None = None
    head_dim: Value[int] | None = None
    hidden: Value[int] | None = None
    intermediate: Value[int] | None = None
    layers: Value[int] | None = None
    vocab: Value[int] | None = None
    max_positions: Value[int] | None = None
    tied_embeddings: Value[bool] | None = None
    experts: Value[int] | None = None
    composite: bool = False
    """It has parts beside the one that writes text, of other families."""
    partial_attention: Value[str] | None = None
    """What says that some layers do not attend to everything before: a window, or other kinds of layers."""

    @classmethod
    def from_mapping(cls, config: Mapping[str, Any], source: str) -> ModelShape:
        """The shape in a parsed config.json; the text part's of a composite model. Sizes of a wrong type are left out."""
        composite = any(isinstance(config.get(name), Mapping) for name in _TEXT_PARTS)
        config = _text_part(config)
        found: dict[str, Value[Any]] = {}
        for name, keys in _SHAPE_KEYS.items():
            wanted = {"family": str, "tied_embeddings": bool}.get(name, int)
            for key in keys:
                if type(config.get(key)) is wanted and (wanted is not int or 1 <= config[key] <= MAX_COUNT):
                    found[name] = Value(config[key], Origin(Source.MODEL, f"{key} in {source}"))
                    break
        if "heads" in found and "kv_heads" not in found:
            # transformers' own reading: no KV entry means multi-head attention
            found["kv_heads"] = Value(found["heads"].value, found["heads"].origin)
        partial = _partial_attention(config, source)
        return cls(source=source, composite=composite, partial_attention=partial, **found)


_TEXT_PARTS = (
    "thinker_config",
    "text_config",
    "llm_config",
    "language_config",
    "language_model",
    "text_model",
    "decoder",
)
"""Where composite models keep the config of the part that writes text."""


def _text_part(config: Mapping[str, Any], depth: int = 3) -> Mapping[str, Any]:
    """The config with that of its text part laid over it, where only that part says how many heads there are."""
    if depth == 0 or any(key in config for key in _SHAPE_KEYS["heads"]):
        return config
    for name in _TEXT_PARTS:
        part = config.get(name)
        text = _text_part(part, depth - 1) if isinstance(part, Mapping) else {}
        if any(key in text for key in _SHAPE_KEYS["heads"]):
            return {**config, **text}
    return config


def _partial_attention(config: Mapping[str, Any], source: str) -> Value[str] | None:
    """As transformers reads it: the kinds of layers decide where they are listed, else the window, unless it is switched off."""
    kinds = config.get("layer_types")
    if isinstance(kinds, list):
        other = next((kind for kind in kinds if isinstance(kind, str) and kind != "full_attention"), None)
        return Value(other, Origin(Source.MODEL, f"layer_types in {source} has {shown(other)}")) if other else None
    window = config.get("sliding_window")
    if type(window) is not int or config.get("use_sliding_window") is False:
        return None
    return Value("sliding_attention", Origin(Source.MODEL, f"sliding_window {window} in {source}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known beside the file; None is "not known"."""

    world_size: Value[int] | None = None
    nodes: Value[int] | None = None
    gpus_per_node: Value[int] | None = None
    model: ModelShape | None = None


def gather(
    *,
    world_size: int | None = None,
    nodes: int | None = None,
    gpus_per_node: int | None = None,
    model_config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    flags: bool = False,
) -> Facts:
    """Facts from what is given, else from the environment (``WORLD_SIZE``), else unknown.

    With ``flags``, messages name the command line's flags as the source, else the arguments.

    ``nodes`` x ``gpus_per_node`` gives the world size when nothing else does.
    Raises FactError for a count below 1, contradicting counts, or an unreadable ``model_config``.
    """
    given = {"world_size": world_size, "nodes": nodes, "gpus_per_node": gpus_per_node}
    counts = {name: _count(number, _spelled(name, flags)) for name, number in given.items()}
    counts["world_size"] = counts["world_size"] or _from_environment(environment or {})
    return Facts(**_complete(counts), model=_shape(model_config))


def from_context(context: object) -> Facts:
    """Facts from pydantic's validation context: a Facts, a mapping of ``gather``'s arguments, or None."""
    if context is None:
        return Facts()
    if isinstance(context, Facts):
        return context
    if isinstance(context, Mapping):
        known = {"world_size", "nodes", "gpus_per_node", "model_config"}
        return gather(**{key: value for key, value in context.items() if key in known})
    raise FactError(f"the validation context must be a Facts or a mapping, not {type(context).__name__}")


def read_model_config(path: FilePath) -> ModelShape:
    """The shape in a config.json, or in the model directory ``path``. Raises FactError if it cannot be read."""
    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(file.read_bytes())
    except OSError as error:
        raise FactError(f"cannot read model config {file}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise FactError(f"model config {file} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise FactError(f"model config {file} holds no JSON object; expected a model's config.json")
    return ModelShape.from_mapping(config, str(file))


def _spelled(name: str, flags: bool) -> str:
    return f"--{name.replace('_', '-')}" if flags else name


def _count(number: int | None, name: str) -> Value[int] | None:
    if number is None:
        return None
    if type(number) is not int or number < 1:
        raise FactError(f"{name} must be an integer of at least 1, not {number!r}")
    if number > MAX_COUNT:
        raise FactError(f"{name} must be at most {MAX_COUNT}, not {shown(number)}")
    return Value(number, Origin(Source.FLAG, name))


def _from_environment(environment: Mapping[str, str]) -> Value[int] | None:
    text = environment.get("WORLD_SIZE", "").strip()
    if not text:
        return None
    if not text.isdecimal() or len(text) > len(str(MAX_COUNT)) or not 1 <= int(text) <= MAX_COUNT:
        raise FactError(f"the environment variable WORLD_SIZE must be an integer of at least 1, not {shown(text)!r}")
    return Value(int(text), Origin(Source.ENVIRONMENT, "WORLD_SIZE"))


def _complete(counts: dict[str, Value[int] | None]) -> dict[str, Value[int] | None]:
    """Fill the third of world size, nodes and GPUs a node from the other two, or show their contradiction."""
    world, nodes, gpus = counts["world_size"], counts["nodes"], counts["gpus_per_node"]
    if nodes and gpus:
        _count(nodes.value * gpus.value, f"{nodes.origin.text} x {gpus.origin.text}")
        product = Value(nodes.value * gpus.value, Origin(Source.FLAG, f"{nodes.origin.text} x {gpus.origin.text}"))
        if world and world.value != product.value:
            raise FactError(f"{nodes.value} nodes x {gpus.value} GPUs = {product.value}, but the world size is {world}")
        return {**counts, "world_size": product if world is None else world}
    if world and nodes:
        if world.value % nodes.value:
            raise FactError(f"{world.value} ranks cannot be spread evenly over {nodes.value} nodes")
        return {
            **counts,
            "gpus_per_node": Value(
                world.value // nodes.value, Origin(Source.FLAG, f"{world.origin.text} / {nodes.origin.text}")
            ),
        }
    return counts


def _shape(model_config: str | os.PathLike[str] | Mapping[str, Any] | None) -> ModelShape | None:
    if model_config is None:
        return None
    if isinstance(model_config, Mapping):
        return ModelShape.from_mapping(model_config, "the model config")
    return read_model_config(FilePath(model_config))


assert {"source", "composite", "partial_attention", *_SHAPE_KEYS} == {field.name for field in fields(ModelShape)}
