"""accelerate launch: the check that --use_parallelism_config needs FSDP2 compares text with a number, so that FSDP1 passes; and a
paradigm's flag on the command line drops the file's parallelism_config. One process: the launcher's own check."""

import tempfile
from pathlib import Path

from accelerate.commands.launch import _validate_launch_command, launch_command_parser

FILE = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
num_processes: 2
num_machines: 1
fsdp_config: {fsdp_version: 2}
parallelism_config: {parallelism_config_dp_shard_size: 2}
"""


def check(*flags: str) -> object:
    return _validate_launch_command(launch_command_parser().parse_args([*flags, "train.py"]))[0]


arguments = check(
    "--use_fsdp", "--use_parallelism_config", "--parallelism_config_dp_shard_size", "2", "--num_processes", "2"
)
print(f"FSDP version {arguments.fsdp_version!r} with --use_parallelism_config passes; expected the error of that check")
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "launch.yaml")
    path.write_text(FILE)
    for flags in ((), ("--use_fsdp",)):
        arguments = check("--config_file", str(path), *flags)
        print(f"flags {list(flags)}: use_parallelism_config is {arguments.use_parallelism_config}, expected True")
