"""Which rules of ndcheck say what a check of axolotl says."""

from __future__ import annotations

CHECKS: dict[str, tuple[str, ...]] = {
    # batch
    "check_batch_size_fields": ("batch-fields-missing",),
    "check_gas_bsz": ("accumulation-and-batch-size",),
    # sharding
    "check_context_parallel_size": ("cp-flash-attention", "cp-packing-micro-batch"),
    "check_deepcompile": ("deepcompile-without-deepspeed",),
    "check_falcon_fsdp": ("falcon-with-fsdp-list",),
    "check_flashoptim_deepspeed_fsdp": ("optimizer-under-deepspeed", "optimizer-under-fsdp1"),
    "check_fp32_norms": ("fp32-norms-without-fsdp2",),
    "check_fp8_config": ("fp8-gather-without-fsdp2", "fp8-gather-nested-version"),
    "check_fsdp2_cpu_offload_pin_memory": ("unpinned-without-offload",),
    "check_fsdp2_w_8bit_optimizer": ("optimizer-8bit-sharded",),
    "check_fsdp_deepspeed": ("fsdp-and-deepspeed",),
    "check_fsdp_offload_w_8bit_optimizer": ("offloaded-8bit-fsdp1",),
    "check_gpt_oss_fsdp_loading": ("mxfp4-ram-efficient-loading",),
    "check_liger_rms_norm_tensor_parallel": ("liger-rms-norm-tp", "liger-with-empty-tp"),
    "check_mem_mismatch": ("memory-limits-twice",),
    "check_muon_deepspeed_fsdp": ("optimizer-under-deepspeed", "optimizer-under-fsdp1"),
    "check_qgalore": (
        "optimizer-under-deepspeed",
        "optimizer-under-fsdp1",
        "q-galore-adapter",
        "q-galore-original-parameters",
    ),
    "check_relora": (
        "relora-fused-mlp",
        "relora-one-cycle",
        "relora-sharded",
        "relora-without-adapter",
        "relora-without-restarts",
    ),
    "validate_size_based_wrap": ("size-wrap-without-size", "wrap-size-not-positive"),
    # data
    "check_chat_template_config": ("template-missing",),
    "check_dataset_or_pretraining_dataset": ("datasets-required",),
    "check_pretraining_w_max_steps": ("streaming-without-max-steps",),
    "check_pretraining_w_val_set_size": ("streaming-with-val-split",),
    "check_push_ds_auth": ("push-dataset-without-token",),
    "check_streaming_w_max_steps": ("streaming-without-max-steps",),
    "check_streaming_w_multiple_datasets": ("streams-packed-together",),
    "check_streaming_w_val_set_size": ("streaming-with-val-split",),
    "check_val_w_test_datasets": ("two-evaluation-sets",),
    "deprecate_sharegpt_datasets": ("sharegpt-removed",),
    "pretrain_with_tps": ("pretraining-tokens-per-second",),
    # steps, saving and evaluation
    "check_lr_groups": ("learning-rates-twice",),
    "check_causal_lm_evals": ("eval-metric-unknown",),
    "check_early_stopping": ("early-stopping-steps-indivisible", "early-stopping-without-steps"),
    "check_evals": (
        "eval-steps-strategy-differs",
        "evals-per-epoch-and-eval-steps",
        "evals-per-epoch-strategy-differs",
        "evaluation-without-data",
    ),
    "check_save_strategy_best_requires_metric": ("best-without-metric",),
    "check_saves": ("save-steps-strategy-differs", "saves-per-epoch-and-save-steps"),
    "check_test_datasets_bench": ("bench-unscheduled",),
    "check_warmup": ("warmup-steps-and-ratio",),
    "validate_neftune_noise_alpha": ("neftune-noise-not-positive", "renamed-key-conflict"),
    "validate_save_safetensors": ("safetensors-off",),
    # memory and attention
    "check_batch_flattening_fa": ("flattening-backend", "flattening-packed"),
    "check_ebft_activation_offloading": ("strided-offloaded-flex",),
    "check_ebft_torch_compile": ("strided-compiled-checkpointing",),
    "check_eval_packing": ("packed-evaluation-table",),
    "check_scaling_softmax_requires_flex": ("scaling-softmax-backend",),
    "check_torch_compile_options_requires_compile": ("compile-options-alone",),
    "check_use_reentrant_mismatch": ("frozen-reentrant",),
    "check_activation_offloading_wo_gc": ("offloading-without-checkpointing",),
    "check_frozen": ("frozen-reentrant", "layers-chosen-twice"),
    "check_mpt_checkpointing": ("mpt-name-checkpointing",),
    "check_selective_checkpointing": (
        "selective-matmul-adapter",
        "selective-offloaded",
        "selective-reentrant",
        "selective-without-checkpointing",
    ),
    "check_ebft_config_required": ("ebft-section-missing",),
    "validate_attn_implementation": ("attention-unknown",),
    "validate_torch_compile_options": ("compile-option-unknown", "compile-options-alone"),
    # losses, adapters, quantization
    "check_chunked_cross_entropy_not_set": ("chunked-loss-with-cut-plugin",),
    "check_dtype_is_half": ("cut-loss-full-precision", "cut-loss-by-default-full-precision"),
    "check_fused_lora": ("fused-mlp-adapter",),
    "check_lora_target_modules_regex": ("target-module-pattern",),
    "check_model_quantization_config_vs_bnb": ("model-quantized-twice",),
    "check_onebitllms_lora": ("onebit-with-adapter",),
    "check_peft_layers_pattern": ("layer-pattern-alone",),
    "check_qat_config": ("qat-on-quantized-model", "qat-with-adapter"),
    "check_quantize_moe_experts": ("quantized-experts-unsupported",),
    "validate_lora_target_parameters_dropout": ("target-parameters-dropout",),
    "check_cross_entropy_conflicts": ("several-loss-kernels",),
    "check_liger_use_token_scaling_flce": ("token-scaling-alone",),
    "check_tiled_mlp_conflict": ("tiled-liger-mlp",),
    "check_lora_kernels_8bit": ("lora-kernels-8bit",),
    "check_lora_kernels_trust_remote_code": ("lora-kernels-remote-code",),
    "check_multigpu_lora_kernels": ("lora-kernels-fsdp1",),
    "validate_adapter": ("adapter-not-registered", "adapter-unknown", "quantized-without-adapter"),
    "validate_qlora": ("qlora-merged-quantized", "qlora-with-other-quantization", "qlora-without-4bit"),
    # preferences
    "check_dpo": ("dpo-loss-elsewhere", "dpo-weights-alone", "dpo-weights-uneven", "list-empty"),
    "check_fsdp2_base_model_quant_rl": ("quantized-preference-fsdp2",),
    "check_gdpo": ("gdpo-sums-first", "empty-value-refused"),
    "check_grpo_liger_sequence_parallel": ("grpo-cp-liger", "empty-value-refused", "quoted-number-crashes"),
    "check_rl_config_gradient_checkpointing": ("reentrant-preference-qlora",),
    "check_grpo_batch_size_divisibility": ("grpo-groups-do-not-fit",),
    # packing switches eval_sample_packing on, which is what axolotl then refuses
    "check_kto_config": ("kto-eval-packing", "kto-removes-columns", "packing-with-rl"),
    "check_sample_packing_w_rl": ("packing-with-rl",),
    "check_simpo_warmup": ("simpo-warmup-ratio",),
    # removed keys
    "validate_rpo_alpha": ("removed-key",),
    "validate_unsloth": ("removed-key",),
    "validate_flash_attn_rms_norm": ("removed-key",),
    "validate_max_packed_sequence_len": ("removed-key",),
    "validate_rope_scaling": ("removed-key",),
    "validate_s2_attention": ("removed-key",),
    # old spellings beside new ones
    "check_multipack_buffer_size": ("renamed-key-conflict",),
    "check_neftune": ("renamed-key-conflict",),
    "check_deprecated_swiglu": ("renamed-key-conflict",),
    "normalize_attn_implementation": ("renamed-key-conflict",),
}
"""axolotl's check -> the rules that refuse for its reasons. ``field:x`` is one of FIELD, at the key x."""

FIELD = frozenset({"wrong-type", "number-out-of-bounds", "list-empty", "wrap-size-not-positive", "empty-value-refused"})
"""The rules about one key's value alone."""

LAYOUT = frozenset(
    {
        "degree-positive",
        "fsdp-required",
        "mesh-needs-fsdp2",
        "replicate-without-shard",
        "world-size-product",
    }
)
"""The rules about degrees: what axolotl's mesh code refuses at launch."""
