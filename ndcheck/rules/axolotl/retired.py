"""Keys that axolotl no longer has: those it refuses, and those it drops without a word."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ndcheck.findings import Fix, RemoveKey, Safety, Severity, Violation, notes, place
from ndcheck.rules.rule import Rule, rule
from ndcheck.settings import Settings


class Retired(NamedTuple):
    """A removed key: what took its place, and whether a written false is refused as well."""

    instead: str
    any_value: bool = False


REFUSED = {
    "max_packed_sequence_len": Retired("sample_packing: true"),
    "rope_scaling": Retired("overrides_of_model_config: {rope_scaling: ...}"),
    "s2_attention": Retired("sample_packing with flash attention"),
    "flash_attn_rms_norm": Retired("liger_rms_norm"),
    "dpo_use_logits_to_keep": Retired("nothing", any_value=True),
    "dpo_generate_during_eval": Retired("generate_samples", any_value=True),
    "dpo_norm_loss": Retired("nothing", any_value=True),
    "rpo_alpha": Retired("dpo_loss_type with several losses", any_value=True),
    "unsloth_cross_entropy_loss": Retired("a cross entropy kernel of Liger"),
    "unsloth_lora_mlp": Retired("lora_mlp_kernel"),
    "unsloth_lora_qkv": Retired("lora_qkv_kernel"),
    "unsloth_lora_o": Retired("lora_o_kernel"),
    "unsloth_rms_norm": Retired("liger_rms_norm"),
    "unsloth_rope": Retired("liger_rope"),
}
"""Key -> what to write instead; from axolotl's table of removed fields."""

DROPPED = {
    "relora_steps": "jagged_restart_steps with relora: true",
    "relora_warmup_steps": "jagged_restart_warmup_steps",
    "relora_anneal_steps": "jagged_restart_anneal_steps",
    "flash_attn_fuse_qkv": "nothing",
    "gptq_groupsize": "nothing",
    "gptq_model_v1": "nothing",
}
"""Key -> what took its place; axolotl ignores it."""


@rule(
    "AX971",
    Severity.ERROR,
    Settings,
    evidence="axolotl 0.18 schemas/deprecated.py:29-136 and validation.py:59",
    bad="s2_attention: true\n",
    good="s2_attention: false\n",
)
def removed_key(settings: Settings) -> Iterator[Violation]:
    """The key was removed, and axolotl stops when it is set.

    It names what took the place of the key in an exception of another kind than its other refusals, so that
    nothing else that is wrong is reported.
    """
    for key, retired in REFUSED.items():
        value = settings.anything(key)
        if value is None or value.value is None or not (retired.any_value or value.value):
            continue
        yield Violation(place(value), removal(key), fix=Fix("remove it"))


def removal(key: str) -> str:
    """What to say of a key of REFUSED."""
    instead = REFUSED[key].instead
    return f"{key} was removed" + ("" if instead == "nothing" else f"; {instead} took its place")


@rule(
    "AX972",
    Severity.WARNING,
    Settings,
    evidence="axolotl 0.18, run: dropped without a word; the table of renamed keys since 2023",
    bad="relora_steps: 100\n",
    good="jagged_restart_steps: 100\nrelora: true\nadapter: lora\nlora_target_linear: true\n",
    unchecked=True,
)
def retired_key(settings: Settings) -> Iterator[Violation]:
    """The key belonged to an older version, and nothing reads it any more.

    axolotl drops it like any other unknown key, so that the run goes on without what it asks for.
    """
    for key, instead in DROPPED.items():
        value = settings.anything(key)
        if value is not None and value.value:
            hint = "" if instead == "nothing" else f"; {instead} took its place"
            fix = Fix("remove it", Safety.SAFE, (RemoveKey((key,)),))
            yield Violation(place(value), f"{key} is no longer read{hint}", fix=fix)


OLDER_KEYS = {
    "eval_table_size": "generate_samples and num_generation_samples",
    "eval_max_new_tokens": "generation_max_new_tokens",
    "flash_attn_d512": "large_head_attention: auto",
    "gc_steps": "torch_empty_cache_steps and gc_collect_steps",
    "fsdp_final_state_dict_type": "fsdp_config.final_state_dict_type, which this key is never copied to",
    "gemma4_fp8_nonexpert": "nonexpert_quantization: fp8_blockwise",
    "gemma4_nf4_nonexpert": "nonexpert_quantization: nf4",
}
"""Deprecated key -> what replaces it, where that is more than another name."""


@rule(
    "AX973",
    Severity.WARNING,
    Settings,
    evidence="axolotl 0.18 schemas/deprecated.py:66 and 77, config.py:2164, kernels/args.py:267",
    bad="gc_steps: 10\n",
    good="torch_empty_cache_steps: 10\n",
)
def older_generation_key(settings: Settings) -> Iterator[Violation]:
    """The key is deprecated, and what replaces it is more than another name.

    It still works in axolotl 0.18 unless the message says otherwise; a later release removes it.
    """
    for key, instead in OLDER_KEYS.items():
        value = settings.anything(key)
        if value is not None and value.value:
            yield Violation(place(value), f"{key} is deprecated; write {instead}", fix=Fix("replace it"))


@rule(
    "AX974",
    Severity.WARNING,
    Settings,
    evidence="axolotl 0.18 validation.py:760",
    bad="rl: ipo\n",
    good="rl: dpo\ndpo_loss_type: [ipo]\n",
)
def ipo_is_a_loss(settings: Settings) -> Iterator[Violation]:
    """rl: ipo is deprecated.

    It is DPO with another loss, and is written like that now.
    """
    value = settings.value("rl")
    if value is not None and value.value == "ipo":
        yield Violation(
            place(value), "rl: ipo is now rl: dpo with dpo_loss_type: [ipo]", fix=Fix("write it as rl: dpo")
        )


@rule(
    "AX975",
    Severity.ERROR,
    Settings,
    evidence="axolotl 0.18, run: the alias wins without a word",
    bad="model_type: AutoModelForCausalLM\ntype_of_model: LlamaForCausalLM\n",
    good="type_of_model: LlamaForCausalLM\n",
    unchecked=True,
)
def alias_beside_name(settings: Settings) -> Iterator[Violation]:
    """A key and its alias are both set, and differ.

    axolotl takes the alias and drops the other without a word.
    """
    for alias, name in ALIASES.items():
        first, second = settings.anything(alias), settings.anything(name)
        if first is not None and second is not None and first.value != second.value:
            message = f"{alias} and {name} are the same setting, and {alias} wins"
            yield Violation(place(second), message, notes(first), Fix("keep one of them"))


@rule(
    "AX976",
    Severity.ERROR,
    Settings,
    evidence="axolotl 0.18, run: the key is dropped and the model trains fully sharded",
    bad="fsdp_version: 2\nfsdp_config: {sharding_strategy: SHARD_GRAD_OP}\n",
    good="fsdp_version: 2\nfsdp_config: {reshard_after_forward: false}\n",
    given={"also": ["unknown-key"]},
    unchecked=True,
)
def sharding_strategy_dropped(settings: Settings) -> Iterator[Violation]:
    """fsdp_config names a sharding strategy other than full sharding.

    axolotl has no such key any more and drops it, so the model is fully sharded whatever it says. Under FSDP2 the
    choice is reshard_after_forward, and replicas are dp_replicate_size.
    """
    section = settings.mapping.get("fsdp_config")
    for key in ("sharding_strategy", "fsdp_sharding_strategy"):
        strategy = str(section[key]) if isinstance(section, dict) and section.get(key) else ""
        if strategy.upper() in STRATEGIES:
            message = f"{key}: {strategy} is dropped, and the model trains fully sharded"
            yield Violation(("fsdp_config", key), message, fix=Fix(f"write {STRATEGIES[strategy.upper()]}"))


STRATEGIES = {
    "SHARD_GRAD_OP": "reshard_after_forward: false, with fsdp_version: 2",
    "NO_SHARD": "no fsdp_config at all: plain replicas",
    "HYBRID_SHARD": "dp_replicate_size and dp_shard_size, with fsdp_version: 2",
    "HYBRID_SHARD_ZERO2": "dp_replicate_size, dp_shard_size and reshard_after_forward: false, with fsdp_version: 2",
    "2": "reshard_after_forward: false, with fsdp_version: 2",
    "3": "no fsdp_config at all: plain replicas",
    "4": "dp_replicate_size and dp_shard_size, with fsdp_version: 2",
}
"""Strategy of FSDP1, by name or number -> how the same is written today."""

ALIASES = {
    "model_config": "overrides_of_model_config",
    "model_kwargs": "overrides_of_model_kwargs",
    "model_type": "type_of_model",
    "model_revision": "revision_of_model",
}
"""Alias -> the key that it stands for."""

RULES: tuple[Rule[Settings], ...] = (
    removed_key,
    retired_key,
    older_generation_key,
    ipo_is_a_loss,
    alias_beside_name,
    sharding_strategy_dropped,
)
