"""Rules of accelerate's launch file alone, in the order in which findings at one place are shown."""

from __future__ import annotations

from typing import Any

from ndcheck.rules.accelerate import deepspeed, fsdp, launch, mesh
from ndcheck.rules.rule import Rule

RULES: tuple[Rule[Any], ...] = (*launch.RULES, *mesh.RULES, *fsdp.RULES, *deepspeed.RULES)
