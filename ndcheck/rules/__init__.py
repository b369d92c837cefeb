"""The catalogue: every rule, in the order in which findings at one place are shown."""

from __future__ import annotations

from typing import Any

from ndcheck.rules import axolotl, batch, kernels, keys, layout, optimizer, sequence, sharding, tensor_parallel, text
from ndcheck.rules.rule import Rule

NEUTRAL: tuple[Rule[Any], ...] = (
    *text.RULES,
    *keys.RULES,
    *layout.RULES,
    *sharding.RULES,
    *tensor_parallel.RULES,
    *sequence.RULES,
    *batch.RULES,
    *optimizer.RULES,
    *kernels.RULES,
)
"""Rules that hold whatever the framework."""

AXOLOTL: tuple[Rule[Any], ...] = axolotl.RULES
"""Rules of axolotl alone."""

ALL: tuple[Rule[Any], ...] = (*NEUTRAL, *AXOLOTL)
