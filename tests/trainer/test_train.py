from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ndcheck.layout import Layout
from ndcheck.trainer import train
from ndcheck.trainer.data import make_sample
from ndcheck.trainer.mesh import Mesh
from ndcheck.trainer.model import FAMILIES, draw_weights
from ndcheck.trainer.precision import KeepFloat64, compute_in
from ndcheck.trainer.settings import Settings
from tests.trainer.ranks import alone


def plain_losses(settings: Settings) -> list[float]:
    """The same training written as anyone would without parallelism: whole batches, torch's optimizer, a mean."""
    model = LlamaForCausalLM(LlamaConfig(**FAMILIES["llama"].shape, attn_implementation="sdpa")).double()
    draw_weights(model, settings.seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate)
    losses = []
    for step in range(settings.steps):
        samples = range(step * settings.global_batch, (step + 1) * settings.global_batch)
        rows = [make_sample(i, seed=settings.seed, sequence_length=64, vocabulary=256) for i in samples]
        input_ids, labels = (torch.stack(column) for column in zip(*rows, strict=True))
        with compute_in("float64"):
            logits = model(input_ids=input_ids, use_cache=False).logits
            chosen = labels != -100
            loss = -logits.log_softmax(-1)[chosen].gather(1, labels[chosen][:, None]).mean()
            optimizer.zero_grad()
            loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_one_process_is_the_textbook_loop():
    settings = Settings(steps=3)
    found = [step.loss.item() for step in train.train(train.build(settings, alone()), settings, alone())]
    assert found == pytest.approx(plain_losses(settings), rel=1e-12)
    assert len(set(found)) == 3


def test_a_step_is_seen_before_its_update():
    settings = Settings(steps=2)
    network = train.build(settings, alone())
    steps = train.train(network, settings, alone())
    weight = network.get_parameter("model.norm.weight")
    start = weight.detach().clone()
    assert next(steps).samples == tuple(range(16))
    assert torch.equal(weight.detach(), start)
    gradient = weight.grad.clone()
    assert next(steps).number == 2
    torch.testing.assert_close(weight.detach(), start - 0.1 * gradient, rtol=0, atol=1e-15)


@pytest.mark.parametrize("precision", ["float64", "float32", "bfloat16"])
def test_weights_and_gradients_have_the_precision_asked_for(precision):
    settings = Settings(steps=1, precision=precision)
    network = train.build(settings, alone())
    (step,) = train.train(network, settings, alone())
    assert {str(parameter.dtype) for parameter in network.parameters()} == {f"torch.{precision}"}
    # 6.0923 in float64; bfloat16 has 8 bits, and the loss is a mean over hundreds of tokens
    assert step.loss.item() == pytest.approx(
        6.0923, abs={"float64": 5e-5, "float32": 5e-5, "bfloat16": 5e-3}[precision]
    )


def test_a_layout_that_does_not_fit_is_refused_before_anything_is_built():
    with pytest.raises(ValueError, match="tp 3 does not divide the model's 16 attention heads"):
        train.build(Settings(), Mesh(Layout(tp=3), 0, torch.device("cpu"), None))


def test_a_cast_to_float32_inside_a_norm_does_not_round_a_float64_run():
    norm = LlamaForCausalLM(LlamaConfig(**FAMILIES["llama"].shape)).double().model.norm
    values = torch.randn(5, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    exact = values / (values.square().mean(-1, keepdim=True) + norm.variance_epsilon).sqrt()
    with KeepFloat64():
        kept = norm(values)
    torch.testing.assert_close(kept.detach(), exact, rtol=1e-14, atol=1e-14)
    assert (norm(values) - exact).abs().max() > 1e-9, "else this mode would be needless"


@pytest.mark.parametrize(
    "cast", [lambda t: t.to(torch.float32), lambda t: t.float(), lambda t: t.softmax(-1, dtype=torch.float32)]
)
def test_each_way_to_cast_is_caught(cast):
    with KeepFloat64():
        assert cast(torch.ones(2, dtype=torch.float64)).dtype is torch.float64
        assert cast(torch.ones(2, dtype=torch.bfloat16)).dtype is torch.float32
