"""transformers.Trainer: a ParallelismConfig() passed beside a model that DistributedConfig has sharded keeps a mesh of ones, so that
all ranks read the same rows. CPU, gloo, 4 processes; accelerate's state is told that they are GPUs."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from accelerate import ParallelismConfig, PartialState
from accelerate.utils import DistributedType
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
from transformers.distributed import DistributedConfig

CONFIG = LlamaConfig(
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=128,
)


def main(rank: int, port: int, folder: str, passed: bool) -> None:
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="4", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
    )
    os.environ["ACCELERATE_BYPASS_DEVICE_MAP"] = "true"
    PartialState(cpu=True)
    PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    rows = [{"input_ids": torch.full((8,), index), "labels": torch.full((8,), index)} for index in range(16)]
    model = AutoModelForCausalLM.from_pretrained(folder, distributed_config=DistributedConfig(fsdp_size=2, tp_size=2))
    arguments = TrainingArguments(
        f"{folder}/out-{rank}", use_cpu=True, per_device_train_batch_size=4, save_strategy="no", report_to=[],
        parallelism_config=ParallelismConfig() if passed else None, train_sampling_strategy="sequential",
        accelerator_config={"use_configured_state": True}, dataloader_pin_memory=False,
    )  # fmt: skip
    trainer = Trainer(model, arguments, train_dataset=rows)
    first = next(iter(trainer.get_train_dataloader()))["input_ids"][:, 0].tolist()
    every: list = [None] * 4
    dist.all_gather_object(every, first)
    if rank == 0:
        print(f"parallelism_config={'ParallelismConfig()' if passed else 'None'}: rows of each rank {every}")
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(0)
        LlamaForCausalLM(CONFIG).save_pretrained(folder)
        for passed in (False, True):
            mp.spawn(main, (29618 + passed, folder, passed), 4)
