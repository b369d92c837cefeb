"""transformers 5: from_pretrained(tp_plan="auto", tp_size=2, device_mesh=mesh["tp"]) ignores the mesh, so that accelerate's own
recipe for FSDP x TP cannot load a model. CPU, gloo, 4 processes."""

import os
import tempfile

import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

RANKS = 4
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
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
    )
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp_shard", "tp"))
    try:
        AutoModelForCausalLM.from_pretrained(folder, tp_plan="auto", tp_size=2, device_mesh=mesh["tp"])
        told = "loaded"
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
    if rank == 0:
        print(f"{told}\nexpected: a model that is cut over the two ranks of mesh['tp']")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        LlamaForCausalLM(CONFIG).save_pretrained(folder)
        mp.spawn(main, (29616, folder), RANKS)
