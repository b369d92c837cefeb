"""Rules about the sequence length against the axes that cut it."""

from __future__ import annotations

from collections.abc import Iterator

from ndcheck.findings import Fix, SetValue, Severity, Violation, notes, place
from ndcheck.rules.rule import Rule, rule
from ndcheck.run import Run
from ndcheck.values import Value

FLASH = "attn_implementation: flash_attention_2\n"


def _uneven(run: Run, length: Value[int], multiple: int, arithmetic: str, *factors: Value[int]) -> Violation:
    below = length.value // multiple * multiple
    above = below + multiple
    message = f"{length} is not a multiple of {arithmetic}"
    message += f": rows are padded to {above}, tokens that are computed for nothing" if run.sequence.pads else ""
    edits = (SetValue(length.path, str(above)),) if length.path else ()
    fix = Fix(f"set it to {above}" + (f", or {below}" if below else ""), edits=edits)
    severity = Severity.WARNING if run.sequence.pads else Severity.ERROR
    return Violation(place(length, *factors), message, notes(*factors), fix, severity)


@rule(
    "ND401",
    Severity.ERROR,
    Run,
    evidence="torchtitan, Megatron-LM, nanotron, picotron refuse it; axolotl 0.18 sequence_parallel.py:96 pads; accelerate 1.15, run: collective sizes differ",
    bad=f"context_parallel_size: 2\nsequence_len: 4095\n{FLASH}",
    good=f"context_parallel_size: 2\nsequence_len: 4096\n{FLASH}",
    given={"world_size": 2},
    unchecked=True,
)
def sequence_length_cp(run: Run) -> Iterator[Violation]:
    """The sequence length is not a multiple of what cp cuts it into.

    Contiguous slicing gives each of the cp ranks one slice, so the length must be a multiple of cp.
    Zig-zag (load-balanced) slicing gives each rank one slice from either end, so it must be a multiple
    of 2 x cp. A framework that pads makes do, and computes the padding.
    """
    cp, length = run.degree("cp"), run.sequence.length
    if cp == 1 or length is None or length.value < 1:
        return
    zigzag = run.sequence.zigzag.value
    multiple = 2 * cp if zigzag else cp
    if length.value % multiple:
        degree = run.degrees["cp"]
        arithmetic = f"2 x {degree} = {multiple} (zig-zag slices)" if zigzag else str(degree)
        yield _uneven(run, length, multiple, arithmetic, degree)


@rule(
    "ND402",
    Severity.ERROR,
    Run,
    evidence="torchtitan #1306: shapes break without it; frameworks that pad lose the padding only",
    bad="tensor_parallel_size: 2\nsequence_len: 4095\n",
    good="tensor_parallel_size: 2\nsequence_len: 4096\n",
    given={"world_size": 2},
    unchecked=True,
)
def sequence_length_tp(run: Run) -> Iterator[Violation]:
    """The sequence length is not a multiple of cp x tp.

    Where norms run sequence-parallel, each tp rank holds a tp-th of its cp rank's slice, so the length
    must be a multiple of cp x tp. A framework that pads makes do, and computes the padding.
    """
    tp, cp, length = run.degree("tp"), run.degree("cp"), run.sequence.length
    if tp == 1 or length is None or length.value < 1 or length.value % cp:
        return
    if length.value % (cp * tp):
        factors = [run.degrees[axis] for axis in ("cp", "tp") if run.degree(axis) > 1]
        product = f" = {cp * tp}" if cp > 1 else ""
        arithmetic = " x ".join(str(factor) for factor in factors) + product
        yield _uneven(run, length, cp * tp, arithmetic, *factors)


@rule(
    "ND403",
    Severity.WARNING,
    Run,
    evidence="torchtitan and Megatron-LM refuse it; transformers extrapolates RoPE without a word",
    bad="sequence_len: 8193\n",
    good="sequence_len: 8192\n",
    given={"model_config": {"max_position_embeddings": 8192}},
    unchecked=True,
)
def sequence_above_positions(run: Run) -> Iterator[Violation]:
    """Sequences are longer than the positions that the model was made for.

    Rotary embeddings go on beyond, into angles that the model has not seen; learned positions run out and fail. A scaling
    of the rotary embedding that the config declares is taken for intended.
    """
    length = run.sequence.length
    if length is None or length.path is None or run.facts.model is None:
        return
    positions = run.facts.model.max_positions
    if positions is not None and length.value > positions.value:
        message = f"{length} is above {positions.value} positions ({positions.origin.text})"
        edits = (SetValue(length.path, str(positions.value)),)
        yield Violation(
            place(length), message, fix=Fix(f"set it to {positions.value}, or scale the rotary embedding", edits=edits)
        )


RULES: tuple[Rule[Run], ...] = (sequence_length_cp, sequence_length_tp, sequence_above_positions)
