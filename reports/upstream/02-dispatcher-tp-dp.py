"""accelerate: with dispatch_batches on a mesh of dp_shard x tp, every rank gets one and the same batch, and the guard against
it never fires. CPU, gloo, 4 processes."""

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
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp_shard", "tp"))  # the names of ParallelismConfig
    for dispatch in (False, True):
        loader = prepare_data_loader(
            DataLoader(torch.arange(16), batch_size=4),
            state.device,
            put_on_device=True,
            rng_types=[],
            dispatch_batches=dispatch,
            torch_device_mesh=mesh,
        )
        first = next(iter(loader)).tolist()
        every: list = [None] * RANKS
        dist.all_gather_object(every, first)
        if rank == 0:
            right = every[0] == every[1] and every[2] == every[3] and every[0] != every[2]
            told = "right" if right else "WRONG: the two data ranks train on the same rows"
            print(f"dispatch_batches={dispatch}: first batch of each rank {every}  {told}")
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(main, (29612,), RANKS)
