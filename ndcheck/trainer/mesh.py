"""The mesh: which ranks talk to which, built once per process and handed to whatever needs it.

Eight ranks as dp_shard 2 x cp 2 x tp 2. The last axis varies fastest, so tp peers are neighbours::

                      cp 0            cp 1
                    tp 0  tp 1      tp 0  tp 1
      dp_shard 0     r0    r1        r2    r3
      dp_shard 1     r4    r5        r6    r7

    groups along tp         (r0 r1) (r2 r3) (r4 r5) (r6 r7)
    groups along cp         (r0 r2) (r1 r3) (r4 r6) (r5 r7)
    groups along dp_shard   (r0 r4) (r1 r5) (r2 r6) (r3 r7)

The axes and their order are those of ``Layout.mesh_axes``: an axis of degree 1 is no part of the mesh.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from ndcheck.layout import AXES, Layout

DATA_AXES: tuple[str, ...] = ("dp_replicate", "dp_shard", "cp")
"""Axes whose ranks hold different label tokens: sums over tokens run along all of them."""

BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
"""Device type -> communication backend."""

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Mesh:
    """One rank's view of the mesh.

    ``device_mesh`` is None when the layout has one rank: then there is nobody to talk to.
    """

    layout: Layout
    rank: int
    device: torch.device
    device_mesh: DeviceMesh | None

    def index(self, axis: str) -> int:
        """This rank's index along ``axis``, 0 for an axis of degree 1."""
        return self.layout.coordinates(self.rank)[axis]

    @property
    def data_rank(self) -> int:
        """Which share of the samples this rank reads, 0 to ``layout.data_ranks`` - 1."""
        return self.index("dp_replicate") * self.layout.dp_shard + self.index("dp_shard")

    def groups(self, *axes: str) -> list[dist.ProcessGroup]:
        """The groups this rank belongs to along those of ``axes`` that have more than one rank."""
        used = self._used(axes)
        return [self.device_mesh.get_group(axis) for axis in used] if self.device_mesh is not None else []

    def all_reduce(self, tensor: torch.Tensor, *axes: str) -> torch.Tensor:
        """Sum ``tensor`` over ``axes``, in place, and return it."""
        for group in self.groups(*axes):
            dist.all_reduce(tensor, group=group)
        return tensor

    def submesh(self, *axes: str) -> DeviceMesh | None:
        """The mesh of those of ``axes`` that have more than one rank, None if none has."""
        used = self._used(axes)
        return self.device_mesh[used] if self.device_mesh is not None and used else None

    def _used(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        """Those of ``axes`` that have more than one rank. A misspelt axis must not pass for one of degree 1."""
        unknown = [axis for axis in axes if axis not in AXES]
        assert not unknown, f"no such axis: {', '.join(unknown)}"
        return tuple(axis for axis in axes if axis in self.layout.mesh_axes)

    def fsdp_mesh(self) -> DeviceMesh | None:
        """The mesh that parameters are sharded over, None if they are not.

        1-D: dp_shard and cp as one flat axis, since cp peers hold the same parameters and must
        sum their gradients just as dp_shard peers do. With dp_replicate in front of it, 2-D: HSDP.
        """
        shards = self.submesh("dp_shard", "cp")
        if shards is None:
            return None
        if shards.ndim == 2:
            shards = shards._flatten("dp_shard_cp")
        replicas = self.submesh("dp_replicate")
        return DeviceMesh._concatenate([replicas, shards]) if replicas is not None else shards


@contextmanager
def open_mesh(
    layout: Layout,
    rank: int,
    rendezvous: Path,
    *,
    device: torch.device = CPU,
    timeout: timedelta = timedelta(minutes=5),
) -> Iterator[Mesh]:
    """Connect this process to the others of ``layout`` and build the mesh; disconnect at the end.

    ``rendezvous`` is a path at which no file exists yet, the same for all ranks; it must be on a file
    system that all of them see. A file needs no port, so runs side by side cannot collide.
    ``timeout`` bounds each collective. ``device`` is this rank's own: all ranks are on one machine.
    """
    with connected(layout.world_size, rank, rendezvous, device, timeout):
        axes, shape = layout.mesh_axes, layout.mesh_shape
        mesh = init_device_mesh(device.type, shape, mesh_dim_names=axes) if axes else None
        yield Mesh(layout, rank, device, mesh)


@contextmanager
def connected(world_size: int, rank: int, rendezvous: Path, device: torch.device, timeout: timedelta) -> Iterator[None]:
    """Be rank ``rank`` of torch's default process group while active; of one rank, there is none. See ``open_mesh``."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if world_size == 1:
        yield
        return
    dist.init_process_group(
        BACKENDS[device.type],
        init_method=rendezvous.absolute().as_uri(),
        rank=rank,
        world_size=world_size,
        timeout=timeout,
        device_id=device if device.type == "cuda" else None,
    )
    try:
        yield
    finally:
        dist.destroy_process_group()
