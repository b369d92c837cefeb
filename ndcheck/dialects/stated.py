"""What a trainer hands to its engine, and its engine's config may state as well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ndcheck.settings import Settings
from ndcheck.values import Origin, Source, Value, default

_DEFAULTS: Mapping[str, Any] = {
    "fp16": False,
    "max_grad_norm": 1.0,
    "weight_decay": 0.0,
    "adam_epsilon": 1e-8,
}
"""transformers' own, which other trainers on top of it leave as they are; learning rates and bf16 differ between them."""
_BETAS = (("adam_beta1", 0.9), ("adam_beta2", 0.999))


def stated(settings: Settings, optimizer: str, scheduler: str) -> dict[str, Value[Any]]:
    """By neutral names; ``optimizer`` and ``scheduler`` are the trainer's keys of the two. What is not known is left out."""
    found = {name: _value(settings, name) for name in ("learning_rate", "bf16", *_DEFAULTS)}
    found["top_learning_rate"] = found["learning_rate"]
    found["adam_betas"] = _betas(settings)
    if _on_the_gpu(settings) and settings.written("fp16") is None:
        found["fp16"] = None
    found |= {name: settings.written(key) for name, key in (("optimizer", optimizer), ("scheduler", scheduler))}
    return {
        name: value for name, value in found.items() if value is not None and value.readable and value.value is not None
    }


def _on_the_gpu(settings: Settings) -> bool:
    """Whether the GPU decides between bf16 and fp16."""
    word = settings.value("bf16")
    return word is not None and word.readable and word.value == "auto"


def _value(settings: Settings, key: str) -> Value[Any] | None:
    value = settings.written(key)
    if value is None or (value.readable and value.value is None):
        return default(_DEFAULTS[key], "transformers") if key in _DEFAULTS else None
    if not value.readable or value.value == "auto":
        return None
    return Value(_number(value.value), value.origin)


def _number(value: object) -> object:
    """A learning rate that YAML took for text."""
    if not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError:
        return None


def _betas(settings: Settings) -> Value[Any] | None:
    values = [settings.written(key) or default(usual, "transformers") for key, usual in _BETAS]
    if not all(value.readable and isinstance(value.value, int | float) for value in values):
        return None
    path = next((value.path for value in values if value.path), None)
    text = " and ".join(key for key, _ in _BETAS)
    return Value([value.value for value in values], Origin(Source.KEY if path else Source.DEFAULT, text, path))


def precision(settings: Settings) -> Value[str] | None:
    """The type that a trainer with the switches ``bf16`` and ``fp16`` computes in, where one is written."""
    written = [(name, value) for name in ("bf16", "fp16") if (value := settings.written(name)) is not None]
    known = [(name, value) for name, value in written if value.readable and isinstance(value.value, bool)]
    on = next(((name, value) for name, value in known if value.value), None)
    if on is not None:
        return _read_at(on[0], on[1])
    return _read_at("no", known[0][1]) if known and len(known) == len(written) else None


def _read_at(word: str, value: Value[bool]) -> Value[str]:
    return Value(word, Origin(Source.DERIVED, str(value), value.path))
