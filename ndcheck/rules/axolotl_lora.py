"""axolotl's rules about adapters that nothing builds, tokens that nothing trains, and LoRA kernels with nothing to patch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ndcheck.findings import Fix, Severity, Violation, notes, place
from ndcheck.rules.conditions import on
from ndcheck.rules.rule import Rule, conditional, rule
from ndcheck.run import Run
from ndcheck.settings import Settings

LORA = "adapter: lora\nlora_target_modules: [q_proj]\n"
LIGER = "plugins: [axolotl.integrations.liger.LigerPlugin]\n"
PATCHES_LAYERS = on("lora_mlp_kernel") | on("lora_qkv_kernel") | on("lora_o_kernel")
OWN = "axolotl.integrations."

EMBEDDINGS = (
    ("embed_tokens", "lm_head"),
    ("embed_in", "embed_out"),  # gpt_neox
    ("word_embeddings", "lm_head"),  # falcon
    ("embeddings", "lm_head"),  # nemotron_h
)
"""What the input and output embeddings are called, by family; the first is most families'."""


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


RULES: tuple[Rule[Settings] | Rule[Run], ...] = (
    adapter_not_registered,
    new_tokens_untrained,
    fixed_tokens_frozen,
    KERNELS_WITHOUT_ADAPTER,
    EMBEDDING_KERNEL_ALONE,
    adapter_tp,
)
