"""Numbers and lists for which axolotl's fields have bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ndcheck.findings import Fix, SetValue, Severity, Violation, place
from ndcheck.rules.rule import Rule, rule
from ndcheck.settings import Settings


class Bounds(NamedTuple):
    """The least value that is allowed, and the greatest if there is one."""

    least: float
    most: float | None = None

    def hold(self, number: float) -> bool:
        """Whether the number lies between them."""
        return self.least <= number and (self.most is None or number <= self.most)

    def __str__(self) -> str:
        return f"at least {self.least:g}" if self.most is None else f"from {self.least:g} to {self.most:g}"


SHARE = Bounds(0, 1)
POSITIVE = Bounds(1)

BOUNDS = {
    "relora_prune_ratio": SHARE,
    "dynamic_checkpoint.check_interval": POSITIVE,
    "ebft.gt_length_multiplier": Bounds(0.1),
    "ebft.stride": POSITIVE,
    "ebft.context_length": POSITIVE,
    "ebft.generate_max_len": POSITIVE,
    "ebft.n_samples_per_prompt": POSITIVE,
    "ebft.temperature": Bounds(0),
    "ebft.top_p": SHARE,
    "ebft.min_completion_prefix": Bounds(0),
    "diffusion.min_mask_ratio": SHARE,
    "diffusion.max_mask_ratio": SHARE,
    "diffusion.num_diffusion_steps": POSITIVE,
    "diffusion.eps": SHARE,
    "diffusion.generation_interval": POSITIVE,
    "diffusion.num_generation_samples": POSITIVE,
    "diffusion.generation_steps": POSITIVE,
    "diffusion.generation_temperature": Bounds(0),
    "diffusion.generation_max_length": POSITIVE,
    "hatchery.lora_rank": Bounds(1, 256),
}
"""Key -> what its number may be. Keys whose bounds have another reason than their type are other rules'."""

PATTERNS = ("lora_rank_pattern", "lora_alpha_pattern")
"""Mappings from a pattern to a whole number from 1 on."""

FILLED = ("datasets", "test_datasets", "pretraining_dataset", "dpo_loss_type", "dpo_loss_weights")
"""Lists that hold something, or are left out."""


@rule(
    "AX982",
    Severity.ERROR,
    Settings,
    evidence="the bounds of axolotl 0.18's fields; 0.19, run: each is refused one step outside",
    bad="dynamic_checkpoint: {enabled: true, check_interval: 0}\n",
    good="dynamic_checkpoint: {enabled: true, check_interval: 1}\n",
)
def number_out_of_bounds(settings: Settings) -> Iterator[Violation]:
    """A number lies outside of what the key allows.

    axolotl refuses it as it refuses a wrong type: a share lies between 0 and 1, a count starts at 1.
    """
    for key, bounds in BOUNDS.items():
        value = settings.value(key)
        if value is None or not value.readable or value.value is None or bounds.hold(value.value):
            continue
        near = bounds.least if bounds.most is None or value.value < bounds.least else bounds.most
        fix = Fix(f"set it to {near:g}", edits=(SetValue(value.path, f"{near:g}"),) if value.path else ())
        yield Violation(place(value), f"{value} must be {bounds}", fix=fix)
    for key in PATTERNS:
        written = settings.value(key)
        patterns = written.value if written is not None and written.readable else None
        for pattern, number in patterns.items() if isinstance(patterns, Mapping) else ():
            if type(number) in (int, float) and number < 1:
                yield Violation(
                    (key, pattern), f"{key}: {number} for {pattern} must be at least 1", fix=Fix("raise it")
                )


@rule(
    "AX983",
    Severity.ERROR,
    Settings,
    evidence="the bounds of axolotl 0.18's fields; 0.19, run: refused",
    bad="datasets: []\n",
    good="datasets: [{path: org/data, type: alpaca}]\n",
)
def list_empty(settings: Settings) -> Iterator[Violation]:
    """A list is written, and holds nothing.

    axolotl takes these lists with at least one entry. A key that is left out, or empty without brackets, is not set.
    """
    for key in FILLED:
        value = settings.written(key)
        if value is not None and value.readable and value.value is not None and not len(value.value):
            yield Violation(place(value), f"{key} is an empty list", fix=Fix("fill it, or leave the key out"))


RULES: tuple[Rule[Settings], ...] = (number_out_of_bounds, list_empty)
