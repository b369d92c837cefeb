"""Model families, made small, with the same weights under every layout.

A family is a row of ``FAMILIES``. Its shape must admit every layout of eight ranks unchanged: heads and
key-value heads that tp 8 divides, widths that shard evenly. A layout that quietly trains a slightly
different model (padded vocabulary, repeated heads) could not be compared with one process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from ndcheck.trainer.experts import replace_experts
from ndcheck.trainer.precision import compute_in

IGNORED_LABEL = -100
"""Label of a token that has no part in the loss (torch's own convention)."""


@dataclass(frozen=True)
class Family:
    """A causal language model of transformers and the small shape it is trained in here."""

    config_class: type
    model_class: type
    shape: Mapping[str, Any]

    @property
    def heads(self) -> int:
        """Number of attention heads."""
        return int(self.shape["num_attention_heads"])

    @property
    def kv_heads(self) -> int:
        """Number of key-value heads."""
        return int(self.shape["num_key_value_heads"])

    @property
    def vocabulary(self) -> int:
        """Number of token ids."""
        return int(self.shape["vocab_size"])


# grouped queries everywhere: two query heads share a key-value head
SHAPE: Mapping[str, Any] = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}

FAMILIES: Mapping[str, Family] = {
    "llama": Family(LlamaConfig, LlamaForCausalLM, SHAPE),
    # one matrix is embedding and LM head
    "llama-tied": Family(LlamaConfig, LlamaForCausalLM, {**SHAPE, "tie_word_embeddings": True}),
    # queries and keys are normed head by head: every tp rank sees a part of what those norms' weights do
    "qwen3": Family(Qwen3Config, Qwen3ForCausalLM, SHAPE),
    # norms scale by 1 + weight, four a layer; scores and logits are squashed; every other layer sees a window; tied
    "gemma2": Family(
        Gemma2Config,
        Gemma2ForCausalLM,
        {
            **SHAPE,
            "tie_word_embeddings": True,
            "sliding_window": 24,
            "query_pre_attn_scalar": 8,
            "attn_logit_softcapping": 5.0,
        }
        | {"final_logit_softcapping": 10.0},
    ),
    # a router sends each token to 2 of 8 experts
    "mixtral": Family(
        MixtralConfig,
        MixtralForCausalLM,
        {**SHAPE, "intermediate_size": 64, "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None},
    ),
}


def family(name: str) -> Family:
    """The family of that name; ValueError if there is none."""
    try:
        return FAMILIES[name]
    except KeyError:
        raise ValueError(f"family {name!r} is not one of {', '.join(FAMILIES)}") from None


def build_model(name: str, *, seed: int, dtype: torch.dtype, device: torch.device, attention: str) -> nn.Module:
    """A whole model of family ``name``, weights drawn by ``draw_weights``, ready to be sharded.

    ``attention`` is the name of an attention function known to transformers.
    """
    kind = family(name)
    config = kind.config_class(**kind.shape, attn_implementation=attention, use_cache=False)
    model = cast(nn.Module, kind.model_class(config)).to(device=device, dtype=dtype)
    replace_experts(model)
    draw_weights(model, seed)
    return model.train()


def recompute_layers(model: nn.Module, precision: str) -> None:
    """Activation checkpointing: keep each decoder layer's input only, and run the layer again in the backward pass."""

    def contexts() -> tuple[AbstractContextManager[object], AbstractContextManager[object]]:
        return nullcontext(), compute_in(precision)  # the second run has left the context of the first

    for layer in cast(nn.ModuleList, model.get_submodule("model.layers")):
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False, context_fn=contexts)


@torch.no_grad()
def draw_weights(model: nn.Module, seed: int) -> None:
    """Fill every parameter from a generator of its own, seeded by its name.

    So a parameter's values depend on nothing but ``seed``, its name and its shape: not on the layout, nor on
    how many others were drawn before it, nor on the type (they are drawn in float64 and rounded).
    Matrices get the variance 1 / columns, which keeps activations near 1; vectors (norm scales) lie around 1.
    A matrix under two names (tied) is drawn once, under the first.
    """
    for name, parameter in model.named_parameters():
        generator = torch.Generator().manual_seed(name_seed(f"{seed}:{name}"))
        values = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        values = values / parameter.shape[-1] ** 0.5 if parameter.dim() > 1 else 1 + 0.1 * values
        parameter.copy_(values)


def name_seed(text: str) -> int:
    """A seed of 63 bits from a text: the same in every process, unlike ``hash``."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
