"""LoRA kernels and FSDP's version, as axolotl reads it: at top level, before anything is moved."""

from __future__ import annotations

import pytest

from tests.helpers import findings

LORA = "adapter: lora\nlora_target_modules: [q_proj]\n"
KERNEL = f"{LORA}lora_mlp_kernel: true\n"


@pytest.mark.parametrize(
    ("fragment", "broken"),
    [
        (f"{KERNEL}fsdp_config: {{}}\n", True),  # empty, but there
        (f"{KERNEL}fsdp_config:\n", False),
        (f"{KERNEL}", False),
        (f"{KERNEL}fsdp_version: 2\nfsdp_config: {{}}\n", False),
        (f'{KERNEL}fsdp_version: "2"\nfsdp_config: {{}}\n', False),
        (f"{KERNEL}fsdp_config: {{fsdp_version: 2}}\n", True),
        (f"{KERNEL}fsdp: [full_shard]\n", False),  # axolotl looks at the section alone
        (f"{LORA}lora_embedding_kernel: true\nfsdp_config: {{}}\n", True),
        (f"{LORA}lora_mlp_kernel: false\nfsdp_config: {{}}\n", False),
    ],
)
def test_lora_kernels_and_the_section(fragment: str, broken: bool) -> None:
    assert bool(findings("AX713", fragment)) == broken
