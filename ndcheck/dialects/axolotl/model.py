"""axolotl's keys that most rules touch, typed and described; all others are known to ``keys.py``.

What the user wrote, nothing filled in: every field is optional, whatever axolotl demands is a rule.
Types are axolotl's own (0.18), so that what it coerces is coerced here and what it refuses is refused.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

_UNSET: Any = None  # default of the keys that may be left out but not be null

StateDictType = Literal["FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT"]


class Section(BaseModel):
    """Base of every mapping in the file. Unknown keys are left to a rule: axolotl drops them without a word."""

    model_config = ConfigDict(extra="ignore", protected_namespaces=())


class FsdpKeys(Section):
    """``fsdp_config``: how FSDP shards, offloads and saves."""

    fsdp_version: int | None = Field(None, description="FSDP implementation, 1 or 2; better written at top level.")
    version: int | None = Field(None, description="Older name of `fsdp_version` inside this section.")
    activation_checkpointing: bool | None = Field(None, description="Recompute activations, done by FSDP itself.")
    offload_params: bool | None = Field(None, description="Keep parameters and optimizer state in CPU memory.")
    sync_module_states: bool | None = Field(None, description="Broadcast weights from rank 0 (FSDP1 only).")
    cpu_ram_efficient_loading: bool | None = Field(None, description="Load weights on rank 0 only, then broadcast.")
    cpu_offload_pin_memory: bool | None = Field(None, description="Pin the offloaded memory; false lets it swap.")
    use_orig_params: bool | None = Field(None, description="Keep original parameters (FSDP1; FSDP2 always does).")
    state_dict_type: StateDictType | None = Field(None, description="Format of checkpoints.")
    final_state_dict_type: StateDictType | None = Field(None, description="Format of the last checkpoint.")
    auto_wrap_policy: Literal["TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP"] | None = Field(
        None, description="How FSDP cuts the model into units."
    )
    transformer_layer_cls_to_wrap: str | None = Field(None, description="Class of the decoder layer to wrap.")
    min_num_params: int | None = Field(None, description="Smallest unit for SIZE_BASED_WRAP.")
    reshard_after_forward: bool | None = Field(
        None, description="FSDP2: free the gathered parameters after forward (like ZeRO-3) or keep them (ZeRO-2)."
    )
    mixed_precision_policy: str | None = Field(None, description="Accepted and never forwarded by axolotl.")


FsdpConfig: Any = create_model(
    "FsdpConfig",
    __base__=FsdpKeys,
    __doc__=FsdpKeys.__doc__,
    **{  # type: ignore[call-overload]
        f"fsdp_{name}": (info.annotation, Field(None, description=f"Older spelling of `{name}`."))
        for name, info in FsdpKeys.model_fields.items()
        if "version" not in name
    },
)


class AcceleratorConfig(Section):
    """``accelerator_config``: how accelerate feeds the ranks."""

    split_batches: bool | None = Field(None, description="The batch size counts all data ranks, not each one.")
    dispatch_batches: bool | None = Field(None, description="Rank 0 reads and sends; unset: only for iterable data.")
    even_batches: bool | None = Field(None, description="Repeat samples so that every rank gets as many batches.")
    use_seedable_sampler: bool | None = Field(None, description="Shuffle from a seed that is the same on every rank.")
    non_blocking: bool | None = Field(None, description="Copy batches to the device without waiting.")
    gradient_accumulation_kwargs: dict[str, Any] | None = Field(None, description="Extra accumulation options.")
    use_configured_state: bool | None = Field(None, description="Reuse an accelerator state made before.")


class AxolotlKeys(Section):
    """The keys that rules touch."""

    # mesh
    dp_shard_size: int | None = Field(None, description="Ranks over which FSDP shards each parameter.")
    dp_replicate_size: int | None = Field(
        None, description="Replicas of the model (HSDP when parameters are sharded too)."
    )
    tensor_parallel_size: int | None = Field(None, description="Ranks that split every layer.")
    context_parallel_size: int | None = Field(None, description="Ranks that split every sequence.")
    sequence_parallel_degree: int | None = Field(None, description="Older name of `context_parallel_size`.")
    expert_parallel_size: int | None = Field(None, description="Ranks that hold different experts (plugin).")
    ring_attn_func: Literal["varlen_llama3", "batch_ring"] | None = Field(
        None, description="Ring attention kernel for context parallelism; better left unset."
    )
    heads_k_stride: int | None = Field(None, description="KV heads handled at a time by varlen_llama3.")
    ddp: bool | None = Field(None, description="Replicate the model on every rank.")
    world_size: int | None = Field(None, description="Ignored: the launcher's environment decides.")

    # sharding
    fsdp: list[str] | None = Field(None, description="Older list of FSDP options; use `fsdp_config`.")
    fsdp_version: int | None = Field(None, description="FSDP implementation: 2, or the deprecated 1.")
    fsdp_config: FsdpConfig | None = Field(None, description="How FSDP shards, offloads and saves.")
    fsdp_final_state_dict_type: StateDictType | None = Field(None, description="Older place of a key of `fsdp_config`.")
    deepspeed: str | dict[str, Any] | None = Field(None, description="DeepSpeed's JSON file, or its content.")
    deepcompile: bool | None = Field(None, description="DeepSpeed's compiler.")
    auto_find_batch_size: bool | None = Field(None, description="Halve the batch until it fits.")
    max_memory: dict[int | str, int | str] | None = Field(None, description="Memory that each device may use.")
    gpu_memory_limit: int | str | None = Field(
        None, description="Memory that each GPU may use; short for `max_memory`."
    )

    # batch and sequence
    micro_batch_size: int | None = Field(None, description="Rows per rank and forward pass.")
    gradient_accumulation_steps: int | None = Field(None, description="Forward passes per optimizer step.")
    batch_size: int | None = Field(None, description="Rows per optimizer step; discouraged by axolotl.")
    eval_batch_size: int | None = Field(None, description="Rows per rank in evaluation.")
    sequence_len: int = Field(_UNSET, description="Tokens per row.")
    sample_packing: bool | None = Field(None, description="Pack several documents into one row.")
    eval_sample_packing: bool | None = Field(None, description="The same for evaluation.")
    pad_to_sequence_len: bool | None = Field(None, description="Pad every row to `sequence_len`.")
    pad_to_multiple_of: int | None = Field(None, description="Pad rows to a multiple of this; 64 if unset.")

    # data
    datasets: list[dict[str, Any]] | None = Field(None, description="Data sets to train on.")
    pretraining_dataset: list[dict[str, Any]] | None = Field(None, description="Data sets to stream.")
    streaming: bool | None = Field(None, description="Iterate over the data instead of preparing it.")
    max_steps: int | None = Field(None, description="Optimizer steps to train for.")
    accelerator_config: AcceleratorConfig | None = Field(None, description="How accelerate feeds the ranks.")
    dataloader_num_workers: int | None = Field(None, description="Loader processes per rank.")
    dataloader_prefetch_factor: int | None = Field(None, description="Batches each loader process prepares ahead.")
    val_set_size: float | None = Field(None, description="Share or number of rows kept for evaluation.")
    test_datasets: list[dict[str, Any]] | None = Field(None, description="Data sets to evaluate on.")
    dataloader_pin_memory: bool | None = Field(None, description="Pin the memory that batches are copied from.")
    skip_prepare_dataset: bool | None = Field(
        None, description="Train on the data as it is, without tokenizing it first."
    )
    dataset_exact_deduplication: bool | None = Field(None, description="Drop rows that are equal to an earlier one.")
    push_dataset_to_hub: str | None = Field(None, description="Repository for the prepared data.")
    hf_use_auth_token: bool | None = Field(None, description="Log in to the hub for reading and pushing data.")
    group_by_length: bool | None = Field(None, description="Batch rows of similar length together.")
    include_tokens_per_second: bool | None = Field(None, description="Log tokens per second of each rank.")
    chat_template_jinja: str | None = Field(None, description="The template itself, for `chat_template: jinja`.")
    processor_type: str | None = Field(None, description="Class of the image processor.")
    processor_kwargs: dict[str, Any] | None = Field(None, description="Extra arguments of the processor.")
    image_resize_algorithm: int | str | None = Field(
        None, description="Filter for resizing images: bilinear, bicubic or lanczos."
    )
    reward_model: bool | None = Field(None, description="Train a model that scores answers.")

    # attention
    attn_implementation: str | None = Field(None, description="Attention backend, or a hub kernel with a slash.")
    flash_attention: bool | None = Field(None, description="Older spelling of attn_implementation: flash_attention_2.")
    sdp_attention: bool | None = Field(None, description="Older spelling of attn_implementation: sdpa.")
    flex_attention: bool | None = Field(None, description="Older spelling of attn_implementation: flex_attention.")
    xformers_attention: bool | None = Field(None, description="Older spelling of attn_implementation: xformers.")
    sage_attention: bool | None = Field(None, description="Older spelling of attn_implementation: sage.")
    eager_attention: bool | None = Field(None, description="Older spelling of attn_implementation: eager.")

    # kernels
    plugins: list[str] | None = Field(
        None, description="Plug-in classes; keys of a plug-in that is not listed are dropped."
    )
    liger_rms_norm: bool | None = Field(None, description="Liger's RMSNorm kernel.")
    liger_cross_entropy: bool | None = Field(None, description="Liger's cross entropy.")
    liger_fused_linear_cross_entropy: bool | None = Field(None, description="Liger's fused head and cross entropy.")
    liger_swiglu: bool | None = Field(None, description="Older name of `liger_glu_activation`.")
    liger_glu_activation: bool | None = Field(None, description="Liger's gated MLP kernel.")
    use_glm_dsa_kernels: bool | None = Field(
        None, description="Sparse attention kernels that do their own context parallelism."
    )

    # training
    base_model: str = Field(_UNSET, description="Model name or local directory.")
    learning_rate: float | str = Field(_UNSET, description="Peak learning rate.")
    optimizer: str | None = Field(None, description="Optimizer by name.")
    gradient_checkpointing: bool | Literal["offload", "offload_disk"] | None = Field(
        None, description="Recompute activations in the backward pass."
    )
    adapter: str | None = Field(None, description="lora, qlora, or another kind of adapter.")
    load_in_4bit: bool | None = Field(None, description="Quantize the base model to 4 bits.")
    load_in_8bit: bool | None = Field(None, description="Quantize the base model to 8 bits.")
    rl: Literal["dpo", "gdpo", "grpo", "ipo", "orpo", "kto", "simpo", "ebft"] | None = Field(
        None, description="Preference or reinforcement learning method."
    )
    bf16: Literal["auto"] | bool | None = Field(None, description="Compute in bfloat16.")
    fp16: bool | None = Field(None, description="Compute in float16.")
    lr_scheduler: str | None = Field(None, description="Learning rate schedule by name.")
    relora: bool | None = Field(None, description="Merge and restart the LoRA adapter as training goes on.")
    jagged_restart_steps: int | None = Field(None, description="Steps between two restarts.")
    flash_attn_fuse_mlp: bool | None = Field(None, description="Fuse the MLP's products.")
    fp8: bool | None = Field(None, description="Compute matrix products in float8.")
    fp8_enable_fsdp_float8_all_gather: bool | None = Field(None, description="FSDP2 gathers parameters in float8.")
    fp32_norms: bool | None = Field(None, description="Keep norm layers in float32 under FSDP2.")
    fp32_norm_classes: list[str] | None = Field(None, description="Which layers `fp32_norms` is about.")
    bfloat16: bool | None = Field(None, description="Load the model in bfloat16, without autocasting.")
    model_quantization_config: Literal["Mxfp4Config", "FineGrainedFP8Config"] | None = Field(
        None, description="How to read a quantized checkpoint."
    )
    qlora_sharded_model_loading: bool | None = Field(None, description="Load quantized weights shard by shard.")
    reinit_weights: bool | None = Field(None, description="Start from random weights.")
    max_grad_norm: float | None = Field(None, description="Clip gradients to this norm.")
    tokenizer_use_mistral_common: bool | None = Field(None, description="Use mistral-common's tokenizer.")
    added_tokens_overrides: dict[int | str, Any] | None = Field(
        None, description="Reserved token's id -> its new text."
    )
    tokens: list[str] | None = Field(None, description="Tokens to add to the vocabulary.")
    gptq: bool | None = Field(None, description="The checkpoint is quantized with GPTQ.")
    revision_of_model: str | None = Field(None, description="Branch, tag or commit of the model.")
    model_revision: str | None = Field(None, description="The same, by an older name.")
    trust_remote_code: bool | None = Field(None, description="Run the code in the model's repository.")
    flash_optimum: bool | None = Field(None, description="Use BetterTransformer.")
    large_head_attention: str | None = Field(
        None, description="Attention for heads above 256: auto, sdpa or triton_flash."
    )
    torch_empty_cache_steps: int | None = Field(None, description="Empty the allocator's cache every so many steps.")
    neftune_noise_alpha: float | None = Field(None, description="Scale of the noise added to embeddings.")

    # steps, saving, evaluation
    warmup_steps: int | None = Field(None, description="Steps over which the learning rate rises.")
    warmup_ratio: float | None = Field(None, description="The same as a share of all steps.")
    save_steps: int | float | None = Field(
        None, description="Steps between two checkpoints, or a share of the run below 1."
    )
    saves_per_epoch: int | None = Field(None, description="Checkpoints per epoch.")
    save_strategy: str | None = Field(None, description="When to save: steps, epoch, best or no.")
    save_safetensors: bool | None = Field(None, description="Always true.")
    save_only_model: bool | None = Field(None, description="Leave the optimizer out of checkpoints.")
    hub_model_id: str | None = Field(None, description="Repository that checkpoints are pushed to.")
    eval_steps: int | float | None = Field(
        None, description="Steps between two evaluations, or a share of the run below 1."
    )
    evals_per_epoch: int | None = Field(None, description="Evaluations per epoch.")
    eval_strategy: str | None = Field(None, description="When to evaluate: steps, epoch or no.")
    do_bench_eval: bool | None = Field(None, description="Run a benchmark at each evaluation.")
    eval_causal_lm_metrics: list[str] | None = Field(None, description="Metrics computed on generated text.")
    metric_for_best_model: str | None = Field(None, description="The measure that makes a checkpoint the best.")
    load_best_model_at_end: bool | None = Field(None, description="Go back to the best checkpoint at the end.")
    early_stopping_patience: int | None = Field(None, description="Evaluations without progress before training stops.")


DEFAULTS: dict[str, Any] = {
    "micro_batch_size": 1,
    "gradient_accumulation_steps": 1,
    "sequence_len": 512,
    "optimizer": "adamw_torch_fused",
    "bf16": "auto",
    "val_set_size": 0.0,
}
"""Defaults of the keys that rules read."""
