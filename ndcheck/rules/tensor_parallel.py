"""Rules about the model's sizes against tp."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from ndcheck.facts import ModelShape
from ndcheck.findings import Fix, SetValue, Severity, Violation, notes, place
from ndcheck.layout import divisors, listed
from ndcheck.rules.rule import Rule, rule
from ndcheck.run import Run
from ndcheck.values import Value

SHAPE = {"model_type": "llama", "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096}
LLAMA_8B = {**SHAPE, "intermediate_size": 14336, "vocab_size": 128256}

FAMILIES_THAT_GATHER_QKV = frozenset(
    """
    afmoe axk1 bamba deepseek_v3 deepseek_v4 diffllama falcon_h1 flex_olmo gpt_oss granitemoe
    granitemoehybrid granitemoeshared hunyuan_v1_dense hunyuan_v1_moe jamba kimi_linear lfm2 lfm2_moe
    lfm3 llama4 minimax_m2 nemotron_h olmo2 olmo3 olmo_hybrid olmoe phi3 phi4_multimodal phimoe youtu
    """.split()
)
"""Families whose attention needs no divisible heads in transformers 5.24: their tp plan gathers the
projections (phi3, olmo2, ...) or leaves attention whole (gpt_oss, ...)."""

FAMILIES_WITH_LATENT_KV = frozenset(
    "axk2 deepseek_v2 deepseek_v32 glm4_moe_lite glm_moe_dsa longcat_flash minicpm3".split()
)
"""Multi-head latent attention: query heads are cut, keys and values share one latent vector."""


def _sizes(run: Run) -> tuple[int, ModelShape]:
    tp = run.degree("tp")
    return (tp, run.model()) if tp > 1 else (1, ModelShape(source=""))


def _legal_tp(model: ModelShape) -> tuple[int, ...]:
    """The degrees that divide both head counts."""
    heads = model.heads.value if model.heads else 0
    kv_heads = model.kv_heads.value if model.kv_heads else 0
    return divisors(gcd(heads, kv_heads) or 1)


def _cut(run: Run, size: Value[int], what: str, model: ModelShape) -> Violation:
    tp = run.degrees["tp"]
    legal = _legal_tp(model)
    below = max(degree for degree in legal if degree <= tp.value)
    message = f"{tp} does not divide {size.value} {what} ({size.origin.text}): tp could be {listed(legal)}"
    fix = Fix(f"set it to {below}", edits=(SetValue(tp.path, str(below)),)) if tp.path else None
    return Violation(place(tp), message, fix=fix)


def _family(model: ModelShape) -> str:
    return model.family.value if model.family else ""


@rule(
    "ND301",
    Severity.ERROR,
    Run,
    evidence="transformers 5.24 tensor_parallel.py, run: RuntimeError at the first forward; torchtitan, Megatron-LM: refused",
    bad="tensor_parallel_size: 3\nsequence_len: 510\n",
    good="tensor_parallel_size: 2\nsequence_len: 510\n",
    given={"model_config": {**LLAMA_8B, "num_key_value_heads": 6, "intermediate_size": 12288, "vocab_size": 96000}},
    unchecked=True,
)
def tp_attention_heads(run: Run) -> Iterator[Violation]:
    """tp does not divide the number of attention heads.

    Tensor parallelism gives each rank whole heads. The query projection is cut into tp equal parts and
    then reshaped to heads; a part that is no whole number of heads fails in the first forward pass, on
    every rank, after the model was loaded.
    """
    tp, model = _sizes(run)
    if tp == 1 or _family(model) in FAMILIES_THAT_GATHER_QKV or model.heads is None:
        return
    if model.heads.value % tp:
        yield _cut(run, model.heads, "attention heads", model)


@rule(
    "ND302",
    Severity.ERROR,
    Run,
    evidence="transformers 5.24, run: KV heads are not replicated, fails at the first forward",
    bad="tensor_parallel_size: 16\n",
    good="tensor_parallel_size: 8\n",
    given={"model_config": LLAMA_8B},
    unchecked=True,
)
def tp_kv_heads(run: Run) -> Iterator[Violation]:
    """tp does not divide the number of key/value heads.

    With grouped-query attention the keys and values have fewer heads than the queries, and they are
    cut over tp as well. Some frameworks copy KV heads when tp exceeds their number; transformers does not.
    """
    tp, model = _sizes(run)
    exempt = FAMILIES_THAT_GATHER_QKV | FAMILIES_WITH_LATENT_KV
    if tp == 1 or _family(model) in exempt or model.kv_heads is None:
        return
    if model.kv_heads.value % tp:
        yield _cut(run, model.kv_heads, "key/value heads", model)


def _uneven(run: Run, size: Value[int] | None, what: str) -> Iterator[Violation]:
    tp = run.degrees.get("tp")
    if tp is None or size is None or size.value % tp.value == 0:
        return
    largest = -(-size.value // tp.value)
    last = max(size.value - largest * (tp.value - 1), 0)
    message = (
        f"{tp} cuts {what} {size.value} ({size.origin.text}) unevenly: {largest} on the first ranks, {last} on the last"
    )
    yield Violation(
        place(tp), message, notes(), Fix(f"use a divisor of {size.value}, such as {gcd(size.value, tp.value)}")
    )


@rule(
    "ND303",
    Severity.WARNING,
    Run,
    evidence="transformers 5.24, run: uneven last shard works; Megatron-LM and nanotron refuse",
    bad="tensor_parallel_size: 8\n",
    good="tensor_parallel_size: 4\n",
    given={"model_config": {**LLAMA_8B, "intermediate_size": 14332}},
    unchecked=True,
)
def tp_intermediate_size(run: Run) -> Iterator[Violation]:
    """tp does not divide the width of the MLP.

    The last rank gets a smaller part: correct, but the others wait for it, and fp8 or grouped kernels
    may want multiples of 16 in each part.
    """
    tp, model = _sizes(run)
    if tp > 1:
        yield from _uneven(run, model.intermediate, "the MLP's intermediate size")


@rule(
    "ND304",
    Severity.WARNING,
    Run,
    evidence="transformers 5.24, run: vocabulary 129 over tp 2 is exact; Megatron-LM pads and so changes the model",
    bad="tensor_parallel_size: 4\n",
    good="tensor_parallel_size: 2\n",
    given={"model_config": {**LLAMA_8B, "vocab_size": 128258}},
    unchecked=True,
)
def tp_vocab_size(run: Run) -> Iterator[Violation]:
    """tp does not divide the vocabulary.

    Embedding and head are cut over the vocabulary. An uneven cut is exact in transformers, but
    checkpoints and kernels of other frameworks expect a padded vocabulary, which is another model.
    """
    tp, model = _sizes(run)
    if tp > 1:
        yield from _uneven(run, model.vocab, "the vocabulary of")


RULES: tuple[Rule[Run], ...] = (tp_attention_heads, tp_kv_heads, tp_intermediate_size, tp_vocab_size)
