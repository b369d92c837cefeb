"""axolotl's rules about evaluation, early stopping and the best model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ndcheck.findings import Fix, Severity, Violation, notes, place
from ndcheck.rules.axolotl.sharding import FSDP
from ndcheck.rules.conditions import above, equals, on
from ndcheck.rules.rule import Rule, conditional, rule
from ndcheck.settings import Settings

METRICS = ("sacrebleu", "comet", "ter", "chrf", "perplexity")
EVALUATION_DATA = on("test_datasets") | above("val_set_size", 0)
SCHEDULED = on("eval_steps") | on("evals_per_epoch") | (on("eval_strategy") & ~equals("eval_strategy", "no"))
EVALUATES = EVALUATION_DATA & SCHEDULED
SPLIT = "val_set_size: 0.1\n"

TWO_EVALUATION_SETS = conditional(
    "AX921",
    "two-evaluation-sets",
    Severity.ERROR,
    Settings,
    summary="test_datasets and val_set_size are both set",
    why="Either evaluation has data of its own, or a part of the training data is kept for it.",
    when=on("test_datasets"),
    then=~on("val_set_size"),
    message="{val_set_size} beside test_datasets: evaluation takes one of the two",
    fix=Fix("set val_set_size: 0, or remove test_datasets"),
    evidence="axolotl 0.18 validation.py:112",
    bad="test_datasets: [{path: org/test, type: alpaca}]\nval_set_size: 0.1\n",
    good="test_datasets: [{path: org/test, type: alpaca}]\nval_set_size: 0\n",
)

BENCH_UNSCHEDULED = conditional(
    "AX922",
    "bench-unscheduled",
    Severity.ERROR,
    Settings,
    summary="do_bench_eval does not say when",
    why="The benchmark runs at each evaluation, and axolotl wants their number from the file.",
    when=on("do_bench_eval"),
    then=on("evals_per_epoch") | on("eval_steps"),
    message="{do_bench_eval} needs evals_per_epoch or eval_steps",
    fix=Fix("set evals_per_epoch: 1"),
    evidence="axolotl 0.18 validation.py:363",
    bad=f"do_bench_eval: true\nevals_per_epoch: 0\n{SPLIT}",
    good=f"do_bench_eval: true\nevals_per_epoch: 1\n{SPLIT}",
)

EVAL_STEPS_STRATEGY = conditional(
    "AX923",
    "eval-steps-strategy-differs",
    Severity.ERROR,
    Settings,
    summary="eval_steps is set, and eval_strategy is not steps",
    why="A number of steps means something only if steps decide when to evaluate.",
    when=on("eval_steps") & on("eval_strategy"),
    then=equals("eval_strategy", "steps"),
    message="{eval_strategy} contradicts {eval_steps}",
    fix=Fix("remove eval_steps, or set eval_strategy: steps"),
    evidence="axolotl 0.18 validation.py:331",
    bad=f"eval_steps: 10\neval_strategy: epoch\n{SPLIT}",
    good=f"eval_steps: 10\neval_strategy: steps\n{SPLIT}",
)

EVALUATION_WITHOUT_DATA = conditional(
    "AX924",
    "evaluation-without-data",
    Severity.ERROR,
    Settings,
    summary="Evaluation is scheduled, and val_set_size: 0 leaves nothing to evaluate on",
    why="axolotl refuses an explicit 0 beside eval_steps or eval_strategy, unless test_datasets are named.",
    when=equals("val_set_size", 0.0, raw=True) & (on("eval_steps") | on("eval_strategy")),
    then=on("test_datasets") | equals("eval_strategy", "no"),
    message="{val_set_size} and no test_datasets: there is nothing to evaluate on",
    fix=Fix("set val_set_size: 0.05 or name test_datasets, or remove eval_steps and eval_strategy"),
    evidence="axolotl 0.18 validation.py:341",
    bad="val_set_size: 0\neval_steps: 10\n",
    good="val_set_size: 1\neval_steps: 10\n",
)

EVALUATION_DROPPED = conditional(
    "AX925",
    "evaluation-dropped",
    Severity.WARNING,
    Settings,
    summary="Evaluation is scheduled, and there is no data for it",
    why="With neither test_datasets nor val_set_size axolotl switches evaluation off without a word. It checks an "
    "explicit val_set_size: 0 beside eval_steps and eval_strategy only.",
    when=SCHEDULED,
    then=EVALUATION_DATA
    | on("do_bench_eval")
    | (equals("val_set_size", 0.0, raw=True) & (on("eval_steps") | on("eval_strategy"))),
    message="nothing will be evaluated: neither val_set_size nor test_datasets gives data",
    fix=Fix("set val_set_size: 0.05 or name test_datasets, or remove the schedule of evaluations"),
    evidence="axolotl 0.18 core/builders/base.py:515, run",
    bad="evals_per_epoch: 1\n",
    good="evals_per_epoch: 1\nval_set_size: 1\n",
    unchecked=True,
)

EVALUATIONS_TWICE = conditional(
    "AX926",
    "evals-per-epoch-and-eval-steps",
    Severity.ERROR,
    Settings,
    summary="evals_per_epoch and eval_steps are both set",
    why="axolotl computes eval_steps from evals_per_epoch; with both it cannot know which is meant.",
    when=on("evals_per_epoch"),
    then=~on("eval_steps"),
    message="{evals_per_epoch} and {eval_steps} are both set",
    fix=Fix("keep one of the two"),
    evidence="axolotl 0.18 validation.py:350",
    bad=f"evals_per_epoch: 1\neval_steps: 10\n{SPLIT}",
    good=f"evals_per_epoch: 1\neval_steps: null\n{SPLIT}",
)

EVALUATIONS_STRATEGY = conditional(
    "AX927",
    "evals-per-epoch-strategy-differs",
    Severity.ERROR,
    Settings,
    summary="evals_per_epoch is set, and eval_strategy is not steps",
    why="axolotl turns evals_per_epoch into eval_steps, so steps decide when to evaluate.",
    when=on("evals_per_epoch") & on("eval_strategy"),
    then=equals("eval_strategy", "steps"),
    message="{eval_strategy} contradicts {evals_per_epoch}",
    fix=Fix("remove eval_strategy"),
    evidence="axolotl 0.18 validation.py:354",
    bad=f"evals_per_epoch: 1\neval_strategy: epoch\n{SPLIT}",
    good=f"evals_per_epoch: 1\neval_strategy: steps\n{SPLIT}",
)

BEST_WITHOUT_METRIC = conditional(
    "AX928",
    "best-without-metric",
    Severity.ERROR,
    Settings,
    summary="save_strategy is best, and nothing says by which measure",
    why="A checkpoint is kept if it improves on metric_for_best_model; axolotl takes no default.",
    when=equals("save_strategy", "best"),
    then=on("metric_for_best_model"),
    message="{save_strategy} needs metric_for_best_model",
    fix=Fix("set metric_for_best_model: eval_loss"),
    evidence="axolotl 0.18 schemas/config.py:1720",
    bad=f"save_strategy: best\nevals_per_epoch: 1\n{SPLIT}",
    good=f"save_strategy: best\nmetric_for_best_model: eval_loss\nevals_per_epoch: 1\n{SPLIT}",
)

STOPPING_WITHOUT_STEPS = conditional(
    "AX929",
    "early-stopping-without-steps",
    Severity.ERROR,
    Settings,
    summary="early_stopping_patience needs save_steps and eval_steps",
    why="Stopping early goes back to the best checkpoint, so every save has to come with an evaluation. axolotl 0.18 "
    "wants both as numbers of steps: saves_per_epoch and evals_per_epoch would do, but are turned into steps only "
    "after this check.",
    when=on("early_stopping_patience"),
    then=on("save_steps") & on("eval_steps"),
    message="{early_stopping_patience} needs save_steps and eval_steps; axolotl 0.18 does not count the per-epoch keys",
    fix=Fix("set save_steps and eval_steps to the same number"),
    evidence="axolotl 0.18 validation.py:1614, run",
    bad=f"early_stopping_patience: 3\nsave_steps: 10\nevals_per_epoch: 1\n{SPLIT}",
    good=f"early_stopping_patience: 3\nsave_steps: 10\neval_steps: 10\n{SPLIT}",
)


@rule(
    "AX930",
    Severity.ERROR,
    Settings,
    evidence="axolotl 0.18 validation.py:1614, run: 0.3 and 0.1 are refused",
    bad=f"early_stopping_patience: 3\nsave_steps: 9\neval_steps: 10\n{SPLIT}",
    good=f"early_stopping_patience: 3\nsave_steps: 20\neval_steps: 10\n{SPLIT}",
)
def early_stopping_steps_indivisible(settings: Settings) -> Iterator[Violation]:
    """With early stopping save_steps is not a multiple of eval_steps.

    The best checkpoint can only be known where a save and an evaluation meet. axolotl 0.18 divides fractions
    of the run as floating point numbers, so 0.3 and 0.1 are refused although they meet: there, set both alike.
    """
    save, evaluate = settings.value("save_steps"), settings.value("eval_steps")
    if not settings.on("early_stopping_patience") or save is None or evaluate is None:
        return
    if save.value and evaluate.value and not _meet(save.value, evaluate.value):
        limit = ": axolotl 0.18 divides fractions inexactly" if save.value < 1 else ""
        above_it = -(-save.value // evaluate.value) * evaluate.value
        fix = Fix(f"set save_steps: {evaluate.value if save.value < 1 else above_it}")
        message = f"{save} is not a multiple of {evaluate}{limit}"
        yield Violation(place(save), message, notes(evaluate, settings.value("early_stopping_patience")), fix)


def _meet(save_steps: float, eval_steps: float) -> bool:
    return save_steps % eval_steps == 0


def _loads_best(settings: Settings) -> str | None:
    """Why axolotl does not load the best model at the end; None if it does."""
    save, evaluate = settings.get("save_steps"), settings.get("eval_steps")
    if settings.on("test_datasets") == ((settings.get("val_set_size") or 0) > 0):
        return "it takes evaluation data, from either test_datasets or val_set_size"
    for name, value in (("save", save), ("eval", evaluate)):
        if not value and not settings.on(f"{name}s_per_epoch"):
            return f"neither {name}_steps nor {name}s_per_epoch is set"
    if save and evaluate and not _meet(save, evaluate):
        return f"save_steps {save} is not a multiple of eval_steps {evaluate}"
    return None


@rule(
    "AX931",
    Severity.WARNING,
    Settings,
    evidence="axolotl 0.18 core/builders/causal.py:248",
    bad=f"load_best_model_at_end: true\nsave_steps: 9\neval_steps: 10\n{SPLIT}",
    good=f"load_best_model_at_end: true\nsave_steps: 20\neval_steps: 10\n{SPLIT}",
    unchecked=True,
)
def best_model_not_loaded(settings: Settings) -> Iterator[Violation]:
    """load_best_model_at_end is asked for, and axolotl drops it without a word.

    It needs evaluation data, steps at which to save and to evaluate, and that they meet. Otherwise the run
    ends with its last weights.
    """
    wanted = settings.value("load_best_model_at_end")
    reason = _loads_best(settings) if wanted is not None and wanted.value else None
    if wanted is not None and reason is not None:
        saved = [settings.value(name) for name in ("save_steps", "eval_steps")]
        yield Violation(place(wanted), f"{wanted} has no effect: {reason}", notes(*saved), Fix("set what is missing"))


@rule(
    "AX932",
    Severity.ERROR,
    Settings,
    evidence="transformers 5.14 trainer.py:848",
    bad=f"save_only_model: true\nload_best_model_at_end: true\nsave_steps: 10\neval_steps: 10\n{SPLIT}deepspeed: z.json\n",
    good=f"save_only_model: false\nload_best_model_at_end: true\nsave_steps: 10\neval_steps: 10\n{SPLIT}deepspeed: z.json\n",
    unchecked=True,
)
def best_model_without_engine_state(settings: Settings) -> Iterator[Violation]:
    """The best model is to be loaded from checkpoints that hold the model only.

    DeepSpeed and FSDP load through their own engine, which needs the rest of a checkpoint too. The Trainer
    refuses when it is built.
    """
    only, best = settings.value("save_only_model"), settings.value("load_best_model_at_end")
    if only is None or best is None or not only.value or not best.value:
        return
    if (FSDP.holds(settings) or settings.on("deepspeed")) and _loads_best(settings) is None:
        message = f"{only} and {best} do not go together under FSDP or DeepSpeed"
        yield Violation(place(only), message, notes(best), Fix("set save_only_model: false"))


@rule(
    "AX933",
    Severity.ERROR,
    Settings,
    evidence="axolotl 0.18 validation.py:490",
    bad="eval_causal_lm_metrics: [bleu]\n",
    good="eval_causal_lm_metrics: [sacrebleu]\n",
)
def eval_metric_unknown(settings: Settings) -> Iterator[Violation]:
    """A name in eval_causal_lm_metrics is no metric that axolotl can compute.

    The names are those of the evaluate library's metrics that axolotl knows how to call, and perplexity.
    """
    names: list[Any] = settings.get("eval_causal_lm_metrics") or []
    for at, name in enumerate(names):
        if name not in METRICS:
            message = f"{name} is not a metric: choose from {', '.join(METRICS)}"
            yield Violation(("eval_causal_lm_metrics", at), message, fix=Fix("remove it, or choose another"))


RULES: tuple[Rule[Settings], ...] = (
    TWO_EVALUATION_SETS,
    BENCH_UNSCHEDULED,
    EVAL_STEPS_STRATEGY,
    EVALUATION_WITHOUT_DATA,
    EVALUATION_DROPPED,
    EVALUATIONS_TWICE,
    EVALUATIONS_STRATEGY,
    BEST_WITHOUT_METRIC,
    STOPPING_WITHOUT_STEPS,
    early_stopping_steps_indivisible,
    best_model_not_loaded,
    best_model_without_engine_state,
    eval_metric_unknown,
)
