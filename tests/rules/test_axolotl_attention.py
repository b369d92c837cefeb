"""axolotl's rules about options of attention that nothing reads: every operand on its own."""

from __future__ import annotations

import pytest

from tests.helpers import FLASH, findings

CP = f"context_parallel_size: 2\n{FLASH}"
FLAT = f"batch_flattening: true\nmicro_batch_size: 2\n{FLASH}"

CASES = [
    ("AX135", "heads_k_stride: 2\nsample_packing: true\n", True),  # no context parallelism
    ("AX135", f"heads_k_stride: 2\nsample_packing: true\ncontext_parallel_size: 1\n{FLASH}", True),
    ("AX135", f"heads_k_stride: 2\nsample_packing: true\nring_attn_func: batch_ring\n{CP}", True),
    ("AX135", f"heads_k_stride: 2\nring_attn_func: varlen_llama3\n{CP}", False),
    ("AX135", f"heads_k_stride: 2\nring_attn_func: batch_ring\n{CP}", True),
    ("AX135", f"heads_k_stride:\n{CP}", False),
    ("AX135", f"heads_k_stride: 1\nring_attn_func:\nsample_packing: true\n{CP}", False),
    ("AX127", f"batch_flattening: auto\nmicro_batch_size: 2\ntrl: {{use_liger_loss: true}}\n{FLASH}", False),
    ("AX127", "trl: {use_liger_loss: true}\n", False),
    ("AX127", f"{FLAT}trl:\n", False),
]


@pytest.mark.parametrize(("code", "fragment", "broken"), CASES)
def test_operands(code: str, fragment: str, broken: bool) -> None:
    assert bool(findings(code, fragment)) == broken
