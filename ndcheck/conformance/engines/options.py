"""Options of the engines that put other software to the test. No torch here: whoever plans a matrix reads it.

Each is a way in which people set that software up; the first value is the right one. What the value says is what a user would
write, so most of them are an entry of a config, and a rule foretells what comes of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args, get_origin, get_type_hints


@dataclass(frozen=True, slots=True, kw_only=True)
class StackOptions:
    """What all engines of the Hugging Face stack understand."""

    attention: Literal["sdpa", "eager"] = "sdpa"
    """The attention implementation of the model."""
    padding: Literal["right", "left"] = "right"
    """The side on which rows are padded."""
    liger: Literal["off", "rms_norm", "swiglu", "cross_entropy", "fused_linear_cross_entropy"] = "off"
    """One of Liger's kernels in the place of the model's own code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelabelledOptions(StackOptions):
    """What engines understand that let accelerate lead."""

    state: Literal["relabelled", "cpu"] = "relabelled"
    """On CPU ranks: let accelerate take them for GPUs, or leave it as it is. Without meaning on a GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccelerateOptions(RelabelledOptions):
    """A training loop of one's own around ``accelerate.Accelerator``."""

    fsdp: Literal["2", "1", "off"] = "2"
    """Version of the FSDP plug-in where dp_shard or cp asks for one; ``off`` passes none."""
    model: Literal["loaded", "whole"] = "loaded"
    """With tp: load the model tensor parallel, or load it whole and leave the rest to ``prepare``."""
    sequence: Literal["cp", "sp"] = "cp"
    """What the layout's cp becomes: ``cp_size``, or ``sp_size`` (Ulysses, which belongs to DeepSpeed)."""
    loss: Literal["global", "local"] = "global"
    """Divide the summed loss by the label tokens of the whole step, or let each rank take the mean of its own."""
    labels: Literal["shifted", "unshifted"] = "shifted"
    """With cp: shift the labels before the row is cut, or leave that to the model, which sees its slice only."""
    mesh: Literal["own", "none"] = "own"
    """Describe the layout by a ``ParallelismConfig``, or pass none: FSDP then shards over all ranks."""
    shuffle: Literal["off", "alike", "apart"] = "off"
    """Draw the order of the rows, every rank from the same seed or each from its own. The data set undoes the order that the
    first rank draws, so that a run which works is that of the rows in their own order."""
    schedule: Literal["none", "prepared"] = "none"
    """Have accelerate prepare a scheduler that stops learning after the rows of the run, as many for each data rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerOptions(RelabelledOptions):
    """``transformers.Trainer``."""

    average_tokens: bool = True
    """``average_tokens_across_devices``."""
    mesh: Literal["own", "stale"] = "own"
    """With tp: no ``parallelism_config``, since the model brings its mesh; or one of ones, as if it were needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeOptions(StackOptions):
    """transformers' own ``DistributedConfig``, with a loop of one's own and accelerate's loader."""


OPTIONS: Mapping[str, type[Any] | None] = {
    "reference": None,
    "accelerate": AccelerateOptions,
    "trainer": TrainerOptions,
    "transformers": NativeOptions,
}
"""Engine -> its options; None: it has none."""

NAMES: tuple[str, ...] = tuple(
    dict.fromkeys(entry.name for kind in OPTIONS.values() if kind is not None for entry in fields(kind))
)
"""Every option of ours."""


def check_option(engine: str, name: str, value: object) -> None:
    """Raise ValueError, naming both, if ``engine`` is one of ours and has no such option or value."""
    if engine not in OPTIONS:
        return  # an engine of others knows its own
    kind = OPTIONS[engine]
    choices = _choices(kind) if kind is not None else {}
    if name not in choices:
        known = f"its options are {', '.join(choices)}" if choices else "it has none"
        raise ValueError(f"engine {engine} has no option {name!r}; {known}")
    if not any(value is choice or (isinstance(value, str) and value == choice) for choice in choices[name]):
        raise ValueError(f"{name} is one of {', '.join(map(_shown, choices[name]))}, not {value!r}")


def default(engine: str, name: str) -> object:
    """What an option is if nobody says; None for options of others' engines."""
    kind = OPTIONS.get(engine)
    return getattr(kind(), name, None) if kind is not None else None


def _choices(kind: type[Any]) -> dict[str, tuple[object, ...]]:
    hints = get_type_hints(kind)
    return {
        name: get_args(hint) if get_origin(hint) is Literal else (False, True)
        for name, hint in hints.items()
        if name in NAMES
    }


def _shown(value: object) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)
