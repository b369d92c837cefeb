"""accelerate: sp_size without DeepSpeed cuts no sequence, and the ranks read as data ranks. CPU, gloo, 2 processes; accelerate's
state is told that they are GPUs."""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from accelerate import Accelerator, ParallelismConfig, PartialState
from accelerate.utils import DistributedType
from torch.utils.data import DataLoader


def main(rank: int, port: int) -> None:
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
    )
    os.environ["ACCELERATE_BYPASS_DEVICE_MAP"] = "true"
    PartialState(cpu=True)
    PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    accelerator = Accelerator(cpu=True, parallelism_config=ParallelismConfig(sp_size=2))
    loader = accelerator.prepare(DataLoader(torch.arange(8), batch_size=2))
    first = next(iter(loader)).tolist()
    every: list = [None] * 2
    dist.all_gather_object(every, first)
    if rank == 0:
        mesh = accelerator.torch_device_mesh
        print(f"mesh {mesh}, first batch of each rank {every}; expected an error: sp needs DeepSpeed")
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(main, (29620,), 2)
