"""What TRL makes of preference and reinforcement settings: numbers worked out by hand, every operand on its own."""

from __future__ import annotations

import pytest

from tests.helpers import FLASH, findings, message, report
from tests.helpers import completed as whole

GDPO = "rl: gdpo\n"
STRIDED = "rl: ebft\nebft: {mode: strided}\n"
FLEX = f"{STRIDED}attn_implementation: flex_attention\n"
GC = "gradient_checkpointing: true\n"
FALSE_FORM = "gradient_checkpointing_kwargs: {use_reentrant: false}\n"

CASES = [
    ("AX822", "beta: 0.1\ntrl: {beta: 0.1}\n", False),
    ("AX822", "beta: 0.1\n", False),
    ("AX822", "trl: {beta: 0.1}\n", False),
    ("AX822", "beta: 0\ntrl: {beta: 0.1}\n", False),
    ("AX822", "beta: 0.1\ntrl: {beta: 0}\n", False),
    ("AX822", "beta: 0.2\ntrl: {beta: 0.1}\n", True),
    ("AX823", "rl: dpo\nrl_beta: 0.1\ntrl: {beta: 0.1}\n", False),
    ("AX823", "rl: orpo\nrl_beta: 0.1\norpo_alpha: 0.2\n", True),
    ("AX823", "rl: orpo\nrl_beta: 0.1\norpo_alpha:\n", False),
    ("AX823", "rl: orpo\norpo_alpha: 0.2\ntrl: {beta: 0.1}\n", True),
    ("AX823", "rl: orpo\norpo_alpha: 0.2\n", False),
    ("AX823", "rl_beta: 0.1\ntrl: {beta: 0.2}\n", False),
    ("AX823", "rl: dpo\nrl_beta: 0.1\ntrl: {beta: 0}\n", True),  # 0 is a value
    ("AX823", "rl: dpo\ndpo_beta: 0.1\ntrl: {beta: 0.2}\n", True),  # the older name of rl_beta
    ("AX824", f"{STRIDED}torch_compile: true\n{GC}", False),  # an error of its own
    ("AX824", f"{STRIDED}torch_compile: auto\n", False),
    ("AX824", "rl: ebft\nebft: {mode: structured}\ntorch_compile: true\n", False),
    ("AX824", "rl: dpo\nebft: {mode: strided}\ntorch_compile: true\n", False),
    ("AX825", f"{FLEX}{GC}", False),
    ("AX825", f"{FLEX}{FALSE_FORM}", False),
    ("AX825", f"{STRIDED}attn_implementation: sdpa\n{GC}{FALSE_FORM}", False),
    ("AX825", f"rl: ebft\nebft: {{mode: structured}}\nattn_implementation: flex_attention\n{GC}{FALSE_FORM}", False),
    ("AX825", f"rl: dpo\nebft: {{mode: strided}}\nattn_implementation: flex_attention\n{GC}{FALSE_FORM}", False),
    ("AX826", "rl: ebft\nebft: {mode: structured}\nsequence_len: 9000\n", False),
    ("AX826", "rl: dpo\nebft: {mode: strided}\nsequence_len: 9000\n", False),
    ("AX826", STRIDED, False),  # 512 tokens: (512 + 63 x 8) x 4 = 4,064
    # one sample: 10,008 + 1,250 x 8 = 20,008; 10,007 + 1,249 x 8 = 19,999
    ("AX826", "rl: ebft\nebft: {mode: strided, n_samples_per_prompt: 1}\nsequence_len: 10008\n", True),
    ("AX826", "rl: ebft\nebft: {mode: strided, n_samples_per_prompt: 1}\nsequence_len: 10007\n", False),
    # 4,000 + ((4,000 - 8 - 8) / 16 + 1 = 250) x 8 = 6,000, four times; three times 18,000
    ("AX826", "rl: ebft\nebft: {mode: strided, stride: 16}\nsequence_len: 4000\n", True),
    ("AX826", "rl: ebft\nebft: {mode: strided, stride: 16, n_samples_per_prompt: 3}\nsequence_len: 4000\n", False),
    # 2,500 + (2,500 - 8 - 8) // 8 + 1 = 311 blocks x 8 = 4,988, four times 19,952; blocks of 9: 5,299, 21,196
    ("AX826", "rl: ebft\nebft: {mode: strided, generate_max_len: 9}\nsequence_len: 2500\n", True),
    ("AX826", "rl: ebft\nebft: {mode: strided}\nsequence_len: 2500\n", False),
    # 2,505 - 8 - 9 leaves 311 blocks: 2,505 + 2,488 = 4,993, four times 19,972
    ("AX826", "rl: ebft\nebft: {mode: strided, context_length: 9}\nsequence_len: 2505\n", True),
    ("AX826", "rl: ebft\nebft: {mode: strided, context_length: 10}\nsequence_len: 2505\n", False),
    ("AX826", "rl: ebft\nebft: {mode: strided, stride: 0}\nsequence_len: 9000\n", False),
    ("AX826", "rl: ebft\nebft: {mode: strided, stride: 1}\nsequence_len: 2000\n", True),
]


@pytest.mark.parametrize(("code", "fragment", "broken"), CASES)
def test_operands(code: str, fragment: str, broken: bool) -> None:
    assert bool(findings(code, fragment)) == broken


def batch(trl: str, micro: int = 1, steps: int = 1, rl: str = "gdpo") -> str:
    return f"rl: {rl}\ntrl: {{{trl}}}\nmicro_batch_size: {micro}\ngradient_accumulation_steps: {steps}\n"


@pytest.mark.parametrize(
    ("fragment", "world_size", "says"),
    [
        (batch("num_generations: 1", 4), 4, "a group of one"),
        (batch("num_generations: 4", 1, 1), 4, None),
        (batch("num_generations: 4", 1, 1), 2, "2 completions a step (micro_batch_size 1 x 2 ranks x"),
        (batch("num_generations: 4", 2, 3), 2, None),  # 12
        (batch("num_generations: 4", 3, 1), 2, "6 completions"),
        (batch("num_generations: 4", 3, 2), 2, None),  # 12
        (batch("num_generations: 3", 1, 1), 8, "8 completions"),
        (batch("generation_batch_size: 8", 2, 1), 2, None),  # 8 by default
        (batch("generation_batch_size: 12", 2, 1), 2, "8, TRL's default of num_generations"),
        (batch("generation_batch_size: 6, num_generations: 2", 2, 1), 2, "no multiple of micro_batch_size 2 x 2 ranks"),
        (batch("generation_batch_size: 8, num_generations: 2", 2, 1), 2, None),
        (batch("generation_batch_size: 8, num_generations: 2", 2, 1), 3, "= 6"),
        (batch("generation_batch_size: 8, num_generations: 3", 2, 1), 2, ": no whole groups of trl.num_generations 3"),
        (batch("", 1, 1), 4, "8, TRL's default"),
        (batch("", 1, 2), 4, None),
        (batch("", 1, 1), 8, None),
        # axolotl's own check has those of grpo that write a size, except for the batch of generations
        (batch("num_generations: 3", 1, 1, "grpo"), 8, None),
        (batch("", 1, 1, "grpo"), 4, "4 completions"),
        (batch("num_generations: 1", 4, 1, "grpo"), 4, None),
        (batch("generation_batch_size: 6, num_generations: 2", 2, 1, "grpo"), 2, "no multiple of"),
        (batch("num_generations: 3", 1, 1, "dpo"), 8, None),
        (batch("num_generations: 3", 0, 1), 8, None),  # no batch: another rule's
        (batch("num_generations: 3", 1, -1), 8, None),
        (batch("generation_batch_size: 6, num_generations: 1", 4, 1, "grpo"), 4, None),  # axolotl's own check
        (batch("num_generations: 2", 1, 1), 1, "1 completion a step (micro_batch_size 1 x 1 rank x"),
        (batch("num_generations: 2", 1, 3), 1, "3 completions"),
        ("num_generations: 3\n", 8, None),
    ],
)
def test_groups_over_all_ranks(fragment: str, world_size: int, says: str | None) -> None:
    found = findings("AX821", fragment, world_size=world_size)
    assert [says in finding.message for finding in found if says] == ([True] if says else [])
    assert bool(found) == bool(says)


def test_groups_wait_for_the_ranks() -> None:
    checked = report(whole(batch("num_generations: 4")))
    assert not [finding for finding in checked.findings if finding.code == "AX821"]
    assert "generation-batch-uneven" in checked.not_run["world_size"]


def test_groups_under_context_parallelism_are_another_rules() -> None:
    fragment = batch("num_generations: 4") + f"context_parallel_size: 2\n{FLASH}"
    assert not findings("AX821", fragment, world_size=2)
    assert findings("AX818", fragment, world_size=2)


def test_legal_sizes_are_offered() -> None:
    (finding,) = findings("AX821", batch("num_generations: 5", 3, 2), world_size=2)
    assert finding.fix is not None
    assert finding.fix.title == "set trl.num_generations to 2, 3, 4, 6 or 12"


def test_tokens_are_shown() -> None:
    text = "rl: ebft\nebft: {mode: strided, stride: 16}\nsequence_len: 4000\n"
    assert "(sequence_len 4000 + 250 blocks x 8) x 4 samples = 24000 tokens" in message("AX826", text)
