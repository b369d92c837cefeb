"""``python -m tests.oracle.run_axolotl OUT.jsonl --seed N --count N``: what the installed axolotl says of fresh configs.

Runs in an environment of its own, in which axolotl is installed without most of what it needs to train. It never goes
to the network. The lines are those of ``tests/data/axolotl_verdicts.jsonl``, with axolotl's version.
"""

from __future__ import annotations

import argparse
import importlib.machinery
import json
import logging
import math
import os
import sys
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any

from tests.oracle.generate import BASE, configs

RANKS = 8
ENVIRONMENT = {
    "WORLD_SIZE": str(RANKS),
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "AXOLOTL_DO_NOT_TRACK": "1",
    "DO_NOT_TRACK": "1",
}
CAPABILITIES = {"bf16": True, "fp8": True, "tf32": True, "n_gpu": RANKS, "compute_capability": "sm_90"}
ZERO = {"zero2": 2, "zero3": 3, "zero3_bf16": 3}
PROBED = ("ring_flash_attn",)
"""Modules that axolotl only asks for; an empty one will do."""
MESSAGES = (ValueError, DeprecationWarning, ImportError, NotImplementedError)
"""The exceptions with which axolotl tells the user something."""


def main(arguments: list[str]) -> None:
    """Label fresh configs and write them as JSON lines."""
    parser = argparse.ArgumentParser(prog="run_axolotl")
    parser.add_argument("output", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300)
    options = parser.parse_args(arguments)
    output = options.output.absolute()
    os.environ.update(ENVIRONMENT)
    logging.disable(logging.WARNING)
    _stand_in()
    with tempfile.TemporaryDirectory() as folder:
        _deepspeed_files(Path(folder))
        os.chdir(folder)
        _validate(BASE)  # where this fails, the environment is to blame and no config
        labels = [
            {
                "id": f"s{options.seed}-{number:04}",
                "axolotl": _version(),
                "world_size": RANKS,
                "config": config,
                **label(config),
            }
            for number, config in enumerate(configs(options.seed, options.count))
        ]
        os.chdir(output.parent)
    output.write_text("".join(json.dumps(row) + "\n" for row in labels), encoding="utf-8")
    sys.stdout.write(f"{len(labels)} configs labelled by axolotl {_version()}\n")


def label(config: dict[str, Any]) -> dict[str, Any]:
    """What axolotl's validator says, and where it accepts, its mesh code."""
    try:
        resolved = _validate(config)
    except Exception as error:  # any exception stops the user's run
        schema, by = _refusal(error)
        return {"schema": schema, "by": by, "launch": None, "launch_by": []}
    try:
        refusals = list(_launch(resolved))
    except Exception as error:
        refusals = [f"{type(error).__name__}: {error}"]
    return {"schema": "accept", "by": [], "launch": "reject" if refusals else "accept", "launch_by": refusals}


def _validate(config: dict[str, Any]) -> Any:
    import torch
    from axolotl.utils.config import prepare_plugins, validate_config
    from axolotl.utils.dict import DictDefault

    fresh = DictDefault(json.loads(json.dumps(config)))
    _forget_plugins()
    prepare_plugins(fresh)
    torch_version = torch.__version__.split("+")[0]
    return validate_config(fresh, capabilities=CAPABILITIES, env_capabilities={"torch_version": torch_version})


def _forget_plugins() -> None:
    """axolotl keeps a list of plug-ins over configs; one process sees only one config otherwise."""
    from axolotl.integrations.base import PluginManager

    PluginManager.get_instance().plugins.clear()


def _refusal(error: Exception) -> tuple[str, list[str]]:
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        # some of axolotl's refusals pass pydantic by; any other exception is an accident
        names = [_validator(error.__traceback__) or type(error).__name__]
        return ("reject" if isinstance(error, MESSAGES) else "crash"), names
    names = []
    for entry in error.errors():
        cause = entry.get("ctx", {}).get("error")
        name = _validator(cause.__traceback__) if isinstance(cause, Exception) else None
        names.append(name or f"field:{entry['loc'][0] if entry['loc'] else ''}")
    return "reject", list(dict.fromkeys(names))


def _validator(traceback: TracebackType | None) -> str | None:
    """The outermost function of axolotl's schemas or plug-ins that was running."""
    while traceback:
        code = traceback.tb_frame.f_code
        path = code.co_filename.replace(os.sep, "/")
        if "/axolotl/utils/schemas/" in path or "/axolotl/integrations/" in path:
            return code.co_name
        traceback = traceback.tb_next
    return None


def _launch(config: Any) -> Iterator[str]:
    """Which parts of the mesh code refuse the degrees on 8 ranks."""
    degrees = {
        "dp_replicate_size": config.dp_replicate_size,
        "dp_shard_size": config.dp_shard_size,
        "cp_size": config.context_parallel_size,
        "tp_size": config.tensor_parallel_size,
    }
    degrees = {name: size for name, size in degrees.items() if size and size > 1}
    if _asks_loader(config):
        yield from _loader(config)
    if degrees:
        yield from _trainer(config, degrees)


def _asks_loader(config: Any) -> bool:
    sharded = bool(config.fsdp_config) and str(config.fsdp_version) == "2"
    wide = any(size and size > 1 for size in (config.tensor_parallel_size, config.context_parallel_size))
    return sharded or wide or config.optimizer in ("muon", "dion", "sinkgd")


def _loader(config: Any) -> Iterator[str]:
    from axolotl.utils.distributed import _get_parallel_config_kwargs

    try:
        sizes = _get_parallel_config_kwargs(
            RANKS,
            config.tensor_parallel_size,
            config.context_parallel_size,
            config.dp_shard_size,
            config.dp_replicate_size,
            bool(config.fsdp or config.fsdp_config),
        )
    except ValueError:
        yield "loader mesh: ValueError"
        return
    if sizes and math.prod(sizes.values()) != RANKS:
        yield f"loader mesh is not {RANKS} ranks"


def _trainer(config: Any, degrees: dict[str, int]) -> Iterator[str]:
    """accelerate's check, asked with a stand-in for the Accelerator of such a run."""
    from accelerate import DistributedType
    from accelerate.parallelism_config import ParallelismConfig
    from axolotl.monkeypatch.accelerate.parallelism_config import _validate_accelerator

    try:
        mesh = ParallelismConfig(**degrees)
    except ValueError:
        yield "trainer mesh: ValueError"
        return
    if mesh.total_size != RANKS:
        yield f"trainer mesh is not {RANKS} ranks"
        return
    sharded = bool(config.fsdp or config.fsdp_config)
    kind = DistributedType.FSDP if sharded else DistributedType.DEEPSPEED if config.deepspeed else None
    accelerator = SimpleNamespace(
        multi_device=kind is None,
        num_processes=RANKS,
        is_fsdp2=sharded and str(config.fsdp_version) == "2",
        distributed_type=kind or DistributedType.MULTI_GPU,
        is_main_process=False,
    )
    os.environ["ACCELERATE_ALLOW_CP_STANDALONE"] = str(degrees.get("cp_size", 1) > 1).lower()
    try:
        # as of a context-parallel or FSDP2 run, axolotl replaces accelerate's check by its own
        ask = (
            _validate_accelerator if accelerator.is_fsdp2 or "cp_size" in degrees else type(mesh)._validate_accelerator
        )
        ask(mesh, accelerator)
    except ValueError as error:
        yield "mesh with FSDP1" if sharded else f"trainer: {error}"


def _stand_in() -> None:
    for name in PROBED:
        module = types.ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        sys.modules.setdefault(name, module)
    from axolotl.utils.schemas import config

    config.is_fp8_available = lambda: True  # it asks for torchao


def _deepspeed_files(folder: Path) -> None:
    (folder / "deepspeed_configs").mkdir()
    for name, stage in ZERO.items():
        content = {
            "zero_optimization": {"stage": stage},
            "bf16": {"enabled": "auto"},
            "gradient_accumulation_steps": "auto",
            "train_batch_size": "auto",
            "train_micro_batch_size_per_gpu": "auto",
        }
        (folder / "deepspeed_configs" / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")


def _version() -> str:
    from importlib.metadata import version

    return version("axolotl")


if __name__ == "__main__":
    main(sys.argv[1:])
