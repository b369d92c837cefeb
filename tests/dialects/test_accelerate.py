"""accelerate's launch files: what it refuses, what it drops, and files that its own tools write."""

from __future__ import annotations

import itertools
import types
from pathlib import Path
from typing import Any

import pytest
import yaml
from accelerate import ParallelismConfig
from accelerate.commands.config.config_args import ClusterConfig
from accelerate.commands.config.default import write_basic_config
from accelerate.commands.to_fsdp2 import convert_config_to_fsdp2
from accelerate.utils import DistributedType

from ndcheck.checker import check
from ndcheck.facts import gather
from ndcheck.fixes import fix_text
from tests.helpers import diagnose

FSDP2 = "distributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n  fsdp_version: 2\n"
DDP = "distributed_type: MULTI_GPU\nnum_processes: 8\n"
CASES = Path(__file__).parents[1] / "data/cases"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # ranks
        (f"{FSDP2}parallelism_config:\n  parallelism_config_dp_shard_size: 4\n", {("world-size-product", 6)}),
        (f"{FSDP2}parallelism_config:\n  parallelism_config_dp_shard_size: 8\n", set()),
        ("distributed_type: MULTI_GPU\nnum_processes: 8\nnum_machines: 3\n", {("machines-divide-processes", 2), ("machines-without-address", 3)}),
        ("distributed_type: MULTI_GPU\nnum_processes: 2\ngpu_ids: 3\n", {("one-gpu-named", 3)}),
        ("num_processes: 2\nmachine_rank: 0\n", {("distributed-type-missing", 1)}),
        ("distributed_type: MULTI_GPU\nmachine_rank: 0\n", {("num-processes-missing", 1)}),
        (f"{DDP}num_proceses: 8\n", {("unknown-launch-key", 3)}),
        (f"{DDP}fsdp_version: 2\n", {("unknown-launch-key", 3)}),
        ("distributed_type: multi-gpu\nnum_processes: 2\n", {("wrong-type", 1)}),
        # the mesh
        (f"{FSDP2}parallelism_config:\n  tp_size: 8\n", {("parallelism-key-unprefixed", 6), ("fsdp-shard-of-one", 6)}),
        (f"{FSDP2}parallelism_config:\n  parallelism_config_tp_sze: 8\n", {("unknown-key", 6)}),
        (f"{FSDP2}parallelism_config:\n  parallelism_config_tp_size: '8'\n", {("wrong-type", 6)}),
        (f"{FSDP2}parallelism_config:\n  parallelism_config_tp_size: 8\n", {("fsdp-shard-of-one", 6)}),
        (f"{DDP}parallelism_config:\n  parallelism_config_tp_size: 8\n", set()),
        (f"{DDP}parallelism_config:\n  parallelism_config_cp_size: 8\n", {("cp-needs-fsdp2", 4)}),
        (f"{DDP}parallelism_config:\n  parallelism_config_dp_shard_size: 8\n", {("fsdp-required", 4)}),
        (f"{DDP}parallelism_config:\n  parallelism_config_sp_size: 8\n", {("sp-without-deepspeed", 4)}),
        (f"{DDP}use_cpu: true\nparallelism_config:\n  parallelism_config_tp_size: 8\n", {("sharding-on-cpu", 3)}),
        (f"{FSDP2}use_cpu: true\n", {("sharding-on-cpu", 5)}),
        # FSDP
        ("distributed_type: FSDP\nnum_processes: 2\nfsdp_config: {version: 2, offload_param: true}\n", {("unknown-key", 3)}),
        (f"{FSDP2}  fsdp_reshard_after_forward: FULL_SHARD\n", {("reshard-not-boolean", 5)}),
        (f"{FSDP2}  fsdp_reshard_after_forward: 'yes'\n", set()),
        (f"{FSDP2}  fsdp_sync_module_states: false\n", {("ram-efficient-without-sync", 5), ("fsdp1-key-under-fsdp2", 5)}),
        (f"{FSDP2}  fsdp_activation_checkpointing: true\n", {("checkpointing-unwrapped", 5)}),
        (f"{DDP}fsdp_config: {{fsdp_version: 2}}\n", {("fsdp-config-unread", 3)}),
        # Megatron-LM fills the ranks with replicas
        ("distributed_type: MEGATRON_LM\nnum_processes: 8\nmegatron_lm_config: {megatron_lm_tp_degree: 2}\n", set()),
        (
            "distributed_type: MEGATRON_LM\nnum_processes: 8\nmegatron_lm_config: {megatron_lm_tp_degree: 3}\n",
            {("world-size-product", 3), ("tp-across-nodes", 3)},
        ),
        ("distributed_type: MEGATRON_LM\nnum_processes: 8\nmegatron_lm_config: {tp_degree: 2}\n", {("unknown-key", 3)}),
        # DeepSpeed
        (
            "distributed_type: DEEPSPEED\nnum_processes: 8\nmixed_precision: bf16\ndeepspeed_config: {deepspeed_config_file: a.json}\n",
            {("deepspeed-file-and-keys", 3)},
        ),
        (
            "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config: {zero_stage: 2, offload_param_device: cpu}\n",
            {("offload-parameters-stage", 3)},
        ),
        ("compute_environment: AMAZON_SAGEMAKER\nec2_instance_type: ml.p3\n", set()),
    ],
)  # fmt: skip
def test_findings(text: str, expected: set[tuple[str, int]]) -> None:
    assert diagnose(text) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("R01", ("fsdp-shard-of-one", "error")),
        ("R03", ("world-size-product", "error")),
        ("R29", ("fsdp1-key-under-fsdp2", "warning")),
        ("R33", ("ram-efficient-and-offload", "warning")),
        ("R61", ("cp-needs-fsdp2", "error")),
    ],
)
def test_case(name: str, expected: tuple[str, str]) -> None:
    found = check((CASES / f"{name}.yaml").read_text(), name, gather(), None).findings
    assert expected in {(one.name, one.severity.value) for one in found}
    assert not {one.name for one in found if one.severity == "error"} - {
        expected[0],
        "distributed-type-missing",
        "fsdp-required",
    }


def test_the_command_line_s_world_size_wins() -> None:
    assert diagnose(f"{FSDP2}parallelism_config:\n  parallelism_config_dp_shard_size: 8\n", world_size=4) == {
        ("world-size-product", 6)
    }


def written(folder: Path, **settings: Any) -> str:
    """A launch file as accelerate's own class writes it."""
    given = {"compute_environment": "LOCAL_MACHINE", "debug": False, "use_cpu": False, "mixed_precision": "bf16"}
    path = folder / "written.yaml"
    ClusterConfig(**(given | settings)).to_yaml_file(str(path))
    return path.read_text()


SHARDED = {
    "fsdp_version": 2,
    "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    "fsdp_cpu_ram_efficient_loading": True,
    "fsdp_offload_params": False,
    "fsdp_reshard_after_forward": True,
    "fsdp_state_dict_type": "SHARDED_STATE_DICT",
    "fsdp_activation_checkpointing": False,
}
WHOLE = {
    "fsdp_version": 1,
    "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    "fsdp_backward_prefetch": "BACKWARD_PRE",
    "fsdp_cpu_ram_efficient_loading": True,
    "fsdp_forward_prefetch": False,
    "fsdp_offload_params": False,
    "fsdp_reshard_after_forward": "FULL_SHARD",
    "fsdp_state_dict_type": "FULL_STATE_DICT",
    "fsdp_sync_module_states": True,
    "fsdp_use_orig_params": True,
    "fsdp_activation_checkpointing": False,
}
ZERO3 = {
    "zero_stage": 3,
    "gradient_accumulation_steps": 1,
    "gradient_clipping": 1.0,
    "offload_optimizer_device": "none",
    "offload_param_device": "none",
    "zero3_init_flag": True,
    "zero3_save_16bit_model": True,
}


def fsdp2(**sizes: int) -> dict[str, Any]:
    """Settings of FSDP2 with a mesh, all its sizes written as the questionnaire writes them."""
    every = dict.fromkeys(("dp_replicate", "dp_shard", "tp", "cp"), 1) | sizes
    mesh: dict[str, Any] = {f"parallelism_config_{axis}_size": size for axis, size in every.items()}
    if every["cp"] > 1:
        mesh["parallelism_config_cp_comm_strategy"] = "allgather"
    return {"distributed_type": "FSDP", "num_processes": 8, "fsdp_config": SHARDED, "parallelism_config": mesh}


NODES = {
    "num_processes": 16,
    "num_machines": 2,
    "main_process_ip": "10.0.0.1",
    "main_process_port": 29500,
    "machine_rank": 0,
    "rdzv_backend": "static",
    "same_network": True,
}
MEGATRON = {
    "megatron_lm_tp_degree": 2,
    "megatron_lm_pp_degree": 2,
    "megatron_lm_num_micro_batches": 2,
    "megatron_lm_recompute_activations": True,
    "megatron_lm_sequence_parallelism": True,
    "megatron_lm_use_distributed_optimizer": True,
    "megatron_lm_gradient_clipping": 1.0,
}
DYNAMO = {
    "dynamo_backend": "INDUCTOR",
    "dynamo_mode": "default",
    "dynamo_use_dynamic": False,
    "dynamo_use_fullgraph": False,
    "dynamo_use_regional_compilation": False,
}


@pytest.mark.parametrize(
    "settings",
    [
        {"distributed_type": "MULTI_GPU", "num_processes": 8},
        {"distributed_type": "MULTI_GPU", **NODES},
        {"distributed_type": "FSDP", "num_processes": 8, "fsdp_config": SHARDED},
        {"distributed_type": "FSDP", "num_processes": 8, "fsdp_config": WHOLE},
        fsdp2(dp_replicate=2, dp_shard=4),
        fsdp2(dp_shard=4, cp=2),
        {"distributed_type": "DEEPSPEED", "num_processes": 8, "deepspeed_config": ZERO3},
        {"distributed_type": "MEGATRON_LM", "num_processes": 8, "megatron_lm_config": MEGATRON},
        {"distributed_type": "NO", "num_processes": 1, "dynamo_config": DYNAMO},
    ],
    ids=lambda settings: str(settings["distributed_type"]),
)
def test_what_accelerate_writes_passes(settings: dict[str, Any], tmp_path: Path) -> None:
    assert diagnose(written(tmp_path, **settings)) == set()


@pytest.mark.parametrize("precision", ["no", "fp16", "bf16"])
def test_the_basic_config_passes(precision: str, tmp_path: Path) -> None:
    path = tmp_path / "basic.json"
    write_basic_config(precision, str(path))
    assert diagnose(path.read_text()) == set()


SIZES = list(itertools.product([1, 2], [1, 2, 4], [1, 2], [1, 2], [1, 2]))
KINDS = ("MULTI_GPU", "FSDP 1", "FSDP 2", "DEEPSPEED")

STRICTER = {"fsdp-required"}
"""accelerate accepts dp_shard without FSDP, and nothing is sharded then: see matrices/witnesses.yaml."""
BESIDE = {"tp-beside-sharding"}
"""A fact of transformers, not of accelerate's own checks."""
UNCHECKED = {"sp-without-deepspeed", "sp-product"}
"""accelerate's guide demands it, its code does not."""


def refuses(sizes: dict[str, int], kind: str, world: int) -> bool:
    """accelerate's own word: what its class and its check against an Accelerator raise, and its state's check of cp."""
    fsdp2 = kind == "FSDP 2"
    stub = types.SimpleNamespace(
        multi_device=kind == "MULTI_GPU",
        num_processes=world,
        is_fsdp2=fsdp2,
        is_main_process=False,
        distributed_type=DistributedType(kind.split()[0]),
    )
    try:
        config = ParallelismConfig(**sizes)
        if (
            config.cp_enabled and not fsdp2 and kind != "DEEPSPEED"
        ):  # AcceleratorState, which cannot be built without GPUs
            return True
        config._validate_accelerator(stub)
    except ValueError:
        return True
    return False


def ours(sizes: dict[str, int], kind: str, world: int) -> set[str]:
    config: dict[str, Any] = {"distributed_type": kind.split()[0], "num_processes": world}
    if kind.startswith("FSDP"):
        config["fsdp_config"] = {"fsdp_version": int(kind[-1])}
    config["parallelism_config"] = {f"parallelism_config_{name}": size for name, size in sizes.items()}
    found = check(yaml.safe_dump(config, sort_keys=False), "config.yaml", gather(), "accelerate").findings
    return {one.name for one in found if one.severity == "error"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("world", [1, 2, 4, 8])
def test_meshes_are_refused_as_accelerate_refuses_them(kind: str, world: int) -> None:
    differences = []
    for values in SIZES:
        names = ("dp_replicate_size", "dp_shard_size", "tp_size", "cp_size", "sp_size")
        sizes = dict(zip(names, values, strict=True))
        found = ours(sizes, kind, world)
        wrong = not found if refuses(sizes, kind, world) else found - STRICTER - BESIDE - UNCHECKED
        if wrong:
            differences.append((sizes, found))
    assert not differences


def test_the_repair_of_fsdp1_keys_is_accelerate_s_own_migration() -> None:
    """Ours keeps offload and the rest as they stand, and so does theirs; both make the strategy a switch."""
    old = dict(WHOLE, fsdp_sharding_strategy="SHARD_GRAD_OP")
    del old["fsdp_reshard_after_forward"]
    config = {"distributed_type": "FSDP", "num_processes": 8, "fsdp_config": old}
    theirs = convert_config_to_fsdp2(config)["fsdp_config"]
    text = yaml.safe_dump(config, sort_keys=False).replace("fsdp_version: 1", "fsdp_version: 2")
    after, _ = fix_text(text, lambda one: check(one, "a.yaml", gather(), "accelerate").findings, unsafe=True)
    mended = yaml.safe_load(after)["fsdp_config"]
    assert mended == theirs
