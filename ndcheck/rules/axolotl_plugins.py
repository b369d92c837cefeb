"""axolotl's rules about the values that its plug-ins take: kernels for experts, MoRA, compression, distillation."""

from __future__ import annotations

from collections.abc import Iterator

from ndcheck.findings import Fix, RemoveKey, SetValue, Severity, Violation, notes, place
from ndcheck.rules.conditions import above, equals, is_set, lists, matches, on, one_of
from ndcheck.rules.rule import Rule, conditional, rule
from ndcheck.settings import Settings

KERNELS = "plugins: [axolotl.integrations.kernels.KernelsPlugin]\n"
MORA = "plugins: [axolotl.integrations.mora.MoraPlugin]\nadapter: mora\n"
COMPRESSOR = "plugins: [axolotl.integrations.llm_compressor.LLMCompressorPlugin]\n"
DISTILL = "plugins: [axolotl.integrations.kd.KDPlugin]\nkd_trainer: true\n"
COMPRESSOR_LISTED = lists("plugins", r"\bllm_compressor\b")
SONIC = "adapter: lora\nlora_target_modules: [q_proj]\nuse_sonicmoe: true\nnvfp4_merge_aware: true\n"
TEACHER = f"{DISTILL}kd_online_server_base_url: http://host:8000\n"


@rule(
    "AX774",
    Severity.ERROR,
    Settings,
    evidence="axolotl 0.18 kernels/args.py:123",
    bad=f"{KERNELS}{SONIC}nvfp4_merge_aware_start_step: 1.0\n",
    good=f"{KERNELS}{SONIC}nvfp4_merge_aware_start_step: 1\n",
)
def merge_aware_start_out_of_range(settings: Settings) -> Iterator[Violation]:
    """nvfp4_merge_aware_start_step is neither a step nor a share of the run.

    A whole number from 0 on counts steps; a fraction strictly between 0 and 1 is a share of all steps.
    """
    start = settings.value("nvfp4_merge_aware_start_step")
    if start is None or start.value is None or not settings.on("nvfp4_merge_aware"):
        return
    number = start.value
    legal = 0 < number < 1 if isinstance(number, float) else number >= 0
    if not legal:
        written = f"nvfp4_merge_aware_start_step {number!r}"  # 1.0 and 1 are two things here
        message = f"{written} is neither a step (0, 1, 2 ...) nor a share of the run (between 0.0 and 1.0)"
        yield Violation(place(start), message, fix=Fix("write a whole number, or a fraction below 1"))


def _any_case(word: str) -> str:
    """A pattern for the word, in capitals or not."""
    return "".join(f"[{char}{char.upper()}]" if char.isalpha() else char for char in word)


def _words(
    code: str, key: str, name: str, words: tuple[str, ...], *, why: str, lines: str, wrong: str, beside: str = ""
) -> Rule[Settings]:
    """A key that takes one of a few words, in capitals or not."""
    listed = f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]
    return conditional(
        code,
        name,
        Severity.ERROR,
        Settings,
        summary=f"{key} is none of the words that axolotl takes there",
        why=why,
        when=is_set(key),
        then=matches(key, f"^({'|'.join(map(_any_case, words))})$"),
        message=f"{{{key}}}: it takes {listed}",
        fix=Fix(f"write {listed}, or remove it"),
        evidence=f"axolotl 0.18 kernels/args.py:{lines}",
        bad=f"{KERNELS}{beside}{key}: {wrong}\n",
        good=f"{KERNELS}{beside}{key}: {words[0]}\n",
    )


GROUPED_MODE = _words(
    "AX775",
    "dsv4_fp4_grouped_mode",
    "grouped-mode-unknown",
    ("nvfp4",),
    why="The grouped products of experts are trained in NVFP4 only; fp8 was documented once and never made.",
    lines="137",
    wrong="fp8",
)
NONEXPERT_MODE = _words(
    "AX776",
    "dsv4_fp8_nonexpert_mode",
    "nonexpert-mode-unknown",
    ("float8tensor", "bf16"),
    why="It says in which form the layers beside the experts are kept.",
    lines="155",
    wrong="fp8",
)
GROUPED_BACKEND = _words(
    "AX777",
    "moe_grouped_backend",
    "grouped-backend-unknown",
    ("auto", "marlin", "cutlass", "deepgemm"),
    why="These are the libraries that axolotl can train through; dequant, which exists for inference, has no backward pass.",
    lines="227",
    wrong="dequant",
    beside="dsv4_fp4_grouped_mode: nvfp4\n",
)
NONEXPERT_QUANTIZATION = _words(
    "AX779",
    "nonexpert_quantization",
    "nonexpert-quantization-unknown",
    ("none", "bf16", "fp8", "fp8_blockwise", "nf4", "nvfp4"),
    why="It says how the layers beside the experts are quantized.",
    lines="255",
    wrong="int8",
)

GROUPED_BACKEND_UNUSED = conditional(
    "AX778",
    "grouped-backend-unused",
    Severity.WARNING,
    Settings,
    summary="moe_grouped_backend without dsv4_fp4_grouped_mode",
    why="It chooses the library for grouped products, which are off.",
    when=on("moe_grouped_backend"),
    then=on("dsv4_fp4_grouped_mode"),
    message="{moe_grouped_backend} has no effect without dsv4_fp4_grouped_mode",
    fix=Fix("remove it, or set dsv4_fp4_grouped_mode: nvfp4"),
    evidence="axolotl 0.18 kernels/args.py:246",
    bad=f"{KERNELS}moe_grouped_backend: marlin\n",
    good=f"{KERNELS}moe_grouped_backend: marlin\ndsv4_fp4_grouped_mode: nvfp4\n",
)

CHUNK_SIZE = conditional(
    "AX780",
    "dequant-chunk-not-positive",
    Severity.ERROR,
    Settings,
    summary="moe_dequant_chunk_size is below 1",
    why="It counts the experts that are unpacked at a time.",
    when=is_set("moe_dequant_chunk_size"),
    then=above("moe_dequant_chunk_size", 0),
    message="{moe_dequant_chunk_size} must be at least 1",
    fix=Fix("remove it, which leaves the size to axolotl", edits=(RemoveKey(("moe_dequant_chunk_size",)),)),
    evidence="axolotl 0.18 kernels/args.py:163",
    bad=f"{KERNELS}moe_dequant_chunk_size: 0\n",
    good=f"{KERNELS}moe_dequant_chunk_size: 1\n",
)

EXPERTS_FALL_BACK = conditional(
    "AX781",
    "experts-implementation-falls-back",
    Severity.WARNING,
    Settings,
    summary="experts_implementation is replaced by eager",
    why="The kernels plug-in takes the slow implementation where it does not know the word, or where the kernel's own switch is off.",
    when=lists("plugins", r"\bkernels\b") & is_set("experts_implementation"),
    then=one_of(
        "experts_implementation",
        "eager",
        "batched_mm",
        "grouped_mm",
        "deep_ep",
        "deep_ep_grouped_mm",
        "deep_ep_scattermoe",
        "deep_ep_sonicmoe",
    )
    | (
        equals("experts_implementation", "scattermoe")
        & (on("use_scattermoe") | matches("expert_backend", f"^{_any_case('scattermoe')}$"))
    )
    | (
        equals("experts_implementation", "sonicmoe")
        & (on("use_sonicmoe") | matches("expert_backend", f"^{_any_case('sonicmoe')}$"))
    ),
    message="{experts_implementation} becomes eager: axolotl does not know it, or its switch is off",
    fix=Fix("set expert_backend instead, and leave experts_implementation out"),
    evidence="axolotl 0.18 kernels/args.py:329",
    bad=f"{KERNELS}experts_implementation: scattermoe\n",
    good=f"{KERNELS}experts_implementation: scattermoe\nuse_scattermoe: true\n",
)

MORA_QUANTIZED = conditional(
    "AX782",
    "mora-on-quantized-model",
    Severity.ERROR,
    Settings,
    summary="MoRA on a quantized base model",
    why="MoRA needs whole weights. axolotl finds out when it builds the adapter, with the model in memory.",
    when=equals("adapter", "mora"),
    then=~(on("load_in_4bit") | on("load_in_8bit") | on("gptq")),
    message="{adapter} needs a base model of whole weights: here {load_in_4bit}, {load_in_8bit}, {gptq}",
    fix=Fix("use adapter: qlora (4 bits) or lora (8 bits), or do not quantize"),
    evidence="axolotl 0.18 mora/plugin.py:59",
    bad=f"{MORA}load_in_4bit: true\n",
    good=f"{MORA}load_in_4bit: false\n",
    unchecked=True,
)

MORA_OFF = conditional(
    "AX783",
    "mora-switched-off",
    Severity.ERROR,
    Settings,
    summary="adapter: mora with mora.use_mora off",
    why="The adapter is built by MoRA or not at all; axolotl refuses when it builds it.",
    when=equals("adapter", "mora"),
    then=~equals("mora.use_mora", False),
    message="{mora.use_mora} contradicts {adapter}",
    fix=Fix("set mora.use_mora: true", edits=(SetValue(("mora", "use_mora"), "true"),)),
    evidence="axolotl 0.18 mora/plugin.py:57",
    bad=f"{MORA}mora: {{use_mora: false}}\n",
    good=f"{MORA}mora: {{use_mora: true}}\n",
    unchecked=True,
)


@rule(
    "AX767",
    Severity.ERROR,
    Settings,
    evidence="axolotl 0.18 llm_compressor/args.py (run: a written null passes)",
    bad=f"{COMPRESSOR}llmcompressor: {{save_compressed: true}}\n",
    good=f"{COMPRESSOR}llmcompressor: {{save_compressed: true, recipe: {{finetuning_stage: {{}}}}}}\n",
)
def compressor_recipe_missing(settings: Settings) -> Iterator[Violation]:
    """The section llmcompressor has no recipe.

    The recipe says what to compress and how; the plug-in has no default for it.
    """
    section = settings.value("llmcompressor")
    if section is None or not section.value or not COMPRESSOR_LISTED.holds(settings):
        return
    if settings.written("llmcompressor.recipe") is None:
        yield Violation(place(section), "llmcompressor needs a recipe", fix=Fix("add llmcompressor.recipe"))


@rule(
    "AX768",
    Severity.ERROR,
    Settings,
    evidence="axolotl 0.18 kd/collator_online_teacher.py:71, when the batches are first put together",
    bad=f"{TEACHER}kd_online_topk: 0\n",
    good=f"{TEACHER}kd_online_topk: 1\n",
    unchecked=True,
)
def teacher_topk_missing(settings: Settings) -> Iterator[Violation]:
    """A teacher is asked over the network, and not for how many words a token.

    kd_online_topk has no default; without a positive one the collator that asks the teacher cannot be made.
    """
    url, topk = settings.value("kd_online_server_base_url"), settings.value("kd_online_topk")
    if url is None or not url.value or not settings.on("kd_trainer"):
        return
    if topk is None or topk.value is None:
        yield Violation(place(url), f"{url} needs kd_online_topk", fix=Fix("add kd_online_topk"))
    elif topk.value <= 0:
        yield Violation(place(topk), f"{topk} must be at least 1", notes(url), Fix("set kd_online_topk: 1 or more"))


RULES: tuple[Rule[Settings], ...] = (
    merge_aware_start_out_of_range,
    GROUPED_MODE,
    NONEXPERT_MODE,
    GROUPED_BACKEND,
    GROUPED_BACKEND_UNUSED,
    NONEXPERT_QUANTIZATION,
    CHUNK_SIZE,
    EXPERTS_FALL_BACK,
    MORA_QUANTIZED,
    MORA_OFF,
    compressor_recipe_missing,
    teacher_topk_missing,
)
