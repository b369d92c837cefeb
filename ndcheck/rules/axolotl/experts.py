"""axolotl's rules about expert parallelism and kernels for mixtures of experts."""

from __future__ import annotations

from collections.abc import Iterator

from ndcheck.findings import Fix, Severity, Violation, notes, place
from ndcheck.layout import counted, divisors, listed
from ndcheck.rules.conditions import above, is_set, matches, on
from ndcheck.rules.rule import Rule, conditional, rule
from ndcheck.run import Run
from ndcheck.settings import Settings

EP = "plugins: [axolotl.integrations.expert_parallel.ExpertParallelPlugin]\n"
KERNELS = "plugins: [axolotl.integrations.kernels.KernelsPlugin]\n"
FSDP2 = "fsdp_version: 2\nfsdp_config: {reshard_after_forward: true}\n"

RDMA_BYTES = conditional(
    "AX151",
    "expert-rdma-bytes",
    Severity.WARNING,
    Settings,
    summary="Expert parallelism with a buffer for RDMA",
    why="The buffer needs Hopper GPUs and InfiniBand that the GPUs drive themselves.",
    when=above("expert_parallel_size", 1),
    then=~on("expert_parallel_num_rdma_bytes"),
    message="{expert_parallel_num_rdma_bytes} needs Hopper GPUs and InfiniBand with IBGDA",
    fix=Fix("set it to 0 inside a node"),
    evidence="axolotl 0.18 expert_parallel/args.py:56",
    bad=f"{EP}expert_parallel_size: 8\nexpert_parallel_num_rdma_bytes: 1024\n",
    good=f"{EP}expert_parallel_size: 8\nexpert_parallel_num_rdma_bytes: 0\n",
    given={"world_size": 8},
)

CAPACITY = conditional(
    "AX152",
    "expert-capacity-below-one",
    Severity.ERROR,
    Settings,
    summary="An expert may take no token",
    why="The capacity counts tokens for each expert and forward pass; null is no limit.",
    when=is_set("expert_parallel_token_capacity"),
    then=above("expert_parallel_token_capacity", 0),
    message="{expert_parallel_token_capacity}: a capacity is at least 1, or null for no limit",
    fix=Fix("write null"),
    evidence="axolotl 0.18 expert_parallel/args.py:47",
    bad=f"{EP}expert_parallel_token_capacity: 0\n",
    good=f"{EP}expert_parallel_token_capacity: 1\n",
)


@rule(
    "AX153",
    Severity.ERROR,
    Run,
    evidence="axolotl 0.18 expert_parallel/plugin.py:301 and 333",
    bad=f"{EP}expert_parallel_size: 2\ntensor_parallel_size: 2\ndp_shard_size: 2\n{FSDP2}",
    good=f"{EP}expert_parallel_size: 2\ndp_shard_size: 4\n{FSDP2}",
    given={"world_size": 8},
    unchecked=True,
)
def expert_parallel_tp(run: Run) -> Iterator[Violation]:
    """Expert parallelism is combined with tensor parallelism.

    axolotl's plug-in does not know how to cut an expert that it moves to another rank.
    """
    if run.degree("ep") > 1 and run.degree("tp") > 1:
        ep, tp = run.degrees["ep"], run.degrees["tp"]
        yield Violation(
            place(tp), f"{ep} cannot be combined with {tp}", notes(ep), Fix("use dp_shard_size instead of tp")
        )


@rule(
    "AX154",
    Severity.ERROR,
    Run,
    evidence="axolotl 0.18 expert_parallel/plugin.py:452: its own product has no dp_replicate",
    bad=f"{EP}expert_parallel_size: 2\ndp_shard_size: 2\ndp_replicate_size: 2\n{FSDP2}",
    good=f"{EP}expert_parallel_size: 2\ndp_shard_size: 4\n{FSDP2}",
    given={"world_size": 8},
    unchecked=True,
)
def expert_parallel_replicated(run: Run) -> Iterator[Violation]:
    """Expert parallelism is combined with dp_replicate.

    The mesh is built, but the plug-in multiplies without the replicas and finds that ranks are left over.
    """
    if run.degree("ep") > 1 and run.degree("dp_replicate") > 1:
        ep, replicas = run.degrees["ep"], run.degrees["dp_replicate"]
        fix = Fix("move the replicas into dp_shard_size")
        yield Violation(place(replicas), f"{ep} cannot be combined with {replicas}", notes(ep), fix)


@rule(
    "AX155",
    Severity.ERROR,
    Run,
    evidence="axolotl 0.18 expert_parallel/shard.py:192",
    bad=f"{EP}expert_parallel_size: 8\n",
    good=f"{EP}expert_parallel_size: 4\n",
    given={"model_config": {"num_attention_heads": 32, "num_experts": 60}},
    unchecked=True,
)
def experts_divide(run: Run) -> Iterator[Violation]:
    """ep does not divide the number of experts.

    Every rank holds as many whole experts as any other.
    """
    if run.degree("ep") == 1:
        return
    ep, experts = run.degrees["ep"], run.model().experts
    if experts is None:
        message = f"{ep}, but the model has no experts ({run.model().source})"
        yield Violation(place(ep), message, fix=Fix("leave it out"))
    elif experts.value % ep.value:
        message = f"{ep} does not divide {counted(experts.value, 'expert')} ({experts.origin.text})"
        yield Violation(place(ep), message, fix=Fix(f"use {listed(divisors(experts.value))}"))


@rule(
    "AX156",
    Severity.WARNING,
    Run,
    evidence="axolotl's expert parallel guide: NVLink inside a node unless RDMA is configured",
    bad=f"{EP}expert_parallel_size: 8\n",
    good=f"{EP}expert_parallel_size: 4\n",
    given={"gpus_per_node": 4},
    unchecked=True,
)
def experts_across_nodes(run: Run) -> Iterator[Violation]:
    """An expert-parallel group spans more than one node.

    Tokens travel to their experts and back in every layer, over NVLink inside a node only.
    """
    if run.degree("ep") > 1 and run.degree("ep") > run.gpus_per_node().value:
        ep, gpus = run.degrees["ep"], run.gpus_per_node()
        message = f"{ep} does not fit inside a node of {gpus.value} GPUs ({gpus.origin.text})"
        yield Violation(place(ep), message, fix=Fix(f"use {gpus.value} or fewer"))


EXPERTS_CP = conditional(
    "AX160",
    "experts-with-cp",
    Severity.WARNING,
    Settings,
    summary="Expert parallelism with context parallelism",
    why="It needs an attention that does context parallelism by itself; of those that axolotl has, GLM's sparse one does.",
    when=above("expert_parallel_size", 1) & above("context_parallel_size", 1),
    then=on("use_glm_dsa_kernels"),
    message="{expert_parallel_size} with {context_parallel_size} is supported with use_glm_dsa_kernels only",
    fix=Fix("do without context parallelism"),
    evidence="axolotl 0.18 expert_parallel/README, limitations",
    bad=f"{EP}expert_parallel_size: 2\ncontext_parallel_size: 2\nattn_implementation: flash_attention_2\n",
    good=f"{EP}expert_parallel_size: 2\ncontext_parallel_size: 1\nattn_implementation: flash_attention_2\n",
    unchecked=True,
)

EXPERT_KERNELS_TWICE = conditional(
    "AX157",
    "expert-kernels-twice",
    Severity.ERROR,
    Settings,
    summary="use_scattermoe and use_sonicmoe",
    why="Both replace the experts.",
    when=on("use_scattermoe"),
    then=~on("use_sonicmoe"),
    message="{use_scattermoe} and {use_sonicmoe} exclude each other",
    fix=Fix("keep one of them"),
    evidence="axolotl 0.18 kernels/args.py:274",
    bad=f"{KERNELS}use_scattermoe: true\nuse_sonicmoe: true\n",
    good=f"{KERNELS}use_scattermoe: true\nuse_sonicmoe: false\n",
)

EXPERT_BACKEND = conditional(
    "AX158",
    "expert-backend-unknown",
    Severity.ERROR,
    Settings,
    summary="There is no such expert backend",
    why="axolotl's kernels plug-in knows four, in capitals or not.",
    when=on("expert_backend"),
    then=matches("expert_backend", r"^(?i:scattermoe|sonicmoe|eager|builtin)\Z"),
    message="{expert_backend}: there are scattermoe, sonicmoe, eager and builtin",
    fix=Fix("use one of them"),
    evidence="axolotl 0.18 kernels/args.py:187",
    bad=f"{KERNELS}expert_backend: scatter\n",
    good=f"{KERNELS}expert_backend: scattermoe\n",
)

EXPERT_BACKEND_CONTRADICTED = conditional(
    "AX159",
    "expert-backend-contradicted",
    Severity.ERROR,
    Settings,
    summary="expert_backend says another kernel than the flag",
    why="The flags are the older spelling of the same choice.",
    when=on("expert_backend") & (on("use_scattermoe") | on("use_sonicmoe")),
    then=(matches("expert_backend", r"^(?i:scattermoe)\Z") & on("use_scattermoe"))
    | (matches("expert_backend", r"^(?i:sonicmoe)\Z") & on("use_sonicmoe")),
    message="{expert_backend} contradicts {use_scattermoe}, {use_sonicmoe}",
    fix=Fix("keep expert_backend"),
    evidence="axolotl 0.18 kernels/args.py:187",
    bad=f"{KERNELS}expert_backend: sonicmoe\nuse_scattermoe: true\n",
    good=f"{KERNELS}expert_backend: scattermoe\nuse_scattermoe: true\n",
)

RULES: tuple[Rule[Settings] | Rule[Run], ...] = (
    RDMA_BYTES,
    CAPACITY,
    expert_parallel_tp,
    expert_parallel_replicated,
    experts_divide,
    experts_across_nodes,
    EXPERTS_CP,
    EXPERT_KERNELS_TWICE,
    EXPERT_BACKEND,
    EXPERT_BACKEND_CONTRADICTED,
)
