"""``TrainingArguments`` and TRL's arguments as a file: the ones that rules touch, typed and described.

What the user wrote, nothing filled in. Numbers may be text: transformers' parsers of files convert it, or hand it on.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Section(BaseModel):
    """Base of every mapping in the file. Unknown keys are left to a rule."""

    model_config = ConfigDict(extra="ignore", protected_namespaces=())


class AcceleratorConfig(Section):
    """``accelerator_config``: how accelerate feeds the ranks."""

    split_batches: bool | None = Field(None, description="The batch size counts all data ranks, not each one.")
    dispatch_batches: bool | None = Field(None, description="Rank 0 reads and sends; unset: only for iterable data.")
    even_batches: bool | None = Field(None, description="Repeat samples so that every rank gets as many batches.")
    use_seedable_sampler: bool | None = Field(None, description="Shuffle from a seed that is the same on every rank.")
    non_blocking: bool | None = Field(None, description="Copy batches to the device without waiting.")
    gradient_accumulation_kwargs: dict[str, Any] | None = Field(None, description="Extra accumulation options.")
    use_configured_state: bool | None = Field(None, description="Reuse an accelerator state made before.")


class FsdpKeys(Section):
    """``fsdp_config``, without the optional prefix ``fsdp_``."""

    version: int | None = Field(None, description="FSDP implementation: 2 unless written.")
    cpu_offload: bool | None = Field(None, description="Keep parameters and optimizer state in CPU memory.")
    auto_wrap_policy: str | None = Field(None, description="How FSDP cuts the model into units.")
    min_num_params: int | None = Field(None, description="Smallest unit for SIZE_BASED_WRAP.")
    transformer_layer_cls_to_wrap: str | list[str] | None = Field(None, description="Classes of the layers to wrap.")
    cpu_ram_efficient_loading: bool | None = Field(None, description="Load weights on rank 0 only, then broadcast.")
    state_dict_type: str | None = Field(None, description="Format of checkpoints.")
    activation_checkpointing: bool | None = Field(None, description="Recompute activations, done by FSDP itself.")
    reshard_after_forward: bool | str | None = Field(None, description="Free gathered parameters after forward.")
    forward_prefetch: bool | None = Field(None, description="FSDP1: gather the next unit early in forward.")
    backward_prefetch: str | None = Field(None, description="FSDP1: when to gather the next unit in backward.")
    use_orig_params: bool | None = Field(None, description="FSDP1: keep original parameters.")
    sync_module_states: bool | None = Field(None, description="FSDP1: broadcast weights from rank 0.")
    limit_all_gathers: bool | None = Field(None, description="FSDP1: bound the memory of gathered units.")
    xla: bool | None = Field(None, description="Shard by XLA.")
    xla_fsdp_settings: dict[str, Any] | None = Field(None, description="Settings of XLA's FSDP.")
    xla_fsdp_v2: bool | None = Field(None, description="The second version of XLA's FSDP.")
    xla_fsdp_grad_ckpt: bool | None = Field(None, description="Recompute activations under XLA.")


class TransformersKeys(Section):
    """The arguments that rules touch; all others are known to ``keys.py``."""

    # batch and steps
    per_device_train_batch_size: int | None = Field(None, description="Rows per rank and forward pass.")
    per_device_eval_batch_size: int | None = Field(None, description="The same for evaluation.")
    gradient_accumulation_steps: int | None = Field(None, description="Forward passes per optimizer step.")
    max_steps: int | None = Field(None, description="Optimizer steps to train for; -1: by epochs.")
    average_tokens_across_devices: bool | None = Field(
        None, description="Divide the loss by the label tokens of all ranks, not by each rank's own."
    )
    auto_find_batch_size: bool | None = Field(None, description="Halve the batch until it fits.")

    # sharding
    fsdp: bool | str | list[str] | None = Field(None, description="Shard parameters; true, or older words.")
    fsdp_config: dict[str, Any] | str | None = Field(None, description="How FSDP shards, or a JSON file with it.")
    deepspeed: dict[str, Any] | str | None = Field(None, description="DeepSpeed's JSON file, or its content.")
    parallelism_config: dict[str, Any] | None = Field(None, description="An object of accelerate; no file holds one.")
    use_cpu: bool | None = Field(None, description="Ranks without GPUs.")

    # data
    accelerator_config: AcceleratorConfig | str | None = Field(None, description="How accelerate feeds the ranks.")
    dataloader_pin_memory: bool | None = Field(None, description="Pin the memory that batches are copied from.")
    dataset_streaming: bool | None = Field(None, description="TRL: iterate over the data.")
    streaming: bool | None = Field(None, description="TRL: iterate over a mixture of data sets.")

    # precision, memory, kernels
    bf16: bool | None = Field(None, description="Compute in bfloat16.")
    fp16: bool | None = Field(None, description="Compute in float16.")
    activation_checkpointing: bool | None = Field(None, description="Recompute activations in the backward pass.")
    gradient_checkpointing: bool | None = Field(None, description="Older name of `activation_checkpointing`.")
    use_liger_kernel: bool | None = Field(None, description="Patch the model with Liger's kernels.")
    liger_kernel_config: dict[str, Any] | None = Field(None, description="Which of them.")
    optim: str | None = Field(None, description="Optimizer by name.")
    load_in_4bit: bool | None = Field(None, description="TRL: quantize the base model to 4 bits.")
    load_in_8bit: bool | None = Field(None, description="TRL: quantize the base model to 8 bits.")
    attn_implementation: str | None = Field(None, description="TRL: attention implementation.")
    model_init_kwargs: dict[str, Any] | str | None = Field(None, description="TRL: arguments of from_pretrained.")
    model_name_or_path: str | None = Field(None, description="Model name or local directory.")
    use_peft: bool | None = Field(None, description="TRL: train a LoRA adapter.")

    # saving, evaluation
    save_strategy: str | None = Field(None, description="When to save: steps, epoch, best or no.")
    save_only_model: bool | None = Field(None, description="Leave the optimizer out of checkpoints.")
    load_best_model_at_end: bool | None = Field(None, description="Go back to the best checkpoint at the end.")
    eval_strategy: str | None = Field(None, description="When to evaluate: steps, epoch or no.")
    save_steps: float | None = Field(None, description="Steps between two checkpoints.")
    eval_steps: float | None = Field(None, description="Steps between two evaluations.")

    # TRL
    max_length: int | None = Field(None, description="Tokens per row.")
    packing: bool | None = Field(None, description="SFT: pack several documents into one row.")
    packing_strategy: str | None = Field(None, description="SFT: bfd, bfd_split or wrapped.")
    eval_packing: bool | None = Field(None, description="SFT: pack rows of evaluation.")
    padding_free: bool | None = Field(None, description="Flatten a batch into one row without padding.")
    padding_side: str | None = Field(None, description="Side on which rows are padded.")
    pad_to_multiple_of: int | None = Field(None, description="Pad rows to a multiple of this.")
    loss_type: str | list[str] | None = Field(None, description="Loss by name.")
    num_generations: int | None = Field(None, description="Completions per prompt.")
    generation_batch_size: int | None = Field(None, description="Completions generated at a time, over all ranks.")
    steps_per_generation: int | None = Field(None, description="Micro-batches per generation.")


DEFAULTS: dict[str, Any] = {
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "max_steps": -1,
    "average_tokens_across_devices": True,
    "dataloader_pin_memory": True,
    "save_strategy": "steps",
    "eval_strategy": "no",
    "fsdp_config.version": 2,
    "fsdp_config.state_dict_type": "FULL_STATE_DICT",
    "fsdp_config.auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    "optim": "adamw_torch_fused",
}
"""Defaults that rules read."""
