from __future__ import annotations

import pytest
import torch

from ndcheck.trainer import train
from ndcheck.trainer.data import join, make_row
from ndcheck.trainer.model import FAMILIES, build_model, draw_weights, family
from ndcheck.trainer.precision import compute_in
from ndcheck.trainer.settings import Settings
from tests.trainer.ranks import alone


def llama(seed: int = 0, dtype: torch.dtype = torch.float64) -> dict[str, torch.Tensor]:
    model = build_model("llama", seed=seed, dtype=dtype, device=torch.device("cpu"), attention="eager")
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def test_weights_do_not_depend_on_what_torch_drew_before():
    torch.manual_seed(1)
    first = llama()
    torch.manual_seed(2)
    second = llama()
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_weights_depend_on_the_seed_and_on_the_name():
    first, second = llama(seed=0), llama(seed=1)
    assert not any(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["model.layers.0.mlp.up_proj.weight"], first["model.layers.1.mlp.up_proj.weight"])


def test_a_parameter_does_not_depend_on_its_neighbours():
    small, large = torch.nn.Module(), torch.nn.Module()
    small.b = torch.nn.Linear(3, 2, bias=False)
    large.a = torch.nn.Linear(5, 5)
    large.b = torch.nn.Linear(3, 2, bias=False)
    draw_weights(small, 0)
    draw_weights(large, 0)
    assert torch.equal(small.b.weight, large.b.weight)


def test_lower_precision_is_the_same_draw_rounded():
    wide, narrow = llama(), llama(dtype=torch.bfloat16)
    assert all(torch.equal(narrow[name], wide[name].to(torch.bfloat16)) for name in wide)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_admits_eight_ranks_on_any_axis(name):
    kind = family(name)
    assert kind.heads % 8 == 0
    assert kind.kv_heads % 8 == 0
    assert kind.kv_heads < kind.heads, "grouped queries must be exercised"
    assert kind.vocabulary % 8 == 0
    assert kind.shape["intermediate_size"] % 8 == 0
    assert kind.shape["hidden_size"] % 8 == 0


def test_an_unknown_family_is_named():
    with pytest.raises(ValueError, match=r"family 'gpt' is not one of llama"):
        family("gpt")


@pytest.mark.parametrize("name", FAMILIES)
def test_our_attention_and_experts_are_those_of_transformers(name):
    """The same weights in transformers' own model, with its eager attention: the same logits."""
    settings = Settings(family=name)
    ours = train.build(settings, alone()).network
    theirs = plain_model(name, ours)
    rows = join([make_row(index, settings, 256) for index in range(3)])
    with torch.no_grad(), compute_in("float64"):
        found = ours(input_ids=rows.input_ids, position_ids=rows.position_ids, documents=rows.documents).logits
        expected = theirs(input_ids=rows.input_ids, use_cache=False).logits
    kept = rows.documents == 0  # what padding makes of itself differs, and has no label
    torch.testing.assert_close(found[kept], expected[kept], rtol=0, atol=1e-12)


def plain_model(name: str, ours: torch.nn.Module) -> torch.nn.Module:
    kind = family(name)
    plain = {"attn_implementation": "eager", "experts_implementation": "eager"}
    model = kind.model_class(kind.config_class(**kind.shape, **plain)).double()
    state = {key: value.reshape_as(model.state_dict()[key]) for key, value in ours.state_dict().items()}
    model.load_state_dict(state)
    return model


def test_tied_matrices_are_one_and_untied_ones_two():
    def matrices(name: str) -> set[str]:
        model = build_model(name, seed=0, dtype=torch.float64, device=torch.device("cpu"), attention="eager")
        return {key for key, _ in model.named_parameters() if "embed_tokens" in key or "lm_head" in key}

    assert matrices("llama") == {"model.embed_tokens.weight", "lm_head.weight"}
    assert matrices("llama-tied") == {"model.embed_tokens.weight"}
