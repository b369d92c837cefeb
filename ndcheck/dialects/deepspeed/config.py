"""DeepSpeed as a dialect: its rules only, as an engine that trainers hand their ranks to."""

from __future__ import annotations

from ndcheck.dialects.deepspeed.model import STRICT, TOP, DeepspeedKeys
from ndcheck.dialects.deepspeed.resolve import resolve
from ndcheck.dialects.deepspeed.to_run import to_run
from ndcheck.dialects.dialect import Dialect, Role
from ndcheck.rules import NEUTRAL, deepspeed

DIALECT = Dialect(
    name="deepspeed",
    summary="DeepSpeed's JSON config, alone or as another config names it",
    role=Role.ENGINE,
    packages={"deepspeed": "0.19.8"},
    writes="json",
    keys=TOP,
    markers=frozenset(
        """
        zero_optimization train_micro_batch_size_per_gpu train_batch_size zero_allow_untested_optimizer
        zero_force_ds_cpu_optimizer wall_clock_breakdown steps_per_print prescale_gradients gradient_predivide_factor
        communication_data_type flops_profiler comms_logger
        """.split()
    ),
    telling=("train_micro_batch_size_per_gpu", "zero_optimization"),
    key_count=len(TOP) + sum(len(keys) for section, keys in STRICT.items() if section != "bfloat16"),
    minimal={"train_micro_batch_size_per_gpu": "1", "zero_optimization": "{stage: 2}"},
    model=DeepspeedKeys,
    resolve=resolve,
    to_run=to_run,
    model_path=lambda settings: None,
    engine=lambda settings: None,
    rules=(*NEUTRAL, *deepspeed.RULES),
)
