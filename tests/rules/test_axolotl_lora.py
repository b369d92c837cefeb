"""Adapters that nothing builds, tokens that nothing trains, kernels with nothing to patch: every operand on its own."""

from __future__ import annotations

import pytest

from tests.helpers import findings, message

LORA = "adapter: lora\nlora_target_modules: [q_proj]\n"
QLORA = "adapter: qlora\nload_in_4bit: true\nlora_target_modules: [q_proj]\n"
LIGER = "axolotl.integrations.liger.LigerPlugin"
MORA = "axolotl.integrations.mora.MoraPlugin"
KERNELS = ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel")
TOKENS = "tokens: [<a>, <b>]\n"
FIXED = "peft_trainable_token_indices: [1, 2]\n"
BY_LAYER = "peft_trainable_token_indices: {embed_tokens: [1, 2], lm_head: [3]}\n"

BROKEN: dict[str, list[str]] = {
    "AX707": [
        "adapter: mora\n",
        "adapter: mora\nplugins: []\n",
        "adapter: mora\nplugins:\n",
        f"adapter: loras\nplugins: [{LIGER}]\n",
        f"adapter: loras\nplugins: [{MORA}]\n",
    ],
    "AX708": [
        f"{LORA}{TOKENS}",
        f"{LORA}{TOKENS}lora_modules_to_save:\n",
        f"{LORA}{TOKENS}lora_modules_to_save: []\n",
        f"{QLORA}{TOKENS}lora_modules_to_save: [lm_head]\n",
        f"{LORA}{TOKENS}lora_modules_to_save: [embed_in, lm_head]\n",
        f"{LORA}{TOKENS}lora_modules_to_save: [embed_tokens, embed_out]\n",
    ],
    "AX709": [
        f"{FIXED}fix_untrained_tokens: 3\n",
        f"{FIXED}fix_untrained_tokens: [1, 2, 3]\n",
        f"{BY_LAYER}fix_untrained_tokens: [4]\n",
    ],
    "AX714": [f"{kernel}: true\nadapter: ''\n" for kernel in KERNELS],
    "AX715": [
        "lora_embedding_kernel: true\n" + "".join(f"{kernel}: false\n" for kernel in KERNELS),
        f"{LORA}load_in_8bit: true\nlora_embedding_kernel: true\n",
    ],
    "AX734": [f"{LORA}tensor_parallel_size: 3\n", "adapter: llama-adapter\ntensor_parallel_size: 2\n"],
}
FINE: dict[str, list[str]] = {
    "AX707": [
        "",
        "adapter: ''\n",
        "adapter:\n",
        *(f"adapter: {name}\nplugins: [{LIGER}]\n" for name in ("lora", "qlora", "llama-adapter")),
        f"adapter: mora\nplugins: [{LIGER}, {MORA}]\n",
        f"adapter: mora\nplugins: [{LIGER}, my.Mora]\n",  # whose adapters are not known here
        f"adapter: mine\nplugins: [{LIGER}, my.Plugin]\n",
        "adapter: loras\n",  # AX702
    ],
    "AX708": [
        TOKENS,
        LORA,
        f"{LORA}tokens:\n",
        f"{LORA}tokens: []\n",
        f"adapter: ''\n{TOKENS}",
        f"{LORA}{TOKENS}lora_modules_to_save: [lm_head, norm, embed_tokens]\n",
        f"{LORA}{TOKENS}lora_modules_to_save: [embed_in, embed_out]\n",
        f"{LORA}{TOKENS}lora_modules_to_save: [word_embeddings, lm_head]\n",
        f"{LORA}{TOKENS}lora_modules_to_save: [embeddings, lm_head]\n",
    ],
    "AX709": [
        FIXED,
        "fix_untrained_tokens: [1]\n",
        f"{FIXED}fix_untrained_tokens: [2, 1]\n",
        f"{FIXED}fix_untrained_tokens: 2\n",
        f"{FIXED}fix_untrained_tokens:\n",
        f"{BY_LAYER}fix_untrained_tokens: [1, 3]\n",
        "peft_trainable_token_indices: []\nfix_untrained_tokens: [1]\n",
    ],
    "AX714": [
        "",
        *(f"{kernel}: false\n" for kernel in KERNELS),
        *(f"{LORA}{kernel}: true\n" for kernel in KERNELS),
        "lora_embedding_kernel: true\n",  # AX715
    ],
    "AX715": ["", LORA, *(f"lora_embedding_kernel: true\n{kernel}: true\n" for kernel in KERNELS)],
    "AX734": [
        LORA,
        "tensor_parallel_size: 2\n",
        "adapter:\ntensor_parallel_size: 2\n",
        "adapter: ''\ntensor_parallel_size: 2\n",
        f"{LORA}tensor_parallel_size:\n",
        f"{QLORA}tensor_parallel_size: 2\n",  # AX731
        f"{LORA}load_in_8bit: true\ntensor_parallel_size: 2\n",
    ],
}
CASES = [
    *((code, fragment, True) for code, fragments in BROKEN.items() for fragment in fragments),
    *((code, fragment, False) for code, fragments in FINE.items() for fragment in fragments),
]


@pytest.mark.parametrize(("code", "fragment", "broken"), CASES)
def test_operands(code: str, fragment: str, broken: bool) -> None:
    assert bool(findings(code, fragment)) == broken


def test_one_rule_speaks_of_an_unknown_adapter() -> None:
    for fragment in ("adapter: loras\n", f"adapter: loras\nplugins: [{LIGER}]\n", "adapter: mora\n"):
        assert len(findings("AX702", fragment) + findings("AX707", fragment)) == 1


def test_only_the_frozen_tokens_are_named() -> None:
    assert message("AX709", f"{FIXED}fix_untrained_tokens: [9, 1, 5]\n").startswith("5, 9 of fix_untrained_tokens")


def test_one_rule_speaks_of_an_adapter_under_tp() -> None:
    for fragment in (f"{LORA}tensor_parallel_size: 2\n", f"{QLORA}tensor_parallel_size: 2\n"):
        assert len(findings("AX731", fragment) + findings("AX734", fragment)) == 1
