"""accelerate: under tp, gather_for_metrics returns the rows of every peer, and a prepared scheduler steps once for every rank.
CPU, gloo, 2 processes; accelerate's state is told that they are GPUs."""

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
    accelerator = Accelerator(cpu=True, parallelism_config=ParallelismConfig(tp_size=2))
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    loader, optimizer, scheduler = accelerator.prepare(DataLoader(torch.arange(48), batch_size=8), optimizer, schedule)
    gathered = [row for batch in loader for row in accelerator.gather_for_metrics(batch).tolist()]
    optimizer.step()
    scheduler.step()
    if rank == 0:
        print(
            f"48 rows were gathered as {len(gathered)}; one step moved the schedule by {schedule.last_epoch}; expected 48 and 1"
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(main, (29623,), 2)
