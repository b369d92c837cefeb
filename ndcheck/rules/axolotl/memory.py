"""axolotl's rules about recomputing, offloading and compiling."""

from __future__ import annotations

from collections.abc import Iterator

from ndcheck.findings import Fix, SetValue, Severity, Violation, notes, place
from ndcheck.rules.conditions import equals, is_set, matches, on
from ndcheck.rules.rule import Rule, conditional, rule
from ndcheck.settings import Settings

RECOMPUTED = "gradient_checkpointing: true\n"

COMPILE_OPTIONS = frozenset(
    """
    assume_aligned_inputs comprehensive_padding coordinate_descent_check_all_directions coordinate_descent_tuning
    decompose_mem_bound_mm epilogue_fusion fx_graph_cache max_autotune_gemm shape_padding triton.cudagraphs
    """.split()
)
"""The options of torch.compile that axolotl lets through."""

STRIDED = "rl: ebft\nebft: {mode: strided}\n"

OFFLOADING_ALONE = conditional(
    "AX641",
    "offloading-without-checkpointing",
    Severity.ERROR,
    Settings,
    summary="activation_offloading without gradient_checkpointing",
    why="What is offloaded are the activations that checkpointing keeps.",
    when=on("activation_offloading"),
    then=on("gradient_checkpointing"),
    message="{activation_offloading} needs gradient_checkpointing: true",
    fix=Fix("set gradient_checkpointing: true", edits=(SetValue(("gradient_checkpointing",), "true"),)),
    evidence="axolotl 0.18 validation.py:1444",
    bad="activation_offloading: true\n",
    good=f"{RECOMPUTED}activation_offloading: true\n",
)

SELECTIVE_ALONE = conditional(
    "AX642",
    "selective-without-checkpointing",
    Severity.ERROR,
    Settings,
    summary="selective_checkpointing without gradient_checkpointing",
    why="It chooses what checkpointing keeps.",
    when=is_set("selective_checkpointing") & ~equals("selective_checkpointing", False),
    then=on("gradient_checkpointing"),
    message="selective_checkpointing needs gradient_checkpointing: true",
    fix=Fix("set gradient_checkpointing: true", edits=(SetValue(("gradient_checkpointing",), "true"),)),
    evidence="axolotl 0.18 validation.py:1450",
    bad="selective_checkpointing: true\n",
    good=f"{RECOMPUTED}selective_checkpointing: true\n",
)

SELECTIVE_REENTRANT = conditional(
    "AX643",
    "selective-reentrant",
    Severity.ERROR,
    Settings,
    summary="selective_checkpointing in the reentrant form",
    why="Only the other form of checkpointing asks what to keep.",
    when=on("selective_checkpointing") & on("gradient_checkpointing"),
    then=~on("gradient_checkpointing_kwargs.use_reentrant"),
    message="selective_checkpointing needs use_reentrant: false",
    fix=Fix(
        "set gradient_checkpointing_kwargs.use_reentrant: false",
        edits=(SetValue(("gradient_checkpointing_kwargs", "use_reentrant"), "false"),),
    ),
    evidence="axolotl 0.18 validation.py:1450",
    bad=f"{RECOMPUTED}selective_checkpointing: true\ngradient_checkpointing_kwargs: {{use_reentrant: true}}\n",
    good=f"{RECOMPUTED}selective_checkpointing: true\ngradient_checkpointing_kwargs: {{use_reentrant: false}}\n",
)

SELECTIVE_OFFLOADED = conditional(
    "AX644",
    "selective-offloaded",
    Severity.ERROR,
    Settings,
    summary="selective_checkpointing and activation_offloading",
    why="Both decide what becomes of each activation; only the offloading of hidden states leaves room for the other.",
    when=on("selective_checkpointing") & on("activation_offloading"),
    then=equals("activation_offloading", "hidden_states"),
    message="selective_checkpointing cannot be combined with {activation_offloading}",
    fix=Fix("set activation_offloading: hidden_states or false"),
    evidence="axolotl 0.18 validation.py:1450",
    bad=f"{RECOMPUTED}selective_checkpointing: true\nactivation_offloading: true\n",
    good=f"{RECOMPUTED}selective_checkpointing: true\nactivation_offloading: hidden_states\n",
)


@rule(
    "AX645",
    Severity.ERROR,
    Settings,
    evidence="axolotl 0.18 validation.py:1450",
    bad=f"{RECOMPUTED}adapter: lora\nlora_target_linear: true\nselective_checkpointing: {{save: [mm]}}\n",
    good=f"{RECOMPUTED}adapter: lora\nlora_target_linear: true\nselective_checkpointing: {{save: [attention]}}\n",
)
def selective_matmul_adapter(settings: Settings) -> Iterator[Violation]:
    """selective_checkpointing keeps matrix products, and there is an adapter.

    The products of the adapter's small matrices have the same name as those of the frozen ones, and keeping
    all of them takes more memory than it saves. An entry is looked for inside the operators' names.
    """
    save = (
        settings.get("selective_checkpointing.save")
        if isinstance(settings.get("selective_checkpointing"), dict)
        else None
    )
    if not settings.on("adapter") or not save:
        return
    products = ("aten::mm", "aten::addmm", "aten::matmul", "aten::bmm")
    entries = [entry for entry in save if entry != "attention" and any(entry in product for product in products)]
    if entries:
        value = settings.value("selective_checkpointing.save")
        message = (
            f"selective_checkpointing.save names {', '.join(entries)}, which with an adapter keeps every matrix product"
        )
        yield Violation(place(value), message, notes(settings.value("adapter")), Fix("save attention only"))


FROZEN_REENTRANT = conditional(
    "AX646",
    "frozen-reentrant",
    Severity.ERROR,
    Settings,
    summary="unfrozen_parameters with checkpointing in the reentrant form",
    why="The reentrant form wants an input with a gradient, which a frozen first layer does not give.",
    when=on("unfrozen_parameters"),
    then=~equals("gradient_checkpointing_kwargs.use_reentrant", True),
    message="{unfrozen_parameters} needs use_reentrant: false",
    fix=Fix(
        "set gradient_checkpointing_kwargs.use_reentrant: false",
        edits=(SetValue(("gradient_checkpointing_kwargs", "use_reentrant"), "false"),),
    ),
    evidence="axolotl 0.18 validation.py:454",
    bad=f"{RECOMPUTED}unfrozen_parameters: [lm_head]\ngradient_checkpointing_kwargs: {{use_reentrant: true}}\n",
    good=f"{RECOMPUTED}unfrozen_parameters: [lm_head]\ngradient_checkpointing_kwargs: {{use_reentrant: false}}\n",
)

MPT_RECOMPUTED = conditional(
    "AX647",
    "mpt-name-checkpointing",
    Severity.ERROR,
    Settings,
    summary="gradient_checkpointing and a base_model with mpt in its name",
    why="axolotl 0.18 refuses it for MPT models, and takes every name with these letters for one: a limit of its check.",
    when=matches("base_model", "(?i)mpt"),
    then=~on("gradient_checkpointing"),
    message="axolotl 0.18 takes {base_model} for an MPT model, which cannot be checkpointed",
    fix=Fix("set gradient_checkpointing: false, or load the model from a path without these letters"),
    evidence="axolotl 0.18 validation.py:1402",
    bad=f"base_model: org/prompt-guard\n{RECOMPUTED}",
    good=f"base_model: org/guard\n{RECOMPUTED}",
)

NEMOTRON_H_UNPACKED = conditional(
    "AX648",
    "nemotron-h-unpacked",
    Severity.ERROR,
    Settings,
    summary="Nemotron-H with gradient_checkpointing and without packing",
    why="Its recurrent layers can be recomputed for packed rows only.",
    when=matches("base_model", "(?i)nemotron-h") & on("gradient_checkpointing"),
    then=on("sample_packing"),
    message="{base_model} with {gradient_checkpointing} needs sample_packing: true",
    fix=Fix("set sample_packing: true"),
    evidence="axolotl 0.18 validation.py:1410; gone in 0.19 (run)",
    versions="axolotl<0.19",
    bad=f"base_model: org/nemotron-h-8b\n{RECOMPUTED}",
    good=f"base_model: org/nemotron-h-8b\n{RECOMPUTED}sample_packing: true\nattn_implementation: flash_attention_2\n",
)

SELECTIVE_COMPILED = conditional(
    "AX649",
    "selective-compiled",
    Severity.WARNING,
    Settings,
    summary="selective_checkpointing with torch_compile",
    why="The compiler chooses what to keep by itself; nobody has tried the two together.",
    when=on("selective_checkpointing"),
    then=~on("torch_compile"),
    message="selective_checkpointing with {torch_compile} is untested",
    fix=Fix("switch one of them off"),
    evidence="axolotl 0.18 validation.py:1489",
    bad=f"{RECOMPUTED}selective_checkpointing: true\ntorch_compile: true\n",
    good=f"{RECOMPUTED}selective_checkpointing: true\ntorch_compile: false\n",
)

COMPILE_OPTIONS_ALONE = conditional(
    "AX651",
    "compile-options-alone",
    Severity.ERROR,
    Settings,
    summary="torch_compile_options without torch_compile",
    why="Nothing is compiled, so the options speak of nothing.",
    when=is_set("torch_compile_options"),
    then=on("torch_compile"),
    message="torch_compile_options needs torch_compile: true",
    fix=Fix("set torch_compile: true", edits=(SetValue(("torch_compile",), "true"),)),
    evidence="axolotl 0.18 config.py:1631",
    bad="torch_compile_options: {shape_padding: true}\n",
    good="torch_compile: true\ntorch_compile_options: {shape_padding: true}\n",
)


@rule(
    "AX652",
    Severity.ERROR,
    Settings,
    evidence="axolotl 0.18 config.py:1617, enums.py:162",
    bad="torch_compile: true\ntorch_compile_options: {max_autotune: true}\n",
    good="torch_compile: true\ntorch_compile_options: {max_autotune_gemm: true}\n",
)
def compile_option_unknown(settings: Settings) -> Iterator[Violation]:
    """torch_compile_options holds an option that axolotl does not let through.

    It hands on a list of options that it has tried, and refuses every other, misspelt or merely new.
    """
    options = settings.get("torch_compile_options")
    for name in options if isinstance(options, dict) else ():
        if name not in COMPILE_OPTIONS:
            message = f"axolotl does not let {name} through; it knows {', '.join(sorted(COMPILE_OPTIONS))}"
            yield Violation(("torch_compile_options", name), message, fix=Fix("remove it"))


HIDDEN_STATES_ADAPTER = conditional(
    "AX650",
    "hidden-states-offloaded-for-adapter",
    Severity.WARNING,
    Settings,
    summary="activation_offloading: hidden_states with an adapter",
    why="With few trainable weights the plain form can be faster.",
    when=equals("activation_offloading", "hidden_states"),
    then=~on("adapter"),
    message="{activation_offloading} with {adapter} may be slower than true",
    fix=Fix("set activation_offloading: true"),
    evidence="axolotl 0.18 validation.py:1496",
    bad=f"{RECOMPUTED}activation_offloading: hidden_states\nadapter: lora\nlora_target_linear: true\n",
    good=f"{RECOMPUTED}activation_offloading: true\nadapter: lora\nlora_target_linear: true\n",
)

STRIDED_COMPILED = conditional(
    "AX655",
    "strided-compiled-checkpointing",
    Severity.ERROR,
    Settings,
    summary="Strided EBFT compiled and recomputed",
    why="The compiler cannot trace its recomputation.",
    when=equals("rl", "ebft") & equals("ebft.mode", "strided") & on("gradient_checkpointing"),
    then=~equals("torch_compile", True),
    message="strided EBFT with {gradient_checkpointing} cannot be compiled",
    fix=Fix("set torch_compile: false", edits=(SetValue(("torch_compile",), "false"),)),
    evidence="axolotl 0.18 validation.py:1800",
    bad=f"{STRIDED}{RECOMPUTED}torch_compile: true\n",
    good=f"{STRIDED}{RECOMPUTED}torch_compile: false\n",
)

STRIDED_OFFLOADED = conditional(
    "AX656",
    "strided-offloaded-flex",
    Severity.ERROR,
    Settings,
    summary="Strided EBFT with offloading and flex attention",
    why="The masks of flex attention do not survive the way to the CPU and back.",
    when=equals("rl", "ebft") & equals("ebft.mode", "strided") & equals("attn_implementation", "flex_attention"),
    then=~equals("activation_offloading", True),
    message="strided EBFT with {attn_implementation} cannot use {activation_offloading}",
    fix=Fix("set activation_offloading: false"),
    evidence="axolotl 0.18 validation.py:1850",
    bad=f"{STRIDED}{RECOMPUTED}attn_implementation: flex_attention\nactivation_offloading: true\n",
    good=f"{STRIDED}{RECOMPUTED}attn_implementation: flex_attention\nactivation_offloading: false\n",
)


@rule(
    "AX657",
    Severity.WARNING,
    Settings,
    evidence="axolotl 0.18 config.py:1641",
    bad="torch_compile: true\ntorch_compile_options: {triton.cudagraphs: true}\nsample_packing: true\n",
    good="torch_compile: true\ntorch_compile_options: {triton.cudagraphs: false}\nsample_packing: true\n",
)
def cudagraphs_of_packed_rows(settings: Settings) -> Iterator[Violation]:
    """torch_compile_options switches CUDA graphs on, and rows are packed.

    A graph is recorded for one shape; packed rows come in many.
    """
    options = settings.get("torch_compile_options")
    if settings.on("sample_packing") and isinstance(options, dict) and options.get("triton.cudagraphs"):
        message = "triton.cudagraphs records graphs of one shape, which packed rows defeat"
        path = ("torch_compile_options", "triton.cudagraphs")
        yield Violation(path, message, notes(settings.value("sample_packing")), Fix("set triton.cudagraphs: false"))


EBFT_MISSING = conditional(
    "AX654",
    "ebft-section-missing",
    Severity.ERROR,
    Settings,
    summary="rl: ebft without a section ebft",
    why="The method has no defaults to run with.",
    when=equals("rl", "ebft"),
    then=on("ebft"),
    message="{rl} needs a section ebft",
    fix=Fix("add the section"),
    evidence="axolotl 0.18 validation.py:1789",
    bad="rl: ebft\n",
    good="rl: simpo\n",
)

RULES: tuple[Rule[Settings], ...] = (
    OFFLOADING_ALONE,
    SELECTIVE_ALONE,
    SELECTIVE_REENTRANT,
    SELECTIVE_OFFLOADED,
    selective_matmul_adapter,
    FROZEN_REENTRANT,
    MPT_RECOMPUTED,
    NEMOTRON_H_UNPACKED,
    SELECTIVE_COMPILED,
    COMPILE_OPTIONS_ALONE,
    compile_option_unknown,
    HIDDEN_STATES_ADAPTER,
    STRIDED_COMPILED,
    STRIDED_OFFLOADED,
    cudagraphs_of_packed_rows,
    EBFT_MISSING,
)
