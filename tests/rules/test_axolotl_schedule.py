"""axolotl's rules about steps, saving, evaluation and ReLoRA: every operand on its own."""

from __future__ import annotations

import pytest

from tests.helpers import findings

SPLIT = "val_set_size: 0.1\n"
TESTS = "test_datasets: [{path: org/test, type: alpaca}]\n"
BOTH = "save_steps: 10\neval_steps: 10\n"
BEST = f"load_best_model_at_end: true\n{SPLIT}"
LORA = "adapter: lora\nlora_target_linear: true\n"
RELORA = f"relora: true\n{LORA}jagged_restart_steps: 10\n"
FSDP = "fsdp_version: 2\nfsdp_config: {offload_params: false}\n"
PLATEAU = "lr_scheduler: reduce_lr_on_plateau\n"
NO_FSDP = "fsdp_config: {}\nfsdp: []\ndeepspeed: ''\n"

BROKEN: dict[str, list[str]] = {
    "AX906": ["warmup_steps: 1\nwarmup_ratio: 0.01\n"],
    "AX907": ["save_steps: 0.5\nsave_strategy: 'no'\n", "save_steps: 5\nsave_strategy: best\n"],
    "AX908": ["saves_per_epoch: 2\nsave_steps: 0.1\n"],
    "AX909": ["saves_per_epoch: 2\nsave_strategy: 'no'\n"],
    "AX910": ["hub_model_id: a/b\nsave_strategy: 'no'\n"],
    "AX911": ["save_safetensors: false\n"],
    "AX912": ["neftune_noise_alpha: 0\n", "neftune_noise_alpha: -1\n"],
    "AX913": [
        f"{PLATEAU}test_datasets: []\neval_steps: 10\n",
        f"{PLATEAU}{SPLIT}",
        f"{PLATEAU}eval_steps: 10\n",
        f"{PLATEAU}eval_steps: 10\nval_set_size: 0\n",
        f"lr_scheduler: greedy\n{SPLIT}eval_strategy: 'no'\n",
        f"{PLATEAU}{SPLIT}eval_steps: 0\nevals_per_epoch: 0\neval_strategy: ''\n",
    ],
    "AX914": ["torch_empty_cache_steps: 0\n", "torch_empty_cache_steps: -1\n"],
    "AX916": ["rl: dpo\nneftune_noise_alpha: 5\n", "rl: grpo\nddp_timeout: 60\n"],
    "AX921": [f"{TESTS}val_set_size: 100\n"],
    "AX922": [f"do_bench_eval: true\n{SPLIT}", f"do_bench_eval: true\neval_steps: 0\n{SPLIT}"],
    "AX923": [f"eval_steps: 0.1\neval_strategy: 'no'\n{SPLIT}"],
    "AX924": [
        "val_set_size: 0.0\neval_strategy: steps\n",
        "val_set_size: 0\neval_steps: 10\ntest_datasets: []\n",
        "val_set_size: 0\neval_strategy: epoch\n",
    ],
    "AX925": [
        "val_set_size: 0\neval_steps: 0\nevals_per_epoch: 1\n",
        "val_set_size: 0\neval_strategy: ''\nevals_per_epoch: 1\n",
        "eval_steps: 10\n",
        "eval_strategy: epoch\n",
        "val_set_size: 0\nevals_per_epoch: 1\n",
        "val_set_size: null\neval_steps: 10\n",
        "evals_per_epoch: 1\ndo_bench_eval: false\ntest_datasets: []\n",
    ],
    "AX926": [f"evals_per_epoch: 1\neval_steps: 0.2\n{SPLIT}"],
    "AX927": [f"evals_per_epoch: 1\neval_strategy: 'no'\n{SPLIT}"],
    "AX928": ["save_strategy: best\nmetric_for_best_model: ''\n"],
    "AX929": [
        f"early_stopping_patience: 1\nsave_steps: 10\n{SPLIT}",
        f"early_stopping_patience: 1\neval_steps: 10\n{SPLIT}",
        f"early_stopping_patience: 1\nsave_steps: 0\neval_steps: 10\n{SPLIT}",
        f"early_stopping_patience: 1\nsave_steps: 10\neval_steps: 0\n{SPLIT}",
        "early_stopping_patience: 1\nsaves_per_epoch: 1\nevals_per_epoch: 1\n",
    ],
    "AX930": [
        f"early_stopping_patience: 3\nsave_steps: {save}\neval_steps: {evaluate}\n{SPLIT}"
        for save, evaluate in ((10, 7), (5, 10), (0.3, 0.1), (19, 10), (21, 10))
    ],
    "AX931": [
        f"{BEST}save_steps: 10\n",
        f"{BEST}eval_steps: 10\n",
        f"{BEST}save_steps: 9\neval_steps: 10\n",
        f"load_best_model_at_end: true\n{BOTH}",
        f"load_best_model_at_end: true\n{BOTH}{TESTS}{SPLIT}",
    ],
    "AX932": [f"save_only_model: true\n{BEST}{BOTH}{FSDP}", f"save_only_model: true\n{BEST}{BOTH}deepspeed: z.json\n"],
    "AX933": ["eval_causal_lm_metrics: [ter, bleu]\n"],
    "AX961": [f"relora: true\n{LORA}", f"relora: true\n{LORA}jagged_restart_steps: null\n"],
    "AX962": [
        "relora: true\njagged_restart_steps: 10\nadapter: ''\n",
        "relora: true\njagged_restart_steps: 10\nadapter: llama-adapter\n",
    ],
    "AX963": [f"{RELORA}{FSDP}", f"{RELORA}fsdp: [full_shard]\n", f"{RELORA}deepspeed: zero1.json\n"],
    "AX964": [f"{RELORA}lr_scheduler: one_cycle\n"],
    "AX965": [f"{RELORA}flash_attn_fuse_mlp: true\n"],
    "AX966": [f"{RELORA}optimizer: muon\n", f"{RELORA}optimizer: adafactor\n"],
}
FINE: dict[str, list[str]] = {
    "AX906": ["warmup_steps: 0\nwarmup_ratio: 0.1\n", "warmup_ratio: 0.1\n", "warmup_steps: 1\nwarmup_ratio: 0\n"],
    "AX907": ["save_strategy: epoch\n", "save_steps: 0\nsave_strategy: epoch\n", "save_steps: 5\nsave_strategy: ''\n"],
    "AX908": ["save_steps: 10\n", "saves_per_epoch: 0\nsave_steps: 10\n", "saves_per_epoch: 1\nsave_steps: 0\n"],
    "AX909": [
        "save_strategy: epoch\n",
        "saves_per_epoch: 0\nsave_strategy: epoch\n",
        "saves_per_epoch: 1\nsave_strategy: ''\n",
    ],
    "AX910": [
        "save_strategy: 'no'\n",
        "hub_model_id: a/b\n",
        "hub_model_id: ''\nsave_strategy: 'no'\n",
        "hub_model_id: a/b\nsave_strategy: ''\n",
        *(f"hub_model_id: a/b\nsave_strategy: {name}\n" for name in ("steps", "epoch", "best")),
    ],
    "AX911": ["save_safetensors: null\n", "save_safetensors: true\n"],
    "AX912": ["neftune_noise_alpha: null\n", "neftune_noise_alpha: 0.5\n"],
    "AX913": [
        f"{PLATEAU}{SPLIT}eval_steps: 10\n",
        f"{PLATEAU}{SPLIT}evals_per_epoch: 1\n",
        f"{PLATEAU}{SPLIT}eval_strategy: epoch\n",
        f"{PLATEAU}{TESTS}eval_strategy: steps\n",
        f"{PLATEAU}val_set_size: 2\neval_steps: 10\n",
        "lr_scheduler: cosine\n",
    ],
    "AX914": ["torch_empty_cache_steps: null\n", "torch_empty_cache_steps: 2\n"],
    "AX916": ["rl: dpo\nneftune_noise_alpha: null\n", "neftune_noise_alpha: 5\n", "rl: null\nddp_timeout: 60\n"],
    "AX921": [TESTS, f"{SPLIT}test_datasets: []\n", f"{SPLIT}test_datasets: null\n"],
    "AX922": ["do_bench_eval: false\n", f"do_bench_eval: true\neval_steps: 5\n{SPLIT}", SPLIT],
    "AX923": ["eval_strategy: epoch\n", "eval_steps: 0\neval_strategy: epoch\n", "eval_steps: 5\neval_strategy: ''\n"],
    "AX924": [
        "eval_steps: 10\n",  # the key is not there, which axolotl takes for another case
        "val_set_size: 0\n",
        "val_set_size: 0\neval_strategy: 'no'\n",
        "val_set_size: null\neval_steps: 10\n",
        f"val_set_size: 0\neval_steps: 10\n{TESTS}",
        "val_set_size: 0\neval_steps: 0\neval_strategy: ''\n",
        "val_set_size: 1\neval_strategy: steps\n",
        "val_set_size: 0\nevals_per_epoch: 1\n",
    ],
    "AX925": [
        "eval_strategy: 'no'\n",
        "val_set_size: 0\neval_steps: 10\n",  # AX924, an error
        "val_set_size: 0\neval_strategy: epoch\n",
        "evals_per_epoch: 0\neval_steps: 0\neval_strategy: ''\n",
        f"evals_per_epoch: 1\n{TESTS}",
        f"evals_per_epoch: 1\n{SPLIT}",
        "evals_per_epoch: 1\ndo_bench_eval: true\n",
        "evals_per_epoch: 1\nval_set_size: 2\n",
    ],
    "AX926": [f"evals_per_epoch: 0\neval_steps: 10\n{SPLIT}", f"evals_per_epoch: 1\neval_steps: 0\n{SPLIT}"],
    "AX927": [
        f"eval_strategy: epoch\n{SPLIT}",
        "evals_per_epoch: 0\neval_strategy: epoch\n",
        "evals_per_epoch: 1\neval_strategy: ''\n",
    ],
    "AX928": ["save_strategy: epoch\n", "save_strategy: best\nmetric_for_best_model: loss\n"],
    "AX929": ["early_stopping_patience: 0\n", "save_steps: 10\n", f"early_stopping_patience: 1\n{BOTH}"],
    "AX930": [
        f"save_steps: 10\neval_steps: 7\n{SPLIT}",
        f"early_stopping_patience: 0\nsave_steps: 10\neval_steps: 7\n{SPLIT}",
        f"early_stopping_patience: 3\nsave_steps: 30\neval_steps: 10\n{SPLIT}",
        f"early_stopping_patience: 3\nsave_steps: 0.5\neval_steps: 0.25\n{SPLIT}",
        f"early_stopping_patience: 3\nsave_steps: 10\neval_steps: 0\n{SPLIT}",
    ],
    "AX931": [
        f"{BEST}{BOTH}",
        f"{BEST}save_steps: 30\neval_steps: 10\n",
        f"{BEST}saves_per_epoch: 1\nevals_per_epoch: 1\n",
        f"load_best_model_at_end: true\n{BOTH}{TESTS}",
        "load_best_model_at_end: false\n",
    ],
    "AX932": [
        f"{BEST}{BOTH}{FSDP}",
        f"save_only_model: true\n{SPLIT}{BOTH}{FSDP}",
        f"save_only_model: true\n{BEST}{BOTH}",
        f"save_only_model: true\n{BEST}{FSDP}",  # dropped for want of steps: AX931
    ],
    "AX933": ["eval_causal_lm_metrics: [sacrebleu, comet, ter, chrf, perplexity]\n", "eval_causal_lm_metrics: null\n"],
    "AX961": ["relora: false\n", LORA, RELORA],
    "AX962": [
        "relora: false\n",
        RELORA,
        "relora: true\nadapter: qlora\nload_in_4bit: true\nlora_target_linear: true\n",
    ],
    "AX963": [f"{LORA}{FSDP}", f"relora: false\n{FSDP}", f"{RELORA}{NO_FSDP}"],
    "AX964": ["lr_scheduler: one_cycle\n", "relora: false\nlr_scheduler: one_cycle\n", RELORA],
    "AX965": ["flash_attn_fuse_mlp: true\n", "relora: false\nflash_attn_fuse_mlp: true\n"],
    "AX966": ["optimizer: muon\n", "relora: false\noptimizer: muon\n", f"{RELORA}optimizer: flash_adamw\n", RELORA],
}
CASES = [
    *((code, fragment, True) for code, fragments in BROKEN.items() for fragment in fragments),
    *((code, fragment, False) for code, fragments in FINE.items() for fragment in fragments),
]


@pytest.mark.parametrize(("code", "fragment", "broken"), CASES)
def test_operands(code: str, fragment: str, broken: bool) -> None:
    assert bool(findings(code, fragment)) == broken


@pytest.mark.parametrize(
    ("save", "evaluate", "fix", "says"),
    [
        (10, 7, "set save_steps: 14", "save_steps 10 is not a multiple of eval_steps 7"),
        (14, 7, None, ""),
        (3, 7, "set save_steps: 7", "save_steps 3 is not a multiple of eval_steps 7"),
        (0.3, 0.1, "set save_steps: 0.1", "save_steps 0.3 is not a multiple of eval_steps 0.1: axolotl 0.18 divides"),
    ],
)
def test_early_stopping_repair(save: float, evaluate: float, fix: str | None, says: str) -> None:
    text = f"early_stopping_patience: 3\nsave_steps: {save}\neval_steps: {evaluate}\n{SPLIT}"
    found = findings("AX930", text)
    assert [finding.fix.title for finding in found if finding.fix] == ([fix] if fix else [])
    assert all(says in finding.message for finding in found)


@pytest.mark.parametrize(
    ("fragment", "reason"),
    [
        (f"load_best_model_at_end: true\n{BOTH}", "it takes evaluation data"),
        (f"{BEST}save_steps: 10\n", "neither eval_steps nor evals_per_epoch is set"),
        (f"{BEST}eval_steps: 10\n", "neither save_steps nor saves_per_epoch is set"),
        (f"{BEST}save_steps: 9\neval_steps: 10\n", "save_steps 9 is not a multiple of eval_steps 10"),
    ],
)
def test_why_the_best_model_is_not_loaded(fragment: str, reason: str) -> None:
    (finding,) = findings("AX931", fragment)
    assert finding.message.startswith(f"load_best_model_at_end true has no effect: {reason}")
