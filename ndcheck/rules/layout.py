"""Rules about the mesh: degrees, their product, and where ranks sit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ndcheck.findings import Fix, Severity, Violation, notes, place
from ndcheck.layout import LayoutError, counted, divisors, listed, resolve
from ndcheck.rules.rule import Rule, rule
from ndcheck.run import Run
from ndcheck.values import Value


@rule(
    "ND101",
    Severity.ERROR,
    Run,
    evidence="accelerate 1.13 parallelism_config.py:372; torchtitan, Megatron-LM, nanotron and picotron all demand it",
    bad="tensor_parallel_size: 2\ndp_shard_size: 2\nfsdp_version: 2\nfsdp_config: {reshard_after_forward: true}\n",
    good="tensor_parallel_size: 2\ndp_shard_size: 4\nfsdp_version: 2\nfsdp_config: {reshard_after_forward: true}\n",
    given={"world_size": 8},
)
def world_size_product(run: Run) -> Iterator[Violation]:
    """The degrees do not multiply to the number of ranks.

    Every rank has one place in the mesh, so the product of all degrees is the world size. As soon as
    one degree above 1 is written, the others are taken as they stand: an axis that is left out counts
    as 1 and is not filled up.
    """
    explicit = run.explicit()
    if not explicit or not run.legal_degrees() or run.beside_mesh():
        return
    world = run.world_size()
    if run.product() == world.value:
        return
    degrees = {axis: value.value for axis, value in explicit.items()}
    arithmetic = " x ".join(str(value) for value in explicit.values())
    total = f" = {run.product()}" if len(explicit) > 1 else ""
    there = "there is" if world.value == 1 else "there are"
    message = f"{arithmetic}{total}, but {there} {counted(world.value, 'rank')} ({world.origin.text})"
    axis, choices = _culprit(world.value, degrees)
    if axis is not None:
        message += f"; {run.degree_name(axis)} could be {listed(choices)}"
    first = explicit[axis] if axis is not None else next(iter(explicit.values()))
    others = [value for value in explicit.values() if value is not first]
    yield Violation(place(first), message, notes(*others), _filling(run, degrees, world.value))


def _culprit(world: int, degrees: Mapping[str, int]) -> tuple[str | None, tuple[int, ...]]:
    """The one degree to blame, with those that would fit: it does not divide what the others leave."""
    try:
        resolve(world, degrees)
    except LayoutError as error:
        return error.axis, error.choices
    return None, ()


def _filling(run: Run, degrees: Mapping[str, int], world: int) -> Fix | None:
    """Set the one degree that makes the product right: dp_shard, or dp_replicate where nothing is sharded."""
    axis = "dp_shard" if run.sharding.fsdp.value or "dp_shard" in degrees else "dp_replicate"
    if axis == "dp_replicate" and (degrees.keys() & {"tp", "cp"}):
        axis = "dp_shard"
    try:
        layout = resolve(world, {**degrees, axis: None})
    except LayoutError:
        return None
    key, degree = run.degree_name(axis), getattr(layout, axis)
    if axis == "dp_shard" and not run.sharding.fsdp.value:
        return Fix(f"set {key}: {degree} and switch FSDP on ({run.sharding.switch}), which makes {layout} = {world}")
    return Fix(f"set {key}: {degree}, which makes {layout} = {world}", edits=run.set_degree(axis, degree))


@rule(
    "ND102",
    Severity.ERROR,
    Run,
    evidence="accelerate 1.13 parallelism_config.py:310; axolotl 0.18 takes 0 and negatives for 'off' (run)",
    bad="dp_shard_size: 0\n",
    good="dp_shard_size: 1\n",
    unchecked=True,
)
def degree_positive(run: Run) -> Iterator[Violation]:
    """A degree is not a positive integer.

    A degree counts ranks. Zero and negative numbers do not mean "all" or "automatic": they are taken
    for "off" in one place and multiplied in another.
    """
    for value in run.degrees.values():
        if value.value < 1:
            fix = Fix("leave it out, or write the number of ranks")
            yield Violation(place(value), f"{value}: a degree is an integer of at least 1", fix=fix)


@rule(
    "ND103",
    Severity.ERROR,
    Run,
    evidence="accelerate 1.13 to 1.15 refuse it (docs/versions.md); 1.16 lets tp pass, and transformers then cannot load the model",
    bad="dp_replicate_size: 4\ntensor_parallel_size: 2\n",
    good="dp_shard_size: 4\ntensor_parallel_size: 2\nfsdp_version: 2\nfsdp_config: {reshard_after_forward: true}\n",
    given={"world_size": 8},
)
def replicate_without_shard(run: Run) -> Iterator[Violation]:
    """tp or cp is combined with dp_replicate alone.

    Plain replication wraps the model in DDP, which cannot hold parameters that tensor parallelism has
    cut, nor average gradients over cp. Sharding (dp_shard above 1) is what composes with both.
    """
    inner = [run.degrees[axis] for axis in ("tp", "cp") if run.degree(axis) > 1]
    if (
        not run.sharding.by_mesh
        or not inner
        or run.degree("dp_replicate") == 1
        or run.degree("dp_shard") > 1
        or not run.legal_degrees()
    ):
        return
    replicas = run.degrees["dp_replicate"]
    message = f"{replicas} without dp_shard cannot be combined with {' and '.join(str(value) for value in inner)}"
    shard, replicate = run.degree_name("dp_shard"), run.degree_name("dp_replicate")
    edits = (*run.set_degree("dp_shard", replicas.value), *run.set_degree("dp_replicate", 1))
    fix = Fix(f"shard instead: {shard}: {replicas.value}, {replicate}: 1, with FSDP2 on", edits=edits)
    yield Violation(place(replicas), message, notes(*inner, run.degrees.get("dp_shard")), fix)


@rule(
    "ND104",
    Severity.WARNING,
    Run,
    evidence="axolotl's N-D parallelism guide; torchtitan and Megatron-LM place tp innermost for the same reason",
    bad="tensor_parallel_size: 8\n",
    good="tensor_parallel_size: 4\ndp_shard_size: 2\nfsdp_version: 2\nfsdp_config: {reshard_after_forward: true}\n",
    given={"world_size": 8, "gpus_per_node": 4},
    unchecked=True,
)
def tp_across_nodes(run: Run) -> Iterator[Violation]:
    """A tensor-parallel group spans more than one node.

    tp exchanges activations in every layer, forward and backward. Inside a node that runs over NVLink;
    across nodes it waits for the network in each of them.
    """
    tp = run.degree("tp")
    if tp == 1:
        return
    per_node: Value[int] = run.gpus_per_node()
    if per_node.value % tp == 0:
        return
    fitting = listed(divisors(per_node.value))
    value = run.degrees["tp"]
    message = f"{value} does not fit inside a node of {per_node.value} GPUs ({per_node.origin.text})"
    yield Violation(place(value), message, fix=Fix(f"use {fitting}, which stay inside a node"))


@rule(
    "ND105",
    Severity.WARNING,
    Run,
    evidence="picotron asserts it; launchers start the same number of processes on every node",
    bad="",
    good="",
    unchecked=True,
)
def nodes_partly_used(run: Run) -> Iterator[Violation]:
    """The ranks do not fill whole nodes.

    Launchers start as many processes on one node as on any other.
    """
    if run.facts.world_size is None or run.facts.gpus_per_node is None:
        return
    world, gpus = run.facts.world_size, run.facts.gpus_per_node
    if world.value > gpus.value and world.value % gpus.value:
        message = f"{counted(world.value, 'rank')} do not fill nodes of {gpus.value} GPUs"
        yield Violation((), message, fix=Fix(f"use a multiple of {gpus.value} ranks"))


RULES: tuple[Rule[Run], ...] = (
    world_size_product,
    degree_positive,
    replicate_without_shard,
    tp_across_nodes,
    nodes_partly_used,
)
