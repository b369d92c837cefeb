"""accelerate with transformers 5: preparing a tensor parallel model beside FSDP2 imports a class that is no longer there.
One process: the import that Accelerator._prepare_tp makes."""

import inspect

import accelerate
import transformers
from accelerate import Accelerator

print(f"accelerate {accelerate.__version__}, transformers {transformers.__version__}")
for number, line in enumerate(inspect.getsource(Accelerator._prepare_tp).splitlines(), 1):
    if "import ReplicateParallel" in line:
        print(f"_prepare_tp, line {number}: {line.strip()}")
        try:
            from transformers.integrations.tensor_parallel import ReplicateParallel  # noqa: F401
        except ImportError as error:
            print(f"ImportError: {error.msg.partition(' (')[0]}")
