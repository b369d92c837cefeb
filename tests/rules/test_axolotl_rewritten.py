"""Values that axolotl rewrites, or trips over because of how they are written."""

from __future__ import annotations

import pytest

from ndcheck.findings import Safety
from tests.helpers import FLASH, findings, message

EP = "plugins: [axolotl.integrations.expert_parallel.ExpertParallelPlugin]\n"
GRPO = "rl: grpo\nmicro_batch_size: 8\n"

CASES = [
    ("AX979", 'tensor_parallel_size: "2"\n', True),
    ("AX979", "tensor_parallel_size: 2\n", False),
    ("AX979", "tensor_parallel_size:\n", False),
    ("AX979", "tensor_parallel_size: two\n", False),
    ("AX977", "gradient_checkpointing: offload_disk\n", True),
    ("AX977", "gradient_checkpointing: true\n", False),
    ("AX977", "gradient_checkpointing:\n", False),
    ("AX977", "gradient_checkpointing: offload\nactivation_offloading: true\n", False),  # AX978 speaks
    ("AX978", "gradient_checkpointing: offload_disk\nactivation_offloading: true\n", True),
    ("AX978", "gradient_checkpointing: offload\nactivation_offloading:\n", True),
    ("AX978", "gradient_checkpointing: offload\n", False),
    ("AX978", "gradient_checkpointing: true\nactivation_offloading: disk\n", False),
    ("AX979", f'{GRPO}trl: {{num_generations: "4"}}\n', True),
    ("AX979", f"{GRPO}trl: {{num_generations: 4}}\n", False),
    ("AX979", 'rl: gdpo\nmicro_batch_size: 8\ntrl: {num_generations: "4"}\n', False),
    ("AX979", f'{GRPO}trl: {{use_liger_loss: true}}\ncontext_parallel_size: "1"\n', True),
    ("AX979", f'{GRPO}trl: {{use_liger_loss: false}}\ncontext_parallel_size: "1"\n', False),
    ("AX979", 'rl: gdpo\ntrl: {use_liger_loss: true}\ncontext_parallel_size: "1"\n', False),
    ("AX979", f'context_parallel_size: "2"\n{FLASH}', False),
    ("AX979", f"{GRPO}trl:\n", False),
    ("AX979", f"{GRPO}trl: {{num_generations: four}}\n", False),  # the wrong type is another rule's
    ("AX980", "rl: dpo\ntrl:\n", False),
    ("AX980", "beta: 0.1\ntrl:\n", True),
    ("AX980", "beta: 0\ntrl:\n", False),
    ("AX980", "beta: 0.1\n", False),
    ("AX980", "rl: gdpo\n", False),
    ("AX980", "rl: grpo\ntrl: {use_liger_loss: true}\ncontext_parallel_size:\n", True),
    ("AX980", "rl: grpo\ntrl: {use_liger_loss: true}\ncontext_parallel_size: 1\n", False),
    ("AX980", "rl: grpo\ntrl: {use_liger_loss: false}\ncontext_parallel_size:\n", False),
    ("AX980", "rl: gdpo\ntrl: {use_liger_loss: true}\ncontext_parallel_size:\n", False),
    ("AX980", f"{EP}expert_parallel_size:\n", True),
    ("AX980", f"{EP}expert_parallel_size: 1\n", False),
    ("AX980", "expert_parallel_size:\n", False),  # nothing reads it
    ("AX981", "use_ray: true\nmicro_batch_size: 4\n", False),
    ("AX981", "use_ray: false\nmicro_batch_size: 4\nbatch_size: 4\n", False),
]


@pytest.mark.parametrize(("code", "fragment", "broken"), CASES)
def test_values(code: str, fragment: str, broken: bool) -> None:
    assert bool(findings(code, fragment)) == broken


@pytest.mark.parametrize(
    ("old", "target", "severity"),
    [
        ("offload", "true", "warning"),  # it says the same
        ("offload", "disk", "error"),
        ("offload", "false", "error"),
        ("offload_disk", "disk", "warning"),
        ("offload_disk", "legacy", "error"),
    ],
)
def test_offloading_twice(old: str, target: str, severity: str) -> None:
    (finding,) = findings("AX978", f"gradient_checkpointing: {old}\nactivation_offloading: {target}\n")
    assert finding.severity.value == severity
    assert finding.fix is not None
    assert (finding.fix.safety is Safety.SAFE) == (severity == "warning")


def test_words_for_both() -> None:
    assert message("AX977", "gradient_checkpointing: offload_disk\n").endswith("it means activation_offloading: disk")
    assert "makes activation_offloading disk" in message(
        "AX978", "gradient_checkpointing: offload_disk\nactivation_offloading: legacy\n"
    )


def test_the_number_without_its_quotes() -> None:
    (finding,) = findings("AX979", f"{GRPO}trl: {{num_generations: '4'}}\n")
    assert finding.message.startswith('trl.num_generations is the text "4"')
    assert finding.fix is not None
    (edit,) = finding.fix.edits
    assert (edit.path, getattr(edit, "text", None)) == (("trl", "num_generations"), "4")
