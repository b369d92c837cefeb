"""accelerate: under tp, a dispatching loader says that it has 1/ranks of its batches. CPU, gloo, 2 processes."""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from accelerate import PartialState
from accelerate.data_loader import prepare_data_loader
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import DataLoader

RANKS = 2


def main(rank: int, port: int) -> None:
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
    )
    state = PartialState(cpu=True)
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("tp",))
    loader = prepare_data_loader(
        DataLoader(torch.arange(32), batch_size=4),
        state.device,
        put_on_device=True,
        rng_types=[],
        dispatch_batches=True,
        torch_device_mesh=mesh,
    )
    said, seen = len(loader), sum(1 for _ in loader)
    if rank == 0:
        print(f"len(loader) is {said}, iterating gives {seen} batches, expected 8 and 8")
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(main, (29614,), RANKS)
