"""Rules of transformers' and TRL's arguments alone, in the order in which findings at one place are shown."""

from __future__ import annotations

from typing import Any

from ndcheck.rules.accelerate.mesh import tp_beside_sharding
from ndcheck.rules.rule import Rule
from ndcheck.rules.transformers import trainer, trl

RULES: tuple[Rule[Any], ...] = (*trainer.RULES, *trl.RULES, tp_beside_sharding)
"""A mesh of TrainingArguments is accelerate's, so that what accelerate cannot bring about the Trainer cannot either."""
