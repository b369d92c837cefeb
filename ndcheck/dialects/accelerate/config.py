"""accelerate as a dialect."""

from __future__ import annotations

from ndcheck.dialects.accelerate.model import AccelerateKeys
from ndcheck.dialects.accelerate.resolve import KNOWN, TOP, resolve
from ndcheck.dialects.accelerate.to_run import to_run
from ndcheck.dialects.dialect import Dialect, Role
from ndcheck.rules import NEUTRAL, accelerate

DIALECT = Dialect(
    name="accelerate",
    summary="accelerate's launch file, as `accelerate config` writes it",
    role=Role.LAUNCH,
    packages={"accelerate": "1.15"},
    keys=TOP,
    markers=frozenset(
        {
            "compute_environment",
            "distributed_type",
            "num_processes",
            "num_machines",
            "machine_rank",
            "main_process_ip",
            "main_process_port",
            "rdzv_backend",
            "same_network",
            "main_training_function",
            "megatron_lm_config",
            "deepspeed_config",
            "mpirun_config",
            "dynamo_config",
            "downcast_bf16",
            "mixed_precision",
        }
    ),
    telling=("distributed_type", "num_processes", "rdzv_backend"),
    key_count=len(TOP) + sum(map(len, KNOWN.values())),
    minimal={"distributed_type": "MULTI_GPU", "num_processes": "8"},
    model=AccelerateKeys,
    resolve=resolve,
    to_run=to_run,
    model_path=lambda settings: None,
    engine=lambda settings: settings.value("deepspeed_config.deepspeed_config_file"),
    rules=(*NEUTRAL, *accelerate.RULES),
)
