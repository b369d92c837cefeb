"""Optimizers' options and low precision: every operand on its own."""

from __future__ import annotations

import pytest

from tests.helpers import findings, message

LORA = "adapter: lora\nlora_target_modules: [q_proj]\n"
LOFTQ = "peft: {loftq_config: {loftq_bits: 4}}\n"
BETAS = "adam_beta1: 0.9\nadam_beta2: 0.95\n"
TARGETS = "optim_target_modules: [attn]\n"
LOW_RANK = ["galore_adamw", "galore_adamw_8bit", "galore_adafactor", "apollo_adamw"]
LAYERWISE = [f"{name}_layerwise" for name in LOW_RANK]
WITHOUT_BETAS = [
    "sgd",
    "adagrad",
    "rmsprop",
    "rmsprop_bnb",
    "rmsprop_bnb_8bit",
    "rmsprop_bnb_32bit",
    "adafactor",
    "galore_adafactor",
    "galore_adafactor_layerwise",
    "flash_sgd",
    "flash_sgdw",
]
TOGETHER = [
    "muon",
    "dion",
    "sinkgd",
    "optimi_adamw",
    "ao_adamw_fp8",
    "adopt_adamw",
    "q_galore_adamw8bit",
    "flash_adamw",
    "flash_adam",
    "flash_lion",
]
MATRIX = "muon dion sinkgd q_galore_adamw8bit flash_adamw flash_adam flash_sgd flash_sgdw flash_lion".split()


def sinkgd(**options: object) -> str:
    text = ", ".join(f"sinkgd_{name}: {value}" for name, value in options.items())
    return f"optimizer: sinkgd\noptim_args: {{{text}}}\n"


BROKEN: dict[str, list[str]] = {
    "AX601": [
        *(f"optimizer: {name}\nadam_beta1: 0.9\n" for name in WITHOUT_BETAS),
        "optimizer: sgd\nadam_beta2: 0.9\n",
        "optimizer: sgd\nadam_epsilon: 1.0e-8\n",
    ],
    "AX602": [f"optimizer: {name}\nadam_beta1: 0.9\n" for name in TOGETHER]
    + ["optimizer: muon\nadam_beta2: 0.9\nadam_epsilon: 1.0e-8\n"],
    "AX603": ["adam_epsilon2: 1.0e-16\n", "optimizer: muon\nadam_beta3: 0.9\n"],
    "AX604": [f"optimizer: {name}\n" for name in LOW_RANK + LAYERWISE]
    + ["optimizer: galore_adamw\noptim_target_modules:\n"],
    "AX605": [f"optimizer: {name}\n{TARGETS}gradient_accumulation_steps: 3\n" for name in LAYERWISE]
    + [f"optimizer: {LAYERWISE[0]}\ngradient_accumulation_steps: 2\n"],
    "AX607": [sinkgd(spectral_target="Unit"), sinkgd(spectral_target="sphere")],
    "AX608": [
        sinkgd(base_width=1, spectral_norm="'yes'", spectral_target="muon"),
        sinkgd(base_width=0, spectral_norm=1, spectral_target="muon"),
    ],
    "AX609": [f"optimizer: {name}\ntensor_parallel_size: 2\n" for name in MATRIX],
    "AX610": ["tensor_parallel_size: 2\nfp8: true\n", "tensor_parallel_size: 3\nqat: {weight_dtype: int8}\n"],
    "AX735": [f"adapter: ''\n{LOFTQ}"],
    "AX736": [f"{LORA}{LOFTQ}peft_init_lora_weights: true\n", f"{LORA}{LOFTQ}peft_init_lora_weights: gaussian\n"],
}
FINE: dict[str, list[str]] = {
    "AX601": [
        *(f"optimizer: {name}\n" for name in WITHOUT_BETAS),
        *(f"optimizer: {name}\n{BETAS}adam_epsilon: 1.0e-8\n" for name in (*TOGETHER, "lion_32bit", "came_pytorch")),
        BETAS,
        "optimizer: sgd\nadam_beta1:\n",
        "optimizer:\nadam_beta1: 0.9\n",
    ],
    "AX602": [
        *(f"optimizer: {name}\n{BETAS}" for name in TOGETHER),
        "optimizer: muon\n",
        "optimizer: muon\nadam_epsilon: 1.0e-8\n",
        "optimizer: adamw_torch\nadam_beta1: 0.9\n",  # transformers fills the other one in
        "optimizer: came_pytorch\nadam_beta2: 0.9\n",
    ],
    "AX603": ["", "optimizer: came_pytorch\nadam_epsilon2: 1.0e-16\n", "adam_beta3:\n"],
    "AX604": [
        *(f"optimizer: {name}\n{TARGETS}" for name in LOW_RANK + LAYERWISE),
        "optimizer: galore_adamw\noptim_target_modules: all_linear\n",
        "optimizer: q_galore_adamw8bit\n",  # axolotl has a default for this one
        "",
    ],
    "AX605": [
        *(f"optimizer: {name}\n{TARGETS}gradient_accumulation_steps: 1\n" for name in LAYERWISE),
        *(f"optimizer: {name}\n{TARGETS}gradient_accumulation_steps: 2\n" for name in LOW_RANK),
        f"optimizer: {LAYERWISE[0]}\ngradient_accumulation_steps:\n",
    ],
    "AX607": [
        sinkgd(spectral_target="unit"),
        sinkgd(spectral_target="muon"),
        sinkgd(spectral_target="null"),
        sinkgd(base_width=1),
        "optimizer: sinkgd\n",
        "optimizer: sinkgd\noptim_args: sinkgd_spectral_target=sphere\n",
        "optimizer: muon\noptim_args: {sinkgd_spectral_target: sphere}\n",
    ],
    "AX608": [
        sinkgd(base_width=1, spectral_norm="true", spectral_target="unit"),
        sinkgd(base_width=1, spectral_norm="false", spectral_target="muon"),
        sinkgd(base_width=1, spectral_norm="'off'", spectral_target="muon"),
        sinkgd(base_width="null", spectral_norm="true", spectral_target="muon"),
        sinkgd(spectral_norm="true", spectral_target="muon"),
        sinkgd(base_width=1, spectral_norm="true"),  # unit by default
        sinkgd(base_width=1, spectral_target="muon"),  # the norm is off by default
    ],
    "AX609": [
        *(f"optimizer: {name}\ntensor_parallel_size: 1\n" for name in MATRIX),
        "tensor_parallel_size: 2\n",
        "optimizer: muon\ntensor_parallel_size:\n",
    ],
    "AX610": [
        "tensor_parallel_size: 2\n",
        "fp8: true\n",
        "tensor_parallel_size: 1\nfp8: true\n",
        "tensor_parallel_size: 2\nfp8: false\n",
        "tensor_parallel_size:\nqat: {weight_dtype: int8}\n",
    ],
    "AX611": [
        "optim_target_modules: all_linear\n",
        "optimizer: galore_adamw\noptim_target_modules: all_linear\n",
        "optimizer: q_galore_adamw8bit\n",
    ],
    "AX735": ["", "peft: {}\n", "peft: {loftq_config: null}\n", f"{LORA}{LOFTQ}"],
    "AX736": [
        f"{LORA}{LOFTQ}",
        f"{LORA}{LOFTQ}peft_init_lora_weights: false\n",
        f"{LORA}peft_init_lora_weights: pissa\n",
    ],
}
CASES = [
    *((code, fragment, True) for code, fragments in BROKEN.items() for fragment in fragments),
    *((code, fragment, False) for code, fragments in FINE.items() for fragment in fragments),
]


@pytest.mark.parametrize(("code", "fragment", "broken"), CASES)
def test_operands(code: str, fragment: str, broken: bool) -> None:
    assert bool(findings(code, fragment)) == broken


@pytest.mark.parametrize("name", LAYERWISE)
@pytest.mark.parametrize(("ranks", "broken"), [(None, False), (1, False), (2, True), (8, True)])
def test_layerwise_ranks(name: str, ranks: int | None, broken: bool) -> None:
    facts = {} if ranks is None else {"world_size": ranks}
    assert bool(findings("AX606", f"optimizer: {name}\n{TARGETS}", **facts)) == broken


@pytest.mark.parametrize("name", LOW_RANK)
def test_whole_steps_run_on_several_ranks(name: str) -> None:
    assert not findings("AX606", f"optimizer: {name}\n{TARGETS}", world_size=8)


def test_the_repair_keeps_the_optimizer() -> None:
    (finding,) = findings("AX606", f"optimizer: apollo_adamw_layerwise\n{TARGETS}", world_size=2)
    assert finding.fix is not None
    assert finding.fix.title == "use apollo_adamw"


def test_the_optimizer_in_force_is_named() -> None:
    assert "adamw_torch_fused (axolotl's default)" in message("AX603", "adam_beta3: 0.9\n")
