"""axolotl's rules about what TRL makes of its preference and reinforcement settings."""

from __future__ import annotations

from collections.abc import Iterator

from ndcheck.findings import Fix, Severity, Violation, notes, place
from ndcheck.layout import counted, divisors, listed
from ndcheck.rules.conditions import equals, on
from ndcheck.rules.rule import Rule, conditional, rule
from ndcheck.run import Groups, Run
from ndcheck.settings import Settings
from ndcheck.values import Value, default

GDPO = "rl: gdpo\n"
STRIDED = "rl: ebft\nebft: {mode: strided}\n"
IS_STRIDED = equals("rl", "ebft") & equals("ebft.mode", "strided")
TOKENS_A_STEP = 20_000
"""Above this axolotl expects more than 24 GB for a model of 1B."""


@rule(
    "AX821",
    Severity.ERROR,
    Run,
    evidence="trl 1.8 grpo_config.py:1055-1100 (read; the same in 1.16), at start-up only; axolotl's own check is for grpo alone",
    bad=f"{GDPO}trl: {{num_generations: 4}}\nmicro_batch_size: 1\n",
    good=f"{GDPO}trl: {{num_generations: 2}}\nmicro_batch_size: 1\n",
    given={"world_size": 2},
    unchecked=True,
)
def generation_batch_uneven(run: Run) -> Iterator[Violation]:
    """The batch of completions over all ranks holds no whole groups.

    TRL generates micro batch x ranks x accumulation completions at a time, or generation_batch_size if that is set,
    which must then fill every rank's micro batch. Either is cut into groups of num_generations, which is at least 2 and
    8 where nobody says.
    """
    groups, micro = run.groups, run.batch.micro
    if groups is None or micro is None or groups.method.value not in ("grpo", "gdpo") or run.degree("cp") > 1:
        return
    size = groups.size or default(8, "TRL")
    if groups.method.value == "gdpo" and size.value < 2:
        fix = Fix("set it to 2 or more")
        yield Violation(place(size), f"{size}: a group of one has no advantage", fix=fix)
        return
    ranks = run.world_size()
    whole = micro.value * ranks.value
    if whole < 1 or size.value < 2:
        return
    batch = groups.generation_batch
    if batch is not None and batch.value % whole:
        message = f"{batch} is no multiple of {micro} x {counted(ranks.value, 'rank')} ({ranks.origin.text}) = {whole}"
        fix = Fix(f"set it to {-(-batch.value // whole) * whole}")
        yield Violation(place(batch), message, notes(micro), fix)
    elif not _axolotl_looks(groups) and run.batch.accumulation is not None:
        yield from _uneven(batch, size, micro, ranks, run.batch.accumulation)


def _axolotl_looks(groups: Groups) -> bool:
    """axolotl's own check, which wants whole groups on every rank, has this config."""
    return groups.method.value == "grpo" and groups.size is not None


def _uneven(
    batch: Value[int] | None, size: Value[int], micro: Value[int], ranks: Value[int], steps: Value[int]
) -> Iterator[Violation]:
    rows = batch.value if batch else micro.value * ranks.value * steps.value
    if rows < 1 or rows % size.value == 0:
        return
    legal = tuple(divisor for divisor in divisors(rows) if divisor >= 2)
    source = str(batch) if batch else f"{micro} x {counted(ranks.value, 'rank')} x {steps}"
    wanted = str(size) if size.path else f"{size.value}, {size.origin.text} of num_generations"
    fix = Fix(f"set trl.num_generations to {listed(legal)}" if legal else "raise micro_batch_size")
    message = f"{counted(rows, 'completion')} a step ({source}): no whole groups of {wanted}"
    yield Violation(place(size, batch, micro), message, notes(micro, steps), fix)


@rule(
    "AX822",
    Severity.ERROR,
    Settings,
    evidence="axolotl 0.18 config.py:2065; 0.19, run",
    bad="rl: grpo\nbeta: 0.1\ntrl: {beta: 0.2}\n",
    good="rl: grpo\ntrl: {beta: 0.2}\n",
    given={"also": ["unknown-key"]},
)
def beta_twice(settings: Settings) -> Iterator[Violation]:
    """beta stands at top level and in the section trl, and the two differ.

    Nothing reads the one at top level any more, but axolotl still refuses the pair.
    """
    top, inner = settings.anything("beta"), settings.value("trl.beta")
    if top is not None and inner is not None and top.value and inner.value and top.value != inner.value:
        yield Violation(place(top), f"{top} is not {inner}", notes(inner), Fix("remove beta: only trl.beta is read"))


@rule(
    "AX823",
    Severity.WARNING,
    Settings,
    evidence="axolotl 0.18 core/builders/rl.py:122; accepted (run)",
    bad="rl: dpo\nrl_beta: 0.1\ntrl: {beta: 0.2}\n",
    good="rl: dpo\ntrl: {beta: 0.2}\n",
    unchecked=True,
)
def beta_overruled(settings: Settings) -> Iterator[Violation]:
    """Two keys set the strength of one penalty, and differ.

    axolotl takes trl.beta, else rl_beta, else orpo_alpha, and says nothing of the others.
    """
    if not settings.on("rl"):
        return
    keys = ("trl.beta", "rl_beta", "orpo_alpha")
    found = [value for key in keys if (value := settings.value(key)) is not None and value.value is not None]
    for value in found[1:]:
        if value.value != found[0].value:
            yield Violation(place(value), f"{value} is overruled by {found[0]}", notes(found[0]), Fix("remove it"))


STRIDED_COMPILED = conditional(
    "AX824",
    "strided-compiled",
    Severity.WARNING,
    Settings,
    summary="Strided EBFT compiled",
    why="Each step has another length, so that the compiler starts again and again. Its attention compiles itself.",
    when=IS_STRIDED & ~on("gradient_checkpointing"),
    then=~equals("torch_compile", True),
    message="{torch_compile} compiles strided EBFT anew for every length",
    fix=Fix("set torch_compile: false"),
    evidence="axolotl 0.18 validation.py:1800",
    bad=f"{STRIDED}torch_compile: true\n",
    good=f"{STRIDED}torch_compile: false\n",
)

STRIDED_FORM_OVERRULED = conditional(
    "AX825",
    "strided-form-overruled",
    Severity.WARNING,
    Settings,
    summary="Strided EBFT with flex attention and use_reentrant: false",
    why="The masks of flex attention fail the other form's comparison of what was saved with what was recomputed, so "
    "axolotl sets the key to true.",
    when=IS_STRIDED & equals("attn_implementation", "flex_attention") & on("gradient_checkpointing"),
    then=~equals("gradient_checkpointing_kwargs.use_reentrant", False),
    message="{gradient_checkpointing_kwargs.use_reentrant} becomes true for strided EBFT with {attn_implementation}",
    fix=Fix("set gradient_checkpointing_kwargs.use_reentrant: true"),
    evidence="axolotl 0.18 validation.py:1829",
    bad=f"{STRIDED}attn_implementation: flex_attention\ngradient_checkpointing: true\n"
    "gradient_checkpointing_kwargs: {use_reentrant: false}\n",
    good=f"{STRIDED}attn_implementation: flex_attention\ngradient_checkpointing: true\n"
    "gradient_checkpointing_kwargs: {use_reentrant: true}\n",
)


@rule(
    "AX826",
    Severity.WARNING,
    Settings,
    evidence="axolotl 0.18 validation.py:1865",
    bad=f"{STRIDED}sequence_len: 2505\n",
    good=f"{STRIDED}sequence_len: 2504\n",
)
def strided_tokens_many(settings: Settings) -> Iterator[Violation]:
    """Strided EBFT puts many tokens into one forward pass.

    Every stride of a row opens a block of generated tokens behind the row, and every prompt is taken several times.
    Above 20,000 tokens axolotl expects that 24 GB do not hold a model of a billion parameters.
    """
    if not IS_STRIDED.holds(settings):
        return
    length = settings.value("sequence_len")
    block, stride, context, samples = (
        _or(settings.get(f"ebft.{key}"), otherwise)
        for key, otherwise in (
            ("generate_max_len", 8),
            ("stride", 8),
            ("context_length", 8),
            ("n_samples_per_prompt", 4),
        )
    )
    if length is None or not length.value or stride < 1:
        return
    blocks = (length.value - block - context) // stride + 1
    tokens = (length.value + blocks * block) * samples
    if tokens > TOKENS_A_STEP:
        message = f"({length} + {blocks} blocks x {block}) x {samples} samples = {tokens} tokens in one forward pass"
        yield Violation(place(length), message, fix=Fix("lower sequence_len or n_samples_per_prompt, or raise stride"))


def _or(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


RULES: tuple[Rule[Settings] | Rule[Run], ...] = (
    generation_batch_uneven,
    beta_twice,
    beta_overruled,
    STRIDED_COMPILED,
    STRIDED_FORM_OVERRULED,
    strided_tokens_many,
)
