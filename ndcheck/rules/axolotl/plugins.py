"""axolotl's rules about what its plug-ins need: SwanLab, NeMo Gym, LLM Compressor, MoRA, distillation, diffusion."""

from __future__ import annotations

from collections.abc import Iterator

from ndcheck.findings import Fix, SetValue, Severity, Violation, notes, place
from ndcheck.rules.conditions import equals, is_set, lists, matches, on, one_of
from ndcheck.rules.rule import Rule, conditional, rule
from ndcheck.settings import Settings

MORA = "plugins: [axolotl.integrations.mora.MoraPlugin]\nadapter: mora\n"
COMPRESSOR = "plugins: [axolotl.integrations.llm_compressor.LLMCompressorPlugin]\n"
DISTILL = "plugins: [axolotl.integrations.kd.KDPlugin]\nkd_trainer: true\n"
COMPRESSOR_LISTED = lists("plugins", r"\bllm_compressor\b")
TEACHER = f"{DISTILL}kd_online_server_base_url: http://host:8000\n"
SWANLAB = "plugins: [axolotl.integrations.swanlab.SwanLabPlugin]\n"
GYM = "plugins: [axolotl.integrations.nemo_gym.NemoGymPlugin]\n"
GYM_DATA = "nemo_gym_config_paths: [a.yaml]\nnemo_gym_datasets: [{path: a}]\n"
DIFFUSION = "plugins: [axolotl.integrations.diffusion.DiffusionPlugin]\n"

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


RULES: tuple[Rule[Settings], ...] = (
    MORA_QUANTIZED,
    MORA_OFF,
    compressor_recipe_missing,
    teacher_topk_missing,
    SWANLAB_PROJECT,
    SWANLAB_PROJECT_BLANK,
    SWANLAB_MODE,
    GYM_PATHS,
    GYM_DATASETS,
    COMPRESSOR_SECTION,
    mask_ratios_crossed,
)
