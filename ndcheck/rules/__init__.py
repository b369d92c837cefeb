"""Rules that hold whatever the framework, in the order in which findings at one place are shown.

Those of one framework are in the package of its name.
"""

from __future__ import annotations

from typing import Any

from ndcheck.rules import (
    batch,
    kernels,
    keys,
    layout,
    optimizer,
    pairs,
    readings,
    sequence,
    sharding,
    tensor_parallel,
    text,
)
from ndcheck.rules.rule import Rule

NEUTRAL: tuple[Rule[Any], ...] = (
    *text.RULES,
    *readings.RULES,
    *keys.RULES,
    *layout.RULES,
    *sharding.RULES,
    *tensor_parallel.RULES,
    *sequence.RULES,
    *batch.RULES,
    *optimizer.RULES,
    *kernels.RULES,
    *pairs.RULES,
)
