"""accelerate launch: keys of parallelism_config without the prefix are dropped without a word, though those of fsdp_config may
do without theirs. One process: the launcher's own merging of file and command line."""

import tempfile
from pathlib import Path

from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils.launch import prepare_multi_gpu_env

FILE = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
num_processes: 4
num_machines: 1
fsdp_config: {version: 2}
parallelism_config: {%sdp_shard_size: 2, %stp_size: 2}
"""

for prefix in ("parallelism_config_", ""):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "launch.yaml")
        path.write_text(FILE % (prefix, prefix))
        arguments = launch_command_parser().parse_args(["--config_file", str(path), "train.py"])
        arguments, _, _ = _validate_launch_command(arguments)
        environment = prepare_multi_gpu_env(arguments)
    seen = {key: environment[key] for key in environment if "SHARD_SIZE" in key or "TP_SIZE" in key}
    print(f"prefix {prefix!r}: {seen}")
