"""DeepSpeed's config (0.19), typed and described: the keys that rules touch, and the names of all others.

What the user wrote, nothing filled in. ``auto`` is no word of DeepSpeed's own: transformers and accelerate replace it.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Auto = Literal["auto"]


class Section(BaseModel):
    """Base of every mapping in the file. Unknown keys are left to a rule."""

    model_config = ConfigDict(extra="ignore", protected_namespaces=())


class OffloadOptimizer(Section):
    """``zero_optimization.offload_optimizer``."""

    device: Literal["none", "cpu", "nvme"] | Auto | None = Field(None, description="Where the optimizer's state lives.")
    nvme_path: str | None = Field(None, description="Folder on a fast disk, for nvme.")
    pin_memory: bool | Auto | None = Field(None, description="Pin the memory that state is copied through.")
    ratio: float | Auto | None = Field(None, description="Share of the state that is offloaded; stage 3 only.")


class OffloadParam(Section):
    """``zero_optimization.offload_param``."""

    device: Literal["none", "cpu", "nvme"] | Auto | None = Field(None, description="Where parameters live; stage 3.")
    nvme_path: str | None = Field(None, description="Folder on a fast disk, for nvme.")
    pin_memory: bool | Auto | None = Field(None, description="Pin the memory that parameters are copied through.")


class Zero(Section):
    """``zero_optimization``."""

    stage: int | None = Field(
        None, description="What is sharded: 0 nothing, 1 optimizer, 2 and gradients, 3 and weights."
    )
    overlap_comm: bool | Auto | None = Field(None, description="Reduce gradients while backward runs.")
    reduce_bucket_size: int | Auto | None = Field(None, description="Elements that are reduced at a time.")
    allgather_bucket_size: int | Auto | None = Field(None, description="Elements that are gathered at a time.")
    compute_grad_norm: bool | None = Field(None, description="Compute the norm of all gradients.")
    offload_optimizer: OffloadOptimizer | None = Field(None, description="Keep the optimizer's state elsewhere.")
    offload_param: OffloadParam | None = Field(None, description="Keep parameters elsewhere; stage 3 only.")
    stage3_gather_16bit_weights_on_model_save: bool | Auto | None = Field(
        None, description="Stage 3: gather whole weights when saving."
    )
    elastic_checkpoint: bool | None = Field(None, description="No longer supported.")
    zero_hpz_partition_size: int | None = Field(None, description="Ranks of the second shard of ZeRO++.")
    mics_shard_size: int | None = Field(None, description="Ranks that MiCS shards over.")


class Precision(Section):
    """``bf16`` or ``fp16``."""

    enabled: bool | Auto | None = Field(None, description="Compute in this type.")


class Bf16(Precision):
    """``bf16``."""

    bf16_master_weights_and_grads: bool | None = Field(None, description="No float32 copy of the weights.")
    bf16_optimizer_states: bool | None = Field(None, description="Optimizer state in bfloat16 too.")


class Fp16(Precision):
    """``fp16``."""

    loss_scale: float | Auto | None = Field(None, description="0: dynamic.")
    fp16_master_weights_and_grads: bool | None = Field(None, description="No float32 copy of the weights.")


class TensorParallel(Section):
    """``tensor_parallel``: AutoTP."""

    autotp_size: int | None = Field(None, description="Ranks that split every layer; 0 and 1: none.")
    tp: dict[str, Any] | None = Field(None, description="Its own degree, as inference spells it.")


class Optimizer(Section):
    """``optimizer``."""

    type: str | None = Field(None, description="Adam, AdamW, Lion, ...: DeepSpeed's own, or torch's by name.")
    params: dict[str, Any] | None = Field(None, description="Arguments of the optimizer: lr, betas, eps, weight_decay.")


class Scheduler(Section):
    """``scheduler``."""

    type: str | None = Field(None, description="WarmupLR, WarmupDecayLR, ...")
    params: dict[str, Any] | None = Field(None, description="Arguments of the scheduler.")


class DeepspeedKeys(Section):
    """The file."""

    train_batch_size: int | Auto | None = Field(None, description="Rows per optimizer step, over all data ranks.")
    train_micro_batch_size_per_gpu: int | Auto | None = Field(None, description="Rows per rank and forward pass.")
    gradient_accumulation_steps: int | Auto | None = Field(None, description="Forward passes per optimizer step.")
    gradient_clipping: float | Auto | None = Field(None, description="Clip gradients to this norm.")
    optimizer: Optimizer | None = Field(None, description="The optimizer; replaces the trainer's own.")
    scheduler: Scheduler | None = Field(None, description="The schedule; replaces the trainer's own.")
    zero_optimization: Zero | None = Field(None, description="What is sharded, and what is offloaded.")
    bf16: Bf16 | None = Field(None, description="Compute in bfloat16.")
    bfloat16: Bf16 | None = Field(None, description="Older name of `bf16`.")
    fp16: Fp16 | None = Field(None, description="Compute in float16.")
    tensor_parallel: TensorParallel | None = Field(None, description="AutoTP: split layers over ranks.")
    sequence_parallel_size: int | None = Field(None, description="Ranks that trade tokens for heads (Ulysses).")
    communication_data_type: str | None = Field(None, description="Type of gradients on the wire: fp32, fp16, bf16.")
    gradient_allreduce_op: str | None = Field(None, description="mean or sum.")
    zero_allow_untested_optimizer: bool | None = Field(None, description="Take a client's optimizer under ZeRO.")
    zero_force_ds_cpu_optimizer: bool | None = Field(None, description="Only DeepSpeed's own optimizers on the CPU.")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_STAGE3 = _words(
    """
    prefetch_bucket_size param_persistence_threshold model_persistence_threshold max_live_parameters max_reuse_distance
    module_granularity_threshold use_all_reduce_for_fetch_params allgather_sequential gather_16bit_weights_on_model_save
    """
)
"""Keys of stage 3 that are known with the prefix ``stage3_`` and without."""

STRICT = {
    "zero_optimization": frozenset(Zero.model_fields)
    | _STAGE3
    | {f"stage3_{name}" for name in _STAGE3}
    | _words(
        """
        contiguous_gradients reduce_scatter use_multi_rank_bucket_allreduce allgather_partitions load_from_fp32_weights zenflow
        sub_group_size cpu_offload_param cpu_offload_use_pin_memory cpu_offload stage3_gather_fp16_weights_on_model_save
        ignore_unused_parameters legacy_stage1 round_robin_gradients parameter_alignment zero_quantized_weights
        zero_quantized_nontrainable_weights zero_quantized_gradients mics_hierarchical_params_gather memory_efficient_linear
        pipeline_loading_checkpoint override_module_apply log_trace_cache_warnings enable_sanity_checks
        save_muon_momentum_buffer_in_memory leaf_module zeropp_loco_param
        """
    ),
    "zero_optimization.offload_optimizer": frozenset(OffloadOptimizer.model_fields)
    | _words("buffer_count pipeline_read pipeline_write fast_init super_offload cpuadam_cores_perc"),
    "zero_optimization.offload_param": frozenset(OffloadParam.model_fields)
    | _words("buffer_count buffer_size max_in_cpu"),
    "bf16": frozenset(Bf16.model_fields) | _words("immediate_grad_update check_grad_overflow"),
    "fp16": frozenset(Fp16.model_fields)
    | _words("auto_cast initial_scale_power loss_scale_window hysteresis consecutive_hysteresis min_loss_scale"),
    "tensor_parallel": frozenset(TensorParallel.model_fields)
    | _words(
        """
        dtype tp_overlap_comm vocab_parallel_lm_head vocab_parallel_ce_backend tensor_parallel injection_policy_tuple
        partition_config preset_model keep_module_on_host kernel_inject replace_with_kernel_inject
        """
    ),
}
"""Section -> its keys; DeepSpeed refuses any other there."""
STRICT["bfloat16"] = STRICT["bf16"]

TOP = frozenset(DeepspeedKeys.model_fields) | _words(
    """
    managed_gradient_accumulation torch_autocast seq_parallel_communication_data_type prescale_gradients
    gradient_predivide_factor disable_allgather dump_state disable_python_gc vocabulary_size wall_clock_breakdown
    memory_breakdown steps_per_print checkpoint data_types dataloader_drop_last use_data_before_expert_parallelism log_level
    activation_checkpointing tensorboard wandb csv_monitor comet comms_logger flops_profiler autotuning aio data_efficiency
    hybrid_engine pipeline compile timers expert_parallel data_parallel_size weight_quantization datastates
    """
)
"""Keys of the top level; others are dropped without a word."""

REMOVED = _words(
    """
    nebula compression_training amp quantize_training sparse_gradients eigenvalue sparse_attention elasticity graph_harvesting
    curriculum_learning progressive_layer_drop
    """
)
"""Keys of older versions, which DeepSpeed 0.19 refuses."""
