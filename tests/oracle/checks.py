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
    "check_liger_rms_norm_tensor_parallel": ("liger-rms-norm-tp",),
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
    "validate_neftune_noise_alpha": ("neftune-noise-not-positive",),
    "validate_save_safetensors": ("safetensors-off",),
    # old spellings beside new ones
    "check_deprecated_swiglu": ("renamed-key-conflict",),
    "normalize_attn_implementation": ("renamed-key-conflict",),
}
"""axolotl's check -> the rules that refuse for its reasons. ``field:x`` is wrong-type, at the key x."""

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
