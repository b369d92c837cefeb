"""axolotl's rules about LoRA kernels: what they exclude, and where they have nothing to patch."""

from __future__ import annotations

from collections.abc import Iterator

from ndcheck.findings import Fix, Severity, Violation, notes, place
from ndcheck.rules.conditions import equals, on
from ndcheck.rules.rule import Rule, conditional, rule
from ndcheck.settings import Settings

LORA = "adapter: lora\nlora_r: 8\nlora_alpha: 16\nlora_target_linear: true\n"
KERNELS = ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel")
ANY_KERNEL = on(KERNELS[0], raw=True) | on(KERNELS[1], raw=True) | on(KERNELS[2], raw=True)
PATCHES_LAYERS = on("lora_mlp_kernel") | on("lora_qkv_kernel") | on("lora_o_kernel")

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

KERNELS_WITHOUT_ADAPTER = conditional(
    "AX714",
    "lora-kernels-without-adapter",
    Severity.ERROR,
    Settings,
    summary="LoRA kernels without an adapter",
    why="The kernels are put into the adapter's layers. Without one axolotl stops once the model is loaded.",
    when=PATCHES_LAYERS,
    then=on("adapter"),
    message="{lora_mlp_kernel}, {lora_qkv_kernel}, {lora_o_kernel}: there is no adapter to put the kernels into",
    fix=Fix("set an adapter, or switch the LoRA kernels off"),
    evidence="axolotl 0.18 monkeypatch/lora_kernels.py:458: TypeError (read)",
    bad="lora_qkv_kernel: true\n",
    good=f"{LORA}lora_qkv_kernel: true\n",
    unchecked=True,
)

EMBEDDING_KERNEL_ALONE = conditional(
    "AX715",
    "embedding-kernel-alone",
    Severity.WARNING,
    Settings,
    summary="lora_embedding_kernel without another LoRA kernel",
    why="axolotl starts patching only when one of the other three is on, and by writing this one you keep it from switching them on.",
    when=on("lora_embedding_kernel"),
    then=PATCHES_LAYERS,
    message="{lora_embedding_kernel} has no effect without lora_mlp_kernel, lora_qkv_kernel or lora_o_kernel",
    fix=Fix("remove it, or switch the other kernels on as well"),
    evidence="axolotl 0.18 loaders/patch_manager.py:1006 (read)",
    bad=f"{LORA}lora_embedding_kernel: true\n",
    good=f"{LORA}lora_embedding_kernel: true\nlora_qkv_kernel: true\n",
    unchecked=True,
)

RULES: tuple[Rule[Settings], ...] = (
    LORA_KERNELS_8BIT,
    LORA_KERNELS_REMOTE_CODE,
    lora_kernels_fsdp1,
    LORA_KERNELS_RL,
    KERNELS_WITHOUT_ADAPTER,
    EMBEDDING_KERNEL_ALONE,
)
