"""accelerate: with dispatch_batches, ranks of one context parallel group read different rows. CPU, gloo, 2 processes."""

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
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("cp",))
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
            told = (
                "right"
                if every[0] == every[1]
                else "WRONG: peers of a cp group must hold the same rows before they are cut"
            )
            print(f"dispatch_batches={dispatch}: first batch of each rank {every}  {told}")
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(main, (29611,), RANKS)
