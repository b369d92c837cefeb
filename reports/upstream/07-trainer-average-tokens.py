"""transformers.Trainer: average_tokens_across_devices=False with tensor parallelism makes loss and gradients tp times too large.
CPU, gloo, 2 processes; accelerate's state is told that they are GPUs, since it refuses a mesh on CPU ranks."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from accelerate import PartialState
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


def main(rank: int, port: int, folder: str) -> None:
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
    )
    os.environ["ACCELERATE_BYPASS_DEVICE_MAP"] = "true"
    PartialState(cpu=True)
    PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    torch.manual_seed(0)
    rows = [{"input_ids": ids, "labels": ids} for ids in torch.randint(128, (8, 32))]
    for average in (True, False):
        model = AutoModelForCausalLM.from_pretrained(folder, distributed_config=DistributedConfig(tp_size=2))
        arguments = TrainingArguments(
            f"{folder}/out-{rank}", use_cpu=True, max_steps=1, per_device_train_batch_size=4, logging_steps=1,
            average_tokens_across_devices=average, accelerator_config={"use_configured_state": True}, save_strategy="no",
            report_to=[], disable_tqdm=True, train_sampling_strategy="sequential", dataloader_pin_memory=False,
        )  # fmt: skip
        trainer = Trainer(model, arguments, train_dataset=rows)
        trainer.train()
        log = trainer.state.log_history[0]
        if rank == 0:
            print(
                f"average_tokens_across_devices={average}: loss {log['loss']:.4f}, gradient norm {log['grad_norm']:.4f}"
            )
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(0)
        LlamaForCausalLM(CONFIG).save_pretrained(folder)
        mp.spawn(main, (29617, folder), 2)
