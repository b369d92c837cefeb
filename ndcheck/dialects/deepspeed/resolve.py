"""What DeepSpeed makes of its file: the older name of ``bf16``, and keys that it does not know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ndcheck.dialects.deepspeed.model import REMOVED, STRICT, TOP, Bf16, DeepspeedKeys
from ndcheck.dialects.parse import parse
from ndcheck.settings import OldKey, Settings, UnknownKey

_TOP = tuple(sorted(TOP))


def resolve(mapping: Mapping[Any, Any]) -> Settings:
    """The values in force, with what was seen on the way."""
    parsed = parse(DeepspeedKeys, lambda _: None, mapping)
    settings = Settings("DeepSpeed", parsed.typed, parsed.problems)
    settings.mapping = mapping
    settings.unknown = tuple(_unknown(mapping))
    _older_name(settings, mapping)
    return settings


def _unknown(mapping: Mapping[Any, Any]) -> Iterator[UnknownKey]:
    for key in mapping:
        if key not in TOP and key not in REMOVED and not str(key).startswith("_"):
            yield UnknownKey((key,), _TOP, _home(key))
    for section, known in STRICT.items():
        inner: Any = mapping
        path = tuple(section.split("."))
        for part in path:
            inner = inner.get(part) if isinstance(inner, Mapping) else None
        for key in inner if isinstance(inner, Mapping) else ():
            if key not in known:
                yield UnknownKey((*path, key), tuple(sorted(known)), refused=True)


def _home(key: object) -> str | None:
    """The section that a key of the top level belongs in, if it is of one only."""
    homes = [section for section, known in STRICT.items() if key in known and section != "bfloat16"]
    return homes[0] if len(homes) == 1 else None


def _older_name(settings: Settings, mapping: Mapping[Any, Any]) -> None:
    """``bfloat16`` is read where ``bf16`` is not written."""
    if "bfloat16" not in mapping:
        return
    both = "bf16" in mapping
    settings.old.append(OldKey(("bfloat16",), ("bf16",), "DeepSpeed's older name", both=both, lost=both))
    if not both:
        for name in Bf16.model_fields:
            settings.put(f"bf16.{name}", settings.written(f"bfloat16.{name}"))
