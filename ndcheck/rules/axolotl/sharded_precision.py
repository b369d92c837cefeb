"""axolotl's rules about low and high precision under FSDP: float8, float32 norms, MXFP4."""

from __future__ import annotations

from ndcheck.findings import Fix, Severity
from ndcheck.rules.axolotl.sharding import FSDP, FSDP1, ONE, SECTION, TWO, V1
from ndcheck.rules.conditions import equals, is_set, on, one_of
from ndcheck.rules.rule import Rule, conditional
from ndcheck.settings import Settings

QLORA = "adapter: qlora\nload_in_4bit: true\nlora_target_linear: true\n"

FP32_NORMS_WITHOUT_FSDP2 = conditional(
    "AX305",
    "fp32-norms-without-fsdp2",
    Severity.ERROR,
    Settings,
    summary="fp32_norms is on without FSDP2",
    why="Norm layers are kept in float32 by giving each its own FSDP2 precision policy; nothing else can do it.",
    when=on("fp32_norms"),
    then=is_set("fsdp_config") & equals("fsdp_version", 2),
    message="{fp32_norms} needs FSDP2: an fsdp_config and fsdp_version: 2",
    fix=Fix("set fsdp_version: 2 and an fsdp_config, or remove fp32_norms"),
    evidence="axolotl 0.18 schemas/config.py:1658",
    bad=f"fp32_norms: true\n{ONE}fsdp_config: {{offload_params: false}}\n",
    good=f"fp32_norms: true\n{TWO}fsdp_config: {{offload_params: false}}\n",
    given=V1,
)

FP32_NORM_CLASSES_UNUSED = conditional(
    "AX306",
    "fp32-norm-classes-unused",
    Severity.WARNING,
    Settings,
    summary="fp32_norm_classes is set while fp32_norms is off",
    why="The list says which layers fp32_norms is about; alone it does nothing.",
    when=on("fp32_norm_classes"),
    then=on("fp32_norms"),
    message="fp32_norm_classes has no effect: {fp32_norms}",
    fix=Fix("set fp32_norms: true, or remove fp32_norm_classes"),
    evidence="axolotl 0.18 schemas/config.py:1675",
    bad=f"fp32_norm_classes: [RMSNorm]\n{TWO}{SECTION}",
    good=f"fp32_norm_classes: [RMSNorm]\nfp32_norms: true\n{TWO}{SECTION}",
)

FP8_GATHER_WITHOUT_FSDP2 = conditional(
    "AX307",
    "fp8-gather-without-fsdp2",
    Severity.ERROR,
    Settings,
    summary="Gathering in float8 needs FSDP2",
    why="FSDP1 gathers one flat buffer and cannot cast it on the way; only FSDP2 has the hook that does.",
    when=on("fp8_enable_fsdp_float8_all_gather"),
    then=equals("fsdp_version", 2),
    message="{fp8_enable_fsdp_float8_all_gather} needs fsdp_version: 2, not {fsdp_version}",
    fix=Fix("set fsdp_version: 2, or remove fp8_enable_fsdp_float8_all_gather"),
    evidence="axolotl 0.18 validation.py:443",
    bad=f"fp8_enable_fsdp_float8_all_gather: true\n{ONE}fsdp_config: {{offload_params: false}}\n",
    good=f"fp8_enable_fsdp_float8_all_gather: true\n{TWO}fsdp_config: {{offload_params: false}}\n",
    given=V1,
)

FP8_GATHER_NESTED_VERSION = conditional(
    "AX308",
    "fp8-gather-nested-version",
    Severity.ERROR,
    Settings,
    summary="axolotl does not see the FSDP version that is nested in fsdp_config",
    why="axolotl 0.18 runs this check before it copies the version up, so a file that says version 2 only inside "
    "fsdp_config is refused as if it were FSDP1. The run itself would be fine.",
    when=on("fp8_enable_fsdp_float8_all_gather") & equals("fsdp_version", 2),
    then=equals("fsdp_version", 2, raw=True),
    message="axolotl 0.18 looks for the version of FSDP at top level only and overlooks {fsdp_version}",
    fix=Fix("write fsdp_version: 2 at top level"),
    evidence="axolotl 0.18 validation.py:443, run: refused with the nested version alone",
    bad="fp8_enable_fsdp_float8_all_gather: true\nfsdp_config: {fsdp_version: 2}\n",
    good="fp8_enable_fsdp_float8_all_gather: true\nfsdp_version: 2\nfsdp_config: {offload_params: false}\n",
    given={"also": ["renamed-key"]},
)

FP8_CHECKPOINTING_SLOW = conditional(
    "AX309",
    "fp8-checkpointing-slow",
    Severity.WARNING,
    Settings,
    summary="float8 together with FSDP's activation checkpointing",
    why="Recomputing the forward pass casts to float8 a second time, which can cost more than float8 saves: "
    "measure against bf16.",
    when=on("fp8"),
    then=~on("fsdp_config.activation_checkpointing"),
    message="{fp8} with {fsdp_config.activation_checkpointing} may be slower than bf16",
    fix=Fix("switch activation_checkpointing off if memory allows"),
    evidence="axolotl 0.18 validation.py:433",
    bad=f"fp8: true\ntorch_compile: true\n{TWO}fsdp_config: {{activation_checkpointing: true}}\n",
    good=f"fp8: true\ntorch_compile: true\n{TWO}fsdp_config: {{activation_checkpointing: false}}\n",
)

FP8_RAM_EFFICIENT_LOADING = conditional(
    "AX310",
    "fp8-ram-efficient-loading",
    Severity.ERROR,
    Settings,
    summary="float8 under FSDP cannot load weights on rank 0 only",
    why="torchao swaps the linear layers before FSDP broadcasts them; accelerate refuses the pair when it starts. "
    "axolotl's validator lets it pass, and its page on mixed precision shows it.",
    when=on("fp8"),
    then=~on("fsdp_config.cpu_ram_efficient_loading"),
    message="{fp8} cannot start with {fsdp_config.cpu_ram_efficient_loading}",
    fix=Fix("set cpu_ram_efficient_loading: false"),
    evidence="accelerate 1.13 accelerator.py:517",
    bad=f"fp8: true\ntorch_compile: true\n{TWO}fsdp_config: {{cpu_ram_efficient_loading: true}}\n",
    good=f"fp8: true\ntorch_compile: true\n{TWO}fsdp_config: {{cpu_ram_efficient_loading: false}}\n",
    unchecked=True,
)

FP8_UNCOMPILED = conditional(
    "AX311",
    "fp8-uncompiled",
    Severity.WARNING,
    Settings,
    summary="float8 without torch.compile",
    why="The casts around each matrix product are only fused by the compiler; uncompiled they eat the gain.",
    when=on("fp8"),
    then=on("torch_compile"),
    message="{fp8} gains little without torch_compile",
    fix=Fix("set torch_compile: true, under FSDP2"),
    evidence="axolotl 0.18 validation.py:427",
    bad=f"fp8: true\n{TWO}{SECTION}",
    good=f"fp8: true\ntorch_compile: true\n{TWO}{SECTION}",
)

FP8_COMPILED_WITHOUT_FSDP = conditional(
    "AX312",
    "fp8-compiled-without-fsdp",
    Severity.WARNING,
    Settings,
    summary="float8 compiled without FSDP",
    why="axolotl's support matrix lists float8 and torch.compile on replicated models as broken; under FSDP2 they work.",
    when=on("fp8") & on("torch_compile"),
    then=FSDP,
    message="{fp8} with {torch_compile} is known to break without FSDP",
    fix=Fix("set fsdp_version: 2 and an fsdp_config, or train in bf16"),
    evidence="axolotl 0.18 docs/support-matrix.qmd",
    bad="fp8: true\ntorch_compile: true\n",
    good=f"fp8: true\ntorch_compile: true\n{TWO}{SECTION}",
    unchecked=True,
)

MXFP4_RAM_EFFICIENT_LOADING = conditional(
    "AX313",
    "mxfp4-ram-efficient-loading",
    Severity.ERROR,
    Settings,
    summary="MXFP4 weights cannot be loaded on rank 0 only",
    why="The blocks and scales of an MXFP4 checkpoint are no plain tensors that rank 0 could broadcast.",
    when=equals("model_quantization_config", "Mxfp4Config"),
    then=~on("fsdp_config.cpu_ram_efficient_loading"),
    message="{model_quantization_config} does not work with {fsdp_config.cpu_ram_efficient_loading}",
    fix=Fix("set cpu_ram_efficient_loading: false"),
    evidence="axolotl 0.18 validation.py:1543",
    bad=f"model_quantization_config: Mxfp4Config\n{TWO}fsdp_config: {{cpu_ram_efficient_loading: true}}\n",
    good=f"model_quantization_config: Mxfp4Config\n{TWO}fsdp_config: {{cpu_ram_efficient_loading: false}}\n",
)

EIGHT_BIT_FLATTENED = conditional(
    "AX335",
    "eight-bit-flattened",
    Severity.ERROR,
    Settings,
    summary="FSDP1 cannot flatten 8-bit weights",
    why="FSDP1 joins parameters into one floating-point buffer; 8-bit base weights are integers, and wrapping fails.",
    when=FSDP1,
    then=~on("load_in_8bit"),
    message="{load_in_8bit} stores integers, which FSDP1 cannot flatten",
    fix=Fix("set fsdp_version: 2, or train with qlora and load_in_4bit"),
    evidence="axolotl #2250 and #1589",
    bad=f"adapter: lora\nlora_target_linear: true\nload_in_8bit: true\n{ONE}fsdp_config: {{offload_params: false}}\n",
    good=f"adapter: lora\nlora_target_linear: true\nload_in_8bit: true\n{TWO}fsdp_config: {{offload_params: false}}\n",
    given=V1,
    unchecked=True,
)

FOUR_BIT_FLATTENED = conditional(
    "AX336",
    "four-bit-flattened",
    Severity.ERROR,
    Settings,
    summary="FSDP1 flattens 4-bit weights and adapters of different types",
    why="axolotl stores 4-bit weights as bfloat16 so that FSDP can cut them. FSDP1 wants one type in a buffer, so the "
    "adapter has to be bfloat16 too; without bf16 it is float32, and wrapping fails.",
    when=FSDP1 & equals("adapter", "qlora") & on("load_in_4bit"),
    then=on("bf16") | on("bfloat16") | one_of("bnb_config_kwargs.bnb_4bit_quant_storage", "float16", "float32"),
    message="{bf16}: 4-bit weights are stored as bfloat16, and FSDP1 flattens one type only",
    fix=Fix("set bf16: true, or fsdp_version: 2"),
    evidence="axolotl #1482",
    bad=f"{QLORA}bf16: false\n{ONE}fsdp_config: {{offload_params: false}}\n",
    good=f"{QLORA}bf16: false\n{TWO}fsdp_config: {{offload_params: false}}\n",
    given=V1,
    unchecked=True,
)

RULES: tuple[Rule[Settings], ...] = (
    FP32_NORMS_WITHOUT_FSDP2,
    FP32_NORM_CLASSES_UNUSED,
    FP8_GATHER_WITHOUT_FSDP2,
    FP8_GATHER_NESTED_VERSION,
    FP8_CHECKPOINTING_SLOW,
    FP8_RAM_EFFICIENT_LOADING,
    FP8_UNCOMPILED,
    FP8_COMPILED_WITHOUT_FSDP,
    MXFP4_RAM_EFFICIENT_LOADING,
    EIGHT_BIT_FLATTENED,
    FOUR_BIT_FLATTENED,
)
