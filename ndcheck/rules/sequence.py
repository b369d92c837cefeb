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


CP2 = "parallelism_config: {cp_size: 2}\nfsdp: true\nmax_length: 4096\n"


def _torch_cp(run: Run) -> Value[int] | None:
    """The degree of cp, if torch's ``context_parallel`` is what cuts the rows."""
    return run.degrees["cp"] if run.sequence.cp_by_torch and run.degree("cp") > 1 else None


@rule(
    "ND404",
    Severity.ERROR,
    Run,
    evidence="matrices/witnesses.yaml, cp 2 with eager attention: Trainer stops at its first step, a loop of one's own diverges in silence",
    bad=f"{CP2}model_init_kwargs: {{attn_implementation: eager}}\n",
    good=f"{CP2}model_init_kwargs: {{attn_implementation: sdpa}}\n",
    given={"world_size": 2, "also": ["parallelism-config-mapping"]},
    unchecked=True,
)
def cp_attention(run: Run) -> Iterator[Violation]:
    """torch's context parallelism meets attention that it does not replace.

    It takes the place of ``scaled_dot_product_attention`` and of nothing else. With any other implementation each rank attends
    to its own slice of the row; Trainer refuses that, a loop of one's own does not notice.
    """
    cp, attention = _torch_cp(run), run.sequence.attention
    if cp is None or attention is None or attention.value in (None, "sdpa"):
        return
    edits = (SetValue(attention.path, "sdpa"),) if attention.path else ()
    message = f"{attention} with {cp}: only sdpa sees more than its own slice"
    yield Violation(place(attention), message, notes(cp), Fix("use sdpa", edits=edits))


@rule(
    "ND405",
    Severity.ERROR,
    Run,
    evidence="matrices/witnesses.yaml, cp 2 with packed rows: diverges in silence; TRL #6843",
    bad=f"{CP2}packing: true\nattn_implementation: sdpa\n",
    good=f"{CP2}packing: false\nattn_implementation: sdpa\n",
    given={"world_size": 2, "also": ["parallelism-config-mapping", "packing-attention"]},
    unchecked=True,
)
def cp_packed_rows(run: Run) -> Iterator[Violation]:
    """torch's context parallelism meets rows of several documents.

    It knows causal attention over the whole row only: what keeps the documents of a row apart is dropped, and each sees those
    before it. Ring attention with lengths of its own (axolotl's) or Ulysses keeps them apart.
    """
    cp, packed = _torch_cp(run), run.sequence.packed
    if cp is None or packed is None or not packed.value:
        return
    message = f"{packed} with {cp}: documents of one row see each other"
    yield Violation(place(packed), message, notes(cp), Fix("switch packing off, or cp"))


@rule(
    "ND406",
    Severity.ERROR,
    Run,
    evidence="matrices/witnesses.yaml, cp 2 with rows padded on the left: diverges in silence",
    bad=f"{CP2}padding_side: left\n",
    good=f"{CP2}padding_side: right\n",
    given={"world_size": 2, "also": ["parallelism-config-mapping"]},
    unchecked=True,
)
def cp_left_padding(run: Run) -> Iterator[Violation]:
    """torch's context parallelism meets rows that are padded on the left.

    The mask is dropped. Behind padding on the right no token looks; on the left it stands before every token, and all of them
    see it. Evaluation and generation after preparing the model are no different.
    """
    cp, side = _torch_cp(run), run.sequence.padding_side
    if cp is None or side is None or side.value != "left":
        return
    edits = (SetValue(side.path, "right"),) if side.path else ()
    yield Violation(place(side), f"{side} with {cp}: tokens see the padding", notes(cp), Fix("pad right", edits=edits))


@rule(
    "ND407",
    Severity.ERROR,
    Run,
    evidence="accelerate 1.15 big_modeling.py:819 refuses it (#4177); releases before trained full attention in silence",
    bad=CP2,
    good="fsdp: true\nmax_length: 4096\n",
    given={
        "world_size": 2,
        "model_config": {"model_type": "mistral", "sliding_window": 512},
        "also": ["parallelism-config-mapping"],
    },
)
def cp_sliding_window(run: Run) -> Iterator[Violation]:
    """torch's context parallelism meets a model with layers that do not attend to everything before.

    It replaces each layer's mask by a plain causal one. Layers with a sliding window, chunks or linear attention would become
    other layers.
    """
    cp, model = _torch_cp(run), run.facts.model
    if cp is None or model is None or model.partial_attention is None:
        return
    message = f"{cp} with a model whose layers attend to a part only ({model.partial_attention.origin.text})"
    yield Violation(place(cp), message, fix=Fix("use another axis"))


RULES: tuple[Rule[Run], ...] = (
    sequence_length_cp,
    sequence_length_tp,
    sequence_above_positions,
    cp_attention,
    cp_packed_rows,
    cp_left_padding,
    cp_sliding_window,
)
