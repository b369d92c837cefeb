"""axolotl's rules about FSDP and DeepSpeed: every operand on its own, worked out by hand from what axolotl does."""

from __future__ import annotations

import pytest

from tests.helpers import findings

V1 = "fsdp_version: 1\n"
V2 = "fsdp_version: 2\n"
LIST = "fsdp: [full_shard]\n"
LORA = "adapter: lora\nlora_target_linear: true\n"
QLORA = "adapter: qlora\nload_in_4bit: true\nlora_target_linear: true\n"
SPECTRUM = "plugins: [axolotl.integrations.spectrum.SpectrumPlugin]\n"
LIGER = "plugins: [axolotl.integrations.liger.LigerPlugin]\n"
Q_GALORE = "optimizer: q_galore_adamw8bit\n"


def section(text: str) -> str:
    return f"fsdp_config: {{{text}}}\n"


UNPINNED = "offload_params: true, cpu_offload_pin_memory: false"
RESHARD = section("reshard_after_forward: true")
EMPTY = section("")
CHECKPOINTED = section("activation_checkpointing: true")
EFFICIENT = section("cpu_ram_efficient_loading: true")
OFFLOAD = section("offload_params: true")
SHARDED = section("state_dict_type: SHARDED_STATE_DICT")
REINIT = f"reinit_weights: true\n{QLORA}"
FOUR_BIT = f"{QLORA}bf16: false\n"
INLINE3 = "deepspeed: {zero_optimization: {stage: 3}}\n"
NOT_REENTRANT = "gradient_checkpointing_kwargs: {use_reentrant: false}\n"

OFF = "fsdp_config: {}\nfsdp: []\n"

BROKEN: dict[str, list[str]] = {
    "AX302": [
        section(UNPINNED),  # no version: axolotl pins it to 1
        V1 + section(UNPINNED),
        V2 + section("cpu_offload_pin_memory: false"),
        V2 + section("fsdp_cpu_offload_pin_memory: false"),
    ],
    "AX303": [V1 + section("auto_wrap_policy: SIZE_BASED_WRAP"), section("fsdp_auto_wrap_policy: SIZE_BASED_WRAP")],
    "AX304": [V2 + section("min_num_params: -1")],
    "AX305": ["fp32_norms: true\n", f"fp32_norms: true\n{V2}", f"fp32_norms: true\n{RESHARD}"],
    "AX306": ["fp32_norm_classes: [RMSNorm]\nfp32_norms: false\n"],
    "AX307": ["fp8_enable_fsdp_float8_all_gather: true\n"],
    "AX308": ["fp8_enable_fsdp_float8_all_gather: true\nfsdp_config: {version: 2}\n"],
    "AX309": [f"fp8: true\n{CHECKPOINTED}"],
    "AX310": [f"fp8: true\n{EFFICIENT}", f"fp8: true\n{V1}{EFFICIENT}"],
    "AX311": ["fp8: true\ntorch_compile: false\n"],
    "AX312": [
        "fp8: true\ntorch_compile: true\nfsdp: []\n",
        f"fp8: true\ntorch_compile: auto\n{V2}",
        f"fp8: true\ntorch_compile: true\n{EMPTY}",
    ],
    "AX313": [f"model_quantization_config: Mxfp4Config\n{EFFICIENT}"],
    "AX314": [LIST, f"{LIST}fsdp_config: null\n"],
    "AX315": [LIST],
    "AX317": [
        f"gradient_checkpointing: true\n{V1}{CHECKPOINTED}",
        f"gradient_checkpointing: true\nactivation_offloading: false\n{V2}{CHECKPOINTED}",
        f"gradient_checkpointing: true\nactivation_offloading: hidden_states\n{V2}{CHECKPOINTED}",
    ],
    "AX318": [
        f"gradient_checkpointing: true\nactivation_offloading: false\n{V2}{RESHARD}",
        f"gradient_checkpointing: true\n{V2}{OFFLOAD}",
        f"gradient_checkpointing: true\n{LIST}",
        f"gradient_checkpointing: true\n{V2}{section('activation_checkpointing: false')}",
    ],
    "AX319": [V2 + section("fsdp_state_dict_type: LOCAL_STATE_DICT")],
    "AX320": [f"save_only_model: true\n{V1}{SHARDED}", f"save_only_model: true\n{LIST}{SHARDED}"],
    "AX321": [RESHARD, V1 + section("reshard_after_forward: false"), LIST + RESHARD],
    "AX322": [section("cpu_ram_efficient_loading: true, sync_module_states: false")],
    "AX323": [
        V2 + section("sync_module_states: true"),
        section("fsdp_version: 2, fsdp_use_orig_params: true"),
        f"optimizer: muon\n{V2}{section('use_orig_params: true')}",
    ],
    "AX324": [f"{V2}{RESHARD}fsdp: [full_shard, no_shard]\n", f"{V2}fsdp: [hybrid_shard_zero2]\n"],
    "AX325": [section("mixed_precision_policy: bf16")],
    "AX326": ["fsdp_version: 0\n", "fsdp_version: 3\n", "fsdp_config: {fsdp_version: 3}\n"],
    "AX327": [f"tensor_parallel_size: 8\n{V2}{EFFICIENT}"],
    "AX328": [
        f"{REINIT}qlora_sharded_model_loading: true\n{V2}{EFFICIENT}",
        f"{REINIT}qlora_sharded_model_loading: true\n{EFFICIENT}",
    ],
    "AX329": [f"{SPECTRUM}{RESHARD}", f"{SPECTRUM}{LIST}", f"{SPECTRUM}{V1}{RESHARD}"],
    "AX330": [
        f"{SPECTRUM}{LIST}{V2}{RESHARD}",
        f"{SPECTRUM}{LIST}{V1}{section('fsdp_use_orig_params: true')}",
        f"{SPECTRUM}{LIST}{V2}{section('use_orig_params: false')}",
    ],
    "AX331": [f"base_model: org/FALCON\n{LIST}", f"base_model: tiiuae/falcon-7b\n{LIST}{V2}{RESHARD}"],
    "AX332": [f"base_model: tiiuae/{name}\n{V2}{RESHARD}" for name in ("falcon-40b", "falcon-rw-1b", "Falcon-180B")],
    "AX333": ["max_memory: {cpu: 10GiB}\ngpu_memory_limit: 20\n"],
    "AX334": [
        V1 + SHARDED,
        V2 + section("state_dict_type: SHARDED_STATE_DICT, final_state_dict_type: SHARDED_STATE_DICT"),
    ],
    "AX335": [f"{LORA}load_in_8bit: true\n{OFFLOAD}", f"{LORA}load_in_8bit: true\n{LIST}"],
    "AX336": [
        f"{FOUR_BIT}{LIST}",
        f"{FOUR_BIT}bfloat16: false\n{OFFLOAD}",
        f"{FOUR_BIT}{OFFLOAD}",
        f"{FOUR_BIT}fp16: true\n{V1}{OFFLOAD}",
        f"{FOUR_BIT}bnb_config_kwargs: {{bnb_4bit_quant_storage: bfloat16}}\n{V1}{OFFLOAD}",
    ],
    "AX341": [f"optimizer: {name}\n{INLINE3}" for name in ("muon", "flash_adamw", "flash_lion", "q_galore_adamw8bit")],
    "AX342": [
        f"optimizer: flash_sgd\n{LIST}",
        f"optimizer: muon\n{OFFLOAD}",
        f"{Q_GALORE}{V1}{OFFLOAD}",
        f"optimizer: muon\nfsdp_version: 3\n{OFFLOAD}",
    ],
    "AX343": [f"{Q_GALORE}{QLORA}"],
    "AX344": [f"{Q_GALORE}{V2}{LIST}", f"{Q_GALORE}{V2}{RESHARD}", f"{Q_GALORE}{V2}{LIST}{RESHARD}"],
    "AX345": [f"{Q_GALORE}bf16: false\nfp16: false\nbfloat16: false\n"],
    "AX346": [f"optimizer: {name}\n{OFFLOAD}" for name in ("adamw_8bit", "lion_8bit", "q_galore_adamw8bit")],
    "AX347": [f"optimizer: {name}\n{V2}{OFFLOAD}" for name in ("adamw_torch_4bit", "ao_adamw_8bit", "ao_adamw_fp8")]
    + [f"optimizer: {name}\n{V2}{OFFLOAD}" for name in ("ao_adamw_4bit", "adamw_torch_8bit")],
    "AX401": ["deepcompile: true\ndeepspeed: null\n", "deepcompile: true\ndeepspeed: {}\n"],
    "AX402": [
        f"{LORA}{INLINE3}{NOT_REENTRANT}",
        f"{QLORA}deepspeed: deepspeed_configs/zero3_bf16.json\n{NOT_REENTRANT}",
    ],
    "AX403": [f"auto_find_batch_size: true\n{INLINE3}"],
    "AX404": [
        "tensor_parallel_size: 2\ndeepspeed: {zero_optimization: {stage: 1}}\n",
        "deepcompile: true\ndeepspeed: {}\n",
    ],
    "AX407": [f"{LORA}load_in_8bit: true\n{INLINE3}"],
}
FINE: dict[str, list[str]] = {
    "AX302": [
        V2 + section("offload_params: true, cpu_offload_pin_memory: true"),
        V2 + section("cpu_offload_pin_memory: null"),
        section(f"version: 2, {UNPINNED}"),
    ],
    "AX303": [
        V2 + section("auto_wrap_policy: TRANSFORMER_BASED_WRAP"),
        V2 + section("auto_wrap_policy: SIZE_BASED_WRAP, min_num_params: 0"),
    ],
    "AX304": [V2 + section("min_num_params: null"), V2 + section("min_num_params: many")],
    "AX305": [f"fp32_norms: false\n{V1}{OFFLOAD}", f"fp32_norms: true\n{V2}{EMPTY}", "fp32_norms: null\n"],
    "AX306": ["fp32_norm_classes: []\n", "fp32_norms: true\n"],
    "AX307": [f"fp8_enable_fsdp_float8_all_gather: false\n{V1}", f"fp8_enable_fsdp_float8_all_gather: true\n{V2}"],
    "AX308": [
        f"fp8_enable_fsdp_float8_all_gather: true\n{V1}{RESHARD}",
        "fp8_enable_fsdp_float8_all_gather: false\nfsdp_config: {fsdp_version: 2}\n",
        f"{V2}fp8_enable_fsdp_float8_all_gather: true\n",
        "fsdp_config: {fsdp_version: 2}\n",
    ],
    "AX309": [CHECKPOINTED, f"fp8: false\n{CHECKPOINTED}", "fp8: true\n"],
    "AX310": [EFFICIENT, f"fp8: false\n{EFFICIENT}", f"fp8: true\n{RESHARD}", "fp8: true\n"],
    "AX311": ["fp8: false\n", "torch_compile: false\n", "fp8: null\n"],
    "AX312": [
        "fp8: false\ntorch_compile: true\n",
        "fp8: true\ntorch_compile: false\n",
        "fp8: true\n",
        "torch_compile: true\n",
        f"fp8: true\ntorch_compile: true\n{LIST}",
        f"fp8: true\ntorch_compile: true\n{RESHARD}",
    ],
    "AX313": [f"model_quantization_config: FineGrainedFP8Config\n{EFFICIENT}", EFFICIENT],
    "AX314": [f"{LIST}{V2}{EMPTY}", "fsdp: []\n", "fsdp: null\n", f"{LIST}{RESHARD}"],
    "AX315": ["fsdp: []\n", "fsdp: null\n"],
    "AX317": [
        f"gradient_checkpointing: true\n{V2}{section('activation_checkpointing: false')}",
        f"gradient_checkpointing: true\n{V2}{RESHARD}",
        f"gradient_checkpointing: offload\n{V2}{CHECKPOINTED}",
        V2 + CHECKPOINTED,
        *(
            f"gradient_checkpointing: true\nactivation_offloading: {mode}\n{V2}{CHECKPOINTED}"
            for mode in ("true", "legacy", "disk")
        ),
    ],
    "AX318": [
        f"gradient_checkpointing: true\n{OFF}",
        "gradient_checkpointing: true\n",
        V2 + RESHARD,
        f"gradient_checkpointing: true\n{V2}{CHECKPOINTED}",
        f"gradient_checkpointing: true\nactivation_offloading: true\n{V2}{RESHARD}",
    ],
    "AX319": [
        V1 + section("state_dict_type: LOCAL_STATE_DICT"),
        section("state_dict_type: LOCAL_STATE_DICT"),
        V2 + RESHARD,
    ],
    "AX320": [
        f"save_only_model: false\n{SHARDED}",
        V2 + SHARDED,
        f"save_only_model: true\n{V2}{RESHARD}",
        "save_only_model: true\n",
    ],
    "AX321": [V1 + OFFLOAD, section("reshard_after_forward: null"), "fsdp_version: 1\n"],
    "AX322": [
        V2 + section("cpu_ram_efficient_loading: true, sync_module_states: false"),
        section("cpu_ram_efficient_loading: true, sync_module_states: true"),
        section("cpu_ram_efficient_loading: false, sync_module_states: false"),
        EFFICIENT,
    ],
    "AX323": [
        section("use_orig_params: true"),
        V2 + section("use_orig_params: false"),
        f"{Q_GALORE}{V2}{section('use_orig_params: true')}",
    ],
    "AX324": [f"{V1}{RESHARD}fsdp: [hybrid_shard]\n", f"{V2}{RESHARD}fsdp: [full_shard, auto_wrap, offload]\n"],
    "AX325": [section("mixed_precision_policy: ''"), RESHARD],
    "AX326": ["fsdp_version: null\n", V1, V2, RESHARD, "fsdp_version: two\n"],
    "AX327": [
        f"tensor_parallel_size: 8\n{V2}{section('cpu_ram_efficient_loading: false')}",
        f"tensor_parallel_size: 8\n{V1}{EFFICIENT}",
        f"tensor_parallel_size: 8\n{V2}{RESHARD}",
        f"tensor_parallel_size: 8\n{EFFICIENT}",
        V2 + EFFICIENT,
    ],
    "AX328": [
        f"reinit_weights: false\n{QLORA}qlora_sharded_model_loading: true\n{V2}{EFFICIENT}",
        f"{REINIT}qlora_sharded_model_loading: true\n{section('cpu_ram_efficient_loading: false')}",
        f"{REINIT}{V2}{EFFICIENT}",
        f"{QLORA}qlora_sharded_model_loading: true\n{V2}{EFFICIENT}",
        f"{REINIT}qlora_sharded_model_loading: true\n{V2}{RESHARD}",
        f"{REINIT}qlora_sharded_model_loading: true\n",
        f"reinit_weights: true\n{LORA}qlora_sharded_model_loading: true\n{V2}{EFFICIENT}",
    ],
    "AX329": [
        f"{SPECTRUM}{OFF}",
        SPECTRUM,
        RESHARD,
        f"{LIGER}{RESHARD}",
        f"{SPECTRUM}{V1}{section('use_orig_params: true')}",
        f"{SPECTRUM}{V1}{section('fsdp_use_orig_params: true')}",
    ],
    "AX330": [
        f"{SPECTRUM}{V2}{RESHARD}fsdp: []\n",
        f"{SPECTRUM}{LIST}{V1}{section('use_orig_params: false')}",
        f"{SPECTRUM}{LIST}{V2}{section('use_orig_params: true')}",
        f"{SPECTRUM}{LIST}{V1}{RESHARD}",  # the true finding, AX329
        f"{SPECTRUM}{LIST}{V2}{EMPTY}",
        f"{SPECTRUM}{V2}{section('fsdp_use_orig_params: true')}",
        f"{LIGER}{LIST}{V2}{RESHARD}",
        SPECTRUM,
    ],
    "AX331": [f"base_model: org/falcn\n{LIST}", "base_model: org/falcon\nfsdp: []\n"],
    "AX332": [
        f"base_model: tiiuae/falcon-7b\n{EMPTY}",
        "base_model: tiiuae/falcon-7b\n",
        f"base_model: tiiuae/Falcon-H1-7B\n{RESHARD}",
        f"base_model: a/f-7b\n{RESHARD}",
    ],
    "AX333": [
        "max_memory: {}\ngpu_memory_limit: 1GiB\n",
        "max_memory: {0: 1GiB}\ngpu_memory_limit: 0\n",
        "gpu_memory_limit: 20GiB\n",
        "max_memory: {0: 1GiB}\ngpu_memory_limit: null\n",
    ],
    "AX334": [V2 + section("state_dict_type: FULL_STATE_DICT"), V2 + RESHARD, ""],
    "AX335": [
        f"{LORA}load_in_8bit: true\n{OFF}",
        f"{LORA}load_in_8bit: true\n",
        f"{LORA}load_in_8bit: false\n{OFFLOAD}",
    ],
    "AX336": [
        f"{FOUR_BIT}{OFF}",
        f"adapter: qlora\nload_in_4bit: false\nbf16: false\n{OFFLOAD}",
        f"{QLORA}{V1}{OFFLOAD}",
        f"{FOUR_BIT}bfloat16: true\n{V1}{OFFLOAD}",
        FOUR_BIT,
        f"{LORA}load_in_4bit: true\nbf16: false\n{OFFLOAD}",
        f"adapter: qlora\nbf16: false\n{OFFLOAD}",
        *(
            f"{FOUR_BIT}bnb_config_kwargs: {{bnb_4bit_quant_storage: {kind}}}\n{V1}{OFFLOAD}"
            for kind in ("float16", "float32")
        ),
    ],
    "AX341": [
        "optimizer: muon\ndeepspeed: {}\n",
        INLINE3,
        "optimizer: muon\n",
        f"optimizer: muon_8bit\n{INLINE3}",
        f"optimizer: my_flash_\n{INLINE3}",
        f"optimizer: q_galore_adamw8bit_x\n{INLINE3}",
    ],
    "AX342": [
        f"optimizer: muon\n{OFF}",
        "optimizer: muon\n",
        f"optimizer: lion\n{OFFLOAD}",
        f"optimizer: muon\n{V2}{LIST}{OFFLOAD}",
        "fsdp_version: 1\n",
    ],
    "AX343": [f"{Q_GALORE}adapter: ''\n", f"{Q_GALORE}adapter: null\n", LORA],
    "AX344": [f"{Q_GALORE}{V2}{OFF}", Q_GALORE, f"{Q_GALORE}{V1}{RESHARD}", V2 + RESHARD, f"{Q_GALORE}{RESHARD}"],
    "AX345": [
        "bf16: false\n",
        f"{Q_GALORE}bf16: false\nfp16: true\n",
        f"{Q_GALORE}bf16: false\nbfloat16: true\n",
        Q_GALORE,
    ],
    "AX346": [
        f"optimizer: adamw_8bit\n{section('offload_params: false')}",
        f"optimizer: adamw_torch\n{OFFLOAD}",
        f"optimizer: adamw_8bit\n{V2}{OFFLOAD}",
        f"optimizer: adamw_8bit\n{V1}{RESHARD}",
        "optimizer: adamw_8bit\n",
    ],
    "AX347": [
        f"optimizer: adamw_torch\n{V2}{OFFLOAD}",
        f"optimizer: ao_adamw_8bit\n{V1}{OFFLOAD}",
        f"optimizer: ao_adamw_8bit\n{OFFLOAD}",
        f"optimizer: ao_adamw_8bit\n{V2}{RESHARD}",
    ],
    "AX401": ["deepcompile: false\n", "deepspeed: zero1.json\n", f"deepcompile: true\n{INLINE3}"],
    "AX402": [
        f"adapter: ''\n{INLINE3}{NOT_REENTRANT}",
        f"{INLINE3}{NOT_REENTRANT}",
        f"{LORA}{INLINE3}",
        f"{LORA}deepspeed: zero2.json\n{NOT_REENTRANT}",
        f"{LORA}deepspeed: {{zero_optimization: {{stage: 2}}}}\n{NOT_REENTRANT}",
        f"{LORA}{NOT_REENTRANT}",
    ],
    "AX403": [
        f"auto_find_batch_size: false\n{INLINE3}",
        INLINE3,
        "auto_find_batch_size: true\n",
        "auto_find_batch_size: true\ndeepspeed: {zero_optimization: {stage: 2}}\n",
    ],
    "AX404": [
        "tensor_parallel_size: 2\ndeepspeed: zero1.json\n",
        "tensor_parallel_size: 1\ndeepspeed: {zero_optimization: {stage: 1}}\n",
        "tensor_parallel_size: 2\ndeepcompile: true\n",
    ],
    "AX407": [
        f"load_in_8bit: false\n{INLINE3}",
        INLINE3,
        f"{LORA}load_in_8bit: true\ndeepspeed: zero2.json\n",
        f"{LORA}load_in_8bit: true\n",
    ],
}
CASES = [
    *((code, fragment, True) for code, fragments in BROKEN.items() for fragment in fragments),
    *((code, fragment, False) for code, fragments in FINE.items() for fragment in fragments),
]


@pytest.mark.parametrize(("code", "fragment", "broken"), CASES)
def test_operands(code: str, fragment: str, broken: bool) -> None:
    assert bool(findings(code, fragment)) == broken


@pytest.mark.parametrize(
    ("fragment", "code", "message"),
    [
        (
            f"{V1}{section(UNPINNED)}",
            "AX302",
            "fsdp_config.cpu_offload_pin_memory false needs fsdp_version: 2 and offload_params: true, "
            "not fsdp_version 1 and fsdp_config.offload_params true",
        ),
        (
            "fp8_enable_fsdp_float8_all_gather: true\nfsdp_config: {fsdp_version: 2}\n",
            "AX308",
            "axolotl 0.18 looks for the version of FSDP at top level only and overlooks fsdp_config.fsdp_version 2",
        ),
        (
            f"{RESHARD}",
            "AX321",
            "fsdp_config.reshard_after_forward true crashes FSDP1; it is for fsdp_version: 2, not fsdp_version (unset)",
        ),
        (
            f"{V2}{RESHARD}fsdp: [full_shard, no_shard]\n",
            "AX324",
            "no_shard in fsdp: FSDP2 takes full_shard, shard_grad_op, offload, auto_wrap only",
        ),
    ],
)
def test_messages(fragment: str, code: str, message: str) -> None:
    (finding,) = findings(code, fragment)
    assert finding.message == message


@pytest.mark.parametrize(("ranks", "broken"), [(1, True), (2, False), (None, False)])
def test_deepspeed_on_one_rank(ranks: int | None, broken: bool) -> None:
    assert bool(findings("AX405", "deepspeed: zero1.json\n", world_size=ranks)) == broken
    assert not findings("AX405", "deepspeed: null\n", world_size=ranks)
