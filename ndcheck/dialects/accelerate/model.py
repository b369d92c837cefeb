"""accelerate's launch file (1.15), typed and described: what ``accelerate config`` writes, and what people write by hand.

What the user wrote, nothing filled in: every field is optional, whatever accelerate demands is a rule. The launcher turns the
values of most sections into environment variables and reads them back, so a number or a switch may be text there; the sizes of
``parallelism_config`` it compares as they are.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict

DistributedType = Literal[
    "NO",
    "MULTI_CPU",
    "MULTI_GPU",
    "MULTI_NPU",
    "MULTI_MLU",
    "MULTI_SDAA",
    "MULTI_MUSA",
    "MULTI_XPU",
    "MULTI_HPU",
    "MULTI_NEURON",
    "DEEPSPEED",
    "FSDP",
    "XLA",
    "MEGATRON_LM",
]


def _as_text(value: object) -> object:
    """Python's and YAML's booleans and numbers as the launcher writes them into the environment."""
    return str(value).lower() if isinstance(value, bool | int | float) else value


Size = Annotated[int, Strict()]
"""A number of ranks: text would crash the launcher's comparison."""
Word = Annotated[str, BeforeValidator(_as_text)]
"""What ends up as text, whatever YAML takes it for."""


class Section(BaseModel):
    """Base of every mapping in the file. Unknown keys are left to a rule."""

    model_config = ConfigDict(extra="ignore", protected_namespaces=())


class ParallelismConfig(Section):
    """``parallelism_config``: the mesh. Every key carries the section's name as a prefix."""

    parallelism_config_dp_replicate_size: Size | None = Field(None, description="Replicas of the model.")
    parallelism_config_dp_shard_size: Size | None = Field(None, description="Ranks over which FSDP2 shards.")
    parallelism_config_tp_size: Size | None = Field(None, description="Ranks that split every layer.")
    parallelism_config_cp_size: Size | None = Field(None, description="Ranks that split every sequence.")
    parallelism_config_sp_size: Size | None = Field(None, description="Ranks that trade tokens for heads (DeepSpeed).")
    parallelism_config_cp_backend: str | None = Field(None, description="Only torch.")
    parallelism_config_cp_comm_strategy: str | None = Field(None, description="allgather or alltoall.")
    parallelism_config_sp_backend: str | None = Field(None, description="Only deepspeed.")
    parallelism_config_sp_seq_length: int | None = Field(None, description="Tokens per row, if it is always the same.")
    parallelism_config_sp_seq_length_is_variable: bool | None = Field(None, description="Rows differ in length.")
    parallelism_config_sp_attn_implementation: str | None = Field(None, description="Attention of the model.")


class FsdpConfig(Section):
    """``fsdp_config``, without the optional prefix ``fsdp_``."""

    version: int | None = Field(None, description="FSDP implementation: 1 unless written.")
    reshard_after_forward: Word | None = Field(None, description="FSDP2: free gathered parameters after forward.")
    sharding_strategy: Word | None = Field(None, description="What FSDP1 shards.")
    offload_params: bool | None = Field(None, description="Keep parameters and optimizer state in CPU memory.")
    auto_wrap_policy: Literal["TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"] | None = Field(
        None, description="How FSDP cuts the model into units."
    )
    transformer_layer_cls_to_wrap: str | None = Field(None, description="Classes of the layers to wrap, with commas.")
    min_num_params: int | float | None = Field(None, description="Smallest unit for SIZE_BASED_WRAP.")
    backward_prefetch: str | None = Field(None, description="FSDP1: when to gather the next unit in backward.")
    backward_prefetch_policy: str | None = Field(None, description="Older name of `backward_prefetch`.")
    state_dict_type: str | None = Field(None, description="Format of checkpoints.")
    forward_prefetch: bool | None = Field(None, description="FSDP1: gather the next unit early in forward.")
    use_orig_params: bool | None = Field(None, description="FSDP1: keep original parameters.")
    cpu_ram_efficient_loading: bool | None = Field(None, description="Load weights on rank 0 only, then broadcast.")
    sync_module_states: bool | None = Field(None, description="FSDP1: broadcast weights from rank 0.")
    activation_checkpointing: bool | None = Field(None, description="Recompute activations, done by FSDP itself.")
    activation_checkpointing_offload: bool | None = Field(None, description="Keep what is checkpointed on the CPU.")
    ignored_modules: str | None = Field(None, description="Modules that FSDP leaves alone, as a pattern.")


class DeepspeedConfig(Section):
    """``deepspeed_config``: a JSON file, or the few keys from which accelerate makes one."""

    deepspeed_config_file: str | None = Field(None, description="DeepSpeed's own JSON file; it decides alone.")
    zero_stage: int | None = Field(None, description="What DeepSpeed shards: 0 to 3.")
    offload_optimizer_device: str | None = Field(None, description="none, cpu or nvme.")
    offload_param_device: str | None = Field(None, description="none, cpu or nvme.")
    offload_optimizer_nvme_path: str | None = Field(None, description="Folder for offloaded optimizer state.")
    offload_param_nvme_path: str | None = Field(None, description="Folder for offloaded parameters.")
    gradient_accumulation_steps: int | Literal["auto"] | None = Field(None, description="Passes per optimizer step.")
    gradient_clipping: float | Literal["auto"] | None = Field(None, description="Clip gradients to this norm.")
    zero3_init_flag: bool | None = Field(None, description="ZeRO-3: shard the model as it is built.")
    zero3_save_16bit_model: bool | None = Field(None, description="ZeRO-3: gather the weights when saving.")
    deepspeed_hostfile: str | None = Field(None, description="Machines, for several nodes.")
    deepspeed_exclusion_filter: str | None = Field(None, description="Machines to leave out.")
    deepspeed_inclusion_filter: str | None = Field(None, description="Machines to use.")
    deepspeed_multinode_launcher: str | None = Field(None, description="How processes start on other machines.")
    deepspeed_moe_layer_cls_names: str | None = Field(None, description="Classes of expert layers.")


class MegatronConfig(Section):
    """``megatron_lm_config``, without the optional prefix ``megatron_lm_``."""

    tp_degree: int | None = Field(None, description="Ranks that split every layer.")
    pp_degree: int | None = Field(None, description="Pipeline stages.")
    num_micro_batches: int | None = Field(None, description="Micro-batches that a step is cut into.")
    sequence_parallelism: bool | None = Field(None, description="Cut norms over the sequence.")
    context_parallel_size: int | None = Field(None, description="Ranks that split every sequence.")
    expert_model_parallel_size: int | None = Field(None, description="Ranks that hold different experts.")
    expert_tensor_parallel_size: int | None = Field(None, description="Ranks that split every expert.")
    recompute_activations: bool | None = Field(None, description="Recompute activations in backward.")
    use_distributed_optimizer: bool | None = Field(None, description="Shard the optimizer's state.")
    gradient_clipping: float | None = Field(None, description="Clip gradients to this norm.")


class AccelerateKeys(Section):
    """The launch file. ``fsdp_config`` and ``megatron_lm_config`` are read apart, since their prefixes are optional."""

    compute_environment: Literal["LOCAL_MACHINE", "AMAZON_SAGEMAKER"] | None = Field(
        None, description="This machine, or SageMaker."
    )
    distributed_type: DistributedType | None = Field(None, description="What runs the ranks.")
    mixed_precision: Literal["no", "fp16", "bf16", "fp8", False] | None = Field(
        None, description="What to compute in; quote no."
    )
    fp16: bool | None = Field(None, description="Older spelling of mixed_precision: fp16.")
    use_cpu: bool | None = Field(None, description="Ranks without GPUs.")
    debug: bool | None = Field(None, description="Check the shapes of collectives.")
    enable_cpu_affinity: bool | None = Field(None, description="Tie ranks to cores.")
    num_processes: int | None = Field(None, description="Ranks in all.")
    num_machines: int | None = Field(None, description="Machines.")
    machine_rank: int | None = Field(None, description="Number of this machine.")
    gpu_ids: Word | None = Field(None, description="GPUs of this machine, with commas; or all.")
    main_process_ip: str | None = Field(None, description="Address of machine 0.")
    main_process_port: int | None = Field(None, description="Port on machine 0.")
    rdzv_backend: str | None = Field(None, description="How ranks find each other.")
    same_network: bool | None = Field(None, description="Machines share a network.")
    main_training_function: str | None = Field(None, description="Function to start on TPUs.")
    downcast_bf16: bool | str | None = Field(None, description="TPU: all floats in bfloat16.")
    fsdp_config: dict[str, Any] | None = Field(None, description="How FSDP shards, offloads and saves.")
    parallelism_config: ParallelismConfig | None = Field(None, description="The mesh.")
    deepspeed_config: DeepspeedConfig | None = Field(None, description="DeepSpeed's JSON file, or its main keys.")
    megatron_lm_config: dict[str, Any] | None = Field(None, description="Megatron-LM's degrees and switches.")
    fp8_config: dict[str, Any] | None = Field(None, description="How to compute in float8.")
    mpirun_config: dict[str, Any] | None = Field(None, description="How to start ranks by MPI.")
    dynamo_config: dict[str, Any] | None = Field(None, description="torch.compile.")
    dynamo_backend: str | None = Field(None, description="Older place of a key of `dynamo_config`.")


OTHER_KEYS = frozenset("tpu_name tpu_zone tpu_use_cluster tpu_use_sudo command_file commands tpu_vm tpu_env".split())
"""Keys of TPU machines, which no rule reads."""

FP8_KEYS = frozenset(
    """
    backend use_autocast_during_eval margin interval format amax_history_len amax_history_length amax_compute_algo
    amax_compute_algorithm override_linear_precision opt_level optimization_level enable_fsdp_float8_all_gather pad_inner_dim
    fp8_format
    """.split()
)
DYNAMO_KEYS = frozenset("backend mode use_fullgraph use_dynamic use_regional_compilation".split())
MEGATRON_KEYS = frozenset(MegatronConfig.model_fields) | frozenset(
    """
    recompute_granularity recompute_method recompute_num_layers attention_backend attention_dropout hidden_dropout
    attention_softmax_in_fp32 calculate_per_token_loss use_rotary_position_embeddings use_custom_fsdp no_load_optim
    no_save_optim eod_mask_loss overlap_cpu_optimizer_d2h_h2d optimizer_cpu_offload use_precision_aware_optimizer
    decoder_last_pipeline_num_layers
    """.split()
)

DEFAULTS: dict[str, Any] = {
    "num_machines": 1,
    "fsdp_config.version": 1,
    "fsdp_config.sharding_strategy": "FULL_SHARD",
    "fsdp_config.auto_wrap_policy": "NO_WRAP",
    "fsdp_config.cpu_ram_efficient_loading": True,
    "fsdp_config.sync_module_states": True,
}
"""What the launcher takes for granted, where rules read it."""
