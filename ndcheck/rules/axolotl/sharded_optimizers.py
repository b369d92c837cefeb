"""axolotl's rules about optimizers against FSDP and DeepSpeed; parameters as DTensors are optimizer.py's."""

from __future__ import annotations

from ndcheck.findings import Fix, Severity
from ndcheck.rules.axolotl.sharding import FSDP, FSDP2, ONE, TWO, V1, VERSION_2
from ndcheck.rules.conditions import equals, matches, on, one_of
from ndcheck.rules.rule import Rule, conditional
from ndcheck.settings import Settings

WHOLE_MATRIX = matches("optimizer", "^(muon$|flash_|q_galore_adamw8bit$)")
"""Optimizers whose update needs whole matrices, or kernels of their own."""
TORCHAO = one_of("optimizer", "adamw_torch_8bit", "adamw_torch_4bit", "ao_adamw_8bit", "ao_adamw_4bit", "ao_adamw_fp8")
Q_GALORE = equals("optimizer", "q_galore_adamw8bit")

OPTIMIZER_UNDER_DEEPSPEED = conditional(
    "AX341",
    "optimizer-under-deepspeed",
    Severity.ERROR,
    Settings,
    summary="muon, flash_* and q_galore_adamw8bit do not run under DeepSpeed",
    why="ZeRO hands an optimizer flattened slices, while muon and q_galore work on whole matrices and the flash "
    "optimizers bring kernels that know nothing of ZeRO.",
    when=WHOLE_MATRIX,
    then=~on("deepspeed"),
    message="{optimizer} does not run under DeepSpeed",
    fix=Fix("use FSDP2, or another optimizer"),
    evidence="axolotl 0.18 validation.py:889, 905 and 947",
    bad="optimizer: flash_adamw\ndeepspeed: zero1.json\n",
    good="optimizer: adamw_torch_fused\ndeepspeed: zero1.json\n",
)

OPTIMIZER_UNDER_FSDP1 = conditional(
    "AX342",
    "optimizer-under-fsdp1",
    Severity.ERROR,
    Settings,
    summary="muon, flash_* and q_galore_adamw8bit do not run under FSDP1",
    why="FSDP1 flattens parameters, so the optimizer never sees a matrix; FSDP2 keeps each parameter's shape.",
    when=WHOLE_MATRIX & FSDP,
    then=equals("fsdp_version", 2),
    message="{optimizer} needs fsdp_version: 2, not {fsdp_version}",
    fix=Fix("set fsdp_version: 2, or use another optimizer"),
    evidence="axolotl 0.18 validation.py:889, 905 and 947",
    bad=f"optimizer: muon\n{ONE}fsdp_config: {{offload_params: false}}\n",
    good=f"optimizer: muon\n{TWO}fsdp_config: {{offload_params: false}}\n",
    given=V1,
)

Q_GALORE_ADAPTER = conditional(
    "AX343",
    "q-galore-adapter",
    Severity.ERROR,
    Settings,
    summary="q_galore_adamw8bit trains whole weights, not adapters",
    why="It projects the gradients of full weight matrices; an adapter's are low-rank already.",
    when=Q_GALORE,
    then=~on("adapter"),
    message="{optimizer} does not take {adapter}",
    fix=Fix("remove adapter, or use another optimizer"),
    evidence="axolotl 0.18 validation.py:905",
    bad="optimizer: q_galore_adamw8bit\nadapter: lora\nlora_target_linear: true\n",
    good="optimizer: q_galore_adamw8bit\n",
)

Q_GALORE_ORIGINAL_PARAMETERS = conditional(
    "AX344",
    "q-galore-original-parameters",
    Severity.ERROR,
    Settings,
    summary="axolotl demands use_orig_params for q_galore_adamw8bit",
    why="axolotl 0.18 wants the key written under FSDP2 too, where it means nothing because parameters are never "
    "flattened. Without it the file is refused.",
    when=Q_GALORE & FSDP2,
    then=on("fsdp_config.use_orig_params"),
    message="axolotl 0.18 refuses {optimizer} under FSDP without use_orig_params: true",
    fix=Fix("set fsdp_config.use_orig_params: true; FSDP2 ignores it"),
    evidence="axolotl 0.18 validation.py:905, run",
    bad=f"optimizer: q_galore_adamw8bit\n{TWO}fsdp_config: {{use_orig_params: false}}\n",
    good=f"optimizer: q_galore_adamw8bit\n{TWO}fsdp_config: {{use_orig_params: true}}\n",
)

Q_GALORE_FULL_PRECISION = conditional(
    "AX345",
    "q-galore-full-precision",
    Severity.WARNING,
    Settings,
    summary="q_galore_adamw8bit runs in float32",
    why="Its 8-bit states and 4-bit projections save little beside float32 weights and activations.",
    when=Q_GALORE,
    then=on("bf16") | on("bfloat16") | on("fp16"),
    message="{optimizer} with {bf16} trains in float32, which undoes most of what it saves",
    fix=Fix("set bf16: true"),
    evidence="axolotl 0.18 validation.py:934",
    bad="optimizer: q_galore_adamw8bit\nbf16: false\n",
    good="optimizer: q_galore_adamw8bit\nbf16: auto\n",
)

OFFLOADED_8BIT_FSDP1 = conditional(
    "AX346",
    "offloaded-8bit-fsdp1",
    Severity.ERROR,
    Settings,
    summary="An 8-bit optimizer steps parameters that FSDP1 has offloaded",
    why="The 8-bit kernels run on the GPU, while FSDP1 leaves offloaded parameters and gradients in CPU memory.",
    when=~VERSION_2 & matches("optimizer", "8bit"),
    then=~on("fsdp_config.offload_params"),
    message="{optimizer} cannot step what {fsdp_config.offload_params} keeps in CPU memory",
    fix=Fix("set offload_params: false, or use adamw_torch_fused"),
    evidence="axolotl 0.18 validation.py:1126",
    bad=f"optimizer: adamw_8bit\n{ONE}fsdp_config: {{offload_params: true}}\n",
    good=f"optimizer: adamw_torch_fused\n{TWO}fsdp_config: {{offload_params: true}}\n",
    given=V1,
)

OFFLOADED_TORCHAO_FSDP2 = conditional(
    "AX347",
    "offloaded-torchao-fsdp2",
    Severity.WARNING,
    Settings,
    summary="A low-bit optimizer of torchao steps parameters that FSDP2 has offloaded",
    why="axolotl's own examples avoid the pair with a remark that it does not work; nothing checks it.",
    when=VERSION_2 & TORCHAO,
    then=~on("fsdp_config.offload_params"),
    message="{optimizer} is said not to work with {fsdp_config.offload_params}",
    fix=Fix("use adamw_torch_fused, or set offload_params: false"),
    evidence="axolotl 0.18 examples/gpt-oss/gpt-oss-120b-fft-fsdp2-offload.yaml",
    bad=f"optimizer: adamw_torch_8bit\n{TWO}fsdp_config: {{offload_params: true}}\n",
    good=f"optimizer: adamw_torch_8bit\n{TWO}fsdp_config: {{offload_params: false}}\n",
    unchecked=True,
)

RULES: tuple[Rule[Settings], ...] = (
    OPTIMIZER_UNDER_DEEPSPEED,
    OPTIMIZER_UNDER_FSDP1,
    Q_GALORE_ADAPTER,
    Q_GALORE_ORIGINAL_PARAMETERS,
    Q_GALORE_FULL_PRECISION,
    OFFLOADED_8BIT_FSDP1,
    OFFLOADED_TORCHAO_FSDP2,
)
