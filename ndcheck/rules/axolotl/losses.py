"""axolotl's rules about kernels that replace the loss."""

from __future__ import annotations

from collections.abc import Iterator

from ndcheck.findings import Fix, Severity, Violation, notes, place
from ndcheck.rules.conditions import lists, on
from ndcheck.rules.rule import Rule, conditional, rule
from ndcheck.settings import Settings
from ndcheck.values import Value, default

LIGER = "plugins: [axolotl.integrations.liger.LigerPlugin]\n"
CUT = "plugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]\n"

BOTH = (
    "plugins: [axolotl.integrations.liger.LigerPlugin, axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]\n"
)

CUT_LISTED = lists("plugins", r"\bcut_cross_entropy\b")

LOSSES = (
    "cut_cross_entropy",
    "chunked_cross_entropy",
    "liger_cross_entropy",
    "liger_fused_linear_cross_entropy",
)

HALF = ("bf16", "fp16", "bfloat16", "float16")


@rule(
    "AX741",
    Severity.ERROR,
    Settings,
    evidence="axolotl 0.18 validation.py:1006",
    bad=f"{LIGER}liger_cross_entropy: true\nliger_fused_linear_cross_entropy: true\n",
    good=f"{LIGER}liger_cross_entropy: true\nliger_fused_linear_cross_entropy: false\n",
)
def several_loss_kernels(settings: Settings) -> Iterator[Violation]:
    """More than one kernel replaces the cross entropy.

    Each of them patches the model's loss; with two, the later patch wins or both apply in part.
    """
    values = _kernels(settings)
    if len(values) > 1:
        message = f"{', '.join(str(value) for value in values)}: only one may replace the loss"
        yield Violation(
            place(*values), message, notes(*values[1:]), Fix("keep one of them, and set the others to false")
        )


@rule(
    "AX748",
    Severity.ERROR,
    Settings,
    evidence="a plug-in's default of true is not seen by axolotl 0.18's check (run); both patches then apply",
    bad=f"{BOTH}bf16: true\nliger_fused_linear_cross_entropy: true\n",
    good=f"{BOTH}bf16: true\nliger_fused_linear_cross_entropy: true\ncut_cross_entropy: false\n",
    unchecked=True,
)
def cut_loss_beside_another(settings: Settings) -> Iterator[Violation]:
    """CutCrossEntropyPlugin switches its own kernel on, beside another one.

    It does so unless cut_cross_entropy is written. axolotl compares what is written, so it lets both patch the loss.
    """
    others = _kernels(settings)
    if not others or not CUT_LISTED.holds(settings) or settings.written("cut_cross_entropy") is not None:
        return
    by_default = default(True, "CutCrossEntropyPlugin")
    message = f"{others[0]} and cut_cross_entropy {by_default}: only one may replace the loss"
    yield Violation(
        place(*others), message, notes(*others[1:]), Fix("write cut_cross_entropy: false, or remove the other")
    )


def _kernels(settings: Settings) -> list[Value[bool]]:
    """The switches of loss kernels that are on."""
    return [value for key in LOSSES if (value := settings.value(key)) is not None and value.value]


CHUNKED_WITH_CUT = conditional(
    "AX742",
    "chunked-loss-with-cut-plugin",
    Severity.ERROR,
    Settings,
    summary="chunked_cross_entropy beside CutCrossEntropyPlugin",
    why="The plug-in refuses the other kernel even where its own is off.",
    when=CUT_LISTED,
    then=~on("chunked_cross_entropy"),
    message="{chunked_cross_entropy} is refused while CutCrossEntropyPlugin is listed",
    fix=Fix("remove one of the two"),
    evidence="axolotl 0.18 cut_cross_entropy/args.py:46",
    bad=f"{CUT}cut_cross_entropy: false\nchunked_cross_entropy: true\n",
    good=f"{CUT}cut_cross_entropy: false\nchunked_cross_entropy: false\n",
)

CUT_FULL_PRECISION = conditional(
    "AX743",
    "cut-loss-full-precision",
    Severity.ERROR,
    Settings,
    summary="cut_cross_entropy without bf16 or fp16 written",
    why="The kernel works in half precision. axolotl 0.18 looks at what is written, so bf16's default of auto does not count.",
    when=on("cut_cross_entropy", raw=True),
    then=on("bf16", raw=True) | on("fp16", raw=True),
    message="{cut_cross_entropy} needs bf16 or fp16 to be written",
    fix=Fix("write bf16: true"),
    evidence="axolotl 0.18 cut_cross_entropy/args.py:35",
    bad=f"{CUT}cut_cross_entropy: true\n",
    good=f"{CUT}cut_cross_entropy: true\nbf16: auto\n",
)

TOKEN_SCALING_ALONE = conditional(
    "AX744",
    "token-scaling-alone",
    Severity.ERROR,
    Settings,
    summary="liger_use_token_scaling without the fused loss",
    why="The scaling is a part of the fused kernel.",
    when=on("liger_use_token_scaling"),
    then=on("liger_fused_linear_cross_entropy"),
    message="{liger_use_token_scaling} needs liger_fused_linear_cross_entropy: true",
    fix=Fix("set liger_fused_linear_cross_entropy: true"),
    evidence="axolotl 0.18 liger/args.py:105",
    bad=f"{LIGER}liger_use_token_scaling: true\n",
    good=f"{LIGER}liger_use_token_scaling: true\nliger_fused_linear_cross_entropy: true\n",
)


@rule(
    "AX747",
    Severity.WARNING,
    Settings,
    evidence="axolotl 0.18 cut_cross_entropy/args.py:35 looks at what is written, not at the default (run: accepted)",
    bad=f"{CUT}bf16: false\n",
    good=f"{CUT}bf16: true\n",
    unchecked=True,
)
def cut_loss_by_default_full_precision(settings: Settings) -> Iterator[Violation]:
    """CutCrossEntropyPlugin switches its kernel on, and the run is in full precision.

    axolotl demands half precision for this kernel, but only where the switch is written. Left to the
    plug-in, the kernel is on all the same and nothing looks.
    """
    if not CUT_LISTED.holds(settings) or settings.written("cut_cross_entropy") is not None:
        return
    if not any(settings.on(key) for key in HALF):
        listed, precision = settings.written("plugins"), settings.value("bf16")
        message = "CutCrossEntropyPlugin is on by default and works in half precision, which the run does not use"
        yield Violation(
            place(precision, listed), message, notes(listed), Fix("write bf16: true, or cut_cross_entropy: false")
        )


RULES: tuple[Rule[Settings], ...] = (
    several_loss_kernels,
    cut_loss_beside_another,
    CHUNKED_WITH_CUT,
    CUT_FULL_PRECISION,
    TOKEN_SCALING_ALONE,
    cut_loss_by_default_full_precision,
)
