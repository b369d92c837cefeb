"""axolotl's rules about its kernels plug-in: quantized experts, merge-aware training, DSV4."""

from __future__ import annotations

from collections.abc import Iterator

from ndcheck.findings import Fix, RemoveKey, Severity, Violation, place
from ndcheck.rules.conditions import above, equals, is_set, lists, matches, on, one_of
from ndcheck.rules.rule import Rule, conditional, rule
from ndcheck.settings import Settings

KERNELS = "plugins: [axolotl.integrations.kernels.KernelsPlugin]\n"
LORA = "adapter: lora\nlora_target_modules: [q_proj]\n"
SONIC = "adapter: lora\nlora_target_modules: [q_proj]\nuse_sonicmoe: true\nnvfp4_merge_aware: true\n"


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


MERGE_AWARE_START = conditional(
    "AX771",
    "merge-aware-start-alone",
    Severity.ERROR,
    Settings,
    summary="nvfp4_merge_aware_start_step without nvfp4_merge_aware",
    why="It says when the other begins.",
    when=is_set("nvfp4_merge_aware_start_step"),
    then=on("nvfp4_merge_aware"),
    message="{nvfp4_merge_aware_start_step} needs nvfp4_merge_aware: true",
    fix=Fix("set nvfp4_merge_aware: true, or remove it"),
    evidence="axolotl 0.18 kernels/args.py:90",
    bad=f"{KERNELS}nvfp4_merge_aware_start_step: 10\n",
    good=f"{KERNELS}{LORA}use_sonicmoe: true\nnvfp4_merge_aware: true\nnvfp4_merge_aware_start_step: 10\n",
)

MERGE_AWARE_KERNEL = conditional(
    "AX772",
    "merge-aware-unsupported",
    Severity.ERROR,
    Settings,
    summary="nvfp4_merge_aware without LoRA and SonicMoE, or with LoRA kernels",
    why="Training that rounds as the merged weights will be is built into one expert kernel, for one kind of adapter.",
    when=on("nvfp4_merge_aware"),
    then=equals("adapter", "lora")
    & (on("use_sonicmoe") | equals("expert_backend", "sonicmoe"))
    & ~(on("lora_mlp_kernel") | on("lora_qkv_kernel") | on("lora_o_kernel")),
    message="{nvfp4_merge_aware} needs adapter lora, sonicmoe, and no LoRA kernels: here {adapter}, {use_sonicmoe}",
    fix=Fix("set adapter: lora and use_sonicmoe: true, and switch the LoRA kernels off"),
    evidence="axolotl 0.18 kernels/args.py:90",
    bad=f"{KERNELS}{LORA}nvfp4_merge_aware: true\n",
    good=f"{KERNELS}{LORA}use_sonicmoe: true\nnvfp4_merge_aware: true\n",
)

DSV4_ATTENTION_LORA = conditional(
    "AX773",
    "dsv4-attention-lora",
    Severity.ERROR,
    Settings,
    summary="DSV4 kernels with LoRA outside the experts",
    why="The kernels carry adapters of experts only. The exclusion that axolotl's message offers is dropped by its own schema.",
    when=on("use_dsv4_kernels"),
    then=~(on("lora_target_modules") | on("lora_target_linear")),
    message="{use_dsv4_kernels} takes adapters on experts only, not {lora_target_modules}, {lora_target_linear}",
    fix=Fix("use lora_target_parameters for the experts"),
    evidence="axolotl 0.18 kernels/args.py:298; with lora_exclude_modules, which its schema does not know, it only warns",
    bad=f"{KERNELS}use_dsv4_kernels: true\nadapter: lora\nlora_target_modules: [q_proj]\n",
    good=f"{KERNELS}use_dsv4_kernels: true\nadapter: lora\nlora_target_parameters: [experts.w1]\n",
    unchecked=True,
)


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

RULES: tuple[Rule[Settings], ...] = (
    MERGE_AWARE_START,
    MERGE_AWARE_KERNEL,
    DSV4_ATTENTION_LORA,
    merge_aware_start_out_of_range,
    GROUPED_MODE,
    NONEXPERT_MODE,
    GROUPED_BACKEND,
    NONEXPERT_QUANTIZATION,
    GROUPED_BACKEND_UNUSED,
    CHUNK_SIZE,
    EXPERTS_FALL_BACK,
)
