"""What each rank holds, and what becomes of its gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ndcheck.layout import Layout
from ndcheck.trainer.gradients import gradient_norm, sgd_step
from ndcheck.trainer.model import build_model
from ndcheck.trainer.settings import Settings
from tests.trainer.ranks import LocalPieces, one_step_gradients


@pytest.fixture(scope="module")
def weights() -> dict[str, np.ndarray]:
    model = build_model("llama", seed=0, dtype=torch.float64, device=torch.device("cpu"), attention="sdpa")
    return {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}


@pytest.fixture(scope="module")
def baseline() -> tuple[dict[str, torch.Tensor], float]:
    return one_step_gradients(Settings(steps=1))


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


def test_sgd_subtracts_the_scaled_gradient():
    model = torch.nn.Linear(3, 2, dtype=torch.float64)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    model.weight.grad = torch.full((2, 3), 2.0, dtype=torch.float64)
    model.bias.grad = torch.tensor([1.0, -3.0], dtype=torch.float64)
    assert gradient_norm(model).item() == pytest.approx((6 * 4 + 1 + 9) ** 0.5, rel=1e-15)
    sgd_step(model, 0.5)
    assert torch.equal(model.weight.detach(), before[0] - 1)
    assert torch.equal(model.bias.detach(), before[1] - torch.tensor([0.5, -1.5], dtype=torch.float64))
