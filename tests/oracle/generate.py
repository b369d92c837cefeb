"""Configs for both to judge: a small one that axolotl accepts, with a handful of settings drawn from many."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

BASE: dict[str, Any] = {
    "base_model": "org/llama-8b",
    "datasets": [{"path": "org/data", "type": "alpaca"}],
    "micro_batch_size": 2,
    "gradient_accumulation_steps": 2,
    "learning_rate": 2e-5,
    "num_epochs": 1,
    "sequence_len": 2048,
    "optimizer": "adamw_torch",
    "output_dir": "./out",
}

LIGER = {"plugins": ["axolotl.integrations.liger.LigerPlugin"]}
LORA = {"adapter": "lora", "lora_r": 8, "lora_alpha": 16, "lora_target_linear": True}
QLORA = {**LORA, "adapter": "qlora", "load_in_4bit": True}
FSDP = {"auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "transformer_layer_cls_to_wrap": "LlamaDecoderLayer"}
FLASH = {"attn_implementation": "flash_attention_2"}

Choice = dict[str, Any]

DIMENSIONS: dict[str, list[Choice]] = {
    "mesh": [
        {"dp_shard_size": 8},
        {"dp_shard_size": 4, "tensor_parallel_size": 2},
        {"dp_shard_size": 2, "dp_replicate_size": 4},
        {"dp_replicate_size": 4, "tensor_parallel_size": 2},
        {"dp_shard_size": 4, "context_parallel_size": 2, **FLASH},
        {"context_parallel_size": 8, "micro_batch_size": 1, "sample_packing": True, **FLASH},
        {"context_parallel_size": 2, "sample_packing": True, **FLASH},
        {"tensor_parallel_size": 3},
        {"dp_shard_size": 0},
        {"tensor_parallel_size": None},
        {"context_parallel_size": 4, "ring_attn_func": "batch_ring", **FLASH},
        {"context_parallel_size": 2, "ring_attn_func": "zigzag", **FLASH},
        {"sequence_parallel_degree": 2, "dp_shard_size": 4, **FLASH},
    ],
    "engine": [
        {"fsdp_version": 2, "fsdp_config": FSDP},
        {"fsdp_version": 2, "fsdp_config": {**FSDP, "offload_params": True}},
        {"fsdp_version": 2, "fsdp_config": {**FSDP, "cpu_offload_pin_memory": False}},
        {"fsdp_version": 2, "fsdp_config": {"auto_wrap_policy": "SIZE_BASED_WRAP"}},
        {"fsdp_version": 2, "fsdp_config": {**FSDP, "activation_checkpointing": True}},
        {"fsdp_version": 1, "fsdp_config": {**FSDP, "offload_params": True}},
        {"fsdp_config": {**FSDP, "fsdp_version": 2}},
        {"fsdp_config": {"fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "fsdp_version": 2}},
        {"fsdp": ["full_shard", "auto_wrap"], "fsdp_config": FSDP},
        {"fsdp": ["full_shard", "auto_wrap"]},
        {"deepspeed": "deepspeed_configs/zero2.json"},
        {"deepspeed": "deepspeed_configs/zero3.json"},
        {"deepspeed": "deepspeed_configs/zero3_bf16.json", "fsdp_config": FSDP},
        {"fp32_norms": True},
    ],
    "batch": [
        {"batch_size": 16},
        {"batch_size": 16, "gradient_accumulation_steps": None},
        {"micro_batch_size": None},
        {"micro_batch_size": 1},
        {"eval_batch_size": 4},
    ],
    "loader": [
        {"accelerator_config": {"split_batches": True}},
        {"accelerator_config": {"dispatch_batches": True, "split_batches": False}},
        {"dataloader_num_workers": 4, "dataloader_prefetch_factor": 2},
        {"dataloader_prefetch_factor": 2},
        {"streaming": True, "max_steps": 50},
        {"streaming": True},
        {"pretraining_dataset": [{"path": "org/c4"}], "datasets": None, "max_steps": 50},
        {"pretraining_dataset": [{"path": "org/c4"}], "datasets": None},
        {"datasets": None},
        {"datasets": [{"path": "org/data", "type": "sharegpt"}]},
        {"push_dataset_to_hub": "org/prepared"},
        {"chat_template": "jinja"},
    ],
    "attention": [
        FLASH,
        {"attn_implementation": "sdpa"},
        {"attn_implementation": "flash"},
        {"attn_implementation": "eager", "flash_attention": True},
        {"flash_attention": True},
        {"flex_attention": True, "sdp_attention": True},
        {"sample_packing": True, **FLASH},
        {"sample_packing": True, "attn_implementation": "sdpa"},
        {"s2_attention": True, "sample_packing": True, **FLASH},
        {"sample_packing": True, "eval_sample_packing": True, "pad_to_sequence_len": False, **FLASH},
    ],
    "liger": [
        {**LIGER, "liger_rms_norm": True},
        {**LIGER, "liger_fused_linear_cross_entropy": True, "liger_cross_entropy": True},
        {**LIGER, "liger_fused_linear_cross_entropy": True},
        {**LIGER, "liger_use_token_scaling": True},
        {**LIGER, "liger_glu_activation": True, "tiled_mlp": True},
        {**LIGER, "liger_swiglu": True, "liger_glu_activation": True},
        {**LIGER, "liger_rms_norm": True, "tensor_parallel_size": 2, "dp_shard_size": 4},
        {"liger_rms_norm": True},
    ],
    "optimizer": [
        {"optimizer": "adamw_bnb_8bit"},
        {"optimizer": "paged_adamw_8bit"},
        {"optimizer": "muon"},
        {"optimizer": "q_galore_adamw8bit", "bf16": True},
        {"optimizer": "adamw_torch_8bit"},
        {"optimizer": "no_such_optimizer"},
        {"embedding_lr": 1e-4, "embedding_lr_scale": 0.5},
    ],
    "adapter": [
        LORA,
        QLORA,
        {**QLORA, "load_in_4bit": False},
        {**LORA, "load_in_8bit": True},
        {**LORA, "load_in_8bit": True, "lora_qkv_kernel": True},
        {**LORA, "lora_mlp_kernel": True, "peft_use_dora": True},
        {**LORA, "unfrozen_parameters": ["lm_head"]},
        {**LORA, "lora_dropout": 0.1, "lora_mlp_kernel": True, "trust_remote_code": True},
        {"load_in_8bit": True},
        {"load_in_4bit": True},
        {**LORA, "relora": True, "jagged_restart_steps": 10},
        {**LORA, "peft_layers_to_transform": [0], "unfrozen_parameters": ["lm_head"]},
    ],
    "rl": [
        {"rl": "dpo"},
        {"rl": "dpo", "sample_packing": True, **FLASH},
        {"rl": "kto"},
        {"rl": "kto", "remove_unused_columns": True},
        {"rl": "kto", "remove_unused_columns": False},
        {"rl": "simpo", "warmup_steps": 5},
        {"rl": "simpo", "warmup_ratio": 0.1},
        {"rl": "orpo"},
        {"rl": "grpo", "trl": {"num_generations": 4}},
        {"rl": "grpo", "trl": {"num_generations": 3}},
        {"rl": "grpo", "trl": {"num_generations": 4, "use_liger_loss": True}},
        {"rl": "gdpo"},
        {"rl": "ebft"},
        {"rl": "ppo"},
        {"dpo_beta": 0.1},
    ],
    "memory": [
        {"gradient_checkpointing": True},
        {"gradient_checkpointing": "offload"},
        {"activation_offloading": True},
        {"activation_offloading": True, "gradient_checkpointing": True},
        {"selective_checkpointing": True},
        {"torch_compile": True},
        {"torch_compile": "always"},
        {"torch_compile_options": {"max_autotune": True}},
        {"deepcompile": True},
        {"fp8": True},
        {"bf16": True, "fp16": True},
        {"max_memory": {0: "20GiB"}, "gpu_memory_limit": 20},
    ],
    "steps": [
        {"warmup_steps": 10, "warmup_ratio": 0.1},
        {"save_steps": 10, "saves_per_epoch": 2},
        {"save_strategy": "epoch", "save_steps": 10},
        {"save_strategy": "best"},
        {"evals_per_epoch": 2, "val_set_size": 0.05},
        {"evals_per_epoch": 2, "eval_steps": 10, "val_set_size": 0.05},
        {"eval_steps": 10, "val_set_size": 0},
        {"early_stopping_patience": 3, "eval_steps": 7, "save_steps": 10, "val_set_size": 0.05},
        {"early_stopping_patience": 3},
        {"test_datasets": [{"path": "org/t", "type": "alpaca", "split": "test"}], "val_set_size": 0.1},
        {"neftune_noise_alpha": -1},
        {"noisy_embedding_alpha": 5},
        {"save_safetensors": False},
        {"learning_rate": "2e-5"},
        {"warmup_steps": 0.1},
    ],
    "removed": [
        {"max_packed_sequence_len": 1024},
        {"evaluation_strategy": "steps"},
        {"rope_scaling": {"type": "linear", "factor": 2}},
        {"overrides_of_model_config": {"a": 1}},
        {"flash_attn_rms_norm": True},
        {"dpo_use_weighting": True},
        {"gptq": True, "base_model_revision": "main"},
    ],
}
"""Part of a config -> settings, one of which may be drawn."""


def configs(seed: int, count: int) -> Iterator[dict[str, Any]]:
    """So many configs, always the same for one seed. A setting may overwrite another's."""
    draw = random.Random(seed)
    for _ in range(count):
        config = dict(BASE)
        for dimension in draw.sample(sorted(DIMENSIONS), draw.choices([0, 1, 2, 3, 4], weights=[1, 6, 6, 4, 3])[0]):
            config.update(draw.choice(DIMENSIONS[dimension]))
        # a key that a setting takes away; for the sizes, null is itself a case
        yield {key: value for key, value in config.items() if value is not None or key.endswith("_parallel_size")}
