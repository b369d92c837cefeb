"""Words that axolotl's schema takes as they come, and that something later does not know: optimizers, schedulers, plug-ins."""

from __future__ import annotations

from collections.abc import Iterator

from ndcheck.findings import Fix, SetValue, Severity, Violation, place
from ndcheck.rules.keys import nearest
from ndcheck.rules.rule import Rule, rule
from ndcheck.settings import Settings
from ndcheck.values import Value

OPTIMIZERS = (
    # transformers
    "adamw_torch", "adamw_torch_fused", "adamw_torch_xla", "adamw_torch_npu_fused", "adafactor", "adamw_anyprecision",
    "adamw_torch_4bit", "adamw_torch_8bit", "ademamix", "sgd", "adagrad", "adamw_bnb_8bit", "adamw_8bit", "ademamix_8bit",
    "lion_8bit", "lion_32bit", "paged_adamw_32bit", "paged_adamw_8bit", "paged_ademamix_32bit", "paged_ademamix_8bit",
    "paged_lion_32bit", "paged_lion_8bit", "rmsprop", "rmsprop_bnb", "rmsprop_bnb_8bit", "rmsprop_bnb_32bit", "galore_adamw",
    "galore_adamw_8bit", "galore_adafactor", "galore_adamw_layerwise", "galore_adamw_8bit_layerwise",
    "galore_adafactor_layerwise", "lomo", "adalomo", "grokadamw", "schedule_free_radam", "schedule_free_adamw",
    "schedule_free_sgd", "apollo_adamw", "apollo_adamw_layerwise", "stable_adamw", "adamw_hf", "lion", "paged_adamw",
    "paged_lion",
    # axolotl
    "optimi_adamw", "ao_adamw_4bit", "ao_adamw_8bit", "ao_adamw_fp8", "adopt_adamw", "adamc", "came_pytorch", "muon", "dion",
    "sinkgd", "polora", "flash_adamw", "flash_adam", "flash_sgd", "flash_sgdw", "flash_lion", "q_galore_adamw8bit",
    "lion_pytorch", "shampoo",
)  # fmt: skip
"""Names that some release of transformers or axolotl builds."""

SCHEDULERS = (
    "linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup", "inverse_sqrt",
    "reduce_lr_on_plateau", "cosine_with_min_lr", "cosine_warmup_with_min_lr", "warmup_stable_decay", "greedy", "one_cycle",
    "rex",
)  # fmt: skip

PLUGINS = (
    "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin",
    "axolotl.integrations.densemixer.DenseMixerPlugin",
    "axolotl.integrations.diffusion.DiffusionPlugin",
    "axolotl.integrations.expert_parallel.ExpertParallelPlugin",
    "axolotl.integrations.grokfast.GrokfastPlugin",
    "axolotl.integrations.hatchery.HatcheryPlugin",
    "axolotl.integrations.kd.KDPlugin",
    "axolotl.integrations.kernels.KernelsPlugin",
    "axolotl.integrations.liger.LigerPlugin",
    "axolotl.integrations.llm_compressor.LLMCompressorPlugin",
    "axolotl.integrations.lm_eval.LMEvalPlugin",
    "axolotl.integrations.mora.MoraPlugin",
    "axolotl.integrations.nemo_gym.NemoGymPlugin",
    "axolotl.integrations.spectrum.SpectrumPlugin",
    "axolotl.integrations.swanlab.SwanLabPlugin",
)
KNOWN_PLUGINS = tuple(path.lower() for path in PLUGINS)


@rule(
    "AX786",
    Severity.ERROR,
    Settings,
    evidence="transformers 5 raises ValueError where it looks the name up; axolotl 0.18's field takes any string",
    bad="optimizer: adamw_torch_fusd\n",
    good="optimizer: adamw_torch_fused\n",
    unchecked=True,
)
def optimizer_misspelt(settings: Settings) -> Iterator[Violation]:
    """There is no such optimizer, and one of a similar name.

    The schema takes any word. The Trainer looks it up when it is built, with the model in memory.
    """
    yield from _misspelt(settings.value("optimizer"), OPTIMIZERS)


@rule(
    "AX787",
    Severity.ERROR,
    Settings,
    evidence="transformers 5 raises ValueError where it looks the name up; axolotl 0.18's field takes any string",
    bad="lr_scheduler: cosin\n",
    good="lr_scheduler: cosine\n",
    unchecked=True,
)
def scheduler_misspelt(settings: Settings) -> Iterator[Violation]:
    """There is no such learning-rate scheduler, and one of a similar name.

    The schema takes any word. The Trainer looks it up when it is built, with the model in memory.
    """
    yield from _misspelt(settings.value("lr_scheduler"), SCHEDULERS)


def _misspelt(value: Value[str] | None, known: tuple[str, ...]) -> Iterator[Violation]:
    if value is None or not isinstance(value.value, str) or value.value in known:
        return
    near = nearest(value.value, known)
    if near is not None:
        edits = (SetValue(value.path, near),) if value.path else ()
        yield Violation(place(value), f"{value}: did you mean {near}?", fix=Fix(f"write {near}", edits=edits))


@rule(
    "AX788",
    Severity.ERROR,
    Settings,
    evidence="axolotl 0.18 logs that there is no such module and goes on without the plug-in (run)",
    bad="plugins: [axolotl.integrations.ligr.LigerPlugin]\n",
    good="plugins: [axolotl.integrations.liger.LigerPlugin]\n",
    unchecked=True,
)
def plugin_misspelt(settings: Settings) -> Iterator[Violation]:
    """A plug-in's path is misspelt.

    axolotl notes in its log that it cannot import it, and trains without what it was listed for.
    """
    listed = settings.written("plugins")
    if listed is None or not isinstance(listed.value, list) or listed.path is None:
        return
    for index, path in enumerate(listed.value):
        if (
            not isinstance(path, str)
            or path in PLUGINS
            or path.lower().startswith(tuple(f"{p}." for p in KNOWN_PLUGINS))
        ):
            continue
        near = nearest(path, KNOWN_PLUGINS)
        if near is not None and not _another_module_of(path, near):
            right = PLUGINS[KNOWN_PLUGINS.index(near)]
            yield Violation(
                (*listed.path, index), f"no plug-in {path}; did you mean {right}?", fix=Fix(f"write {right}")
            )


def _another_module_of(path: str, known: str) -> bool:
    """The class is spelled right and only the module inside the package is named as well: that can be imported."""
    package, _, name = known.rpartition(".")
    return path.lower().startswith(f"{package}.") and path.lower().endswith(f".{name}") and path.lower() != known


@rule(
    "AX785",
    Severity.ERROR,
    Settings,
    evidence="axolotl 0.18 training.py:280",
    bad="learning_rate: 2e-4x\n",
    good="learning_rate: 2.0e-4\n",
)
def learning_rate_not_a_number(settings: Settings) -> Iterator[Violation]:
    """learning_rate is text that is no number.

    YAML 1.1 reads 2e-4 as text, so axolotl turns text into a number; what is none ends the run there.
    """
    rate = settings.value("learning_rate")
    if rate is None or not isinstance(rate.value, str):
        return
    try:
        float(rate.value)
    except ValueError:
        yield Violation(place(rate), f"{rate} is no number", fix=Fix("write it as 2.0e-4 or 0.0002"))


RULES: tuple[Rule[Settings], ...] = (
    optimizer_misspelt,
    scheduler_misspelt,
    plugin_misspelt,
    learning_rate_not_a_number,
)
