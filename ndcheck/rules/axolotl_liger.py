"""What Liger does, and leaves undone, for which family of models; a loss kernel that is on by default."""

from __future__ import annotations

from collections.abc import Iterator

from ndcheck.findings import Fix, SetValue, Severity, Violation, notes, place
from ndcheck.rules.conditions import lists
from ndcheck.rules.rule import Rule, rule
from ndcheck.run import Run
from ndcheck.settings import Settings
from ndcheck.values import Value

LIGER = "plugins: [axolotl.integrations.liger.LigerPlugin]\n"
CUT = "plugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]\n"
CUT_LISTED = lists("plugins", r"\bcut_cross_entropy\b")
HALF = ("bf16", "fp16", "bfloat16", "float16")

REFUSING = frozenset({"paddleocr_vl"})
"""Families that axolotl declares to be unsupported."""

_GEMMA4 = frozenset({"gemma4", "gemma4_unified", "gemma4_unified_text"})

WITHOUT: dict[str, frozenset[str]] = {
    "liger_rope": _GEMMA4 | frozenset("llava nemotron internvl smolvlm deepseek_v2 qwen3_5 qwen3_5_moe".split()),
    "liger_rms_norm": frozenset({"llava", "nemotron"}),
    "liger_cross_entropy": frozenset({"pixtral"}),
    "liger_fused_linear_cross_entropy": _GEMMA4 | frozenset({"pixtral"}),
}
"""Flag -> families whose patch goes without it, and says nothing or warns. Liger's LayerNorm is another rule's."""

PATCHED = frozenset(
    """
    llama mistral ministral mixtral smollm3 phi3 olmo2 olmo3 qwen2 qwen3 qwen3_moe falcon_h1 hunyuan_v1_dense
    hunyuan_v1_moe exaone4 granite glm4 glm4v glm4v_moe qwen3_next qwen3_5 qwen3_5_moe qwen3_5_text qwen3_5_moe_text
    gpt_oss gemma gemma2 gemma3 gemma3_text gemma4_text paligemma llama4 llama4_text mllama mllama_text_model
    qwen2_vl qwen2_vl_text qwen2_5_vl qwen2_5_vl_text qwen3_vl qwen3_vl_text qwen3_vl_moe qwen3_vl_moe_text
    internvl smolvlm llava nemotron pixtral
    granitemoe gemma4 gemma4_unified gemma4_unified_text jamba deepseek_v2
    """.split()
)
"""Families with a patch of their own: Liger 0.8.0's 48, then axolotl 0.18's. Both have added to them since."""

FUSED = "liger_fused_linear_cross_entropy"


@rule(
    "AX754",
    Severity.WARNING,
    Run,
    evidence="Liger-Kernel 0.8.0's arguments by family; axolotl 0.18 liger/plugin.py:109 leaves out what has none",
    bad=f"{LIGER}liger_rope: true\n",
    good=f"{LIGER}liger_cross_entropy: true\n",
    given={"model_config": {"model_type": "llava", "num_attention_heads": 32}},
    unchecked=True,
    versions="<0.19",
)
def liger_flag_ignored(run: Run) -> Iterator[Violation]:
    """A kernel of Liger is asked for that the patch for this family of models does not have.

    The model is patched without it. For a loss that means more memory than the file leads one to expect.
    """
    for flag in _asked_for(run):
        family = run.model().family
        if family is not None and family.value in WITHOUT.get(flag.origin.text, ()):
            message = f"{flag} has no effect on {family.value} ({family.origin.text})"
            yield Violation(place(flag), message, fix=Fix("remove it"))


@rule(
    "AX755",
    Severity.ERROR,
    Run,
    evidence="axolotl 0.18 liger/plugin.py:34, which runs after the launch",
    bad=f"{LIGER}liger_rms_norm: true\n",
    good=f"{LIGER}liger_rms_norm: false\n",
    given={"model_config": {"model_type": "paddleocr_vl", "num_attention_heads": 16}},
    unchecked=True,
)
def liger_refused_for_family(run: Run) -> Iterator[Violation]:
    """Liger is asked for on a family of models for which axolotl refuses it.

    The refusal comes when the model is about to be loaded, not when the file is read.
    """
    flags = _asked_for(run)
    family = run.model().family if flags else None
    if family is not None and family.value in REFUSING:
        fix = Fix(
            "switch Liger's kernels off", edits=tuple(SetValue(flag.path, "false") for flag in flags if flag.path)
        )
        message = f"{flags[0]}: axolotl has no Liger for {family.value} ({family.origin.text})"
        yield Violation(place(*flags), message, notes(*flags[1:]), fix)


@rule(
    "AX756",
    Severity.WARNING,
    Run,
    evidence="axolotl 0.18 liger/plugin.py:335",
    bad=f"{LIGER}liger_rms_norm: true\n",
    good=f"{LIGER}liger_rms_norm: false\n",
    given={"model_config": {"model_type": "gpt_neox", "num_attention_heads": 32}},
    unchecked=True,
    versions="<0.19",
)
def liger_family_unknown(run: Run) -> Iterator[Violation]:
    """Neither Liger nor axolotl has a patch for this family of models.

    All that is left is the fused loss, by a general patch that axolotl itself calls experimental; other
    kernels are not applied.
    """
    for flag in _asked_for(run):
        family = run.model().family
        if family is None or family.value in PATCHED | REFUSING or flag.origin.text == "liger_layer_norm":
            continue
        if flag.origin.text == FUSED:
            message = f"{flag}: {family.value} ({family.origin.text}) gets a general patch, which is experimental"
            yield Violation(place(flag), message, fix=Fix("compare the loss with that of a run without it"))
        else:
            message = f"{flag} has no effect: there is no patch for {family.value} ({family.origin.text})"
            yield Violation(place(flag), message, fix=Fix("remove it"))


def _asked_for(run: Run) -> list[Value[bool]]:
    """Liger's flags that are on, each once. Raises Unreadable if one cannot be read."""
    kernels = run.kernels
    flags = (*kernels.liger_flags.values(), kernels.liger_rms_norm, *kernels.liger_losses)
    return list({flag.origin.text: flag for flag in flags if flag is not None and flag.value}.values())


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


RULES: tuple[Rule[Settings] | Rule[Run], ...] = (
    liger_flag_ignored,
    liger_refused_for_family,
    liger_family_unknown,
    cut_loss_by_default_full_precision,
)
