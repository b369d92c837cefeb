"""Seeded faults: small patches of the trainer, each a bug of a kind seen in the wild.

A faulty run raises nothing and its loss looks plausible; only the comparison can tell. How a fault is declared and
seeded: ``seeding.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

from ndcheck.conformance.cells import Cell
from ndcheck.conformance.seeding import ANY, DATA, FAULTS, Function, Patch, fault, instead, seeded
from ndcheck.layout import Layout

__all__ = ["FAULTS", "seeded"]

# --- normalisation -------------------------------------------------------------------------------------------------


@fault("dp_shard")
def gradients_not_averaged_over_dp_shard(patch: Patch, cell: Cell) -> None:
    """The division by the number of dp_shard ranks is missing: gradients are dp_shard times too large."""
    patch("data_parallel.gradient_divisor", lambda original: lambda layout: original(layout) / layout.dp_shard)


@fault("dp_shard")
def gradients_averaged_twice(patch: Patch, cell: Cell) -> None:
    """FSDP averages over its ranks, although the loss is normalised already."""
    patch("data_parallel.gradient_divisor", lambda original: lambda layout: original(layout) * layout.dp_shard)


@fault("dp_replicate", "dp_shard", "cp")
def mean_of_means(patch: Patch, cell: Cell) -> None:
    """Each rank divides by its own count of label tokens, and the results are averaged over ranks."""
    holders = cell.layout.data_ranks * cell.layout.cp

    def own_count(labels: Any, mesh: Any) -> Any:
        return sum((part >= 0).sum() for part in labels).clamp(min=1) * holders

    patch("loss.global_token_count", instead(own_count))


@fault(*ANY)
def mean_over_micro_batches(patch: Patch, cell: Cell) -> None:
    """Each micro-batch divides by its own count of label tokens, and the results are averaged."""
    from ndcheck.trainer.data_parallel import local

    def wrap(original: Function) -> Function:
        def accumulate(run: Any, parts: Any) -> Any:
            total = sum(original(run, [part]) for part in parts) / len(parts)
            for parameter in run.network.parameters():
                local(parameter.grad).div_(len(parts))
            return total

        return accumulate

    patch("train.accumulate_gradients", wrap)


@fault("cp")
def tokens_counted_per_slice(patch: Patch, cell: Cell) -> None:
    """The count of label tokens is summed over data ranks, and not over cp."""

    def count_tokens(labels: Any, mesh: Any) -> Any:
        return mesh.all_reduce(sum((part >= 0).sum() for part in labels).clamp(min=1), *DATA)

    patch("loss.global_token_count", instead(count_tokens))


@fault(*ANY)
def first_micro_batch_forgotten(patch: Patch, cell: Cell) -> None:
    """Gradients of the first micro-batch of each step are lost; its loss is counted."""
    calls = count()

    def wrap(original: Function) -> Function:
        def micro_batch_loss(run: Any, part: Any) -> Any:
            value = original(run, part)
            lost = next(calls) % run.settings.micro_batches == 0
            return value.detach() + 0 * value if lost else value

        return micro_batch_loss

    patch("train.micro_batch_loss", wrap)


# --- rows ----------------------------------------------------------------------------------------------------------


@fault(*DATA)
def last_rank_dropped(patch: Patch, cell: Cell) -> None:
    """The last data rank's rows never reach the loss; the mean is over the others'."""

    def wrap(original: Function) -> Function:
        def slice_rows(rows: Any, settings: Any, mesh: Any) -> Any:
            batch = original(rows, settings, mesh)
            if mesh.data_rank == cell.layout.data_ranks - 1:
                batch.labels.fill_(-100)
            return batch

        return slice_rows

    patch("loader.slice_rows", wrap)


@fault(*DATA, dispatch_batches=True)
def dispatcher_sends_one_share_to_all(patch: Patch, cell: Cell) -> None:
    """Every data rank gets the dispatcher's first share."""
    patch("loader.share", lambda original: lambda rows, data_rank, size: original(rows, 0, size))


@fault(*DATA, dispatch_batches=False, dataset="iterable")
def stream_not_shared_out(patch: Patch, cell: Cell) -> None:
    """Every data rank keeps the same rows of the stream."""
    patch("loader.share", lambda original: lambda rows, data_rank, size: original(rows, 0, size))


@fault(*DATA, dispatch_batches=False, split_batches=False, dataset="map")
def first_batch_dealt_to_all(patch: Patch, cell: Cell) -> None:
    """Of the batches of a round, every data rank takes the first."""
    patch(
        "loader.deal_batches",
        lambda original: lambda indices, size, data_ranks, data_rank: original(indices, size, data_ranks, 0),
    )


@fault(*DATA, dispatch_batches=False, split_batches=True, dataset="map")
def shares_overlap(patch: Patch, cell: Cell) -> None:
    """A data rank's part of a batch begins one row too early: that row counts twice, and the last one never."""

    def overlapping(indices: Any, size: int, data_ranks: int, data_rank: int) -> Any:
        for start in range(0, len(indices), data_ranks * size):
            first = start + max(0, data_rank * size - 1)
            yield indices[first : first + size]

    patch("loader.cut_batches", instead(overlapping))


@fault("cp", "dp_shard", every=True)
def cp_peers_read_different_rows(patch: Patch, cell: Cell) -> None:
    """The loader takes cp for a data axis: peers hold slices of different rows."""
    patch("mesh.Mesh.data_rank", _shifted_by("cp", cell.layout))


@fault("tp", "dp_shard", every=True)
def tp_peers_read_different_rows(patch: Patch, cell: Cell) -> None:
    """The loader takes tp for a data axis: peers compute parts of different rows."""
    patch("mesh.Mesh.data_rank", _shifted_by("tp", cell.layout))


def _shifted_by(axis: str, layout: Layout) -> Callable[[Any], Any]:
    return lambda original: property(
        lambda mesh: (original.fget(mesh) + layout.coordinates(mesh.rank)[axis]) % layout.data_ranks
    )


@fault(*ANY, even_batches=True)
def tail_not_completed(patch: Patch, cell: Cell) -> None:
    """even_batches is ignored: the last micro-batch stays short."""
    patch("loader.load", lambda original: lambda dataset, mesh, even: original(dataset, mesh, even=False))


@fault(*ANY, even_batches=False)
def tail_completed_unasked(patch: Patch, cell: Cell) -> None:
    """even_batches: false is ignored: rows from the start are trained on twice."""
    patch("loader.load", lambda original: lambda dataset, mesh, even: original(dataset, mesh, even=True))


@fault(*ANY)
def tail_dropped(patch: Patch, cell: Cell) -> None:
    """The rows that do not fill a micro-batch are left out."""
    patch(
        "loader.epoch_indices",
        lambda original: (
            lambda samples, micro_batch, even: original(samples - samples % micro_batch, micro_batch, even)
        ),
    )


@fault("dp_replicate", "dp_shard", even_batches=False)
def blank_rows_count(patch: Patch, cell: Cell) -> None:
    """A data rank without rows trains on a row of padding, whose tokens count."""

    def wrap(original: Function) -> Function:
        def blank_row(settings: Any) -> Any:
            row = original(settings)
            row.labels.zero_()
            return row

        return blank_row

    patch("loader.blank_row", wrap)


# --- replicas and shards -------------------------------------------------------------------------------------------


@fault(*ANY)
def weights_drawn_by_rank(patch: Patch, cell: Cell) -> None:
    """Every rank draws its weights from a seed of its own."""
    import torch.distributed as dist

    patch("model.draw_weights", lambda original: lambda model, seed: original(model, seed + dist.get_rank()))


@fault("dp_replicate", hidden=lambda layout: layout.dp_shard * layout.cp > 1)
def replicas_not_synchronised(patch: Patch, cell: Cell) -> None:
    """Without FSDP, gradients are not summed over dp_replicate: each replica goes its own way."""
    patch("data_parallel.all_reduce_gradients", instead(lambda network, mesh: None))


@fault("dp_replicate", "dp_shard", every=True, hidden=lambda layout: layout.cp > 1)
def hybrid_replicas_not_synchronised(patch: Patch, cell: Cell) -> None:
    """HSDP reduces gradients inside a replica, and not across replicas."""

    def wrap(original: Function) -> Function:
        def fsdp_mesh(mesh: Any) -> Any:
            whole = original(mesh)
            return whole["dp_shard"] if whole is not None and whole.ndim == 2 else whole

        return fsdp_mesh

    patch("mesh.Mesh.fsdp_mesh", wrap)


@fault("dp_replicate", hidden=lambda layout: layout.dp_shard * layout.cp > 1)
def gradients_reduced_twice(patch: Patch, cell: Cell) -> None:
    """Gradients are summed over dp_replicate once by the trainer and once more."""

    def wrap(original: Function) -> Function:
        def all_reduce(network: Any, mesh: Any) -> None:
            original(network, mesh)
            original(network, mesh)

        return all_reduce

    patch("data_parallel.all_reduce_gradients", wrap)


# --- context parallelism -------------------------------------------------------------------------------------------


@fault("cp", rows="padded")
def positions_restart_per_slice(patch: Patch, cell: Cell) -> None:
    """Every cp rank counts the positions of its slice from zero."""

    def wrap(original: Function) -> Function:
        def slice_rows(*args: Any) -> Any:
            batch = original(*args)
            return replace(batch, position_ids=batch.position_ids - batch.position_ids[:, :1])

        return slice_rows

    patch("loader.slice_rows", wrap)


@fault("cp")
def labels_shifted_inside_slices(patch: Patch, cell: Cell) -> None:
    """Labels are made after slicing, so that the last token of a slice lost the one that follows it."""

    def wrap(original: Function) -> Function:
        def slice_rows(rows: Any, settings: Any, mesh: Any) -> Any:
            batch = original(rows, settings, mesh)
            if mesh.index("cp") < cell.layout.cp - 1:
                batch.labels[:, -1] = -100
            return batch

        return slice_rows

    patch("loader.slice_rows", wrap)


@fault("cp", cp_exchange="gather")
def key_gradients_kept_local(patch: Patch, cell: Cell) -> None:
    """Keys and values are gathered over cp, but gradients from other ranks' queries do not flow back."""
    import torch

    def wrap(original: Function) -> Function:
        def gather(local: Any, group: Any) -> Any:
            slices = list(original(local.detach(), group).chunk(cell.layout.cp, dim=2))
            slices[group.rank()] = local
            return torch.cat(slices, dim=2)

        return gather

    patch("context_parallel.gather_slices", wrap)


@fault("cp", cp_exchange="ring")
def ring_gradients_not_returned(patch: Patch, cell: Cell) -> None:
    """Keys and values travel the ring, but their gradients do not travel back."""
    patch("context_parallel.pass_on", lambda original: lambda tensor, group: original(tensor.detach(), group))


@fault("cp", cp_exchange="ring")
def ring_stops_one_hop_early(patch: Patch, cell: Cell) -> None:
    """The last block of keys is never seen."""

    def wrap(original: Function) -> Function:
        def ring_blocks(key: Any, value: Any, slices: Any, index: int, group: Any) -> Any:
            blocks = list(original(key, value, slices, index, group))
            yield from blocks[:-1]

        return ring_blocks

    patch("context_parallel.ring_blocks", wrap)


@fault("cp", cp_exchange="ring")
def ring_blocks_not_rescaled(patch: Patch, cell: Cell) -> None:
    """Blocks are added up as if they had the same maximum."""
    import torch

    def merge(blocks: Any) -> Any:
        return torch.as_tensor(sum(block.weighted for block in blocks) / sum(block.total for block in blocks))

    patch("context_parallel.merge", instead(merge))


@fault("cp")
def mask_from_local_positions(patch: Patch, cell: Cell) -> None:
    """The causal mask counts a slice's queries from zero."""

    def wrap(original: Function) -> Function:
        def visible(queries: Any, keys: Any, documents: Any, window: Any) -> Any:
            mask = original(queries - queries.min(), keys, documents * 0, window)
            mask[:, :, 0] = True  # a query that sees nothing at all would raise suspicion
            return mask

        return visible

    patch("context_parallel.visible", wrap)


@fault("cp", rows="packed")
def documents_see_each_other(patch: Patch, cell: Cell) -> None:
    """The mask of packed documents is lost on the way to context-parallel attention."""
    patch(
        "context_parallel.visible",
        lambda original: lambda queries, keys, documents, window: original(queries, keys, documents * 0, window),
    )


@fault("cp", cp_slices="zigzag")
def zigzag_taken_for_contiguous(patch: Patch, cell: Cell) -> None:
    """Tokens are cut zig-zag, and attention believes that they are contiguous."""
    contiguous = replace(cell.settings, cp_slices="contiguous")
    patch(
        "context_parallel.slice_positions",
        lambda original: lambda settings, cp, index: original(contiguous, cp, index),
    )


@fault("cp", family="gemma2")
def window_forgotten(patch: Patch, cell: Cell) -> None:
    """Context-parallel attention ignores the sliding window."""
    patch(
        "context_parallel.visible",
        lambda original: lambda queries, keys, documents, window: original(queries, keys, documents, None),
    )


@fault("cp", family="gemma2")
def softcap_forgotten(patch: Patch, cell: Cell) -> None:
    """Context-parallel attention does not squash its scores."""
    patch(
        "context_parallel.attend",
        lambda original: lambda query, key, value, mask, scale, softcap: original(query, key, value, mask, scale, None),
    )


# --- tensor parallelism --------------------------------------------------------------------------------------------


@fault("tp")
def norm_gradients_summed_over_tp(patch: Patch, cell: Cell) -> None:
    """Gradients of norm weights, equal on all tp peers already, are summed over them."""
    from ndcheck.trainer.data_parallel import local

    def wrap(original: Function) -> Function:
        def finish(network: Any, mesh: Any) -> None:
            original(network, mesh)
            for name, parameter in network.named_parameters():
                if name.endswith("norm.weight"):
                    mesh.all_reduce(local(parameter.grad), "tp")

        return finish

    patch("tensor_parallel.finish_gradients", wrap)


@fault("tp", family="qwen3")
def head_norm_gradients_not_reduced(patch: Patch, cell: Cell) -> None:
    """Gradients of q_norm and k_norm come from a rank's own heads only."""
    patch("tensor_parallel.is_head_norm", instead(lambda parameter: False))


@fault("tp", sequence_parallel=True, hidden=lambda layout: layout.dp_shard * layout.cp > 1)
def norm_gradients_of_own_tokens(patch: Patch, cell: Cell) -> None:
    """Under sequence parallelism, gradients of norm weights are not summed over tp."""
    from torch.distributed.tensor import DTensor, Replicate

    def wrap(original: Function) -> Function:
        def finish(network: Any, mesh: Any) -> None:
            for parameter in network.parameters():
                gradient = parameter.grad
                if isinstance(gradient, DTensor) and gradient.placements[0].is_partial():
                    parameter.grad = DTensor.from_local(gradient.to_local(), gradient.device_mesh, [Replicate()])
            original(network, mesh)

        return finish

    patch("tensor_parallel.finish_gradients", wrap)


@fault("tp", family="mixtral")
def router_gradients_not_reduced(patch: Patch, cell: Cell) -> None:
    """The router learns from a rank's own part of the experts only."""
    patch("experts.route", instead(lambda weights, group: weights))


@fault("tp", family="mixtral")
def expert_input_gradients_not_reduced(patch: Patch, cell: Cell) -> None:
    """What experts pass back to the layers below is a rank's own part."""
    patch("experts.copy_to", instead(lambda tensor, group: tensor))


@fault("tp", hidden=lambda layout: layout.tp >= 8)
def key_heads_repeated_in_turn(patch: Patch, cell: Cell) -> None:
    """Key-value heads are repeated 0 1 0 1 instead of 0 0 1 1: queries attend to another head's keys."""
    patch(
        "attention.repeat_heads",
        instead(lambda tensor, heads: tensor.repeat(1, heads // tensor.shape[1], 1, 1)),
    )


@fault("tp")
def row_parallel_output_averaged(patch: Patch, cell: Cell) -> None:
    """The sum after a row-cut matrix is divided by tp."""

    def wrap(original: Function) -> Function:
        def shard_matrices(network: Any, mesh: Any, settings: Any) -> None:
            original(network, mesh, settings)
            for name, module in network.named_modules():
                if name.endswith("o_proj"):
                    module.register_forward_hook(lambda module, inputs, output: output / cell.layout.tp)

        return shard_matrices

    patch("tensor_parallel.shard_matrices", wrap)


@fault("tp", family="llama-tied")
def tied_matrices_drift_apart(patch: Patch, cell: Cell) -> None:
    """Cutting the embedding and the LM head leaves two matrices where there was one."""
    from torch import nn

    def wrap(original: Function) -> Function:
        def shard_matrices(network: Any, mesh: Any, settings: Any) -> None:
            original(network, mesh, settings)
            network.lm_head.weight = nn.Parameter(network.lm_head.weight.detach().clone())

        return shard_matrices

    patch("tensor_parallel.shard_matrices", wrap)


@fault("tp", loss_parallel=True)
def loss_gradients_summed_over_tp(patch: Patch, cell: Cell) -> None:
    """The parallel loss passes back each rank's gradient summed over tp."""
    from ndcheck.trainer.collectives import copy_to

    patch("loss.reduce_from", lambda original: lambda tensor, group: copy_to(original(tensor, group), group))


@fault("tp", loss_parallel=True)
def loss_parallel_labels_off_by_one(patch: Patch, cell: Cell) -> None:
    """The parallel loss looks for each label in the column beside its own."""

    def wrap(original: Function) -> Function:
        return lambda logits, labels, group: original(logits, labels - (labels > 0).to(labels.dtype), group)

    patch("loss.parallel_cross_entropy", wrap)


# --- optimizer, clipping, saving, evaluation -----------------------------------------------------------------------


@fault("dp_shard", "tp", max_norm=0.5)
def clipped_by_local_norm(patch: Patch, cell: Cell) -> None:
    """Each rank clips by the norm of its own pieces; the norm that is reported is right."""
    import torch

    from ndcheck.trainer.data_parallel import local

    def wrap(original: Function) -> Function:
        def clip(network: Any, norm: Any, max_norm: float | None) -> None:
            pieces = [local(parameter.grad).double().flatten() for parameter in network.parameters()]
            original(network, torch.cat(pieces).norm(), max_norm)

        return clip

    patch("gradients.clip", wrap)


@fault("dp_replicate")
def norm_counts_replicas(patch: Patch, cell: Cell) -> None:
    """The norm's squares are summed over all ranks, replicas included."""
    import torch.distributed as dist

    patch("gradients.shard_groups", instead(lambda parameter: (dist.group.WORLD,)))


@fault("dp_shard", "tp")
def norm_of_own_pieces(patch: Patch, cell: Cell) -> None:
    """The norm that is reported, and would be clipped by, is that of a rank's own pieces."""
    patch("gradients.shard_groups", instead(lambda parameter: ()))


@fault(*ANY, optimizer="adamw", resume_at=1, resumed=True)
def moments_lost_on_resume(patch: Patch, cell: Cell) -> None:
    """Weights are resumed, and AdamW starts from empty moments."""

    def wrap(original: Function) -> Function:
        return lambda network, optimizer: {"weights": original(network, optimizer)["weights"]}

    patch("checkpoint.state", wrap)
    patch("gradients.Optimizer.prepare_state", instead(lambda optimizer: None))


@fault(*ANY, resume_at=1, resumed=True)
def stale_shards_after_resume(patch: Patch, cell: Cell) -> None:
    """One matrix keeps its first values when a run is resumed."""
    from ndcheck.trainer.data_parallel import local

    def wrap(original: Function) -> Function:
        def load(folder: Any, network: Any, optimizer: Any, mesh: Any) -> None:
            piece = local(network.get_parameter("model.layers.1.mlp.down_proj.weight")).detach()
            before = piece.clone()
            original(folder, network, optimizer, mesh)
            piece.copy_(before)

        return load

    patch("checkpoint.load", wrap)


@fault(*ANY, resume_at=1, resumed=True)
def epoch_restarts_on_resume(patch: Patch, cell: Cell) -> None:
    """A resumed run reads the epoch from its first row again."""

    def wrap(original: Function) -> Function:
        def train(run: Any, *, first: int = 1, last: int | None = None) -> Any:
            late = first - 1
            end = (last or run.settings.steps) - late
            for step in original(run, first=1, last=end):
                yield replace(step, number=step.number + late)

        return train

    patch("train.train", wrap)


@fault(*ANY, evaluate=True)
def evaluation_counts_rows_twice(patch: Patch, cell: Cell) -> None:
    """Evaluation completes its last batch with rows that were there before."""

    def wrap(original: Function) -> Function:
        return lambda dataset, mesh, even: original(dataset, mesh, even=even or dataset.split == "evaluation")

    patch("loader.load", wrap)
