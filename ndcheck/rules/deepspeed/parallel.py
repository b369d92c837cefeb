"""Rules about the axes that DeepSpeed's config lays out: AutoTP and Ulysses."""

from __future__ import annotations

from collections.abc import Iterator

from ndcheck.findings import Fix, SetValue, Severity, Violation, notes, place
from ndcheck.rules.conditions import above, at_least, is_set
from ndcheck.rules.rule import Rule, conditional, rule
from ndcheck.settings import Settings

TP = "tensor_parallel.autotp_size"
SP = "sequence_parallel_size"
STAGE = "zero_optimization.stage"

TP_STAGE = conditional(
    "DS401",
    "autotp-zero3",
    Severity.ERROR,
    Settings,
    summary="AutoTP under ZeRO-3",
    why="transformers loads weights for one or the other: under stage 3 it refuses a model whose config asks for tensor "
    "parallelism as well. DeepSpeed before 0.19 refuses the pair itself.",
    when=above(TP, 1) & at_least(STAGE, 3),
    message=f"{{{TP}}} does not work with {{{STAGE}}}: transformers cannot load weights for both",
    fix=Fix("use stage 1 or 2 beside AutoTP", edits=(SetValue(("zero_optimization", "stage"), "2"),)),
    evidence="transformers 5.24 integrations/deepspeed.py:350, a NotImplementedError",
    bad="tensor_parallel: {autotp_size: 2}\nzero_optimization: {stage: 3}\n",
    good="tensor_parallel: {autotp_size: 2}\nzero_optimization: {stage: 2}\n",
)

SP_SIGN = conditional(
    "DS402",
    "sequence-parallel-size-positive",
    Severity.ERROR,
    Settings,
    summary="Sequences are to be split over fewer than one rank",
    why="DeepSpeed divides the ranks by it.",
    when=is_set(SP),
    then=at_least(SP, 1),
    message=f"{{{SP}}} is less than 1",
    fix=Fix("use the number of ranks that share a row"),
    evidence="DeepSpeed 0.19.8 config.py: the ranks are divided by it",
    bad="sequence_parallel_size: 0\n",
    good="sequence_parallel_size: 1\n",
    unchecked=True,
)


@rule(
    "DS403",
    Severity.ERROR,
    Settings,
    evidence="DeepSpeed 0.19.8 runtime/tensor_parallel/config.py: the two sizes must agree",
    bad="tensor_parallel: {autotp_size: 4, tp: {tp_size: 2}}\n",
    good="tensor_parallel: {autotp_size: 4, tp: {tp_size: 4}}\n",
)
def autotp_sizes_agree(settings: Settings) -> Iterator[Violation]:
    """The degree of AutoTP is stated twice, and differs.

    autotp_size is what training reads; tensor_parallel.tp.tp_size must be the same, or 1.
    """
    outer, inner = settings.value(TP), settings.value("tensor_parallel.tp.tp_size")
    if outer is None or inner is None or not isinstance(inner.value, int) or outer.value is None:
        return
    if inner.value in (1, outer.value):
        return
    edits = (SetValue(inner.path, str(outer.value)),) if inner.path else ()
    fix = Fix(f"set tp_size to {outer.value}", edits=edits)
    yield Violation(place(inner), f"{inner} differs from {outer}", notes(outer), fix)


RULES: tuple[Rule[Settings], ...] = (TP_STAGE, SP_SIGN, autotp_sizes_agree)
