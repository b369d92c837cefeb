"""accelerate: dispatch_batches with split_batches cuts a batch over all ranks, tp peers too, down to empty pieces.
CPU, gloo, 4 processes."""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from accelerate import PartialState
from accelerate.data_loader import prepare_data_loader
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import DataLoader

RANKS = 4


def main(rank: int, port: int) -> None:
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
    )
    state = PartialState(cpu=True)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp_shard", "tp"))
    for size in (8, 2, 6):  # each a multiple of the two data ranks, as the check demands
        loader = prepare_data_loader(
            DataLoader(torch.arange(24), batch_size=size),
            state.device,
            put_on_device=True,
            rng_types=[],
            dispatch_batches=True,
            split_batches=True,
            torch_device_mesh=mesh,
        )
        first = next(iter(loader)).tolist()
        every: list = [None] * RANKS
        dist.all_gather_object(every, first)
        if rank == 0:
            half = size // 2
            print(
                f"batch of {size}: ranks hold {every}, expected {[list(range(half))] * 2 + [list(range(half, size))] * 2}"
            )
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(main, (29613,), RANKS)
