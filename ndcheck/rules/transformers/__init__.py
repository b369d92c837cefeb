"""Rules of transformers' and TRL's arguments alone, in the order in which findings at one place are shown."""

from __future__ import annotations

from typing import Any

from ndcheck.rules.rule import Rule
from ndcheck.rules.transformers import trainer, trl

RULES: tuple[Rule[Any], ...] = (*trainer.RULES, *trl.RULES)
