"""accelerate: where tp or cp fill all ranks, the order of the rows is not synchronised, and ranks that are seeded differently read
different rows. CPU, gloo, 2 processes."""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from accelerate import Accelerator
from accelerate.data_loader import prepare_data_loader
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import DataLoader, RandomSampler


def main(rank: int, port: int) -> None:
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
    )
    device = Accelerator(cpu=True).device
    for axis in ("dp_shard", "tp"):
        rows = torch.arange(8)
        sampler = RandomSampler(rows, generator=torch.Generator().manual_seed(rank))
        loader = prepare_data_loader(
            DataLoader(rows, batch_size=4, sampler=sampler),
            device,
            put_on_device=True,
            rng_types=["generator"],
            torch_device_mesh=init_device_mesh("cpu", (2,), mesh_dim_names=(axis,)),
        )
        first = next(iter(loader)).tolist()
        every: list = [None] * 2
        dist.all_gather_object(every, first)
        if rank == 0:
            wanted = "disjoint" if axis == "dp_shard" else "equal"
            print(f"{axis} 2: first batch of each rank {every}, expected {wanted}")
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(main, (29625,), 2)
