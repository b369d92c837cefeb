"""axolotl's rules about Liger: what it does, and leaves undone, for which family of models."""

from __future__ import annotations

from collections.abc import Iterator

from ndcheck.findings import Fix, Safety, SetValue, Severity, Violation, notes, place
from ndcheck.rules.conditions import on
from ndcheck.rules.rule import Rule, conditional, rule
from ndcheck.run import Run
from ndcheck.settings import Settings
from ndcheck.values import Value

LIGER = "plugins: [axolotl.integrations.liger.LigerPlugin]\n"

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

NO_ROPE = frozenset({"glm4", "glm4v", "glm4v_moe", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"})
"""Families for which Liger 0.8 raises NotImplementedError when asked for its rotary kernel."""

NO_FUSED_LOSS = frozenset({"granite", "granitemoe"})
"""Families for which it does so when asked for the fused loss."""

LAYER_NORM = frozenset(
    """
    gemma3 paligemma gemma4 gemma4_unified llama4 llama4_text mllama mllama_text_model qwen2_vl internvl smolvlm
    jamba qwen3_5 qwen3_5_moe
    """.split()
)
"""Families whose patch has a LayerNorm kernel."""


@rule(
    "AX754",
    Severity.WARNING,
    Run,
    evidence="Liger-Kernel 0.8.0's arguments by family; axolotl 0.18 liger/plugin.py:109 leaves out what has none",
    bad=f"{LIGER}liger_rope: true\n",
    good=f"{LIGER}liger_cross_entropy: true\n",
    given={"model_config": {"model_type": "llava", "num_attention_heads": 32}},
    unchecked=True,
    versions="axolotl<0.19",
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
    versions="axolotl<0.19",
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
    losses = (kernels.liger_loss, kernels.liger_fused_loss)
    flags = (*kernels.liger_flags.values(), kernels.liger_rms_norm, *losses)
    return list({flag.origin.text: flag for flag in flags if flag is not None and flag.value}.values())


@rule(
    "AX751",
    Severity.ERROR,
    Run,
    evidence="Liger-Kernel 0.8.0 monkey_patch: NotImplementedError; axolotl 0.18 does not look",
    bad=f"{LIGER}liger_rope: true\n",
    good=f"{LIGER}liger_rope: false\n",
    given={"model_config": {"model_type": "glm4", "num_attention_heads": 32}},
    unchecked=True,
)
def liger_rope_unsupported(run: Run) -> Iterator[Violation]:
    """Liger has no rotary kernel for this family of models.

    It raises while the model is patched, after the launch.
    """
    yield from _unsupported(run, "liger_rope", NO_ROPE)


@rule(
    "AX752",
    Severity.ERROR,
    Run,
    evidence="Liger-Kernel 0.8.0 apply_liger_kernel_to_granite: NotImplementedError; axolotl 0.18 does not look",
    bad=f"{LIGER}liger_fused_linear_cross_entropy: true\n",
    good=f"{LIGER}liger_cross_entropy: true\n",
    given={"model_config": {"model_type": "granite", "num_attention_heads": 32}},
    unchecked=True,
)
def liger_fused_loss_unsupported(run: Run) -> Iterator[Violation]:
    """Liger has no fused loss for this family of models.

    Its logits are scaled, which the fused kernel cannot do. Liger's plain cross entropy can.
    """
    yield from _unsupported(run, "liger_fused_linear_cross_entropy", NO_FUSED_LOSS)


@rule(
    "AX753",
    Severity.INFO,
    Run,
    evidence="axolotl 0.18 liger/plugin.py:109; Liger-Kernel 0.8.0's arguments by family",
    bad=f"{LIGER}liger_layer_norm: true\n",
    good=f"{LIGER}liger_layer_norm: false\n",
    given={"model_config": {"model_type": "llama", "num_attention_heads": 32}},
    unchecked=True,
)
def liger_layer_norm_ignored(run: Run) -> Iterator[Violation]:
    """liger_layer_norm has no effect on this family of models.

    It has no LayerNorm, or Liger's patch for it has no such switch.
    """
    flag = run.kernels.liger_flags.get("liger_layer_norm")
    if flag is None or not flag.value:
        return
    family = run.model().family
    if family is not None and family.value not in LAYER_NORM:
        yield Violation(place(flag), f"{flag} has no effect on {family.value}", fix=Fix("remove it"))


def _unsupported(run: Run, name: str, families: frozenset[str]) -> Iterator[Violation]:
    flag = run.kernels.liger_flags.get(name)
    if flag is None or not flag.value:
        return
    family = run.model().family
    if family is not None and family.value in families:
        edits = (SetValue(flag.path, "false"),) if flag.path else ()
        message = f"{flag}: Liger has no such kernel for {family.value} ({family.origin.text})"
        yield Violation(place(flag), message, fix=Fix(f"set {name}: false", edits=edits))


TILED_LIGER_MLP = conditional(
    "AX745",
    "tiled-liger-mlp",
    Severity.ERROR,
    Settings,
    summary="liger_glu_activation and tiled_mlp without tiled_mlp_use_original_mlp written",
    why="Both replace the MLP. axolotl 0.18 looks at what is written, so the default of true does not count.",
    when=on("liger_glu_activation", raw=True) & on("tiled_mlp", raw=True),
    then=on("tiled_mlp_use_original_mlp", raw=True),
    message="{liger_glu_activation} with {tiled_mlp} needs tiled_mlp_use_original_mlp: true to be written",
    fix=Fix(
        "write tiled_mlp_use_original_mlp: true",
        edits=(SetValue(("tiled_mlp_use_original_mlp",), "true"),),
    ),
    evidence="axolotl 0.18 liger/args.py:82",
    bad=f"{LIGER}liger_glu_activation: true\ntiled_mlp: true\n",
    good=f"{LIGER}liger_glu_activation: true\ntiled_mlp: true\ntiled_mlp_use_original_mlp: true\n",
)


@rule(
    "AX746",
    Severity.ERROR,
    Settings,
    evidence="axolotl 0.18 liger/args.py:98, run: TypeError",
    bad=f"{LIGER}liger_rms_norm: true\ntensor_parallel_size:\n",
    good=f"{LIGER}liger_rms_norm: true\ntensor_parallel_size: 1\n",
)
def liger_with_empty_tp(settings: Settings) -> Iterator[Violation]:
    """liger_rms_norm beside an empty tensor_parallel_size.

    axolotl 0.18 compares the empty value with 1 and ends in a TypeError. A limit of its check, not of the config.
    """
    flag, tp = settings.written("liger_rms_norm"), settings.written("tensor_parallel_size")
    if flag is not None and flag.value and tp is not None and tp.value is None:
        fix = Fix("write tensor_parallel_size: 1", Safety.SAFE, (SetValue(("tensor_parallel_size",), "1"),))
        message = (
            "tensor_parallel_size is empty, which axolotl 0.18 answers with a traceback where liger_rms_norm is on"
        )
        yield Violation(("tensor_parallel_size",), message, notes(flag), fix)


RULES: tuple[Rule[Settings] | Rule[Run], ...] = (
    liger_flag_ignored,
    liger_refused_for_family,
    liger_family_unknown,
    liger_rope_unsupported,
    liger_fused_loss_unsupported,
    liger_layer_norm_ignored,
    TILED_LIGER_MLP,
    liger_with_empty_tp,
)
