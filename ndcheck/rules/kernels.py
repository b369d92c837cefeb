"""Rules about fused kernels against axes that cut what they fuse."""

from __future__ import annotations

from collections.abc import Iterator

from ndcheck.findings import Fix, Safety, SetValue, Severity, Violation, notes, place
from ndcheck.rules.rule import Rule, rule
from ndcheck.run import Run

LIGER = "plugins: [axolotl.integrations.liger.LigerPlugin]\n"


@rule(
    "ND701",
    Severity.ERROR,
    Run,
    evidence="Liger-Kernel #826; axolotl 0.18 liger/args.py:95 refuses it still. Liger 0.6.5 and 0.7.0 agree with one process (matrices/liger.yaml)",
    bad=f"{LIGER}liger_rms_norm: true\ntensor_parallel_size: 2\n",
    good=f"{LIGER}liger_rms_norm: true\ntensor_parallel_size: 1\n",
    given={"world_size": 2},
)
def liger_rms_norm_tp(run: Run) -> Iterator[Violation]:
    """Liger's RMSNorm is combined with tensor parallelism.

    The kernel reads the raw memory of its input and weight; under tensor parallelism these may be
    DTensors that hold only a part. Newer Liger releases gather them first, at a price, but axolotl
    refuses the pair whatever Liger's version.
    """
    flag = run.kernels.liger_rms_norm
    if flag is None or not flag.value or run.degree("tp") == 1:
        return
    tp = run.degrees["tp"]
    edits = (SetValue(flag.path, "false"),) if flag.path else ()
    fix = Fix(f"set {flag.origin.text}: false", Safety.UNSAFE, edits)
    yield Violation(place(flag), f"{flag} cannot be combined with {tp}", notes(tp), fix)


@rule(
    "ND702",
    Severity.ERROR,
    Run,
    evidence="matrices/liger.yaml on CPU ranks, Liger 0.6.5 and 0.7.0: every engine crashes under tp 2; axolotl 0.18 liger/args.py:117 refuses it",
    bad=f"{LIGER}liger_fused_linear_cross_entropy: true\ntensor_parallel_size: 2\n",
    good=f"{LIGER}liger_cross_entropy: true\ntensor_parallel_size: 2\n",
    given={"world_size": 2},
)
def liger_loss_tp(run: Run) -> Iterator[Violation]:
    """Liger's fused head and loss is combined with tensor parallelism.

    It multiplies by the head's weight itself, which under tensor parallelism is a DTensor that holds a part of the vocabulary.
    The plain cross entropy gets the logits whole, and agrees with one process.
    """
    flag = run.kernels.liger_fused_loss
    if flag is None or not flag.value or run.degree("tp") == 1:
        return
    tp = run.degrees["tp"]
    edits = (SetValue(flag.path, "false"),) if flag.path else ()
    fix = Fix(f"set {flag.origin.text}: false; liger_cross_entropy may stay", Safety.UNSAFE, edits)
    yield Violation(place(flag), f"{flag} cannot be combined with {tp}", notes(tp), fix)


RULES: tuple[Rule[Run], ...] = (liger_rms_norm_tp, liger_loss_tp)
