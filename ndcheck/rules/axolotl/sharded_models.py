"""axolotl's rules about models and plug-ins under FSDP, and about memory."""

from __future__ import annotations

from ndcheck.findings import Fix, Severity
from ndcheck.rules.axolotl.sharding import FSDP1, ONE, SECTION, TWO, V1, VERSION_2
from ndcheck.rules.conditions import lists, matches, on
from ndcheck.rules.rule import Rule, conditional
from ndcheck.settings import Settings

SPECTRUM_PLUGIN = "plugins: [axolotl.integrations.spectrum.SpectrumPlugin]\n"
FALCON = "[Ff][Aa][Ll][Cc][Oo][Nn]"
FIRST_FALCON = f"{FALCON}-(rw|7[Bb]|11[Bb]|40[Bb]|180[Bb])"
SPECTRUM = lists("plugins", r"\.spectrum\.")

SPECTRUM_FLAT_PARAMETERS = conditional(
    "AX329",
    "spectrum-flat-parameters",
    Severity.ERROR,
    Settings,
    summary="Spectrum freezes single parameters, which FSDP1 has flattened",
    why="A flat buffer is trained or frozen as one. Only with use_orig_params does FSDP1 keep parameters apart. "
    "axolotl checks this only where the older fsdp list is set as well.",
    when=SPECTRUM & FSDP1,
    then=on("fsdp_config.use_orig_params"),
    message="Spectrum under FSDP1 needs use_orig_params: true, not {fsdp_config.use_orig_params}",
    fix=Fix("set fsdp_version: 2, or fsdp_config.use_orig_params: true"),
    evidence="axolotl 0.18 integrations/spectrum/args.py:32",
    bad=f"{SPECTRUM_PLUGIN}{ONE}fsdp_config: {{use_orig_params: false}}\n",
    good=f"{SPECTRUM_PLUGIN}{TWO}fsdp_config: {{use_orig_params: false}}\n",
    given=V1,
    unchecked=True,
)

SPECTRUM_WITH_FSDP_LIST = conditional(
    "AX330",
    "spectrum-with-fsdp-list",
    Severity.ERROR,
    Settings,
    summary="axolotl wrongly refuses Spectrum beside the fsdp list",
    why="axolotl 0.18 asks for use_orig_params, spelled exactly so, wherever the fsdp list is set: also under FSDP2, "
    "which always keeps parameters apart, and where the key is written with its older prefix.",
    when=SPECTRUM & on("fsdp") & on("fsdp_config") & (VERSION_2 | on("fsdp_config.use_orig_params")),
    then=on("fsdp_config.use_orig_params", raw=True),
    message="axolotl 0.18 refuses Spectrum with {fsdp} unless fsdp_config.use_orig_params: true is written, needed or not",
    fix=Fix("remove the fsdp list"),
    evidence="axolotl 0.18 integrations/spectrum/args.py:32, run",
    bad=f"{SPECTRUM_PLUGIN}{TWO}{SECTION}fsdp: [full_shard]\n",
    good=f"{SPECTRUM_PLUGIN}{TWO}{SECTION}",
    given={"also": ["fsdp-list-deprecated"]},
)

FALCON_WITH_FSDP_LIST = conditional(
    "AX331",
    "falcon-with-fsdp-list",
    Severity.ERROR,
    Settings,
    summary="axolotl refuses FSDP for models named falcon",
    why="axolotl 0.18 looks for the word in base_model, so Falcon-H1, Falcon-E and Falcon3, which FSDP could shard, "
    "are refused too, but only if the older fsdp list is set.",
    when=matches("base_model", FALCON),
    then=~on("fsdp"),
    message="axolotl 0.18 refuses {fsdp} for {base_model} because of the name",
    fix=Fix("remove the fsdp list: fsdp_config alone passes, though the first Falcon models do not shard"),
    evidence="axolotl 0.18 validation.py:1396, run",
    bad=f"base_model: tiiuae/Falcon-H1-1B\n{TWO}{SECTION}fsdp: [full_shard]\n",
    good=f"base_model: tiiuae/Falcon-H1-1B\n{TWO}{SECTION}",
    given={"also": ["fsdp-list-deprecated"]},
)

FALCON_SHARDED = conditional(
    "AX332",
    "falcon-sharded",
    Severity.WARNING,
    Settings,
    summary="A Falcon model of the first generation is sharded by FSDP",
    why="axolotl holds FSDP to be unsupported for them, but looks only at the older fsdp list.",
    when=matches("base_model", FIRST_FALCON),
    then=~on("fsdp_config"),
    message="{base_model}: axolotl says that FSDP does not support this model",
    fix=Fix("use DeepSpeed"),
    evidence="axolotl 0.18 validation.py:1396, run: fsdp_config is accepted",
    bad=f"base_model: tiiuae/falcon-7b\n{TWO}{SECTION}",
    good=f"base_model: tiiuae/Falcon3-7B-Base\n{TWO}{SECTION}",
    unchecked=True,
)

MEMORY_LIMITS_TWICE = conditional(
    "AX333",
    "memory-limits-twice",
    Severity.ERROR,
    Settings,
    summary="max_memory and gpu_memory_limit are both set",
    why="The second is a short way to write the first; axolotl refuses both, agreeing or not.",
    when=on("max_memory"),
    then=~on("gpu_memory_limit"),
    message="max_memory and {gpu_memory_limit} are both set",
    fix=Fix("keep one of the two"),
    evidence="axolotl 0.18 validation.py:1212",
    bad="max_memory: {0: 20GiB}\ngpu_memory_limit: 20GiB\n",
    good="max_memory: {0: 20GiB}\n",
)

RULES: tuple[Rule[Settings], ...] = (
    SPECTRUM_FLAT_PARAMETERS,
    SPECTRUM_WITH_FSDP_LIST,
    FALCON_WITH_FSDP_LIST,
    FALCON_SHARDED,
    MEMORY_LIMITS_TWICE,
)
