"""axolotl's rules about adapters: names, what LoRA is laid on, tokens that nothing trains."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ndcheck.findings import Fix, SetValue, Severity, Violation, notes, place
from ndcheck.rules.conditions import equals, is_set, on, one_of
from ndcheck.rules.rule import Rule, conditional, rule
from ndcheck.run import Run
from ndcheck.settings import Settings

LORA = "adapter: lora\nlora_r: 8\nlora_alpha: 16\nlora_target_linear: true\n"
QLORA = "adapter: qlora\nload_in_4bit: true\nlora_r: 8\nlora_alpha: 16\nlora_target_linear: true\n"
QUANTIZED = on("load_in_4bit") | on("load_in_8bit")
KNOWN_ADAPTERS = ("lora", "qlora", "llama-adapter", "mora")
LIGER = "plugins: [axolotl.integrations.liger.LigerPlugin]\n"
OWN = "axolotl.integrations."

EMBEDDINGS = (
    ("embed_tokens", "lm_head"),
    ("embed_in", "embed_out"),  # gpt_neox
    ("word_embeddings", "lm_head"),  # falcon
    ("embeddings", "lm_head"),  # nemotron_h
)
"""What the input and output embeddings are called, by family; the first is most families'."""

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


@rule(
    "AX707",
    Severity.ERROR,
    Settings,
    evidence="axolotl 0.18 peft.py:189; of its own plug-ins only mora brings an adapter (integrations/mora/plugin.py:50)",
    bad=f"{LIGER}adapter: mora\n",
    good="plugins: [axolotl.integrations.mora.MoraPlugin]\nadapter: mora\n",
)
def adapter_not_registered(settings: Settings) -> Iterator[Violation]:
    """None of the listed plug-ins brings this adapter.

    Beyond lora, qlora and llama-adapter axolotl takes what a plug-in registers. Of its own plug-ins that is mora
    alone; what somebody else's registers is not known here.
    """
    adapter, plugins = settings.value("adapter"), settings.value("plugins")
    if adapter is None or not adapter.value or adapter.value in ("lora", "qlora", "llama-adapter"):
        return
    listed: list[str] = (plugins.value if plugins is not None else None) or []
    if any(not entry.startswith(OWN) for entry in listed):
        return
    registered = any(entry.startswith(f"{OWN}mora.") for entry in listed)
    if adapter.value == "mora":
        if not registered:
            fix = Fix("list axolotl.integrations.mora.MoraPlugin under plugins")
            yield Violation(place(adapter), f"{adapter} needs its plug-in, which is not listed", notes(plugins), fix)
    elif listed:  # without any plug-in: AX702
        fix = Fix("set adapter: lora or qlora, or list the plug-in that brings it")
        yield Violation(place(adapter), f"{adapter}: no plug-in that is listed brings it", notes(plugins), fix)


@rule(
    "AX708",
    Severity.ERROR,
    Settings,
    evidence="axolotl 0.18 loaders/utils.py:122, while the model is loaded",
    bad=f"{LORA}tokens: [<a>]\nlora_modules_to_save: [embed_tokens]\n",
    good=f"{LORA}tokens: [<a>]\nlora_modules_to_save: [embed_tokens, lm_head]\n",
    unchecked=True,
)
def new_tokens_untrained(settings: Settings) -> Iterator[Violation]:
    """Tokens are added, and the adapter leaves the embeddings as they are.

    A new token starts from a row of noise. Unless the embeddings are trained and saved with the adapter, it stays
    noise; axolotl stops when it has loaded the model's configuration.
    """
    tokens, adapter = settings.value("tokens"), settings.value("adapter")
    if tokens is None or not tokens.value or adapter is None or not adapter.value:
        return
    saved = settings.value("lora_modules_to_save")
    names = set((saved.value if saved is not None else None) or ())
    if not any(names.issuperset(pair) for pair in EMBEDDINGS):
        message = f"{tokens} with {adapter} needs input and output embeddings in lora_modules_to_save"
        fix = Fix("add embed_tokens and lm_head to lora_modules_to_save (as the model calls them)")
        yield Violation(place(saved, tokens), message, notes(tokens, adapter), fix)


@rule(
    "AX709",
    Severity.WARNING,
    Settings,
    evidence="axolotl 0.18 config.py:1505, which compares with names where the tokens are given by layer",
    bad=f"{LORA}fix_untrained_tokens: [7, 8]\npeft_trainable_token_indices: [7]\n",
    good=f"{LORA}fix_untrained_tokens: [7, 8]\npeft_trainable_token_indices: [7, 8]\n",
)
def fixed_tokens_frozen(settings: Settings) -> Iterator[Violation]:
    """A token gets a new start and is not among those that are trained.

    fix_untrained_tokens replaces rows of the embedding that were never trained; peft_trainable_token_indices says
    which rows the adapter trains. A row in the first list only keeps its average.
    """
    fixed, trained = settings.value("fix_untrained_tokens"), settings.value("peft_trainable_token_indices")
    if fixed is None or trained is None or not fixed.value or not trained.value:
        return
    wanted = [fixed.value] if isinstance(fixed.value, int) else fixed.value
    frozen = sorted(set(wanted) - _indices(trained.value))
    if frozen:
        message = f"{', '.join(map(str, frozen))} of fix_untrained_tokens: not in peft_trainable_token_indices"
        yield Violation(place(trained), message, notes(fixed), Fix("add them to peft_trainable_token_indices"))


def _indices(trained: Any) -> set[int]:
    """A list of tokens, or lists by the name of a layer."""
    if isinstance(trained, Mapping):
        return {index for indices in trained.values() if isinstance(indices, list) for index in indices}
    return set(trained)


@rule(
    "AX734",
    Severity.WARNING,
    Run,
    evidence="axolotl 0.18 accepts the pair (run) and hands transformers tp_plan auto; nobody is known to have tried it",
    bad=f"{LORA}tensor_parallel_size: 2\n",
    good=f"{LORA}tensor_parallel_size: 1\n",
    given={"world_size": 2},
    unchecked=True,
)
def adapter_tp(run: Run) -> Iterator[Violation]:
    """An adapter is trained on a model that tp has cut.

    The layers are cut while the model is loaded, the adapter is added afterwards, and its matrices do not follow the
    cut. axolotl does not look, and nothing is known to work.
    """
    adapter, quantized = run.adapter, run.quantized
    if adapter is None or not adapter.value or run.degree("tp") == 1 or (quantized is not None and quantized.value):
        return  # quantized weights: AX731
    tp = run.degrees["tp"]
    yield Violation(
        place(tp), f"{tp} with {adapter} is not known to work", notes(adapter), Fix("use FSDP2 instead of tp")
    )


LOFTQ_UNUSED = conditional(
    "AX735",
    "loftq-without-adapter",
    Severity.WARNING,
    Settings,
    summary="LoftQ without an adapter",
    why="LoftQ is a start for an adapter's weights; only the code that builds an adapter reads it.",
    when=on("peft.loftq_config"),
    then=on("adapter"),
    message="peft.loftq_config has no effect without an adapter",
    fix=Fix("set adapter: lora, or remove the section"),
    evidence="axolotl 0.18 loaders/adapter.py:142 (read)",
    bad="peft: {loftq_config: {loftq_bits: 4}}\n",
    good=f"{LORA}peft: {{loftq_config: {{loftq_bits: 4}}}}\n",
    unchecked=True,
)

LOFTQ_OVERRIDDEN = conditional(
    "AX736",
    "loftq-overridden",
    Severity.WARNING,
    Settings,
    summary="LoftQ and peft_init_lora_weights",
    why="Both choose the start of the adapter's weights; axolotl lets the second overwrite the first without a word.",
    when=on("peft.loftq_config"),
    then=~on("peft_init_lora_weights") | equals("peft_init_lora_weights", "loftq"),
    message="{peft_init_lora_weights} overrides peft.loftq_config",
    fix=Fix("keep one of the two"),
    evidence="axolotl 0.18 loaders/adapter.py:146 (read)",
    bad=f"{LORA}peft: {{loftq_config: {{loftq_bits: 4}}}}\npeft_init_lora_weights: pissa\n",
    good=f"{LORA}peft: {{loftq_config: {{loftq_bits: 4}}}}\npeft_init_lora_weights: loftq\n",
    unchecked=True,
)

RULES: tuple[Rule[Settings] | Rule[Run], ...] = (
    QUANTIZED_WITHOUT_ADAPTER,
    ADAPTER_UNKNOWN,
    QLORA_NEEDS_4BIT,
    QLORA_WITH_OTHER_BITS,
    QLORA_MERGE_QUANTIZED,
    LORA_4BIT_NAME,
    TARGET_PARAMETERS_DROPOUT,
    LAYERS_AND_UNFROZEN,
    LAYER_PATTERN_ALONE,
    FUSED_MLP_ADAPTER,
    LEARNING_RATES_TWICE,
    target_module_pattern,
    adapter_not_registered,
    new_tokens_untrained,
    fixed_tokens_frozen,
    adapter_tp,
    LOFTQ_UNUSED,
    LOFTQ_OVERRIDDEN,
)
