"""Rules about how accelerate's launcher starts the ranks."""

from __future__ import annotations

from collections.abc import Iterator

from ndcheck.findings import Fix, RenameKey, Severity, Violation, notes, place
from ndcheck.rules.conditions import above, equals, is_set, matches, on, one_of
from ndcheck.rules.keys import nearest
from ndcheck.rules.rule import Rule, conditional, rule
from ndcheck.settings import Settings
from ndcheck.values import dotted

DISTRIBUTED_TYPE = conditional(
    "AC101",
    "distributed-type-missing",
    Severity.ERROR,
    Settings,
    summary="The file does not say what runs the ranks",
    why="accelerate refuses a launch file without distributed_type.",
    when=~is_set("distributed_type") & ~equals("compute_environment", "AMAZON_SAGEMAKER"),
    message="distributed_type is missing: FSDP, MULTI_GPU, DEEPSPEED, ...",
    fix=Fix("add distributed_type"),
    evidence="accelerate 1.15 config_args.py:110",
    bad="num_processes: 2\n",
    good="num_processes: 2\ndistributed_type: MULTI_GPU\n",
    given={"drop": ["distributed_type"]},
)

SAGEMAKER = conditional(
    "AC102",
    "sagemaker",
    Severity.INFO,
    Settings,
    summary="The file is for SageMaker",
    why="Launch files for SageMaker have keys of their own, which ndcheck does not know.",
    when=equals("compute_environment", "AMAZON_SAGEMAKER"),
    message="{compute_environment}: the keys of SageMaker were not checked",
    evidence="accelerate 1.15 config_args.py, SageMakerConfig",
    bad="compute_environment: AMAZON_SAGEMAKER\n",
    good="compute_environment: LOCAL_MACHINE\n",
)


@rule(
    "AC103",
    Severity.WARNING,
    Settings,
    evidence="accelerate 1.15 launch.py:1306: left at -1, it is refused unless the command line has it",
    bad="num_machines: 1\n",
    good="num_machines: 1\nnum_processes: 8\n",
    given={"drop": ["num_processes"]},
)
def num_processes_missing(settings: Settings) -> Iterator[Violation]:
    """The file does not say how many ranks there are.

    The launcher wants ``num_processes`` from the file or from its command line.
    """
    kind = settings.value("distributed_type")
    if settings.value("num_processes") is None and kind is not None and kind.value not in (None, "NO"):
        message = "num_processes is missing: the launcher refuses, unless its command line has --num_processes"
        yield Violation(place(kind), message, fix=Fix("add num_processes"))


@rule(
    "AC104",
    Severity.ERROR,
    Settings,
    evidence="accelerate 1.15 config_args.py:154 refuses the file",
    bad="num_procs: 8\n",
    good="num_processes: 8\n",
)
def unknown_launch_key(settings: Settings) -> Iterator[Violation]:
    """The launch file has a key that accelerate does not know, and refuses.

    Unlike a strange key inside a section, which is dropped, one at top level stops the launcher.
    """
    for unknown in settings.unknown:
        key = unknown.path[-1]
        if not unknown.refused or not isinstance(key, str):
            continue
        message = f"accelerate does not know {dotted(unknown.path)} and refuses the file"
        if unknown.elsewhere is not None:
            yield Violation(
                unknown.path,
                f"{message}: it belongs in {unknown.elsewhere}",
                fix=Fix(f"move it to {unknown.elsewhere}"),
            )
            continue
        near = nearest(key, unknown.known)
        fix = Fix(f"rename it to {near}", edits=(RenameKey(unknown.path, near),)) if near else Fix("remove it")
        yield Violation(unknown.path, message + (f"; did you mean {near}?" if near else ""), fix=fix)


@rule(
    "AC105",
    Severity.ERROR,
    Settings,
    evidence="accelerate 1.15 utils/launch.py:216: processes per machine are num_processes // num_machines",
    bad="num_processes: 8\nnum_machines: 3\nmain_process_ip: 10.0.0.1\nmain_process_port: 29500\n",
    good="num_processes: 8\nnum_machines: 2\nmain_process_ip: 10.0.0.1\nmain_process_port: 29500\n",
    unchecked=True,
)
def machines_divide_processes(settings: Settings) -> Iterator[Violation]:
    """The ranks cannot be spread evenly over the machines.

    ``num_processes`` counts the ranks of all machines. Each machine starts their share, rounded down: the rest is lost
    without a word, and what is left no longer fills the mesh.
    """
    processes, machines = settings.value("num_processes"), settings.value("num_machines")
    if processes is None or machines is None or not processes.value or not machines.value or machines.value < 1:
        return
    each, lost = divmod(processes.value, machines.value)
    if lost:
        message = f"{processes} over {machines}: each machine starts {each}, and {lost} ranks are lost"
        fix = Fix(f"use a multiple of {machines.value}")
        yield Violation(place(processes), message, notes(machines), fix)


MACHINES_ADDRESS = conditional(
    "AC106",
    "machines-without-address",
    Severity.WARNING,
    Settings,
    summary="Several machines, and no address at which they meet",
    why="Every machine connects to main_process_ip and main_process_port. Unless the command line has them, the ranks wait "
    "for each other until they give up.",
    when=above("num_machines", 1) & ~is_set("deepspeed_config.deepspeed_hostfile"),
    then=is_set("main_process_ip") & is_set("main_process_port"),
    message="{num_machines} needs main_process_ip and main_process_port, here or on the command line",
    fix=Fix("add both"),
    evidence="accelerate 1.15 utils/launch.py:224",
    bad="num_machines: 2\n",
    good="num_machines: 2\nmain_process_ip: 10.0.0.1\nmain_process_port: 29500\n",
    unchecked=True,
)

ONE_GPU = conditional(
    "AC107",
    "one-gpu-named",
    Severity.ERROR,
    Settings,
    summary="Several ranks on one GPU",
    why="The launcher refuses MULTI_GPU with a single entry in gpu_ids on one machine.",
    when=equals("distributed_type", "MULTI_GPU") & ~above("num_machines", 1),
    then=~matches("gpu_ids", r"^\s*\d+\s*$"),
    message="{gpu_ids} names one GPU, and distributed_type is MULTI_GPU",
    fix=Fix("name at least two, or write all"),
    evidence="accelerate 1.15 launch.py, _validate_launch_command",
    bad="gpu_ids: '0'\n",
    good="gpu_ids: '0,1'\n",
)


def _unread(code: str, section: str, kinds: tuple[str, ...], bad: str, good: str) -> Rule[Settings]:
    """A section that is read for some distributed types only."""
    wanted = " or ".join(kinds)
    return conditional(
        code,
        f"{section.replace('_', '-')}-unread",
        Severity.WARNING,
        Settings,
        summary=f"{section} is there, and distributed_type is not {wanted}",
        why="The launcher hands a section on only for the type that it belongs to; the run goes on without it.",
        when=on(section) & is_set("distributed_type") & ~one_of("distributed_type", *kinds),
        message=f"{{distributed_type}}: nothing reads {section}, which is for {wanted}",
        fix=Fix(f"set distributed_type: {kinds[0]}, or remove {section}"),
        evidence="accelerate 1.15 utils/launch.py hands a section on for its type only",
        bad=bad,
        good=good,
        unchecked=True,
    )


FSDP_UNREAD = _unread(
    "AC108",
    "fsdp_config",
    ("FSDP",),
    "distributed_type: MULTI_GPU\nfsdp_config: {fsdp_version: 2}\n",
    "distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\n",
)
DEEPSPEED_UNREAD = _unread(
    "AC109",
    "deepspeed_config",
    ("DEEPSPEED",),
    "distributed_type: MULTI_GPU\ndeepspeed_config: {zero_stage: 2}\n",
    "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 2}\n",
)
MEGATRON_UNREAD = _unread(
    "AC110",
    "megatron_lm_config",
    ("MEGATRON_LM",),
    "distributed_type: MULTI_GPU\nmegatron_lm_config: {megatron_lm_tp_degree: 2}\n",
    "distributed_type: MEGATRON_LM\nmegatron_lm_config: {megatron_lm_tp_degree: 2}\n",
)


RULES: tuple[Rule[Settings], ...] = (
    DISTRIBUTED_TYPE,
    SAGEMAKER,
    num_processes_missing,
    unknown_launch_key,
    machines_divide_processes,
    MACHINES_ADDRESS,
    ONE_GPU,
    FSDP_UNREAD,
    DEEPSPEED_UNREAD,
    MEGATRON_UNREAD,
)
