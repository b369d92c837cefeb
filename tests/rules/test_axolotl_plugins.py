"""axolotl's rules about the values that plug-ins take: every operand on its own."""

from __future__ import annotations

import pytest

from tests.helpers import findings, message

KERNELS = "plugins: [axolotl.integrations.kernels.KernelsPlugin]\n"
COMPRESSOR = "plugins: [axolotl.integrations.llm_compressor.LLMCompressorPlugin]\n"
MORA = "plugins: [axolotl.integrations.mora.MoraPlugin]\nadapter: mora\n"
LORA = "adapter: lora\nlora_target_modules: [q_proj]\n"
AWARE = f"{LORA}use_sonicmoe: true\nnvfp4_merge_aware: true\n"
START = "nvfp4_merge_aware_start_step"
TEACHER = "kd_trainer: true\nkd_online_server_base_url: http://host:8000\n"
FALLS_BACK = f"{KERNELS}experts_implementation:"

BROKEN: dict[str, list[str]] = {
    "AX774": [f"{AWARE}{START}: {text}\n" for text in ("-1", "0.0", "1.0", "1.5", "-0.5", "10.0")],
    "AX775": ["dsv4_fp4_grouped_mode: FP8\n", "dsv4_fp4_grouped_mode: ''\n", "dsv4_fp4_grouped_mode: nvfp44\n"],
    "AX776": ["dsv4_fp8_nonexpert_mode: bf16x\n", "dsv4_fp8_nonexpert_mode: xbf16\n"],
    "AX777": ["moe_grouped_backend: triton\n", "moe_grouped_backend: automatic\n"],
    "AX778": ["moe_grouped_backend: auto\ndsv4_fp4_grouped_mode:\n", "moe_grouped_backend: AUTO\n"],
    "AX779": ["nonexpert_quantization: fp4\n", "nonexpert_quantization: nf4_blockwise\n"],
    "AX780": ["moe_dequant_chunk_size: -1\n"],
    "AX781": [
        f"{FALLS_BACK} ''\n",
        f"{FALLS_BACK} sonicmoe\n",
        f"{FALLS_BACK} sonicmoe\nuse_scattermoe: true\n",
        f"{FALLS_BACK} sonicmoe\nexpert_backend: scattermoe\n",
        f"{FALLS_BACK} scattermoe\nexpert_backend: sonicmoe\n",
        f"{FALLS_BACK} scattermoe\nuse_sonicmoe: true\n",
        f"{FALLS_BACK} flash\nuse_scattermoe: true\n",
        f"{FALLS_BACK} flash\nexpert_backend: scattermoe\n",
        f"{FALLS_BACK} flash\nexpert_backend: sonicmoe\n",
        f"{FALLS_BACK} flash\nuse_sonicmoe: true\n",
    ],
    "AX782": [f"{MORA}load_in_8bit: true\n", f"{MORA}gptq: true\n"],
    "AX783": [f"{MORA}mora: {{mora_type: rope, use_mora: false}}\n"],
    "AX767": [f"{COMPRESSOR}llmcompressor: {{recipes: {{}}}}\n"],
    "AX768": [
        TEACHER,
        f"{TEACHER}kd_online_topk:\n",
        f"{TEACHER}kd_online_topk: -1\n",
        f"{TEACHER}kd_online_topk: 0\n",
    ],
}
FINE: dict[str, list[str]] = {
    "AX774": [
        *(f"{AWARE}{START}: {text}\n" for text in ("0", "1", "500", "0.01", "0.99", "")),
        AWARE,
        f"{START}: 1.0\n",  # without the switch: AX771
        f"nvfp4_merge_aware: false\n{START}: 1.0\n",
    ],
    "AX775": ["", "dsv4_fp4_grouped_mode:\n", "dsv4_fp4_grouped_mode: NVFP4\n"],
    "AX776": ["", "dsv4_fp8_nonexpert_mode: Float8Tensor\n", "dsv4_fp8_nonexpert_mode: bf16\n"],
    "AX777": [f"moe_grouped_backend: {word}\n" for word in ("auto", "marlin", "cutlass", "DeepGEMM", "")],
    "AX778": ["", "moe_grouped_backend:\n", "dsv4_fp4_grouped_mode: nvfp4\n"],
    "AX779": [
        f"nonexpert_quantization: {word}\n" for word in ("none", "bf16", "fp8", "FP8_blockwise", "nf4", "nvfp4", "")
    ],
    "AX780": ["", "moe_dequant_chunk_size:\n", "moe_dequant_chunk_size: 2\n"],
    "AX781": [
        KERNELS,
        FALLS_BACK + "\n",
        "experts_implementation: flash\n",  # any word passes without the plug-in
        *(
            f"{FALLS_BACK} {word}\n"
            for word in (
                "eager",
                "batched_mm",
                "grouped_mm",
                "deep_ep",
                "deep_ep_grouped_mm",
                "deep_ep_scattermoe",
                "deep_ep_sonicmoe",
            )
        ),
        f"{FALLS_BACK} scattermoe\nexpert_backend: ScatterMoE\n",
        f"{FALLS_BACK} sonicmoe\nuse_sonicmoe: true\n",
        f"{FALLS_BACK} sonicmoe\nexpert_backend: SonicMoE\n",
    ],
    "AX782": [MORA, "adapter: lora\nload_in_8bit: true\n", f"{LORA}gptq: true\n", f"{LORA}load_in_4bit: true\n"],
    "AX783": [MORA, f"{MORA}mora: {{mora_type: rope}}\n", f"{LORA}mora: {{use_mora: false}}\n"],
    "AX767": [
        "llmcompressor: {save_compressed: true}\n",
        COMPRESSOR,
        f"{COMPRESSOR}llmcompressor: {{}}\n",  # AX765
        f"{COMPRESSOR}llmcompressor: {{recipe: null, save_compressed: true}}\n",  # which axolotl accepts
    ],
    "AX768": [
        f"{TEACHER}kd_online_topk: 1\n",
        f"{TEACHER}kd_online_topk: 64\n",
        "kd_online_server_base_url: http://host:8000\n",  # nothing is distilled
        "kd_trainer: true\nkd_online_server_base_url:\n",
        "kd_trainer: true\nkd_online_server_base_url: ''\nkd_online_topk: 0\n",
        "kd_trainer: true\n",
    ],
}
CASES = [
    *((code, fragment, True) for code, fragments in BROKEN.items() for fragment in fragments),
    *((code, fragment, False) for code, fragments in FINE.items() for fragment in fragments),
]


@pytest.mark.parametrize(("code", "fragment", "broken"), CASES)
def test_operands(code: str, fragment: str, broken: bool) -> None:
    assert bool(findings(code, fragment)) == broken


def test_a_share_and_a_step_are_told_apart() -> None:
    assert message("AX774", f"{AWARE}{START}: 1.0\n").startswith(f"{START} 1.0 is neither a step")


def test_the_words_are_listed() -> None:
    assert message("AX777", "moe_grouped_backend: triton\n") == (
        "moe_grouped_backend triton: it takes auto, marlin, cutlass or deepgemm"
    )
    assert message("AX775", "dsv4_fp4_grouped_mode: fp8\n") == "dsv4_fp4_grouped_mode fp8: it takes nvfp4"


def test_the_finding_stands_at_what_is_there() -> None:
    assert [finding.key for finding in findings("AX768", TEACHER)] == ["kd_online_server_base_url"]
    assert [finding.key for finding in findings("AX768", f"{TEACHER}kd_online_topk: 0\n")] == ["kd_online_topk"]
