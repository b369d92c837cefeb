"""axolotl's rules about ReLoRA: what it needs and what it cannot run beside."""

from __future__ import annotations

from ndcheck.findings import Fix, Severity
from ndcheck.rules.axolotl.sharding import FSDP, SECTION, TWO
from ndcheck.rules.conditions import equals, matches, on
from ndcheck.rules.rule import Rule, conditional
from ndcheck.settings import Settings

RELORA = on("relora")
BASE = "relora: true\nadapter: lora\nlora_target_linear: true\n"
STEPS = "jagged_restart_steps: 100\n"

RELORA_WITHOUT_RESTARTS = conditional(
    "AX961",
    "relora-without-restarts",
    Severity.ERROR,
    Settings,
    summary="relora does not say after how many steps it restarts",
    why="ReLoRA merges the adapter and begins a new one every jagged_restart_steps steps; there is no default.",
    when=RELORA,
    then=on("jagged_restart_steps"),
    message="{relora} needs jagged_restart_steps",
    fix=Fix("set jagged_restart_steps"),
    evidence="axolotl 0.18 validation.py:1580",
    bad=f"{BASE}jagged_restart_steps: 0\n",
    good=f"{BASE}jagged_restart_steps: 1\n",
)

RELORA_WITHOUT_ADAPTER = conditional(
    "AX962",
    "relora-without-adapter",
    Severity.ERROR,
    Settings,
    summary="relora is on without a LoRA adapter",
    why="It is a way to train LoRA: without an adapter there is nothing to merge and restart.",
    when=RELORA,
    then=on("adapter") & ~equals("adapter", "llama-adapter"),
    message="{relora} needs adapter: lora or qlora, not {adapter}",
    fix=Fix("set adapter: lora"),
    evidence="axolotl 0.18 validation.py:1580",
    bad=f"relora: true\n{STEPS}",
    good=f"{BASE}{STEPS}",
)

RELORA_SHARDED = conditional(
    "AX963",
    "relora-sharded",
    Severity.ERROR,
    Settings,
    summary="relora runs under FSDP or DeepSpeed",
    why="Merging adds the adapter's product to the base weights and resets optimizer states in place; neither is "
    "possible on shards.",
    when=RELORA,
    then=~FSDP & ~on("deepspeed"),
    message="{relora} does not run under FSDP or DeepSpeed",
    fix=Fix("remove the FSDP and DeepSpeed keys, or relora"),
    evidence="axolotl 0.18 validation.py:1580",
    bad=f"{BASE}{STEPS}{TWO}{SECTION}",
    good=f"{BASE}{STEPS}{TWO}fsdp_config: {{}}\n",
)

RELORA_ONE_CYCLE = conditional(
    "AX964",
    "relora-one-cycle",
    Severity.ERROR,
    Settings,
    summary="relora with the one_cycle schedule",
    why="Each restart warms the learning rate up again, and a single cycle over the whole run leaves no room for that.",
    when=RELORA,
    then=~equals("lr_scheduler", "one_cycle"),
    message="{relora} does not work with {lr_scheduler}",
    fix=Fix("set lr_scheduler: cosine"),
    evidence="axolotl 0.18 validation.py:1580",
    bad=f"{BASE}{STEPS}lr_scheduler: one_cycle\n",
    good=f"{BASE}{STEPS}lr_scheduler: cosine\n",
)

RELORA_FUSED_MLP = conditional(
    "AX965",
    "relora-fused-mlp",
    Severity.ERROR,
    Settings,
    summary="relora with flash_attn_fuse_mlp",
    why="The fused MLP replaces the linear layers whose adapters ReLoRA has to merge.",
    when=RELORA,
    then=~on("flash_attn_fuse_mlp"),
    message="{relora} does not work with {flash_attn_fuse_mlp}",
    fix=Fix("remove flash_attn_fuse_mlp"),
    evidence="axolotl 0.18 validation.py:1580",
    bad=f"{BASE}{STEPS}flash_attn_fuse_mlp: true\n",
    good=f"{BASE}{STEPS}flash_attn_fuse_mlp: false\n",
)

RELORA_OPTIMIZER = conditional(
    "AX966",
    "relora-optimizer",
    Severity.ERROR,
    Settings,
    summary="relora resets the states of Adam, and the optimizer is another",
    why="At a restart ReLoRA prunes the two moments by name. It stops at the first restart, hours into the run, with "
    "an optimizer whose name does not contain adam.",
    when=RELORA,
    then=matches("optimizer", "adam"),
    message="{relora} needs an Adam optimizer, not {optimizer}",
    fix=Fix("set optimizer: adamw_torch_fused"),
    evidence="axolotl 0.18 monkeypatch/relora.py:172",
    bad=f"{BASE}{STEPS}optimizer: lion_pytorch\n",
    good=f"{BASE}{STEPS}optimizer: adamw_torch_fused\n",
    unchecked=True,
)

RULES: tuple[Rule[Settings], ...] = (
    RELORA_WITHOUT_RESTARTS,
    RELORA_WITHOUT_ADAPTER,
    RELORA_SHARDED,
    RELORA_ONE_CYCLE,
    RELORA_FUSED_MLP,
    RELORA_OPTIMIZER,
)
