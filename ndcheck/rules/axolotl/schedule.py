"""axolotl's rules about steps: warm-up, saving, noise, and what transformers demands of schedules."""

from __future__ import annotations

from collections.abc import Iterator

from ndcheck.findings import Fix, RemoveKey, Severity, Violation, notes
from ndcheck.rules.axolotl.evaluation import EVALUATES
from ndcheck.rules.conditions import above, at_least, equals, is_set, on, one_of
from ndcheck.rules.rule import Rule, conditional, rule
from ndcheck.settings import Settings

WARMUP_TWICE = conditional(
    "AX906",
    "warmup-steps-and-ratio",
    Severity.ERROR,
    Settings,
    summary="warmup_steps and warmup_ratio are both set",
    why="One counts steps, the other a share of all steps; axolotl refuses both, agreeing or not.",
    when=on("warmup_steps"),
    then=~on("warmup_ratio"),
    message="{warmup_steps} and {warmup_ratio} are both set",
    fix=Fix("keep one of the two"),
    evidence="axolotl 0.18 validation.py:294",
    bad="warmup_steps: 10\nwarmup_ratio: 0.1\n",
    good="warmup_steps: 10\nwarmup_ratio: 0.0\n",
)

SAVE_STEPS_STRATEGY = conditional(
    "AX907",
    "save-steps-strategy-differs",
    Severity.ERROR,
    Settings,
    summary="save_steps is set, and save_strategy is not steps",
    why="A number of steps means something only if steps decide when to save.",
    when=on("save_steps") & on("save_strategy"),
    then=equals("save_strategy", "steps"),
    message="{save_strategy} contradicts {save_steps}",
    fix=Fix("remove save_steps, or set save_strategy: steps"),
    evidence="axolotl 0.18 validation.py:301",
    bad="save_steps: 10\nsave_strategy: epoch\n",
    good="save_steps: 10\nsave_strategy: steps\n",
)

SAVES_TWICE = conditional(
    "AX908",
    "saves-per-epoch-and-save-steps",
    Severity.ERROR,
    Settings,
    summary="saves_per_epoch and save_steps are both set",
    why="axolotl computes save_steps from saves_per_epoch; with both it cannot know which is meant.",
    when=on("saves_per_epoch"),
    then=~on("save_steps"),
    message="{saves_per_epoch} and {save_steps} are both set",
    fix=Fix("keep one of the two"),
    evidence="axolotl 0.18 validation.py:312",
    bad="saves_per_epoch: 1\nsave_steps: 10\n",
    good="saves_per_epoch: 1\nsave_steps: null\n",
)

SAVES_PER_EPOCH_STRATEGY = conditional(
    "AX909",
    "saves-per-epoch-strategy",
    Severity.WARNING,
    Settings,
    summary="saves_per_epoch overrides save_strategy",
    why="axolotl turns saves_per_epoch into save_steps after its checks, and save_steps always means steps. The twin "
    "rule for evaluation refuses such a pair; this one is let through.",
    when=on("saves_per_epoch") & on("save_strategy"),
    then=equals("save_strategy", "steps"),
    message="{save_strategy} has no effect: {saves_per_epoch} makes it steps",
    fix=Fix("remove one of the two"),
    evidence="axolotl 0.18 config/__init__.py:242 and core/builders/base.py:499, run",
    bad="saves_per_epoch: 1\nsave_strategy: epoch\n",
    good="saves_per_epoch: 1\nsave_strategy: steps\n",
    unchecked=True,
)

HUB_WITHOUT_SAVING = conditional(
    "AX910",
    "hub-without-saving",
    Severity.WARNING,
    Settings,
    summary="A hub repository is named, and nothing is saved on the way",
    why="Checkpoints go to the hub as they are saved. (axolotl warns for save_strategy best as well, wrongly: it saves.)",
    when=on("hub_model_id") & on("save_strategy"),
    then=one_of("save_strategy", "steps", "epoch", "best"),
    message="{save_strategy}: no checkpoint is pushed to {hub_model_id}",
    fix=Fix("set save_strategy: epoch"),
    evidence="axolotl 0.18 validation.py:318",
    bad="hub_model_id: org/tuned\nsave_strategy: 'no'\n",
    good="hub_model_id: org/tuned\nsave_strategy: epoch\n",
)

SAFETENSORS_OFF = conditional(
    "AX911",
    "safetensors-off",
    Severity.ERROR,
    Settings,
    summary="save_safetensors is off",
    why="transformers 5 writes safetensors and nothing else, so axolotl refuses to pretend otherwise.",
    when=is_set("save_safetensors"),
    then=on("save_safetensors"),
    message="{save_safetensors}: weights are always saved as safetensors",
    fix=Fix("remove it", edits=(RemoveKey(("save_safetensors",)),)),
    evidence="axolotl 0.18 schemas/model.py:166",
    bad="save_safetensors: false\n",
    good="save_safetensors: true\n",
)

NOISE_NOT_POSITIVE = conditional(
    "AX912",
    "neftune-noise-not-positive",
    Severity.ERROR,
    Settings,
    summary="neftune_noise_alpha is not above 0",
    why="It scales the noise added to embeddings; to have none, leave it out.",
    when=is_set("neftune_noise_alpha"),
    then=above("neftune_noise_alpha", 0),
    message="{neftune_noise_alpha} must be above 0",
    fix=Fix("remove it, or set neftune_noise_alpha: 5"),
    evidence="axolotl 0.18 validation.py:1558",
    bad="neftune_noise_alpha: 0\n",
    good="neftune_noise_alpha: 0.1\n",
)

PLATEAU_WITHOUT_EVALUATION = conditional(
    "AX913",
    "plateau-without-evaluation",
    Severity.ERROR,
    Settings,
    summary="The schedule follows the evaluation loss, and nothing is evaluated",
    why="reduce_lr_on_plateau and greedy look at each evaluation's result; transformers refuses them without any.",
    when=one_of("lr_scheduler", "reduce_lr_on_plateau", "greedy"),
    then=EVALUATES,
    message="{lr_scheduler} needs evaluations: data for them and eval_steps, evals_per_epoch or eval_strategy",
    fix=Fix("set val_set_size and evals_per_epoch, or another lr_scheduler"),
    evidence="transformers 5.14 training_args.py:1724",
    bad="lr_scheduler: reduce_lr_on_plateau\nval_set_size: 0.1\neval_strategy: 'no'\n",
    good="lr_scheduler: reduce_lr_on_plateau\nval_set_size: 0.1\neval_strategy: epoch\n",
    unchecked=True,
)

CACHE_STEPS_NOT_POSITIVE = conditional(
    "AX914",
    "cache-steps-not-positive",
    Severity.ERROR,
    Settings,
    summary="torch_empty_cache_steps is below 1",
    why="The cache is emptied every so many steps; transformers takes whole numbers from 1 on.",
    when=is_set("torch_empty_cache_steps"),
    then=at_least("torch_empty_cache_steps", 1),
    message="{torch_empty_cache_steps} must be at least 1",
    fix=Fix("remove it, or set torch_empty_cache_steps: 1"),
    evidence="transformers 5.14 training_args.py:1659",
    bad="torch_empty_cache_steps: 0\n",
    good="torch_empty_cache_steps: 1\n",
    unchecked=True,
)


@rule(
    "AX916",
    Severity.WARNING,
    Settings,
    evidence="axolotl 0.18 core/builders/causal.py:188 against core/builders/rl.py:101",
    bad="rl: orpo\ngroup_by_length: true\n",
    good="rl: orpo\ngroup_by_length: false\n",
    unchecked=True,
)
def option_ignored_with_rl(settings: Settings) -> Iterator[Violation]:
    """An option is set that axolotl does not pass on when rl is set.

    Preference and reinforcement training are put together by code of their own, which leaves out some of the
    options that ordinary training takes.
    """
    method = settings.value("rl")
    if method is None or not method.value:
        return
    for key in NOT_WITH_RL:
        option = settings.value(key)
        if option is not None and option.value and option.path is not None:
            message = f"{option} has no effect with {method}"
            yield Violation(option.path, message, notes(method), Fix("remove it"))


NOT_WITH_RL = (
    "ddp_timeout",
    "ddp_bucket_cap_mb",
    "ddp_broadcast_buffers",
    "ddp_find_unused_parameters",
    "dataloader_drop_last",
    "auto_find_batch_size",
    "load_best_model_at_end",
    "metric_for_best_model",
    "greater_is_better",
    "group_by_length",
    "neftune_noise_alpha",
    "lr_quadratic_warmup",
)
"""What only the builder of ordinary training passes on."""

RULES: tuple[Rule[Settings], ...] = (
    WARMUP_TWICE,
    SAVE_STEPS_STRATEGY,
    SAVES_TWICE,
    SAVES_PER_EPOCH_STRATEGY,
    HUB_WITHOUT_SAVING,
    SAFETENSORS_OFF,
    NOISE_NOT_POSITIVE,
    PLATEAU_WITHOUT_EVALUATION,
    CACHE_STEPS_NOT_POSITIVE,
    option_ignored_with_rl,
)
