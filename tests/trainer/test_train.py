from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ndcheck.layout import Layout
from ndcheck.trainer import train
from ndcheck.trainer.data import join, make_row
from ndcheck.trainer.mesh import Mesh
from ndcheck.trainer.model import FAMILIES, draw_weights
from ndcheck.trainer.precision import KeepFloat64, compute_in
from ndcheck.trainer.settings import PRECISIONS, Settings
from tests.trainer.ranks import alone


def plain_losses(settings: Settings) -> list[float]:
    """The same training written as anyone would without parallelism: whole batches, torch's optimizer, a mean."""
    model = LlamaForCausalLM(LlamaConfig(**FAMILIES["llama"].shape, attn_implementation="sdpa")).double()
    draw_weights(model, settings.seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    # 44 rows in steps of 16; the last micro-batch of 8 is completed with the first four rows
    for samples in (range(16), range(16, 32), [*range(32, 44), 0, 1, 2, 3]):
        rows = join([make_row(index, settings, 256) for index in samples])
        input_ids, labels = rows.input_ids, rows.labels
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
    found = [step.loss.item() for step in train.train(train.build(Settings(), alone()))]
    assert found == pytest.approx(plain_losses(Settings()), rel=1e-12)
    assert len(set(found)) == 3


def test_a_step_is_seen_before_its_update():
    run = train.build(Settings(), alone())
    steps = train.train(run)
    weight = run.network.get_parameter("model.norm.weight")
    start = weight.detach().clone()
    assert next(steps).samples == tuple(range(16))
    assert torch.equal(weight.detach(), start)
    gradient = weight.grad.clone()
    assert next(steps).number == 2
    torch.testing.assert_close(weight.detach(), start - 0.1 * gradient, rtol=0, atol=1e-15)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_weights_and_gradients_have_the_precision_asked_for(precision):
    run = train.build(Settings(precision=precision), alone())
    step = next(train.train(run))
    dtype = {"mixed": torch.float32}.get(precision) or getattr(torch, precision)
    assert {parameter.dtype for parameter in run.network.parameters()} == {dtype}
    assert {parameter.grad.dtype for parameter in run.network.parameters()} == {dtype}
    exact = next(train.train(train.build(Settings(), alone()))).loss.item()
    error = abs(step.loss.item() / exact - 1)
    low, high = {"float64": (0, 0), "float32": (1e-10, 1e-6)}.get(precision, (1e-6, 1e-3))
    assert low <= error <= high


@pytest.mark.parametrize("changes", [{"checkpointing": True}, {"micro_batches": 4, "samples": 48}])
def test_how_it_is_computed_changes_nothing(changes):
    base = {name: value for name, value in changes.items() if name == "samples"}
    plain, other = (train.train(train.build(Settings(**chosen), alone())) for chosen in (base, changes))
    for first, second in zip(plain, other, strict=True):
        assert second.loss.item() == pytest.approx(first.loss.item(), rel=1e-14)
        assert second.gradient_norm.item() == pytest.approx(first.gradient_norm.item(), rel=1e-14)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_resumed_run_goes_on_as_if_nothing_had_happened(tmp_path):
    settings = Settings(optimizer="adamw")
    straight = [step.loss.item() for step in train.train(train.build(settings, alone()))]
    before = train.build(settings, alone())
    first = [step.loss.item() for step in train.train(before, last=1)]
    train.save(before, tmp_path)
    after = train.build(settings, alone())
    train.load(after, tmp_path)
    rest = list(train.train(after, first=2))
    assert [step.number for step in rest] == [2, 3]
    assert first + [step.loss.item() for step in rest] == straight


def test_the_evaluation_loss_is_that_of_each_row_once():
    settings = Settings()
    run = train.build(settings, alone())
    rows = join([make_row(index, settings, 256, "evaluation") for index in range(13)])
    with torch.no_grad(), compute_in("float64"):
        inputs = {"input_ids": rows.input_ids, "position_ids": rows.position_ids, "documents": rows.documents}
        odds = run.network(**inputs).logits.log_softmax(-1)
    chosen = rows.labels != -100
    expected = -odds[chosen].gather(1, rows.labels[chosen][:, None]).mean()
    assert train.evaluate(run).item() == pytest.approx(expected.item(), rel=1e-13)


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
