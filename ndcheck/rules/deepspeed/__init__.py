"""Rules of DeepSpeed's config alone, in the order in which findings at one place are shown."""

from __future__ import annotations

from typing import Any

from ndcheck.rules.deepspeed import keys, parallel, precision, zero
from ndcheck.rules.rule import Rule

RULES: tuple[Rule[Any], ...] = (*keys.RULES, *precision.RULES, *zero.RULES, *parallel.RULES)
