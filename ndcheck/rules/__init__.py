"""The catalogue: every rule, in the order in which findings at one place are shown."""

from __future__ import annotations

from typing import Any

from ndcheck.rules import (
    axolotl,
    axolotl_adapters,
    axolotl_attention,
    axolotl_bounds,
    axolotl_data,
    axolotl_datasets,
    axolotl_deepspeed,
    axolotl_evaluation,
    axolotl_expert_kernels,
    axolotl_experts,
    axolotl_liger,
    axolotl_lora_kernels,
    axolotl_losses,
    axolotl_memory,
    axolotl_names,
    axolotl_optimizers,
    axolotl_packing,
    axolotl_plugins,
    axolotl_preferences,
    axolotl_quantized,
    axolotl_relora,
    axolotl_retired,
    axolotl_rewritten,
    axolotl_schedule,
    axolotl_sharded_models,
    axolotl_sharded_optimizers,
    axolotl_sharded_precision,
    axolotl_sharded_saving,
    axolotl_sharding,
    axolotl_trl,
    batch,
    kernels,
    keys,
    layout,
    optimizer,
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
)
"""Rules that hold whatever the framework."""

AXOLOTL: tuple[Rule[Any], ...] = (
    *axolotl.RULES,
    *axolotl_bounds.RULES,
    *axolotl_sharding.RULES,
    *axolotl_sharded_saving.RULES,
    *axolotl_sharded_precision.RULES,
    *axolotl_sharded_optimizers.RULES,
    *axolotl_sharded_models.RULES,
    *axolotl_deepspeed.RULES,
    *axolotl_relora.RULES,
    *axolotl_data.RULES,
    *axolotl_datasets.RULES,
    *axolotl_schedule.RULES,
    *axolotl_names.RULES,
    *axolotl_evaluation.RULES,
    *axolotl_experts.RULES,
    *axolotl_expert_kernels.RULES,
    *axolotl_packing.RULES,
    *axolotl_attention.RULES,
    *axolotl_memory.RULES,
    *axolotl_losses.RULES,
    *axolotl_adapters.RULES,
    *axolotl_quantized.RULES,
    *axolotl_liger.RULES,
    *axolotl_lora_kernels.RULES,
    *axolotl_optimizers.RULES,
    *axolotl_plugins.RULES,
    *axolotl_preferences.RULES,
    *axolotl_trl.RULES,
    *axolotl_retired.RULES,
    *axolotl_rewritten.RULES,
)
"""Rules of axolotl alone."""

ALL: tuple[Rule[Any], ...] = (*NEUTRAL, *AXOLOTL)
