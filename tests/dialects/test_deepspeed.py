"""DeepSpeed's JSON config alone: what the engine refuses, what it drops, and what trainers cannot make of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ndcheck.checker import check
from ndcheck.cli import main
from ndcheck.facts import gather
from ndcheck.fixes import fix_text

MICRO = "train_micro_batch_size_per_gpu"
TOTAL = "train_batch_size"
STEPS = "gradient_accumulation_steps"
ZERO2: dict[str, Any] = {"zero_optimization": {"stage": 2}}
CPU = {"offload_optimizer": {"device": "cpu"}}


def found(config: dict[str, Any], world: int | None = None) -> dict[str, str]:
    """Name -> severity of what is found in a file with this content."""
    report = check(json.dumps(config, indent=2), "ds.json", gather(world_size=world), "deepspeed")
    return {finding.name: finding.severity.value for finding in report.findings if finding.severity.value != "info"}


@pytest.mark.parametrize(
    ("sizes", "world", "right"),
    [
        ({TOTAL: 32, MICRO: 2, STEPS: 2}, 8, True),  # 2 x 2 x 8 = 32
        ({TOTAL: 32, MICRO: 2, STEPS: 1}, 8, False),  # 2 x 1 x 8 = 16
        ({TOTAL: 32, MICRO: 4, STEPS: 1}, 8, True),
        ({TOTAL: 32, MICRO: 3}, 8, False),  # 32 / (3 x 8) is not whole
        ({TOTAL: 48, MICRO: 3}, 8, True),  # accumulation 2
        ({TOTAL: 48, STEPS: 3}, 8, True),  # micro batch 2
        ({TOTAL: 48, STEPS: 5}, 8, False),
        ({TOTAL: 12}, 8, False),  # micro batch 1.5
        ({TOTAL: "auto", MICRO: 3, STEPS: 1}, 8, True),
        ({TOTAL: 32, MICRO: "auto", STEPS: "auto"}, 8, True),
        # ranks that share a row count once: 8 / 2 = 4 data ranks
        ({TOTAL: 8, MICRO: 2, STEPS: 1, "tensor_parallel": {"autotp_size": 2}}, 8, True),
        ({TOTAL: 16, MICRO: 2, STEPS: 1, "tensor_parallel": {"autotp_size": 2}}, 8, False),
        ({TOTAL: 8, MICRO: 2, STEPS: 1, "sequence_parallel_size": 2}, 8, True),
        # 8 / (2 x 2) = 2
        ({TOTAL: 4, MICRO: 2, STEPS: 1, "tensor_parallel": {"autotp_size": 2}, "sequence_parallel_size": 2}, 8, True),
        ({TOTAL: 32, MICRO: 2, STEPS: 1}, None, True),  # nobody knows
        ({TOTAL: 32, MICRO: 2, "sequence_parallel_size": 5}, 8, True),  # 8 / 5 data ranks are none to count with
    ],
)
def test_the_rows_of_a_step(sizes: dict[str, Any], world: int | None, right: bool) -> None:
    assert found(ZERO2 | sizes, world) == ({} if right else {"batch-total": "error"})


def test_the_rows_of_a_step_with_their_numbers() -> None:
    text = json.dumps({TOTAL: 32, MICRO: 2, STEPS: 1, **ZERO2}, indent=2)
    [finding] = check(text, "ds.json", gather(world_size=8), "deepspeed").findings
    assert (
        finding.message
        == "train_batch_size 32 is not train_micro_batch_size_per_gpu 2 x gradient_accumulation_steps 1 x 8 data ranks = 16"
    )
    assert (finding.region.line, finding.region.column) == (2, 3)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        # keys
        ({MICRO: 1, **ZERO2, "gradient_cliping": 1.0}, {"unknown-key": "error"}),
        ({MICRO: 1, "zero_optimization": {"stage": 2, "overlap_com": True}}, {"deepspeed-unknown-key": "error"}),
        ({MICRO: 1, **ZERO2, "overlap_comm": True}, {"unknown-key": "error"}),
        ({MICRO: 1, **ZERO2, "bf16": {"enabled": True, "loss_scale": 0}}, {"deepspeed-unknown-key": "error"}),
        ({MICRO: 1, **ZERO2, "_note": "kept for people"}, {}),
        ({MICRO: 1, **ZERO2, "amp": {"enabled": True}}, {"deepspeed-removed-key": "error"}),
        ({MICRO: 1, **ZERO2, "bfloat16": {"enabled": True}}, {"renamed-key": "warning"}),
        (ZERO2, {"deepspeed-batch-missing": "error"}),
        ({MICRO: 1}, {"zero-optimization-missing": "warning"}),
        ({MICRO: 1, "zero_optimization": None}, {"zero-optimization-missing": "warning"}),
        ({MICRO: "many", **ZERO2}, {"wrong-type": "error"}),
        ({MICRO: 1, "zero_optimization": 2}, {"wrong-type": "error"}),
        # precision
        ({MICRO: 1, **ZERO2, "bf16": {"enabled": True}, "fp16": {"enabled": True}}, {"deepspeed-bf16-and-fp16": "error"}),
        ({MICRO: 1, **ZERO2, "bf16": {"enabled": True}, "fp16": {"enabled": False}}, {}),
        ({MICRO: 1, **ZERO2, "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"}}, {}),
        # ZeRO and offloading
        ({MICRO: 1, "zero_optimization": {"stage": 4}}, {"deepspeed-zero-stage": "error"}),
        ({MICRO: 1, "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"}}}, {}),
        ({MICRO: 1, "zero_optimization": {"stage": 0, "offload_optimizer": {"device": "cpu"}}}, {"deepspeed-offload-optimizer-stage": "warning"}),
        ({MICRO: 1, "zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}, {"deepspeed-offload-param-stage": "warning"}),
        ({MICRO: 1, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "none"}}}, {}),
        ({MICRO: 1, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "nvme", "nvme_path": "/n"}}}, {"deepspeed-nvme-stage": "error"}),
        ({MICRO: 1, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme"}}}, {"deepspeed-nvme-path-optimizer": "error"}),
        ({MICRO: 1, "optimizer": {"type": "Lamb"}, "zero_optimization": {"stage": 2, **CPU}}, {"offloaded-optimizer": "error"}),
        ({MICRO: 1, "optimizer": {"type": "AdamW"}, "zero_optimization": {"stage": 2, **CPU}}, {}),
        # axes
        ({MICRO: 1, "tensor_parallel": {"autotp_size": 2}, "zero_optimization": {"stage": 3}}, {"autotp-zero3": "error"}),
        ({MICRO: 1, "tensor_parallel": {"autotp_size": 2}, **ZERO2}, {}),
        ({MICRO: 1, "tensor_parallel": {"autotp_size": 1}, "zero_optimization": {"stage": 3}}, {}),
    ],
)  # fmt: skip
def test_what_is_found(config: dict[str, Any], expected: dict[str, str]) -> None:
    assert found(config) == expected


def test_every_value_of_transformers_documented_files_may_be_auto() -> None:
    auto = "auto"
    config = {
        TOTAL: auto,
        MICRO: auto,
        STEPS: auto,
        "gradient_clipping": auto,
        "fp16": {"enabled": auto, "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16},
        "bf16": {"enabled": auto},
        "optimizer": {"type": "AdamW", "params": {"lr": auto, "betas": auto, "eps": auto, "weight_decay": auto}},
        "scheduler": {
            "type": "WarmupDecayLR",
            "params": {"total_num_steps": auto, "warmup_min_lr": auto, "warmup_max_lr": auto, "warmup_num_steps": auto},
        },
        "zero_optimization": {
            "stage": 3,
            "overlap_comm": True,
            "contiguous_gradients": True,
            "sub_group_size": 1e9,
            "reduce_bucket_size": auto,
            "stage3_prefetch_bucket_size": auto,
            "stage3_param_persistence_threshold": auto,
            "stage3_max_live_parameters": 1e9,
            "stage3_gather_16bit_weights_on_model_save": True,
            "offload_optimizer": {"device": "cpu", "pin_memory": True},
            "offload_param": {"device": "cpu", "pin_memory": True},
        },
        "steps_per_print": 2000,
        "wall_clock_breakdown": False,
    }
    report = check(json.dumps(config), "ds.json", gather(world_size=8))
    assert report.dialect == "deepspeed"
    assert report.findings == ()


def test_a_repair_leaves_json() -> None:
    text = json.dumps({MICRO: 1, TOTAL: 9, STEPS: 2, **ZERO2}, indent=2)
    facts = gather(world_size=4)
    fixed, made = fix_text(text, lambda one: check(one, "ds.json", facts).findings, path="ds.json", unsafe=True)
    assert (json.loads(fixed), made) == ({MICRO: 1, TOTAL: 8, STEPS: 2, **ZERO2}, 1)


def test_told_by_its_keys_whatever_the_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "anything.json"
    path.write_text(json.dumps({MICRO: 1, "tensor_parallel": {"autotp_size": 2}, "zero_optimization": {"stage": 3}}))
    assert main(["validate", "-v", str(path)]) == 1
    out, err = capsys.readouterr()
    assert "autotp-zero3" in out
    assert "deepspeed" in out + err


def test_the_page_of_a_rule_shows_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "DS401"]) == 0
    page = capsys.readouterr().out
    assert '"autotp_size": 2' in page
    assert "# ndcheck: ignore" not in page
    assert '"*.json" = ["autotp-zero3"]' in page
