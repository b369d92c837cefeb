"""accelerate and transformers: a ParallelismConfig does not survive to_dict(), and a mapping in its place crashes the Trainer.
One process."""

import tempfile

import torch
from accelerate import ParallelismConfig
from transformers import Trainer, TrainingArguments

config = ParallelismConfig(tp_size=2)
print(f"ParallelismConfig(tp_size=2).to_json() is {config.to_json()}, expected its sizes")
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(folder, use_cpu=True, parallelism_config=ParallelismConfig())
    print(f"TrainingArguments.to_dict()['parallelism_config'] is {arguments.to_dict()['parallelism_config']}")
    arguments = TrainingArguments(folder, use_cpu=True, parallelism_config={"tp_size": 1})
    print(f"a mapping is let pass as a {type(arguments.parallelism_config).__name__}, and then")
    try:
        Trainer(torch.nn.Linear(2, 2), arguments)
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
