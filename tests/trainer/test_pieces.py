"""What each rank holds, and what becomes of its gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ndcheck.layout import Layout
from ndcheck.trainer.gradients import Optimizer, clip, gradient_norm
from ndcheck.trainer.model import build_model
from ndcheck.trainer.settings import Settings
from tests.trainer.ranks import LocalPieces, one_step_gradients


@pytest.fixture(scope="module")
def weights() -> dict[str, np.ndarray]:
    model = build_model("llama", seed=0, dtype=torch.float64, device=torch.device("cpu"), attention="sdpa")
    return {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}


@pytest.fixture(scope="module")
def baseline() -> tuple[dict[str, torch.Tensor], float]:
    return one_step_gradients(Settings())


ROWS = ("embed_tokens", "q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "lm_head")
COLUMNS = ("o_proj", "down_proj")


def tp_piece(name: str, tensor: np.ndarray, index: int, degree: int) -> np.ndarray:
    """torch keeps a Linear's weight as [out, in]: a column-parallel layer is cut by rows of that."""
    if any(part in name for part in ROWS):
        return np.split(tensor, degree, axis=0)[index]
    if any(part in name for part in COLUMNS):
        return np.split(tensor, degree, axis=1)[index]
    return tensor


@pytest.mark.parametrize(
    "layout", [Layout(tp=2), Layout(dp_shard=2), Layout(dp_shard=2, tp=2), Layout(dp_replicate=2)], ids=str
)
def test_each_rank_holds_its_piece_and_the_norm_is_that_of_the_whole(on_ranks, weights, baseline, layout):
    gradients, _ = baseline
    expected_norm = torch.cat([gradient.flatten() for gradient in gradients.values()]).norm().item()
    for rank, (held, shapes, norm) in enumerate(on_ranks(LocalPieces(layout), layout.world_size)):
        place = layout.coordinates(rank)
        for name, tensor in weights.items():
            piece = tp_piece(name, tensor, place["tp"], layout.tp)
            piece = np.split(piece, layout.dp_shard, axis=0)[place["dp_shard"]]
            np.testing.assert_array_equal(held[name], piece, err_msg=f"rank {rank}, {name}")
            assert shapes[name] == piece.shape, f"gradient of {name} on rank {rank}"
        assert norm == pytest.approx(expected_norm, rel=1e-13)


def with_gradients() -> torch.nn.Linear:
    """A layer whose gradient has the norm sqrt(6 x 4 + 1 + 9)."""
    model = torch.nn.Linear(3, 2, dtype=torch.float64)
    model.weight.grad = torch.full((2, 3), 2.0, dtype=torch.float64)
    model.bias.grad = torch.tensor([1.0, -3.0], dtype=torch.float64)
    return model


def test_sgd_subtracts_the_scaled_gradient():
    model = with_gradients()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    assert gradient_norm(model).item() == pytest.approx(34**0.5, rel=1e-15)
    Optimizer(model, Settings()).step()
    torch.testing.assert_close(model.weight.detach(), before[0] - 0.2, rtol=0, atol=1e-15)
    torch.testing.assert_close(model.bias.detach(), before[1] - 0.1 * model.bias.grad, rtol=0, atol=1e-15)


def test_adamw_moves_by_the_learning_rate_at_first():
    """At step 1 the moments are the gradient and its square: a step of 1e-3 x sign, after a decay of 1e-2 x 1e-3."""
    model = with_gradients()
    before = model.bias.detach().clone()
    Optimizer(model, Settings(optimizer="adamw")).step()
    expected = before * (1 - 1e-5) - 1e-3 * torch.tensor([1.0, -1.0], dtype=torch.float64)
    torch.testing.assert_close(model.bias.detach(), expected, rtol=0, atol=1e-9)


def test_only_a_longer_gradient_is_clipped():
    model = with_gradients()
    clip(model, gradient_norm(model), 6.0)
    assert model.bias.grad.tolist() == [1.0, -3.0]
    clip(model, gradient_norm(model), 1.0)
    assert gradient_norm(model).item() == pytest.approx(1, rel=1e-15)
    assert model.bias.grad.tolist() == pytest.approx([1 / 34**0.5, -3 / 34**0.5], rel=1e-15)
    clip(model, gradient_norm(model), None)
    assert gradient_norm(model).item() == pytest.approx(1, rel=1e-15)


def test_room_for_a_state_changes_no_weight():
    model = with_gradients()
    before = model.weight.detach().clone()
    optimizer = Optimizer(model, Settings(optimizer="adamw"))
    optimizer.prepare_state()
    assert torch.equal(model.weight.detach(), before)
    assert set(optimizer.state()["weight"]) == {"exp_avg", "exp_avg_sq", "step"}
