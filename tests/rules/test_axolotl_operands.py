"""axolotl's conditional rules about attention, experts, memory, losses, adapters, preferences: every operand on its own."""

from __future__ import annotations

import pytest

from tests.helpers import findings

FLASH = "attn_implementation: flash_attention_2\n"
CP = f"context_parallel_size: 2\n{FLASH}"
LORA = "adapter: lora\nlora_target_modules: [q_proj]\n"
QLORA = "adapter: qlora\nload_in_4bit: true\nlora_target_modules: [q_proj]\n"
GC = "gradient_checkpointing: true\n"
FSDP2 = "fsdp_version: 2\nfsdp_config: {offload_params: false}\n"
CUT = "plugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]\n"
GYM = "plugins: [axolotl.integrations.nemo_gym.NemoGymPlugin]\n"
SWANLAB = "plugins: [axolotl.integrations.swanlab.SwanLabPlugin]\n"
SONIC = "use_sonicmoe: true\nnvfp4_merge_aware: true\n"
PACKED = "sample_packing: true\n"


def backends(*names: str, before: str = "", after: str = "") -> list[str]:
    return [f"{before}attn_implementation: {name}\n{after}" for name in names]


RING = ("flash_attention_2", "flash_attention_3", "kernels-community/flash-attn2", "kernels-community/flash-attn3")
PACKING = (*RING, "flex_attention", "xformers", "sage", "kernels-community/sage-attention")
CANONICAL = ("eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention", "xformers", "sage", "fp8")

BROKEN: dict[str, list[str]] = {
    "AX101": [
        "context_parallel_size: 2\n",
        "context_parallel_size: 3\nuse_glm_dsa_kernels: false\nattn_implementation: eager\n",
    ],
    "AX102": [f"{CP}{PACKED}micro_batch_size: 3\nuse_glm_dsa_kernels: false\n"],
    "AX111": ["attn_implementation: flash2\n", "attn_implementation: FLEX\n"],
    "AX113": [f"{PACKED}attn_implementation: org/kernel\n"],
    "AX114": ["gemma4_hybrid_attn_impl: true\nattn_implementation: eager\n"],
    "AX115": backends("sdpa", "eager", "fp8", before="micro_batch_size: 2\nbatch_flattening: true\n"),
    "AX120": [
        "do_causal_lm_eval: true\nsample_packing: true\n",
        "do_causal_lm_eval: true\nsample_packing: true\neval_sample_packing: true\n",
    ],
    "AX642": ["selective_checkpointing: {}\n"],
    "AX651": ["torch_compile_options: {}\n"],
    "AX119": [f"{PACKED}{FLASH}eval_table_size: 5\neval_sample_packing: true\n"],
    "AX121": ["attn_implementation: sage\nsample_packing: false\npad_to_sequence_len: false\n"],
    "AX125": [
        "sample_packing: true\nfp16: true\nbf16: false\nbfloat16: false\nattn_implementation: sdpa\n",
        "sample_packing: true\nfloat16: true\nbf16: false\nattn_implementation: eager\n",
    ],
    "AX131": [f"{CP}{PACKED}ring_attn_func: batch_ring\n"],
    "AX132": [f"{CP}ring_attn_func: varlen_llama3\nmicro_batch_size: 3\n"],
    "AX151": ["expert_parallel_size: 2\nexpert_parallel_num_rdma_bytes: 1\n"],
    "AX159": [
        "expert_backend: scattermoe\nuse_sonicmoe: true\n",
        "expert_backend: eager\nuse_scattermoe: true\n",
        "expert_backend: sonicmoe\nuse_scattermoe: true\n",
    ],
    "AX160": [f"{CP}expert_parallel_size: 3\n", f"context_parallel_size: 3\n{FLASH}expert_parallel_size: 2\n"],
    "AX301": ["fsdp_version: 1\nfsdp_config: {offload_params: false}\n"],
    "AX644": [f"{GC}selective_checkpointing: true\nactivation_offloading: disk\n"],
    "AX701": [
        "load_in_4bit: true\n",
        "load_in_8bit: true\ninference: false\n",
        "load_in_4bit: true\nload_in_8bit: true\n",
    ],
    "AX702": ["adapter: dora\nplugins: []\n"],
    "AX704": [f"{QLORA}gptq: true\n", f"{QLORA}load_in_8bit: true\n"],
    "AX711": [
        f"{LORA}load_in_8bit: true\n{kernel}: true\n"
        for kernel in ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel")
    ],
    "AX712": [
        f"trust_remote_code: true\n{kernel}: true\n"
        for kernel in ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel")
    ],
    "AX721": [
        "qat: {weight_dtype: int8}\nload_in_4bit: true\n",
        "qat: {weight_dtype: int8}\nload_in_8bit: true\n",
        "qat: {weight_dtype: int8}\npeft: {loftq_config: {loftq_bits: 4}}\n",
    ],
    "AX723": ["model_quantization_config: Mxfp4Config\nload_in_8bit: true\n"],
    "AX724": ["use_onebitllms: true\nadapter: qlora\nload_in_4bit: true\n"],
    "AX725": [
        "quantize_moe_experts: true\nload_in_4bit: true\n",
        f"quantize_moe_experts: true\n{LORA}",
        f"quantize_moe_experts: true\n{QLORA}lora_target_linear: true\n",
        "quantize_moe_experts: true\nadapter: llama-adapter\nload_in_8bit: true\n",
    ],
    "AX729": ["flash_attn_fuse_mlp: true\nadapter: qlora\nload_in_4bit: true\nrelora: false\n"],
    "AX773": ["use_dsv4_kernels: true\nadapter: lora\nlora_target_linear: true\n"],
    "AX732": [f"rl: kto\n{LORA}{kernel}: true\n" for kernel in ("lora_mlp_kernel", "lora_qkv_kernel")],
    "AX741": [
        "liger_cross_entropy: true\nchunked_cross_entropy: true\n",
        "cut_cross_entropy: true\nliger_fused_linear_cross_entropy: true\n",
    ],
    "AX748": [f"{CUT}liger_cross_entropy: true\n", f"{CUT}liger_fused_linear_cross_entropy: true\n"],
    "AX743": ["cut_cross_entropy: true\nbf16: false\nfp16: false\n"],
    "AX772": [
        "adapter: qlora\nload_in_4bit: true\n" + SONIC,
        f"{LORA}nvfp4_merge_aware: true\nexpert_backend: scattermoe\n",
        f"{LORA}{SONIC}lora_mlp_kernel: true\n",
        f"{LORA}{SONIC}lora_qkv_kernel: true\n",
        f"{LORA}{SONIC}lora_o_kernel: true\n",
    ],
    "AX803": ["rl: kto\nremove_unused_columns: true\n", "rl: kto\nremove_unused_columns:\n"],
    "AX806": [
        "rl: kto\ndpo_loss_weights: [1.0]\n",
        "dpo_loss_type: [sigmoid]\n",
        "rl: ipo\ndpo_loss_type: [ipo]\ndpo_loss_weights: [1.0]\n",
    ],
    "AX808": [f"rl: {rl}\n{QLORA}{FSDP2}" for rl in ("dpo", "kto", "orpo", "ipo")]
    + [f"rl: dpo\n{QLORA}fsdp_version: 2\n"]
    + [f"rl: dpo\n{LORA}load_in_8bit: true\n{FSDP2}"],
    "AX812": [f"{CP}rl: grpo\ntrl: {{use_liger_loss: true}}\n"],
    "AX813": [
        f"{CP}rl: grpo\ntrl: {{async_prefetch: true}}\n",
        f"{CP}rl: gdpo\ntrl: {{use_data_producer: true}}\n",
        f"context_parallel_size: 3\n{FLASH}rl: gdpo\ntrl: {{async_prefetch: true}}\n",
    ],
    "AX814": [f"{CP}rl: {rl}\n" for rl in ("dpo", "ipo", "kto", "orpo", "simpo", "gdpo")],
}
"""Code -> fragments that break the rule, beyond its own bad example."""

FINE: dict[str, list[str]] = {
    "ND203": ["deepspeed: zero2.json\n", "deepspeed: ''\nfsdp_config: {offload_params: false}\n"],
    "AX101": [
        *backends(*RING, before="context_parallel_size: 2\n"),
        "context_parallel_size: 2\nattn_implementation: sdpa\nuse_glm_dsa_kernels: true\n",
        "context_parallel_size: 1\nattn_implementation: sdpa\n",
        "attn_implementation: sdpa\n",
    ],
    "AX102": [
        f"{CP}{PACKED}micro_batch_size: 2\nuse_glm_dsa_kernels: true\n",
        f"{CP}sample_packing: false\nmicro_batch_size: 2\n",
        f"context_parallel_size: 1\n{FLASH}{PACKED}micro_batch_size: 2\n",
        f"{CP}{PACKED}micro_batch_size: 1\n",
    ],
    "AX111": [*backends(*CANONICAL), "attn_implementation: org/kernel\n", "attn_implementation:\n", ""],
    "AX112": ["scaling_softmax: false\nattn_implementation: sdpa\n"],
    "AX113": [
        *backends(*PACKING, "sdpa", "eager", before=PACKED),
        PACKED,
        "sample_packing: false\nattn_implementation: fp8\n",
    ],
    "AX114": ["attn_implementation: sdpa\n", "gemma4_hybrid_attn_impl: true\n"],
    "AX115": [
        *backends(*PACKING, before="micro_batch_size: 2\nbatch_flattening: true\n"),
        "batch_flattening: false\nattn_implementation: sdpa\n",
        "batch_flattening: auto\nattn_implementation: sdpa\n",
    ],
    "AX116": [f"{PACKED}{FLASH}batch_flattening: auto\n"],
    "AX117": ["micro_batch_size: 1\nbatch_flattening: false\n"],
    "AX118": ["pad_to_sequence_len: false\n", f"{PACKED}{FLASH}"],
    "AX119": ["eval_table_size: 5\n", f"{PACKED}{FLASH}"],
    "AX120": [
        "eval_sample_packing: true\n",
        "do_causal_lm_eval: true\n",
        "do_causal_lm_eval: true\nsample_packing: true\neval_sample_packing: false\n",
        "sample_packing: true\n",
    ],
    "AX121": ["attn_implementation: sdpa\n", f"attn_implementation: sage\n{PACKED}"],
    "AX122": ["attn_implementation: sdpa\n"],
    "AX123": [""],
    "AX124": [
        f"{PACKED}{FLASH}torch_compile_mode: reduce-overhead\n",
        "torch_compile: true\ntorch_compile_mode: reduce-overhead\n",
    ],
    "AX125": [
        "sample_packing: false\nfp16: true\nbf16: false\nattn_implementation: sdpa\n",
        "sample_packing: true\nfp16: false\nbf16: false\nattn_implementation: sdpa\n",
        f"{LORA}sample_packing: true\nfp16: true\nbf16: false\nattn_implementation: sdpa\n",
        "sample_packing: true\nfp16: true\nbf16: true\nattn_implementation: sdpa\n",
        "sample_packing: true\nfp16: true\nbf16: false\nbfloat16: true\nattn_implementation: sdpa\n",
        *backends(
            "flash_attention_2",
            "flash_attention_3",
            "kernels-community/flash-attn3",
            before="sample_packing: true\nfp16: true\nbf16: false\n",
        ),
    ],
    "AX131": [
        f"context_parallel_size: 1\n{FLASH}{PACKED}ring_attn_func: batch_ring\n",
        f"{CP}ring_attn_func: batch_ring\n",
        f"{CP}{PACKED}",
    ],
    "AX132": [
        f"context_parallel_size: 1\n{FLASH}ring_attn_func: varlen_llama3\nmicro_batch_size: 2\n",
        f"{CP}ring_attn_func: batch_ring\nmicro_batch_size: 2\n",
        f"{CP}{PACKED}ring_attn_func: varlen_llama3\nmicro_batch_size: 2\n",
    ],
    "AX151": ["expert_parallel_size: 1\nexpert_parallel_num_rdma_bytes: 1\n", "expert_parallel_num_rdma_bytes: 1\n"],
    "AX152": ["expert_parallel_token_capacity:\n", "expert_parallel_token_capacity: 2\n"],
    "AX157": ["use_sonicmoe: true\n"],
    "AX158": [f"expert_backend: {name}\n" for name in ("scattermoe", "sonicmoe", "eager", "builtin")] + [""],
    "AX159": [
        "expert_backend: sonicmoe\nuse_sonicmoe: true\n",
        "expert_backend: eager\n",
        "use_scattermoe: true\n",
        "use_sonicmoe: true\n",
    ],
    "AX202": ["gradient_accumulation_steps:\nbatch_size: 8\n"],
    "AX205": ["gradient_accumulation_steps:\n", "micro_batch_size:\n"],
    "AX160": [
        f"{CP}expert_parallel_size: 1\n",
        "expert_parallel_size: 2\n",
        f"{CP}expert_parallel_size: 2\nuse_glm_dsa_kernels: true\n",
    ],
    "AX301": ["fsdp_version: 1\n", "fsdp_version: 3\nfsdp_config: {offload_params: false}\n"],
    "AX641": [""],
    "AX642": ["selective_checkpointing: false\n", ""],
    "AX643": [
        f"{GC}gradient_checkpointing_kwargs: {{use_reentrant: true}}\n",
        "selective_checkpointing: true\ngradient_checkpointing_kwargs: {use_reentrant: true}\n",
    ],
    "AX644": [f"{GC}activation_offloading: true\n", f"{GC}selective_checkpointing: true\n"],
    "AX646": [f"{GC}gradient_checkpointing_kwargs: {{use_reentrant: true}}\n", "unfrozen_parameters: [lm_head]\n"],
    "AX647": ["base_model: org/prompt\n", "base_model: org/mpt\ngradient_checkpointing: false\n"],
    "AX648": [f"base_model: org/llama\n{GC}", "base_model: org/nemotron-h\n"],
    "AX649": [f"{GC}torch_compile: true\n"],
    "AX126": [f"{PACKED}{FLASH}"],
    "AX650": [LORA, f"{GC}activation_offloading: hidden_states\n"],
    "AX655": [
        f"rl: dpo\nebft: {{mode: strided}}\n{GC}torch_compile: true\n",
        f"rl: ebft\nebft: {{mode: structured}}\n{GC}torch_compile: true\n",
        "rl: ebft\nebft: {mode: strided}\ntorch_compile: true\n",
    ],
    "AX656": [
        f"rl: dpo\nebft: {{mode: strided}}\n{GC}attn_implementation: flex_attention\nactivation_offloading: true\n",
        f"rl: ebft\nebft: {{mode: structured}}\n{GC}attn_implementation: flex_attention\nactivation_offloading: true\n",
        f"rl: ebft\nebft: {{mode: strided}}\n{GC}attn_implementation: sdpa\nactivation_offloading: true\n",
        f"rl: ebft\nebft: {{mode: strided}}\n{GC}attn_implementation: flex_attention\nactivation_offloading: disk\n",
    ],
    "AX773": [
        LORA,
        "adapter: lora\nlora_target_linear: true\n",
    ],
    "AX651": [""],
    "AX654": ["rl: dpo\n", "rl: ebft\nebft: {mode: structured}\n"],
    "AX701": ["", LORA, f"{LORA}load_in_4bit: true\n"],
    "AX702": [
        "adapter: mine\nplugins: [my.Plugin]\n",
        "",
        *[f"adapter: {name}\n" for name in ("lora", "qlora", "llama-adapter", "mora")],
    ],
    "AX703": [LORA, "adapter: qlora\nmerge_lora: true\n"],
    "AX704": [f"{LORA}load_in_8bit: true\n", f"{LORA}gptq: true\n"],
    "AX705": [f"{LORA}merge_lora: true\nload_in_4bit: true\n", QLORA],
    "AX706": [QLORA],
    "AX711": [
        f"{LORA}lora_mlp_kernel: true\n",
        "adapter: qlora\nload_in_8bit: true\nlora_mlp_kernel: true\n",
        f"{LORA}load_in_8bit: true\n",
    ],
    "AX712": ["trust_remote_code: true\n"],
    "AX721": ["load_in_8bit: true\n", "peft: {loftq_config: {loftq_bits: 4}}\n", "qat: {weight_dtype: int8}\n"],
    "AX722": [LORA],
    "AX723": ["load_in_8bit: true\n", "model_quantization_config: Mxfp4Config\n"],
    "AX724": [LORA, "use_onebitllms: true\nadapter: llama-adapter\n"],
    "AX725": [
        f"quantize_moe_experts: true\n{LORA}load_in_8bit: true\n",
        f"quantize_moe_experts: true\n{QLORA}",
        "lora_target_linear: true\n",
    ],
    "AX726": [f"{LORA}lora_dropout: 0.1\n"],
    "AX727": [
        "peft_layers_to_transform: [0]\nunfrozen_parameters: [lm_head]\n",
        f"{LORA}unfrozen_parameters: [lm_head]\n",
    ],
    "AX728": [LORA],
    "AX729": [
        LORA,
        "relora: true\nflash_attn_fuse_mlp: true\nadapter: lora\n",
        "flash_attn_fuse_mlp: true\nadapter: mora\n",
    ],
    "AX732": [f"{LORA}lora_mlp_kernel: true\n", "rl: dpo\n"],
    "AX730": ["loraplus_lr_ratio: 16\n", "lr_groups: [{name: a, modules: [q_proj], lr: 0.1}]\n"],
    "AX741": [
        "liger_cross_entropy: true\nchunked_cross_entropy: false\n",
        f"{CUT}liger_cross_entropy: true\n",
    ],
    "AX748": [f"{CUT}cut_cross_entropy: false\nliger_cross_entropy: true\n", CUT, "liger_cross_entropy: true\n"],
    "AX742": ["chunked_cross_entropy: true\n"],
    "AX743": ["cut_cross_entropy: true\nfp16: true\n", "bf16: false\n", "cut_cross_entropy: false\n"],
    "AX744": [""],
    "AX745": ["liger_glu_activation: true\n", "tiled_mlp: true\n"],
    "AX761": [f"{SWANLAB}use_swanlab: false\n", "use_swanlab: true\n"],
    "AX784": ['swanlab_project: " "\n', f"{SWANLAB}use_swanlab: false\n"],
    "AX762": [f"swanlab_mode: {name}\n" for name in ("cloud", "local", "offline", "disabled")] + [""],
    "AX763": [f"{GYM}nemo_gym_enabled: false\n", f"{GYM}nemo_gym_auto_start: false\n", ""],
    "AX764": [f"{GYM}nemo_gym_enabled: false\n", ""],
    "AX765": [""],
    "AX771": ["nvfp4_merge_aware: true\n", ""],
    "AX772": [LORA, f"{LORA}nvfp4_merge_aware: true\nexpert_backend: sonicmoe\n"],
    "AX801": [f"{PACKED}{FLASH}"],
    "AX802": ["rl: dpo\neval_sample_packing: true\n"],
    "AX803": ["rl: dpo\n"],
    "AX804": ["rl: dpo\nwarmup_ratio: 0.1\n"],
    "AX805": ["rl: dpo\ndpo_loss_type: [sigmoid]\n", "rl: dpo\n"],
    "AX806": ["rl: orpo\n", "rl: dpo\ndpo_loss_weights: [1.0]\n"],
    "AX808": [
        f"rl: grpo\n{QLORA}{FSDP2}",
        f"rl: dpo\n{QLORA}fsdp_version: 1\nfsdp_config: {{offload_params: false}}\n",
        f"{QLORA}{FSDP2}",
    ],
    "AX812": [f"{CP}rl: gdpo\ntrl: {{use_liger_loss: true}}\n", f"{CP}rl: grpo\n"],
    "AX813": [
        f"{CP}rl: dpo\ntrl: {{async_prefetch: true}}\n",
        f"context_parallel_size: 1\n{FLASH}rl: gdpo\ntrl: {{use_data_producer: true}}\n",
        f"{CP}rl: grpo\n",
    ],
    "AX814": [f"{CP}rl: grpo\n", f"{CP}rl: ebft\n", CP, "rl: kto\n"],
    "AX817": ["rl: grpo\ntrl: {async_prefetch: true}\n", FSDP2],
    "AX815": ["rl: grpo\ntrl: {multi_objective_aggregation: sum_then_normalize}\n", "rl: gdpo\n"],
    "AX903": ["pretraining_dataset: [{path: a}]\ndatasets:\n"],
}
"""Code -> fragments that do not break the rule, beyond its own good example."""

CASES = [
    (code, fragment, broken)
    for table, broken in ((BROKEN, True), (FINE, False))
    for code, fragments in table.items()
    for fragment in fragments
]


@pytest.mark.parametrize(("code", "fragment", "broken"), CASES)
def test_operands(code: str, fragment: str, broken: bool) -> None:
    assert bool(findings(code, fragment)) == broken
