"""axolotl's rules about how FSDP's state is saved."""

from __future__ import annotations

from ndcheck.findings import Fix, Severity
from ndcheck.rules.axolotl.sharding import TWO, VERSION_2
from ndcheck.rules.conditions import equals, on
from ndcheck.rules.rule import Rule, conditional
from ndcheck.settings import Settings

WHOLE = "final_state_dict_type: FULL_STATE_DICT"

LOCAL_STATE_DICT_FSDP2 = conditional(
    "AX319",
    "local-state-dict-fsdp2",
    Severity.ERROR,
    Settings,
    summary="FSDP2 cannot save local state dicts",
    why="Local state dicts are pieces of FSDP1's flat buffers. FSDP2 has none; accelerate refuses when it starts.",
    when=VERSION_2,
    then=~equals("fsdp_config.state_dict_type", "LOCAL_STATE_DICT"),
    message="{fsdp_config.state_dict_type} needs FSDP1; with {fsdp_version} accelerate refuses it",
    fix=Fix("write FULL_STATE_DICT or SHARDED_STATE_DICT"),
    evidence="accelerate 1.13 utils/dataclasses.py:2033, run",
    bad=f"{TWO}fsdp_config: {{state_dict_type: LOCAL_STATE_DICT}}\n",
    good=f"{TWO}fsdp_config: {{state_dict_type: FULL_STATE_DICT}}\n",
    unchecked=True,
)

MODEL_ONLY_SHARDED_STATE = conditional(
    "AX320",
    "model-only-sharded-state",
    Severity.ERROR,
    Settings,
    summary="save_only_model needs whole state dicts",
    why="A sharded checkpoint is written together with the optimizer's; the Trainer refuses to write the model alone.",
    when=on("save_only_model"),
    then=~equals("fsdp_config.state_dict_type", "SHARDED_STATE_DICT"),
    message="{save_only_model} does not work with {fsdp_config.state_dict_type}",
    fix=Fix("set state_dict_type: FULL_STATE_DICT, or save_only_model: false"),
    evidence="transformers 5.14 trainer.py:866; axolotl's validator accepts it (run)",
    bad=f"save_only_model: true\n{TWO}fsdp_config: {{state_dict_type: SHARDED_STATE_DICT, {WHOLE}}}\n",
    good=f"save_only_model: true\n{TWO}fsdp_config: {{state_dict_type: FULL_STATE_DICT, {WHOLE}}}\n",
    unchecked=True,
)

SHARDED_FINAL_WEIGHTS = conditional(
    "AX334",
    "sharded-final-weights",
    Severity.WARNING,
    Settings,
    summary="The final weights are saved in shards",
    why="A sharded checkpoint is quick to write and to resume from, but nothing else loads it: the last one has to be "
    "merged into plain weights before the model can be used.",
    when=equals("fsdp_config.state_dict_type", "SHARDED_STATE_DICT"),
    then=equals("fsdp_config.final_state_dict_type", "FULL_STATE_DICT"),
    message="{fsdp_config.state_dict_type}: the output directory will hold shards, to be merged before use",
    fix=Fix("set final_state_dict_type: FULL_STATE_DICT, or run axolotl merge-sharded-fsdp-weights afterwards"),
    evidence="transformers #30491",
    bad=f"{TWO}fsdp_config: {{state_dict_type: SHARDED_STATE_DICT}}\n",
    good=f"{TWO}fsdp_config: {{state_dict_type: SHARDED_STATE_DICT, {WHOLE}}}\n",
    unchecked=True,
)

RULES: tuple[Rule[Settings], ...] = (LOCAL_STATE_DICT_FSDP2, MODEL_ONLY_SHARDED_STATE, SHARDED_FINAL_WEIGHTS)
