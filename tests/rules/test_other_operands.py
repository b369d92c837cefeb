"""Conditional rules of accelerate's, transformers' and DeepSpeed's dialects: every operand on its own."""

from __future__ import annotations

import pytest

from ndcheck.checker import check
from ndcheck.dialects import ALL
from ndcheck.dialects.examples import language, whole
from ndcheck.facts import gather

DDP = "distributed_type: MULTI_GPU\n"
DEEPSPEED = "distributed_type: DEEPSPEED\n"
ADDRESS = "main_process_ip: 10.0.0.1\n"
PORT = "main_process_port: 29500\n"
CP = "parallelism_config_cp_"
SP = "parallelism_config_sp_"
TRUE = ("true", "yes", "y", "t", "on", "1")
FALSE = ("false", "no", "n", "f", "off", "0")


def mesh(*entries: str) -> str:
    return f"parallelism_config: {{{', '.join(entries)}}}\n"


def fsdp(*entries: str, kind: str = "FSDP", version: str = "2") -> str:
    return f"distributed_type: {kind}\nfsdp_config: {{{', '.join((f'fsdp_version: {version}', *entries))}}}\n"


def zero(*entries: str) -> str:
    return f"{DEEPSPEED}deepspeed_config: {{{', '.join(entries)}}}\n"


def json_zero(stage: object, **entries: str) -> str:
    """DeepSpeed's own section."""
    inner = ", ".join([f"stage: {stage}", *(f"{key}: {value}" for key, value in entries.items())])
    return f"zero_optimization: {{{inner}}}\n"


def section(*entries: str, on: str = "true") -> str:
    return f"fsdp: {on}\nfsdp_config: {{{', '.join(entries)}}}\n"


BROKEN: dict[str, list[str]] = {
    "AC106": [f"num_machines: 2\n{ADDRESS}", f"num_machines: 2\n{PORT}"],
    "AC107": [f"{DDP}gpu_ids: 0\n", f"{DDP}gpu_ids: 1\nnum_machines: 1\n"],
    "AC202": [mesh(f"{CP}size: 2", f"{SP}size: 2")],
    "AC205": [mesh(f"{CP}size: 2", f"{CP}comm_strategy: ring")],
    "AC206": [f"{DDP}{mesh(f'{SP}size: 2')}"],
    "AC208": [
        mesh(f"{SP}size: 2", f"{SP}attn_implementation: flash-attn"),
        mesh(f"{SP}size: 2", f"{SP}attn_implementation: org/sage"),
    ],
    "AC209": [mesh(f"{SP}size: 2", f"{SP}seq_length_is_variable: false")],
    "AC306": [fsdp("fsdp_activation_checkpointing_offload: true", "fsdp_activation_checkpointing: true", version="1")],
    "AC402": [zero("zero_stage: -1")],
    "AC405": [zero("offload_param_device: nvme", "zero_stage: 2")],
    "TR105": ["streaming: true\n", "dataset_streaming: true\nmax_steps: 0\n"],
    "TR106": ["deepspeed: a.json\nsave_only_model: true\nload_best_model_at_end: true\n"],
    "TR207": ["padding_free: true\n"],
    "TR209": [f"loss_type: other\n{key}: true\n" for key in ("packing", "assistant_only_loss")],
    "DS105": ["gradient_allreduce_op: max\n"],
    "DS106": ["communication_data_type: int8\n"],
    "DS202": ["bf16: {enabled: true, bf16_master_weights_and_grads: true}\nzero_optimization: {overlap_comm: true}\n"],
    "DS206": ["bf16: {enabled: true}\nfp16: {loss_scale: 1}\n"],
    "DS301": [json_zero(-1), json_zero(5)],
    "DS302": [json_zero(0, offload_param="{device: nvme, nvme_path: /n}"), json_zero(1, offload_param="{device: cpu}")],
    "DS303": [json_zero(0, offload_optimizer="{device: nvme, nvme_path: /n}")],
    "DS304": [json_zero(1, offload_optimizer="{device: nvme, nvme_path: /n}")],
    "DS308": [json_zero(0, compute_grad_norm="false")],
    "DS315": ["scheduler: {type: WarmupLR, params: {warmup_num_steps: -1}}\n"],
    "DS402": ["sequence_parallel_size: -1\n"],
}
"""Code -> fragments that break the rule, beyond its own bad example."""

FINE: dict[str, list[str]] = {
    "AC101": ["compute_environment: AMAZON_SAGEMAKER\ndistributed_type:\n"],
    "AC106": [
        "num_machines: 1\n",
        f"num_machines: 2\n{zero('deepspeed_hostfile: hosts')}",
        "",
    ],
    "AC107": [
        f"{DDP}gpu_ids: 0\nnum_machines: 2\n",
        "distributed_type: MULTI_NPU\ngpu_ids: 0\n",
        f"{DDP}gpu_ids: all\n",
        "distributed_type: MULTI_NPU\ngpu_ids: 0\nnum_machines: 2\n",
    ],
    "AC108": [DDP, "fsdp_config: {fsdp_version: 2}\ndistributed_type:\n"],
    "AC109": [DDP, "deepspeed_config: {zero_stage: 2}\ndistributed_type:\n"],
    "AC110": [DDP, "megatron_lm_config: {megatron_lm_tp_degree: 2}\ndistributed_type:\n"],
    "AC202": [mesh(f"{CP}size: 2"), mesh(f"{CP}size: 2", f"{SP}size: 1")],
    "AC203": [DDP],
    "AC204": [DDP],
    "AC205": [
        mesh(f"{CP}size: 1", f"{CP}comm_strategy: ring"),
        mesh(f"{CP}size: 2"),
        mesh(f"{CP}size: 2", f"{CP}comm_strategy: allgather"),
        mesh(f"{CP}size: 2", f"{CP}comm_strategy: alltoall"),
    ],
    "AC206": [f"{DDP}{mesh(f'{SP}size: 1')}", f"distributed_type:\n{mesh(f'{SP}size: 2')}", DDP],
    "AC208": [
        mesh(f"{SP}size: 1", f"{SP}attn_implementation: eager"),
        mesh(f"{SP}size: 2"),
        *(
            mesh(f"{SP}size: 2", f"{SP}attn_implementation: {name}")
            for name in ("sdpa", "flash_attention_2", "flash_attention_3", "kernels-community/flash-attn3")
        ),
    ],
    "AC209": [
        mesh(f"{SP}size: 1", f"{SP}seq_length_is_variable: false"),
        mesh(f"{SP}size: 2", f"{SP}seq_length_is_variable: true"),
        mesh(f"{SP}size: 2", f"{SP}seq_length_is_variable: false", f"{SP}seq_length: 8"),
        mesh(f"{SP}size: 2"),
        DDP,
    ],
    "AC301": [fsdp(version="1"), fsdp(version="3", kind="MULTI_GPU"), fsdp(version="null"), DDP],
    "AC303": [
        *(fsdp(f"fsdp_reshard_after_forward: '{word}'") for word in (*TRUE, *FALSE)),
        fsdp("fsdp_reshard_after_forward: FULL_SHARD", version="1"),
        fsdp("fsdp_reshard_after_forward: FULL_SHARD", kind="MULTI_GPU"),
        fsdp(),
        "distributed_type: FSDP\n",
        DDP,
    ],
    "AC304": [
        fsdp("fsdp_state_dict_type: LOCAL_STATE_DICT", version="1"),
        fsdp("fsdp_state_dict_type: LOCAL_STATE_DICT", kind="MULTI_GPU"),
    ],
    "AC305": [
        fsdp("fsdp_sync_module_states: false", kind="MULTI_GPU"),
        fsdp("fsdp_sync_module_states: false", "fsdp_cpu_ram_efficient_loading: false"),
    ],
    "AC306": [
        fsdp("fsdp_activation_checkpointing_offload: true", kind="MULTI_GPU"),
        fsdp("fsdp_activation_checkpointing_offload: false"),
        fsdp(),
    ],
    "AC307": [
        fsdp(),
        fsdp("fsdp_activation_checkpointing: true", version="1"),
        fsdp("fsdp_activation_checkpointing: true", kind="MULTI_GPU"),
    ],
    "AC308": [
        fsdp("fsdp_offload_params: true", version="1"),
        fsdp("fsdp_offload_params: true", kind="MULTI_GPU"),
        fsdp("fsdp_offload_params: false"),
        fsdp("fsdp_offload_params: true", version="1", kind="MULTI_GPU"),
    ],
    "AC402": [DEEPSPEED, zero("zero_stage: 0")],
    "AC403": [DEEPSPEED, zero("offload_optimizer_device: none"), zero("offload_optimizer_device: nvme")],
    "AC404": [DEEPSPEED, zero("offload_param_device: none"), zero("offload_param_device: nvme")],
    "AC405": [
        zero("zero_stage: 2"),
        zero("offload_param_device: cpu"),
        zero("offload_param_device: none", "zero_stage: 2"),
    ],
    "TR102": ["parallelism_config: null\n", "parallelism_config: 3\n"],
    "TR104": [
        "accelerator_config: {gradient_accumulation_kwargs: {num_steps: 2}}\n",
        "gradient_accumulation_steps: 1\naccelerator_config: {gradient_accumulation_kwargs: {num_steps: 2}}\n",
    ],
    "TR105": ["max_steps: 0\n", "dataset_streaming: true\nmax_steps: 1\n", "streaming: false\n"],
    "TR106": [
        "save_only_model: true\nload_best_model_at_end: true\n",
        "fsdp: true\nload_best_model_at_end: true\n",
        "deepspeed: a.json\nload_best_model_at_end: true\n",
        "load_best_model_at_end: true\n",
    ],
    "TR107": [
        f"save_only_model: true\n{section('state_dict_type: SHARDED_STATE_DICT', on='false')}",
        section("state_dict_type: SHARDED_STATE_DICT"),
    ],
    "TR111": ["fsdp: false\n", ""],
    "TR112": [
        f"gradient_checkpointing: true\n{section('activation_checkpointing: true', on='false')}",
        f"gradient_checkpointing: true\n{section('activation_checkpointing: false')}",
        "gradient_checkpointing: true\n",
        "fsdp: true\nactivation_checkpointing: true\n",
    ],
    "TR114": [
        section("auto_wrap_policy: other", on="false"),
        section("auto_wrap_policy: SIZE_BASED_WRAP"),
        section("auto_wrap_policy: NO_WRAP"),
        section("auto_wrap_policy: null"),
        "fsdp: true\n",
        "fsdp_config: {auto_wrap_policy: null}\n",
    ],
    "TR116": [
        "dataloader_pin_memory: false\n",
        "accelerator_config: {non_blocking: false}\ndataloader_pin_memory: false\n",
    ],
    "TR202": ["steps_per_generation: 4\n"],
    "TR204": ["auto_find_batch_size: true\n"],
    "TR205": ["max_length: null\n"],
    "TR207": [
        "attn_implementation: eager\n",
        "packing: true\nmodel_init_kwargs: {attn_implementation: kernels-community/vllm-flash-attn3}\n",
        "padding_free: false\n",
    ],
    "TR208": ["loss_type: chunked_nll\n"],
    "TR209": [
        "loss_type: other\n",
        "packing: true\n",
        *(f"packing: true\nloss_type: {name}\n" for name in ("nll", "dft", "chunked_nll")),
    ],
    "DS103": ["train_batch_size: 8\n", "train_micro_batch_size_per_gpu: 1\n"],
    "DS105": ["gradient_clipping: 1.0\n", "gradient_allreduce_op: sum\n"],
    "DS106": ["gradient_clipping: 1.0\n", "communication_data_type: fp16\n", "communication_data_type: bf16\n"],
    "DS201": ["fp16: {enabled: true}\n"],
    "DS202": ["zero_optimization: {stage: 0}\n"],
    "DS203": ["zero_optimization: {stage: 0}\n"],
    "DS204": ["bf16: {enabled: true}\n"],
    "DS206": ["fp16: {enabled: true, loss_scale: 2}\n"],
    "DS301": [json_zero(0), json_zero(1), json_zero(2), "zero_optimization: {overlap_comm: true}\n"],
    "DS302": [json_zero(0), json_zero(2, offload_param="{device: none}")],
    "DS303": [json_zero(0), json_zero(0, offload_optimizer="{device: none}")],
    "DS304": [
        json_zero(2, offload_optimizer="{device: cpu}"),
        json_zero(0, offload_optimizer="{device: nvme, nvme_path: /n}"),
    ],
    "DS305": [json_zero(3, offload_optimizer="{device: cpu}")],
    "DS306": [json_zero(3, offload_param="{device: cpu}")],
    "DS308": [json_zero(3), json_zero(1, compute_grad_norm="false")],
    "DS309": [json_zero(3), "gradient_allreduce_op: sum\nzero_optimization: {overlap_comm: true}\n"],
    "DS315": [
        "gradient_clipping: 1.0\n",
        "scheduler: {type: WarmupLR, params: {warmup_num_steps: auto}}\n",
        "scheduler: {type: WarmupLR, params: {warmup_num_steps: 1}}\n",
    ],
    "DS401": ["zero_optimization: {stage: 3}\n", "tensor_parallel: {autotp_size: 1}\nzero_optimization: {stage: 3}\n"],
    "DS402": ["gradient_clipping: 1.0\n"],
}
"""Code -> fragments that do not break the rule, beyond its own good example."""

CASES = [
    (code, fragment, broken)
    for table, broken in ((BROKEN, True), (FINE, False))
    for code, fragments in table.items()
    for fragment in fragments
]
BY_CODE = {rule.code: rule for rule in ALL}


@pytest.mark.parametrize(("code", "fragment", "broken"), CASES)
def test_operands(code: str, fragment: str, broken: bool) -> None:
    rule = BY_CODE[code]
    dialect = language(rule, fragment).name
    found = check(whole(rule, fragment), "config.yaml", gather(), dialect).findings
    assert (code in {finding.code for finding in found}) == broken
