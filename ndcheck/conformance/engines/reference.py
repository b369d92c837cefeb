"""The reference engine: ``ndcheck.trainer``, watched."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from ndcheck.conformance.cells import Cell
from ndcheck.conformance.engines import Refused
from ndcheck.conformance.observe import count_meshes, forward_order, whole
from ndcheck.conformance.record import Array, Record
from ndcheck.trainer import train
from ndcheck.trainer.mesh import open_mesh
from ndcheck.trainer.settings import Settings


def run(cell: Cell, rank: int, scratch: Path, device_type: str, timeout: timedelta) -> Record:
    """Train ``cell`` as one of its ranks. ``scratch``: an empty folder that all its ranks share."""
    settings = Settings(precision=cell.precision)
    try:
        train.check(settings, cell.layout)
    except ValueError as error:
        raise Refused(str(error)) from None
    steps: list[train.Step] = []
    gradients: dict[str, Array] = {}
    rendezvous = scratch / "rendezvous"
    with (
        count_meshes() as meshes,
        open_mesh(cell.layout, rank, rendezvous, device_type=device_type, timeout=timeout) as mesh,
    ):
        network = train.build(settings, mesh)
        with forward_order(network) as order:
            for step in train.train(network, settings, mesh):
                steps.append(step)
                if step.number == 1:
                    parameters = order.parameters()
                    gradients = {name: whole(parameter.grad) for name, parameter in parameters.items()}
        weights = {name: whole(parameter) for name, parameter in parameters.items()}
    return Record(
        rank=rank,
        coordinates=cell.layout.coordinates(rank),
        losses=tuple(step.loss.item() for step in steps),
        gradient_norms=tuple(step.gradient_norm.item() for step in steps),
        samples=tuple(step.samples for step in steps),
        gradients=gradients,
        weights=weights,
        mesh_constructions=len(meshes),
    )
