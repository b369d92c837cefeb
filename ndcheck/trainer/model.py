"""Model families, made small, with the same weights under every layout.

A family is a row of ``FAMILIES``. Its shape must admit every layout of eight ranks unchanged: heads and
key-value heads that tp 8 divides, widths that shard evenly. A layout that quietly trains a slightly
different model (padded vocabulary, repeated heads) could not be compared with one process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

IGNORED_LABEL = -100
"""Label of a token that has no part in the loss (torch's own convention)."""


@dataclass(frozen=True)
class Family:
    """A causal language model of transformers and the small shape it is trained in here."""

    config_class: type
    model_class: type
    shape: Mapping[str, int | bool]

    @property
    def heads(self) -> int:
        """Number of attention heads."""
        return self.shape["num_attention_heads"]

    @property
    def kv_heads(self) -> int:
        """Number of key-value heads."""
        return self.shape["num_key_value_heads"]

    @property
    def vocabulary(self) -> int:
        """Number of token ids."""
        return self.shape["vocab_size"]


FAMILIES: Mapping[str, Family] = {
    # grouped queries: two query heads share a key-value head
    "llama": Family(
        LlamaConfig,
        LlamaForCausalLM,
        {
            "vocab_size": 256,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 8,
            "max_position_embeddings": 512,
            "tie_word_embeddings": False,
        },
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
    draw_weights(model, seed)
    return model.train()


@torch.no_grad()
def draw_weights(model: nn.Module, seed: int) -> None:
    """Fill every parameter from a generator of its own, seeded by its name.

    So a parameter's values depend on nothing but ``seed``, its name and its shape: not on the layout, nor on
    how many others were drawn before it, nor on the type (they are drawn in float64 and rounded).
    Matrices get the variance 1 / columns, which keeps activations near 1; vectors (norm scales) lie around 1.
    """
    for name, parameter in model.named_parameters():
        generator = torch.Generator().manual_seed(name_seed(f"{seed}:{name}"))
        values = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        values = values / parameter.shape[-1] ** 0.5 if parameter.dim() > 1 else 1 + 0.1 * values
        parameter.copy_(values)


def name_seed(text: str) -> int:
    """A seed of 63 bits from a text: the same in every process, unlike ``hash``."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
