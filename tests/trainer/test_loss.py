from __future__ import annotations

from math import exp, log

import pytest
import torch

from ndcheck.trainer.loss import global_token_count, summed_loss
from tests.trainer.ranks import ParallelLoss, alone, loss_logits


def summed_cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return summed_loss(logits, labels, alone(), parallel=False)


def test_sum_of_minus_log_probabilities_worked_out_by_hand():
    logits = torch.tensor([[[1.0, 2.0, 0.0], [0.0, 0.0, 3.0]]], dtype=torch.float64)
    labels = torch.tensor([[1, 0]])
    first = -log(exp(2) / (exp(1) + exp(2) + exp(0)))
    second = -log(exp(0) / (exp(0) + exp(0) + exp(3)))
    assert summed_cross_entropy(logits, labels).item() == pytest.approx(first + second, rel=1e-14)
    assert summed_cross_entropy(logits, torch.tensor([[1, -100]])).item() == pytest.approx(first, rel=1e-14)


def test_a_slice_without_labels_adds_nothing():
    logits = torch.ones(1, 2, 3, dtype=torch.float64, requires_grad=True)
    total = summed_cross_entropy(logits, torch.full((1, 2), -100))
    total.backward()
    assert total.item() == 0
    assert logits.grad is not None
    assert not logits.grad.any()


def test_bfloat16_logits_are_summed_in_float32():
    assert summed_cross_entropy(
        torch.zeros(1, 2, 3, dtype=torch.bfloat16), torch.zeros(1, 2, dtype=torch.long)
    ).dtype is (torch.float32)


def test_count_leaves_out_ignored_labels():
    assert global_token_count([torch.tensor([[5, -100, 0]]), torch.tensor([[-100, -100, 7]])], alone()).item() == 3


def test_one_divisor_for_uneven_parts():
    """Two parts with 1 and 3 labels: the step's loss is (a + b + c + d) / 4, not the mean of a and (b + c + d) / 3."""
    logits = torch.tensor([[0.3, 1.1], [2.0, 0.1], [0.0, 0.7], [1.0, 1.5]], dtype=torch.float64)[None]
    labels = torch.tensor([[0, 1, 0, 1]])
    each = [summed_cross_entropy(logits[:, i : i + 1], labels[:, i : i + 1]).item() for i in range(4)]
    tokens = global_token_count([labels], alone())
    parts = [summed_cross_entropy(logits[:, cut], labels[:, cut]) / tokens for cut in (slice(0, 1), slice(1, 4))]
    assert sum(part.item() for part in parts) == pytest.approx(sum(each) / 4, rel=1e-14)
    assert sum(each) / 4 != pytest.approx((each[0] + sum(each[1:]) / 3) / 2, rel=1e-3)


@pytest.mark.parametrize("tp", [2, 4])
def test_a_loss_over_a_cut_vocabulary_is_that_of_the_whole(on_ranks, tp):
    labels = (0, 3, 7, -100, 4)
    logits = loss_logits(5).requires_grad_()
    chosen = torch.tensor([0, 1, 2, 4])
    expected = -logits.log_softmax(-1)[chosen, torch.tensor([0, 3, 7, 4])].sum()
    expected.backward()
    found = on_ranks(ParallelLoss(tp, labels), tp)
    assert [total for total, _ in found] == pytest.approx([expected.item()] * tp, rel=1e-13)
    gradient = torch.cat([torch.tensor(part, dtype=torch.float64) for _, part in found], dim=-1)
    torch.testing.assert_close(gradient, logits.grad, rtol=0, atol=1e-13)
