"""Tasks that run in ranks. A module of its own, so that a rank imports no test framework."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ndcheck.conformance.engines import Refused
from ndcheck.conformance.record import Record
from ndcheck.conformance.worker import Job, run_job


def leave_pid(folder: Path, rank: int) -> None:
    (folder / str(rank)).write_text(str(os.getpid()))


def square(rank: int, scratch: Path) -> int:
    return rank * rank


def warm(rank: int, scratch: Path) -> bool:
    """Whether torch and transformers were there before this task imported anything."""
    return "torch" in sys.modules and "transformers" in sys.modules


def threads(rank: int, scratch: Path) -> int:
    import torch

    return torch.get_num_threads()


def leave_a_mark(rank: int, scratch: Path) -> tuple[bool, list[str]]:
    """Dirty the process and the folder; tell whether an earlier task's dirt is seen."""
    before = hasattr(os, "ndcheck_mark"), [path.name for path in scratch.iterdir() if not path.name.endswith(".log")]
    os.ndcheck_mark = True
    (scratch / f"mark{rank}").touch()
    return before


def wait_for_ever() -> None:
    while True:
        time.sleep(3600)


@dataclass(frozen=True)
class Misbehave:
    """Rank 1 misbehaves in ``manner``; the others wait for it for ever, as in a collective."""

    manner: str
    pids: Path

    def __call__(self, rank: int, scratch: Path) -> str:
        leave_pid(self.pids, rank)
        if self.manner == "hang" and rank == 1:
            return "done"
        if rank == 1:
            misbehave(self.manner)
        wait_for_ever()
        return "never"


def misbehave(manner: str) -> None:
    if manner == "raise":
        raise RuntimeError("the seventh layer is missing\nand a second line")
    if manner == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if manner == "exit":
        os._exit(3)
    if manner == "refuse":
        raise Refused("sdpa with softcap is not supported")
    if manner == "hang":
        wait_for_ever()
    if manner == "loop":
        while True:
            pass
    if manner == "memory":
        bytearray(2**62)
    if manner == "skip":
        skip_a_collective()


def skip_a_collective() -> None:
    """From now on, the first all-reduce of the trainer is not taken part in: the others wait for this rank in it."""
    from ndcheck.trainer.mesh import Mesh

    original = Mesh.all_reduce
    skipped = []

    def all_reduce(self: Mesh, tensor: object, *axes: str) -> object:
        if not skipped:
            skipped.append(axes)
            return tensor
        return original(self, tensor, *axes)  # type: ignore[arg-type]

    Mesh.all_reduce = all_reduce  # type: ignore[assignment,method-assign]


@dataclass(frozen=True)
class Sabotage:
    """Run cells as usual, but the last rank of those in ``manners`` (cell id -> manner) misbehaves."""

    manners: Mapping[str, str]

    def __call__(self, job: Job, rank: int, scratch: Path) -> Record | None:
        if job.cell.id in self.manners and rank == job.layout.world_size - 1:
            misbehave(self.manners[job.cell.id])
        return run_job(job, rank, scratch)


def count_built_meshes(rank: int, scratch: Path) -> tuple[int, int]:
    """Meshes counted after building one and cutting it, and after building another."""
    from ndcheck.conformance.observe import count_meshes
    from ndcheck.layout import Layout
    from ndcheck.trainer.mesh import open_mesh

    layout = Layout(dp_replicate=2, dp_shard=2, cp=2)
    with count_meshes() as built:
        with open_mesh(layout, rank, scratch / "one") as mesh:
            mesh.fsdp_mesh()
            mesh.submesh("cp")
            first = len(built)
        with open_mesh(layout, rank, scratch / "two"):
            return first, len(built)
