"""What axolotl makes of a file before it trains: renamed keys, places that moved, derived values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ndcheck.dialects.axolotl.keys import DATASET_KEYS, KEY_TYPES, PLUGIN_KEYS, annotation, section_of
from ndcheck.dialects.axolotl.model import DEFAULTS, AxolotlKeys, FsdpConfig
from ndcheck.dialects.parse import parse
from ndcheck.findings import Fix, RemoveKey, RenameKey, Safety, SetValue
from ndcheck.rules.axolotl.retired import DROPPED, REFUSED
from ndcheck.settings import InactiveKey, OldKey, Settings, UnknownKey
from ndcheck.values import Origin, Path, Source, Unreadable, Value, from_key

NAMED_KEYS = frozenset(AxolotlKeys.model_fields)
ALL_KEYS = NAMED_KEYS | KEY_TYPES.keys()
_SORTED_KEYS = tuple(sorted(ALL_KEYS))
_FSDP_KEYS = frozenset(FsdpConfig.model_fields)
_ACCELERATOR_KEYS = (
    "split_batches",
    "dispatch_batches",
    "even_batches",
    "use_seedable_sampler",
    "non_blocking",
    "gradient_accumulation_kwargs",
    "use_configured_state",
)
_SECTION_OF = {
    **dict.fromkeys(_ACCELERATOR_KEYS, "accelerator_config"),
    **dict.fromkeys(_FSDP_KEYS - NAMED_KEYS, "fsdp_config"),
}
"""A key of a section -> the section, to say where a key belongs that stands at top level."""

CP_NAMES = ("sequence_parallel_degree", "sequence_parallel_size")
"""What context_parallel_size was called before, oldest first. axolotl reads the first; it never released the second."""

RETIRED_KEYS = frozenset({*REFUSED, *DROPPED})
"""Keys that rules of their own speak of."""

ATTENTION_FLAGS = {
    "xformers_attention": "xformers",
    "sage_attention": "sage",
    "flex_attention": "flex_attention",
    "flash_attention": "flash_attention_2",
    "sdp_attention": "sdpa",
    "eager_attention": "eager",
}
"""Older flag -> backend; axolotl takes the first that is true, in this order."""


def resolve(mapping: Mapping[Any, Any]) -> Settings:
    """The values in force, every spelling reduced to the current one, with what was seen on the way."""
    parsed = parse(AxolotlKeys, _key_type, mapping)
    settings = Settings("axolotl", parsed.typed, parsed.problems, DEFAULTS)
    settings.mapping = mapping
    settings.unknown = tuple(_unknown(mapping))
    settings.inactive = tuple(_inactive(mapping))
    _fsdp_section(settings, mapping)
    _context_parallel(settings, mapping)
    _fsdp_prefixes(settings)
    _fsdp_version(settings)
    _attention(settings)
    for old, new in RENAMED.items():
        _renamed(settings, old, new)
    _offloading(settings)
    return settings


def _fsdp_section(settings: Settings, mapping: Mapping[Any, Any]) -> None:
    """Any entry switches FSDP on, a misspelt one too: axolotl adds the version before it drops what it does not know."""
    section = mapping.get("fsdp_config")
    if isinstance(section, Mapping) and section:
        settings.put("fsdp_config", from_key(section, ("fsdp_config",)))


def _key_type(key: str) -> Any:
    text = KEY_TYPES.get(key)
    return None if text is None else annotation(text)


def listed_plugins(mapping: Mapping[Any, Any]) -> tuple[str, ...]:
    """The entries of ``plugins`` as written."""
    plugins = mapping.get("plugins")
    return tuple(entry for entry in plugins if isinstance(entry, str)) if isinstance(plugins, list) else ()


def is_listed(plugin: str, entries: tuple[str, ...]) -> bool:
    """One of the entries is a class of this plug-in."""
    return any(f".{plugin}." in f".{entry}." for entry in entries)


def _inactive(mapping: Mapping[Any, Any]) -> list[InactiveKey]:
    entries = listed_plugins(mapping)
    absent = [plugin for plugin in PLUGIN_KEYS if not is_listed(plugin, entries)]
    owner = {key: plugin for plugin in absent for key in PLUGIN_KEYS[plugin]}
    return [InactiveKey((key,), owner[key], mapping[key]) for key in mapping if key in owner]


def _unknown(mapping: Mapping[Any, Any]) -> list[UnknownKey]:
    strange = [entry for entry in listed_plugins(mapping) if not any(is_listed(name, (entry,)) for name in PLUGIN_KEYS)]
    found = []
    for key, value in mapping.items():
        if key in CP_NAMES or key in RETIRED_KEYS:
            continue
        if key not in ALL_KEYS:
            found.append(UnknownKey((key,), _SORTED_KEYS, _SECTION_OF.get(key), strange[0] if strange else None))
        else:
            found += _unknown_inside(key, value)
    return found


def _unknown_inside(key: str, value: Any) -> list[UnknownKey]:
    if key in ("datasets", "test_datasets", "pretraining_dataset"):
        entries = [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []
        return [
            UnknownKey((key, at, name), tuple(sorted(DATASET_KEYS)))
            for at, entry in enumerate(entries)
            for name in entry
            if name not in DATASET_KEYS
        ]
    known = _section_keys(key)
    if known is None or not isinstance(value, Mapping):
        return []
    refused = key == "accelerator_config"  # handed on as arguments, so a strange one is an error of its own
    return [UnknownKey((key, name), tuple(sorted(known)), refused=refused) for name in value if name not in known]


def _section_keys(key: str) -> frozenset[str] | None:
    if key == "fsdp_config":
        return _FSDP_KEYS
    if key == "accelerator_config":
        return frozenset(_ACCELERATOR_KEYS)
    section = section_of(KEY_TYPES.get(key, ""))
    return None if section is None else frozenset(section)


def _context_parallel(settings: Settings, mapping: Mapping[Any, Any]) -> None:
    """axolotl lets the new key win silently; ndcheck shows the conflict and goes on with the new one."""
    new = settings.written("context_parallel_size")
    for old_name in CP_NAMES:
        old = settings.written(old_name)
        if old is None and old_name in mapping and old_name not in NAMED_KEYS:
            value = mapping[old_name]  # a key without a type: what is no number is not read
            origin = Origin(Source.KEY, old_name, (old_name,))
            old = Value(value, origin, readable=value is None or type(value) is int)
        if old is None:
            continue
        both, same = new is not None, _same(old, new)
        lost = old_name != CP_NAMES[0]
        reason = "axolotl never read this name" if lost else ""
        fix = _rename((old_name,), "context_parallel_size", both, same, Safety.UNSAFE if lost else Safety.SAFE)
        path = ("context_parallel_size",)
        settings.old.append(OldKey((old_name,), path, reason, both, both and not same, lost and not same, fix))
        if not both:
            # a lost name is read as what it was meant to be, so that one pass shows what follows from it
            settings.put("context_parallel_size", old)
            new = old


def _rename(old: Path, new: str, both: bool, same: bool, safety: Safety = Safety.SAFE) -> Fix:
    if not both:
        return Fix(f"rename it to {new}", safety, (RenameKey(old, new),))
    if same:
        return Fix(f"remove it: {new} says the same", Safety.SAFE, (RemoveKey(old),))
    return Fix("keep one of the two")


def _same(old: Value[Any], new: Value[Any] | None) -> bool:
    try:
        return new is not None and old.value == new.value
    except Unreadable:
        return False


def _inside_fsdp(settings: Settings, name: str) -> Value[Any] | None:
    """What is written for a key of fsdp_config; None too if the section as a whole cannot be read."""
    value = settings.written(f"fsdp_config.{name}")
    return value if value is not None and value.path == ("fsdp_config", name) else None


def _fsdp_prefixes(settings: Settings) -> None:
    """``fsdp_config.fsdp_X`` means ``fsdp_config.X``."""
    for name in _FSDP_KEYS:
        plain_name = name.removeprefix("fsdp_")
        old = _inside_fsdp(settings, name)
        if old is None or old.path is None or name == plain_name or name == "fsdp_version":
            continue
        plain = _inside_fsdp(settings, plain_name)
        same = _same(old, plain)
        settings.old.append(
            OldKey(
                ("fsdp_config", name),
                ("fsdp_config", plain_name),
                "the prefix is deprecated",
                both=plain is not None,
                conflict=plain is not None and not same,
                fix=_rename(("fsdp_config", name), plain_name, plain is not None, same),
            )
        )
        if plain is None:
            settings.put(f"fsdp_config.{plain_name}", old)


def _fsdp_version(settings: Settings) -> None:
    """Top level counts; else the nested spellings; else axolotl pins a non-empty fsdp_config to 1."""
    top = settings.written("fsdp_version")
    nested = [_inside_fsdp(settings, name) for name in ("version", "fsdp_version")]
    inside = next((value for value in nested if value is not None and _not_null(value)), None)
    if top is not None and _not_null(top):
        settings.put("fsdp_version", top)
    else:
        settings.put("fsdp_version", inside)
    if inside is None or inside.path is None:
        return
    both = top is not None and _not_null(top)
    same = _same(inside, top)
    move = (RemoveKey(inside.path), SetValue(("fsdp_version",), str(inside.value) if inside.readable else ""))
    fix = (
        Fix("move it to top level, as fsdp_version", Safety.SAFE, move)
        if not both
        else Fix("remove it: fsdp_version says the same", Safety.SAFE, (RemoveKey(inside.path),))
        if same
        else Fix("keep one of the two")
    )
    reason = "several of axolotl's checks read only the one at top level"
    settings.old.append(OldKey(inside.path, ("fsdp_version",), reason, both, both and not same, fix=fix))


def _not_null(value: Value[Any]) -> bool:
    return not value.readable or value.value is not None


def _attention(settings: Settings) -> None:
    """The older flags stand for a backend."""
    current = settings.written("attn_implementation")
    flags = {name: settings.written(name) for name in ATTENTION_FLAGS}
    on = [name for name, value in flags.items() if value is not None and value.readable and value.value]
    for name, value in flags.items():
        if value is None or value.path is None:
            continue
        backend = ATTENTION_FLAGS[name]
        conflict = name in on and (current is not None or len(on) > 1)
        edits = (RenameKey(value.path, "attn_implementation"), SetValue(value.path, backend))
        fix = (
            Fix("keep one backend, as attn_implementation")
            if conflict
            else Fix(f"write attn_implementation: {backend}", Safety.SAFE, edits)
            if name in on
            else Fix("remove it: it switches nothing on", Safety.SAFE, (RemoveKey(value.path),))
        )
        settings.old.append(OldKey(value.path, ("attn_implementation",), "", conflict, conflict, fix=fix))
    if current is None and on:
        path = (on[0],)
        settings.put("attn_implementation", from_key(ATTENTION_FLAGS[on[0]], path))


RENAMED: dict[str, tuple[str, bool]] = {
    # axolotl refuses these beside their new names
    "liger_swiglu": ("liger_glu_activation", True),
    "noisy_embedding_alpha": ("neftune_noise_alpha", True),
    "pretrain_multipack_buffer_size": ("streaming_multipack_buffer_size", True),
    # and lets one of the two win here
    "evaluation_strategy": ("eval_strategy", False),
    "dpo_beta": ("rl_beta", False),
    "dataset_processes": ("dataset_num_proc", False),
}
"""Older name -> (name, whether the pair is refused)."""


def _renamed(settings: Settings, old_name: str, new: tuple[str, bool]) -> None:
    new_name, refused = new
    old, current = settings.written(old_name), settings.written(new_name)
    if old is None or old.path is None or not _not_null(old):
        return
    both = current is not None and (refused or _not_null(current))
    same = _same(old, current)
    fix = _rename(old.path, new_name, both, same)
    settings.old.append(OldKey(old.path, (new_name,), "", both, both and (refused or not same), fix=fix))
    if not both:
        settings.put(new_name, old)


def _offloading(settings: Settings) -> None:
    """gradient_checkpointing: offload and offload_disk stand for two settings."""
    value = settings.written("gradient_checkpointing")
    if value is None or not value.readable or value.value not in ("offload", "offload_disk"):
        return
    mode = True if value.value == "offload" else "disk"
    settings.put("activation_offloading", Value(mode, value.origin))
    settings.put("gradient_checkpointing", Value(True, value.origin))
