"""accelerate: an FSDP plug-in on CPU ranks is dropped without a word, and DDP runs. CPU, gloo, 2 processes."""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from accelerate import Accelerator
from accelerate.utils import FullyShardedDataParallelPlugin


def main(rank: int, port: int) -> None:
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
    )
    accelerator = Accelerator(cpu=True, fsdp_plugin=FullyShardedDataParallelPlugin(fsdp_version=2))
    model = torch.nn.Linear(4, 4)
    model, _ = accelerator.prepare(model, torch.optim.SGD(model.parameters()))
    if rank == 0:
        print(
            f"{accelerator.distributed_type}, model is {type(model).__name__}; expected FSDP, or an error that says why not"
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(main, (29619,), 2)
