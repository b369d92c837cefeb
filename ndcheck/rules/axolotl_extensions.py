"""axolotl's rules about its plug-ins, and about what Liger can do for which family of models."""

from __future__ import annotations

from collections.abc import Iterator

from ndcheck.findings import Fix, SetValue, Severity, Violation, place
from ndcheck.rules.conditions import equals, is_set, lists, matches, on, one_of
from ndcheck.rules.rule import Rule, conditional, rule
from ndcheck.run import Run
from ndcheck.settings import Settings

LIGER = "plugins: [axolotl.integrations.liger.LigerPlugin]\n"
KERNELS = "plugins: [axolotl.integrations.kernels.KernelsPlugin]\n"
SWANLAB = "plugins: [axolotl.integrations.swanlab.SwanLabPlugin]\n"
GYM = "plugins: [axolotl.integrations.nemo_gym.NemoGymPlugin]\n"
GYM_DATA = "nemo_gym_config_paths: [a.yaml]\nnemo_gym_datasets: [{path: a}]\n"
DIFFUSION = "plugins: [axolotl.integrations.diffusion.DiffusionPlugin]\n"
COMPRESSOR = "plugins: [axolotl.integrations.llm_compressor.LLMCompressorPlugin]\n"
LORA = "adapter: lora\nlora_target_modules: [q_proj]\n"

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


SWANLAB_PROJECT = conditional(
    "AX761",
    "swanlab-project-missing",
    Severity.ERROR,
    Settings,
    summary="SwanLab without a project",
    why="The plug-in is on unless told otherwise, and a run belongs to a project.",
    when=lists("plugins", r"\bswanlab\b") & ~equals("use_swanlab", False),
    then=on("swanlab_project"),
    message="SwanLab needs swanlab_project",
    fix=Fix("add swanlab_project, or use_swanlab: false"),
    evidence="axolotl 0.18 swanlab/args.py:94",
    bad=SWANLAB,
    good=f"{SWANLAB}swanlab_project: mine\n",
)

SWANLAB_PROJECT_BLANK = conditional(
    "AX784",
    "swanlab-project-blank",
    Severity.ERROR,
    Settings,
    summary="An empty name for SwanLab's project",
    why="axolotl refuses a name without letters even where SwanLab is off.",
    when=lists("plugins", r"\bswanlab\b") & is_set("swanlab_project"),
    then=matches("swanlab_project", r"\S"),
    message="{swanlab_project}: a project needs a name",
    fix=Fix("write a name, or remove the key and set use_swanlab: false"),
    evidence="axolotl 0.18 swanlab/args.py",
    bad=f'{SWANLAB}use_swanlab: false\nswanlab_project: " "\n',
    good=f"{SWANLAB}use_swanlab: false\nswanlab_project: mine\n",
)

SWANLAB_MODE = conditional(
    "AX762",
    "swanlab-mode-unknown",
    Severity.ERROR,
    Settings,
    summary="There is no such mode of SwanLab",
    why="It knows four.",
    when=on("swanlab_mode"),
    then=one_of("swanlab_mode", "cloud", "local", "offline", "disabled"),
    message="{swanlab_mode}: there are cloud, local, offline and disabled",
    fix=Fix("use one of them"),
    evidence="axolotl 0.18 swanlab/args.py:94",
    bad=f"{SWANLAB}swanlab_project: mine\nswanlab_mode: online\n",
    good=f"{SWANLAB}swanlab_project: mine\nswanlab_mode: cloud\n",
)

GYM_PATHS = conditional(
    "AX763",
    "gym-configs-missing",
    Severity.ERROR,
    Settings,
    summary="NeMo Gym that starts its servers without their configs",
    why="The plug-in starts the servers itself unless told otherwise, and needs to know which.",
    when=lists("plugins", r"\bnemo_gym\b") & ~equals("nemo_gym_enabled", False) & ~equals("nemo_gym_auto_start", False),
    then=on("nemo_gym_config_paths"),
    message="NeMo Gym needs nemo_gym_config_paths",
    fix=Fix("add nemo_gym_config_paths, or nemo_gym_auto_start: false"),
    evidence="axolotl 0.18 nemo_gym/args.py:130, which looks at what is written; the default is on (run)",
    bad=f"{GYM}nemo_gym_datasets: [{{path: a}}]\n",
    good=f"{GYM}{GYM_DATA}",
    unchecked=True,
)

GYM_DATASETS = conditional(
    "AX764",
    "gym-datasets-missing",
    Severity.ERROR,
    Settings,
    summary="NeMo Gym without data",
    why="Prompts come from its own data sets.",
    when=lists("plugins", r"\bnemo_gym\b") & ~equals("nemo_gym_enabled", False),
    then=on("nemo_gym_datasets"),
    message="NeMo Gym needs nemo_gym_datasets",
    fix=Fix("add nemo_gym_datasets"),
    evidence="axolotl 0.18 nemo_gym/args.py:130",
    bad=f"{GYM}nemo_gym_config_paths: [a.yaml]\n",
    good=f"{GYM}{GYM_DATA}",
    unchecked=True,
)

COMPRESSOR_SECTION = conditional(
    "AX765",
    "compressor-section-missing",
    Severity.ERROR,
    Settings,
    summary="LLM Compressor without its section",
    why="The plug-in needs a recipe.",
    when=lists("plugins", r"\bllm_compressor\b"),
    then=on("llmcompressor"),
    message="LLM Compressor needs a section llmcompressor with a recipe",
    fix=Fix("add the section"),
    evidence="axolotl 0.18 llm_compressor/args.py",
    bad=COMPRESSOR,
    good=f"{COMPRESSOR}llmcompressor: {{recipe: {{}}}}\n",
)


@rule(
    "AX766",
    Severity.ERROR,
    Settings,
    evidence="axolotl 0.18 diffusion/args.py:82",
    bad=f"{DIFFUSION}diffusion: {{min_mask_ratio: 0.6, max_mask_ratio: 0.5}}\n",
    good=f"{DIFFUSION}diffusion: {{min_mask_ratio: 0.5, max_mask_ratio: 0.5}}\n",
)
def mask_ratios_crossed(settings: Settings) -> Iterator[Violation]:
    """diffusion.min_mask_ratio is above max_mask_ratio.

    The share of masked tokens is drawn from between the two; their defaults are 0.1 and 0.9.
    """
    low, high = settings.value("diffusion.min_mask_ratio"), settings.value("diffusion.max_mask_ratio")
    least, most = (low.value if low else 0.1), (high.value if high else 0.9)
    if least > most:
        message = f"masks from {least} to {most}: the least is above the most"
        yield Violation(place(low, high), message, fix=Fix("swap them"))


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

RULES: tuple[Rule[Settings] | Rule[Run], ...] = (
    liger_rope_unsupported,
    liger_fused_loss_unsupported,
    liger_layer_norm_ignored,
    SWANLAB_PROJECT,
    SWANLAB_PROJECT_BLANK,
    SWANLAB_MODE,
    GYM_PATHS,
    GYM_DATASETS,
    COMPRESSOR_SECTION,
    mask_ratios_crossed,
    MERGE_AWARE_START,
    MERGE_AWARE_KERNEL,
    DSV4_ATTENTION_LORA,
)
