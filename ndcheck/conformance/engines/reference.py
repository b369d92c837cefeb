"""The reference engine: ``ndcheck.trainer``, watched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

from ndcheck.conformance.cells import Cell
from ndcheck.conformance.engines import Refused
from ndcheck.conformance.observe import count_meshes, forward_order, whole
from ndcheck.conformance.record import Array, Record
from ndcheck.layout import Layout
from ndcheck.trainer import train
from ndcheck.trainer.context_parallel import slice_positions
from ndcheck.trainer.loader import slice_rows
from ndcheck.trainer.loss import global_token_count
from ndcheck.trainer.mesh import Mesh, open_mesh
from ndcheck.trainer.precision import compute_in

ROW_PARAMETER = "model.norm.weight"
"""Small, and reached by every label token."""


@contextmanager
def open_session(
    layout: Layout, rank: int, scratch: Path, device: torch.device, timeout: timedelta
) -> Iterator[ReferenceSession]:
    """One mesh for all cells of a layout. ``scratch``: an empty folder that all its ranks share."""
    with (
        count_meshes() as meshes,
        open_mesh(layout, rank, scratch / "rendezvous", device=device, timeout=timeout) as mesh,
    ):
        yield ReferenceSession(mesh, meshes)


class ReferenceSession:
    """See ``Session``."""

    def __init__(self, mesh: Mesh, meshes: list[Any]):
        self.mesh, self.meshes = mesh, meshes

    def run(self, cell: Cell) -> Record:
        """See ``Session``."""
        return self._train(cell, self._build(cell))

    def save(self, cell: Cell, folder: Path) -> None:
        """See ``Session``."""
        run = self._build(cell)
        for _ in train.train(run, last=cell.settings.resume_at):
            pass
        train.save(run, folder)

    def resume(self, cell: Cell, folder: Path) -> Record:
        """See ``Session``."""
        run = self._build(cell)
        train.load(run, folder)
        return self._train(cell, run, first=cell.settings.resume_at + 1)

    def _build(self, cell: Cell) -> train.Run:
        try:
            train.check(cell.settings, self.mesh.layout)
        except ValueError as error:
            raise Refused(str(error)) from None
        return train.build(cell.settings, self.mesh)

    def _train(self, cell: Cell, run: train.Run, first: int = 1) -> Record:
        steps: list[train.Step] = []
        gradients: dict[str, Array] = {}
        observed = cell.settings.resume_at + 1  # a baseline runs straight through what the cell resumes
        with forward_order(run.network) as order:
            for step in train.train(run, first=first):
                if step.number >= observed:
                    steps.append(step)
                if step.number == observed:
                    parameters = order.parameters()
                    gradients = {name: whole(parameter.grad) for name, parameter in parameters.items()}
                    rows = row_gradients(run, step) if self.mesh.device_mesh is None else {}
        return Record(
            rank=self.mesh.rank,
            coordinates=self.mesh.layout.coordinates(self.mesh.rank),
            first_step=observed,
            losses=tuple(step.loss.item() for step in steps),
            gradient_norms=tuple(step.gradient_norm.item() for step in steps),
            samples=tuple(step.samples for step in steps),
            positions=tuple(slice_positions(cell.settings, self.mesh.layout.cp, self.mesh.index("cp")).tolist()),
            rows_read=run.dataset.rows_read,
            gradients=gradients,
            weights={name: whole(parameter) for name, parameter in parameters.items()},
            evaluation_loss=train.evaluate(run).item() if cell.settings.evaluate else None,
            mesh_constructions=len(self.meshes),
            row_parameter=ROW_PARAMETER if rows else None,
            row_gradients=rows,
        )


def row_gradients(run: train.Run, step: train.Step) -> dict[int, Array]:
    """What each row of ``step`` brings to the gradient of ``ROW_PARAMETER``, before the update."""
    parameter = run.network.get_parameter(ROW_PARAMETER)
    parts = {row: slice_rows(run.dataset[row], run.settings, run.mesh) for row in dict.fromkeys(step.samples)}
    tokens = global_token_count((parts[row].labels for row in step.samples), run.mesh)
    found = {}
    for row, part in parts.items():
        with compute_in(run.settings.precision):
            share = train.micro_batch_loss(run, part) / tokens * step.samples.count(row)
            found[row] = whole(torch.autograd.grad(share, parameter)[0])
    return found
