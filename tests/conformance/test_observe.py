from __future__ import annotations

import torch

from ndcheck.conformance.cells import Cell
from ndcheck.conformance.faults import FAULTS, seeded
from ndcheck.conformance.observe import forward_order, whole
from ndcheck.layout import Layout
from ndcheck.trainer import data_parallel


class Backwards(torch.nn.Module):
    """Registers its last layer first."""

    def __init__(self) -> None:
        super().__init__()
        self.last = torch.nn.Linear(2, 2)
        self.unused = torch.nn.Linear(2, 2)
        self.first = torch.nn.Linear(2, 2, bias=False)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(values))


def test_parameters_in_the_order_in_which_they_are_used():
    network = Backwards()
    with forward_order(network) as order:
        network(torch.ones(2))
    assert list(order.parameters()) == ["first.weight", "last.weight", "last.bias", "unused.weight", "unused.bias"]
    network(torch.ones(2))
    assert not any(module._forward_pre_hooks for module in network.modules())


def test_whole_is_a_copy_in_float64():
    tensor = torch.ones(2, dtype=torch.float64)
    array = whole(tensor)
    tensor.add_(1)
    assert array.tolist() == [1, 1]
    assert whole(torch.ones(2, dtype=torch.bfloat16)).dtype == "float64"


def test_a_fault_is_gone_after_its_context():
    layout = Layout(dp_shard=2)
    cell = Cell(layout)
    original = data_parallel.gradient_divisor
    with seeded("gradients_not_averaged_over_dp_shard", cell):
        assert data_parallel.gradient_divisor(layout) == 0.5
    assert data_parallel.gradient_divisor is original
    with seeded("gradients_not_averaged_over_dp_shard", Cell(Layout(tp=2))):
        assert data_parallel.gradient_divisor is original
    with seeded(None, cell):
        assert data_parallel.gradient_divisor is original


def test_every_fault_says_what_it_is():
    for name, fault in FAULTS.items():
        assert fault.name == name
        assert fault.description.endswith(".")
        assert "\n" not in fault.description
        assert fault.touches(fault.example())
        assert fault.axes
