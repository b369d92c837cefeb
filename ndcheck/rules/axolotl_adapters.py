"""axolotl's rules about adapters and LoRA kernels."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ndcheck.findings import Fix, SetValue, Severity, Violation, notes, place
from ndcheck.rules.conditions import equals, is_set, on, one_of
from ndcheck.rules.rule import Rule, conditional, rule
from ndcheck.settings import Settings

LORA = "adapter: lora\nlora_r: 8\nlora_alpha: 16\nlora_target_linear: true\n"
QLORA = "adapter: qlora\nload_in_4bit: true\nlora_r: 8\nlora_alpha: 16\nlora_target_linear: true\n"
KERNELS = ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel")
ANY_KERNEL = on(KERNELS[0], raw=True) | on(KERNELS[1], raw=True) | on(KERNELS[2], raw=True)
QUANTIZED = on("load_in_4bit") | on("load_in_8bit")
KNOWN_ADAPTERS = ("lora", "qlora", "llama-adapter", "mora")

QUANTIZED_WITHOUT_ADAPTER = conditional(
    "AX701",
    "quantized-without-adapter",
    Severity.ERROR,
    Settings,
    summary="A quantized base model is to be trained without an adapter",
    why="Weights of 4 or 8 bits hold no gradient step; only an adapter beside them can learn.",
    when=QUANTIZED,
    then=is_set("adapter"),
    message="{load_in_4bit}, {load_in_8bit}: a quantized base model is trained through an adapter only",
    fix=Fix("set adapter: qlora (4 bits) or lora (8 bits), or do not quantize"),
    evidence="axolotl 0.18 peft.py:177",
    bad="load_in_8bit: true\n",
    good=f"{LORA}load_in_8bit: true\n",
)

ADAPTER_UNKNOWN = conditional(
    "AX702",
    "adapter-unknown",
    Severity.ERROR,
    Settings,
    summary="There is no such adapter",
    why="axolotl knows lora, qlora and llama-adapter; others come with a plug-in.",
    when=on("adapter") & ~on("plugins"),
    then=one_of("adapter", *KNOWN_ADAPTERS),
    message="{adapter}: axolotl knows lora, qlora and llama-adapter, and no plug-in is listed",
    fix=Fix("set adapter: lora or qlora"),
    evidence="axolotl 0.18 peft.py:189",
    bad="adapter: loras\n",
    good=LORA,
)

QLORA_NEEDS_4BIT = conditional(
    "AX703",
    "qlora-without-4bit",
    Severity.ERROR,
    Settings,
    summary="QLoRA without a base model of 4 bits",
    why="QLoRA is LoRA on a base model of 4 bits; axolotl refuses the name without it.",
    when=equals("adapter", "qlora") & ~on("merge_lora"),
    then=on("load_in_4bit"),
    message="{adapter} needs load_in_4bit: true",
    fix=Fix("set load_in_4bit: true, or adapter: lora", edits=(SetValue(("load_in_4bit",), "true"),)),
    evidence="axolotl 0.18 peft.py:201",
    bad="adapter: qlora\nlora_target_linear: true\n",
    good=QLORA,
)

QLORA_WITH_OTHER_BITS = conditional(
    "AX704",
    "qlora-with-other-quantization",
    Severity.ERROR,
    Settings,
    summary="QLoRA with 8 bits or GPTQ",
    why="The base model is quantized in one way: for QLoRA, in bitsandbytes' 4 bits.",
    when=equals("adapter", "qlora"),
    then=~(on("load_in_8bit") | on("gptq")),
    message="{adapter} cannot be combined with {load_in_8bit}, {gptq}",
    fix=Fix("remove load_in_8bit and gptq"),
    evidence="axolotl 0.18 peft.py:201",
    bad=f"{QLORA}load_in_8bit: true\n",
    good=QLORA,
)

QLORA_MERGE_QUANTIZED = conditional(
    "AX705",
    "qlora-merged-quantized",
    Severity.ERROR,
    Settings,
    summary="A QLoRA adapter is merged into a quantized base model",
    why="Merging adds the adapter to whole weights.",
    when=equals("adapter", "qlora") & on("merge_lora"),
    then=~on("load_in_4bit"),
    message="{merge_lora} needs whole weights, not {load_in_4bit}",
    fix=Fix("set load_in_4bit: false to merge"),
    evidence="axolotl 0.18 peft.py:201",
    bad=f"{QLORA}merge_lora: true\n",
    good="adapter: qlora\nlora_target_linear: true\nmerge_lora: true\n",
)

LORA_4BIT_NAME = conditional(
    "AX706",
    "lora-with-4bit",
    Severity.WARNING,
    Settings,
    summary="adapter: lora with load_in_4bit is not quantized",
    why="axolotl quantizes to 4 bits for qlora only; under the name lora the model is loaded whole.",
    when=equals("adapter", "lora"),
    then=~on("load_in_4bit"),
    message="{load_in_4bit} has no effect with {adapter}",
    fix=Fix("set adapter: qlora, or remove load_in_4bit"),
    evidence="axolotl 0.18 loaders/model.py:712",
    bad=f"{LORA}load_in_4bit: true\n",
    good=LORA,
    unchecked=True,
)

LORA_KERNELS_8BIT = conditional(
    "AX711",
    "lora-kernels-8bit",
    Severity.ERROR,
    Settings,
    summary="LoRA kernels on a base model of 8 bits",
    why="The fused kernels read weights of 4 bits or whole ones.",
    when=equals("adapter", "lora", raw=True) & on("load_in_8bit", raw=True),
    then=~ANY_KERNEL,
    message="{lora_mlp_kernel}, {lora_qkv_kernel}, {lora_o_kernel} do not work with {load_in_8bit}",
    fix=Fix("switch the LoRA kernels off, or use qlora"),
    evidence="axolotl 0.18 validation.py:646",
    bad=f"{LORA}load_in_8bit: true\nlora_o_kernel: true\n",
    good=f"{LORA}load_in_8bit: true\nlora_o_kernel: false\n",
)

LORA_KERNELS_REMOTE_CODE = conditional(
    "AX712",
    "lora-kernels-remote-code",
    Severity.ERROR,
    Settings,
    summary="LoRA kernels on a model with code of its own",
    why="The kernels replace modules that they know; a model that brings its own code has others.",
    when=ANY_KERNEL,
    then=~on("trust_remote_code", raw=True),
    message="{lora_mlp_kernel}, {lora_qkv_kernel}, {lora_o_kernel} do not work with {trust_remote_code}",
    fix=Fix("switch the LoRA kernels off"),
    evidence="axolotl 0.18 validation.py:667",
    bad=f"{LORA}lora_mlp_kernel: true\ntrust_remote_code: true\n",
    good=f"{LORA}lora_mlp_kernel: true\ntrust_remote_code: false\n",
    given={"also": ["remote-code-trusted"]},
)


@rule(
    "AX713",
    Severity.ERROR,
    Settings,
    evidence="axolotl 0.18 config.py:1854: it looks at fsdp_version at top level, before a nested one is moved up",
    bad=f"{LORA}lora_qkv_kernel: true\nfsdp_version: 1\nfsdp_config: {{offload_params: false}}\n",
    good=f"{LORA}lora_qkv_kernel: true\nfsdp_version: 2\nfsdp_config: {{offload_params: false}}\n",
    given={"also": ["fsdp1-deprecated"]},
)
def lora_kernels_fsdp1(settings: Settings) -> Iterator[Violation]:
    """LoRA kernels with FSDP1.

    The kernels need each weight apart; FSDP1 flattens them. axolotl 0.18 also takes a version that
    is written inside fsdp_config only for version 1, and an empty section too, and refuses it on several GPUs.
    """
    kernels = [value for key in (*KERNELS, "lora_embedding_kernel") if (value := settings.written(key)) and value.value]
    version, section = settings.written("fsdp_version"), settings.written("fsdp_config")
    if not kernels or section is None or section.value is None or (version is not None and version.value == 2):
        return
    nested = settings.get("fsdp_version") == 2
    why = (
        "fsdp_version stands inside fsdp_config, where axolotl 0.18 does not look for it"
        if nested
        else "FSDP runs as version 1"
    )
    fix = Fix("write fsdp_version: 2 at top level")
    yield Violation(place(*kernels), f"{kernels[0]} needs FSDP2, and {why}", notes(version, *kernels[1:]), fix)


TARGET_PARAMETERS_DROPOUT = conditional(
    "AX726",
    "target-parameters-dropout",
    Severity.ERROR,
    Settings,
    summary="lora_target_parameters with dropout",
    why="PEFT cannot drop out what is added to a parameter directly.",
    when=on("lora_target_parameters"),
    then=~on("lora_dropout"),
    message="{lora_target_parameters} needs lora_dropout 0, not {lora_dropout}",
    fix=Fix("set lora_dropout: 0", edits=(SetValue(("lora_dropout",), "0"),)),
    evidence="axolotl 0.18 peft.py:240",
    bad=f"{LORA}lora_target_parameters: [mlp.experts.gate_up_proj]\nlora_dropout: 0.1\n",
    good=f"{LORA}lora_target_parameters: [mlp.experts.gate_up_proj]\nlora_dropout: 0\n",
)

LAYERS_AND_UNFROZEN = conditional(
    "AX727",
    "layers-chosen-twice",
    Severity.ERROR,
    Settings,
    summary="peft_layers_to_transform and unfrozen_parameters",
    why="Both choose what is trained; with an adapter axolotl refuses the pair.",
    when=on("adapter") & on("peft_layers_to_transform"),
    then=~on("unfrozen_parameters"),
    message="{peft_layers_to_transform} and {unfrozen_parameters} both choose what is trained",
    fix=Fix("keep one of them"),
    evidence="axolotl 0.18 validation.py:592",
    bad=f"{LORA}peft_layers_to_transform: [0]\nunfrozen_parameters: [lm_head]\n",
    good=f"{LORA}peft_layers_to_transform: [0]\n",
)

LAYER_PATTERN_ALONE = conditional(
    "AX728",
    "layer-pattern-alone",
    Severity.ERROR,
    Settings,
    summary="peft_layers_pattern without peft_layers_to_transform",
    why="The pattern says where layer numbers stand in a name; without numbers it says nothing.",
    when=on("peft_layers_pattern"),
    then=on("peft_layers_to_transform"),
    message="{peft_layers_pattern} needs peft_layers_to_transform",
    fix=Fix("add peft_layers_to_transform, or remove the pattern"),
    evidence="axolotl 0.18 validation.py:605",
    bad=f"{LORA}peft_layers_pattern: [layers]\n",
    good=f"{LORA}peft_layers_pattern: [layers]\npeft_layers_to_transform: [0]\n",
)

FUSED_MLP_ADAPTER = conditional(
    "AX729",
    "fused-mlp-adapter",
    Severity.ERROR,
    Settings,
    summary="flash_attn_fuse_mlp with LoRA",
    why="The fused MLP replaces the layers that LoRA attaches to.",
    when=on("flash_attn_fuse_mlp") & ~on("relora"),
    then=~one_of("adapter", "lora", "qlora"),
    message="{flash_attn_fuse_mlp} cannot be combined with {adapter}",
    fix=Fix("remove flash_attn_fuse_mlp"),
    evidence="axolotl 0.18 validation.py:614",
    bad=f"{LORA}flash_attn_fuse_mlp: true\n",
    good="flash_attn_fuse_mlp: true\n",
)

LEARNING_RATES_TWICE = conditional(
    "AX730",
    "learning-rates-twice",
    Severity.ERROR,
    Settings,
    summary="lr_groups and loraplus_lr_ratio",
    why="Both give groups of parameters a learning rate of their own.",
    when=on("lr_groups"),
    then=~on("loraplus_lr_ratio"),
    message="lr_groups and {loraplus_lr_ratio} exclude each other",
    fix=Fix("keep one of them"),
    evidence="axolotl 0.18 validation.py:585",
    bad=f"{LORA}lr_groups: [{{name: a, modules: [q_proj], lr: 0.1}}]\nloraplus_lr_ratio: 16\n",
    good=f"{LORA}loraplus_lr_ratio: 16\n",
)


LORA_KERNELS_RL = conditional(
    "AX732",
    "lora-kernels-with-rl",
    Severity.WARNING,
    Settings,
    summary="LoRA kernels with a preference method",
    why="They are documented for supervised fine-tuning only; axolotl does not switch them on by itself there, and does not refuse them.",
    when=on("rl"),
    then=~ANY_KERNEL,
    message="{lora_mlp_kernel}, {lora_qkv_kernel}, {lora_o_kernel} are for supervised fine-tuning, not {rl}",
    fix=Fix("switch the LoRA kernels off"),
    evidence="axolotl's guide to LoRA kernels; accepted (run)",
    bad=f"rl: dpo\n{LORA}lora_o_kernel: true\n",
    good=f"rl: dpo\n{LORA}lora_o_kernel: false\n",
    unchecked=True,
)


@rule(
    "AX733",
    Severity.ERROR,
    Settings,
    evidence="axolotl 0.18 config.py:1732",
    bad="adapter: lora\nlora_target_modules: ['layers.(.*']\n",
    good="adapter: lora\nlora_target_modules: ['layers.(.*)']\n",
)
def target_module_pattern(settings: Settings) -> Iterator[Violation]:
    """An entry of lora_target_modules is no regular expression.

    Entries are names or patterns; axolotl compiles each, and refuses the list for one that it cannot.
    """
    modules = settings.get("lora_target_modules")
    for at, entry in enumerate(modules if isinstance(modules, list) else ()):
        try:
            re.compile(entry)
        except re.error as error:
            path = ("lora_target_modules", at)
            yield Violation(path, f"{entry} is no regular expression: {error}", fix=Fix("mend the pattern"))


RULES: tuple[Rule[Settings], ...] = (
    QUANTIZED_WITHOUT_ADAPTER,
    ADAPTER_UNKNOWN,
    QLORA_NEEDS_4BIT,
    QLORA_WITH_OTHER_BITS,
    QLORA_MERGE_QUANTIZED,
    LORA_4BIT_NAME,
    LORA_KERNELS_8BIT,
    LORA_KERNELS_REMOTE_CODE,
    lora_kernels_fsdp1,
    TARGET_PARAMETERS_DROPOUT,
    LAYERS_AND_UNFROZEN,
    LAYER_PATTERN_ALONE,
    FUSED_MLP_ADAPTER,
    LEARNING_RATES_TWICE,
    LORA_KERNELS_RL,
    target_module_pattern,
)
