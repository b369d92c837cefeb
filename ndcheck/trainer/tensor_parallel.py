"""Tensor parallelism (axis ``tp``): each rank holds a piece of every large matrix, and computes with it.

A pair of matrices is cut so that the nonlinearity between them needs no communication (Megatron-LM,
arXiv 1909.08053): the first by columns of its output, the second by rows of its input. For tp 2::

        x            W1              h             W2            y
     [B, S, D]    [D, F]         [B, S, F]      [F, D]       [B, S, D]

                 +----+----+                   +-------+
      whole   x  | r0 | r1 |  -> h0 | h1   x   |  r0   |  -> y0 + y1: one all-reduce
                 |    |    |                   +-------+
                 +----+----+                   |  r1   |
                                               +-------+

Attention is such a pair (q, k, v by heads, then o), the MLP is one (gate and up, then down), and so is an expert. The
embedding is cut by rows of the vocabulary (a rank answers zero for tokens of another rank's rows; a sum follows), the
LM head by columns. Backward, the sums and copies change places.

Norms are whole on every rank. Between the pairs each rank sees whole activations, so their gradients are equal on all tp peers
and need no sum. Two exceptions: a norm inside attention sees its rank's heads only (Qwen3's q_norm and k_norm), and with
``sequence_parallel`` a rank norms its share of the tokens; there gradients are summed over tp.

With ``sequence_parallel`` the all-reduce after a pair is a reduce-scatter over tokens, and an all-gather precedes the next pair::

    tokens 0..S/2 on r0, S/2..S on r1:   norm -> all-gather -> pair -> reduce-scatter -> + residual -> norm ...
"""

from __future__ import annotations

from typing import Any, cast

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from ndcheck.trainer.data_parallel import local
from ndcheck.trainer.experts import Experts
from ndcheck.trainer.mesh import Mesh
from ndcheck.trainer.settings import Settings

COLUMNS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
ROWS = ("o_proj", "down_proj")
HEAD_NORMS = ("q_norm", "k_norm")
"""Norms of single heads: a tp rank sees those of its own heads."""


def shard_matrices(network: nn.Module, mesh: Mesh, settings: Settings) -> None:
    """Replace large parameters by DTensors cut over ``tp``; nothing happens at tp 1.

    Every rank has drawn the same whole weights, so each keeps its own piece and nothing is sent.
    """
    tp = mesh.submesh("tp")
    if tp is None:
        return
    model = cast(Any, network)
    tied = model.lm_head.weight is model.model.embed_tokens.weight
    # only modules that are there, by their full names: the plan is then the same for every family
    for name, styles in plan(network, settings).items():
        for style in styles:
            parallelize_module(network.get_submodule(name), tp, style, src_data_rank=None)
    for module in network.modules():
        if isinstance(module, Experts):
            shard_experts(module, tp)
    if tied:
        model.lm_head.weight = model.model.embed_tokens.weight


def plan(network: nn.Module, settings: Settings) -> dict[str, list[ParallelStyle]]:
    """Module -> how it is cut, and how what goes in and out is laid out."""
    styles: dict[str, list[ParallelStyle]] = {}
    between: Placement = Shard(1) if settings.sequence_parallel else Replicate()  # activations between pairs
    for name, module in network.named_modules():
        last = name.rpartition(".")[2]
        if last in COLUMNS:
            styles[name] = [ColwiseParallel()]
        elif last in ROWS:
            styles[name] = [RowwiseParallel(output_layouts=between)]
        elif settings.sequence_parallel and last.endswith("norm") and last not in HEAD_NORMS:
            styles[name] = [SequenceParallel(use_local_output=True)]
        elif settings.sequence_parallel and last == "self_attn":
            styles[name] = [
                PrepareModuleInput(
                    input_kwarg_layouts={"hidden_states": Shard(1)},
                    desired_input_kwarg_layouts={"hidden_states": Replicate()},
                )
            ]
        elif settings.sequence_parallel and last == "mlp":
            styles[name] = _mixture() if hasattr(module, "experts") else [_gather_input(local_output=False)]
    return styles | vocabulary_plan(settings, between)


def vocabulary_plan(settings: Settings, between: Placement) -> dict[str, list[ParallelStyle]]:
    """The embedding and the LM head: cut over the vocabulary, or whole."""
    if settings.vocabulary_parallel:
        logits: Placement = Shard(-1) if settings.loss_parallel else Replicate()
        return {
            "model.embed_tokens": [RowwiseParallel(input_layouts=Replicate(), output_layouts=between)],
            "lm_head": [ColwiseParallel(input_layouts=between, output_layouts=logits)],
        }
    if settings.sequence_parallel:
        return {"model.embed_tokens": [_scatter_output()], "lm_head": [_gather_input(local_output=True)]}
    return {}


def shard_experts(experts: Experts, tp: DeviceMesh) -> None:
    """Cut every expert along its inner width."""
    for name, parameter in list(experts.named_parameters(recurse=False)):
        piece = distribute_tensor(parameter.data, tp, [Shard(2)], src_data_rank=None)
        experts.register_parameter(name, nn.Parameter(piece))
    experts.group = tp.get_group()


def finish_gradients(network: nn.Module, mesh: Mesh) -> None:
    """Cut each gradient as its parameter is cut, and sum what only a part of the heads has seen.

    The backward pass of the embedding leaves a whole gradient beside a parameter of which the rank holds a piece;
    that of a norm under sequence parallelism leaves each rank the share of its tokens.
    """
    for name, parameter in network.named_parameters():
        gradient = parameter.grad
        if isinstance(parameter, DTensor) and isinstance(gradient, DTensor):
            parameter.grad = gradient.redistribute(placements=parameter.placements)
        if is_head_norm(name):
            mesh.all_reduce(local(parameter.grad), "tp")


def is_head_norm(parameter: str) -> bool:
    """Whether the parameter of that name belongs to a norm of single heads."""
    return parameter.rpartition(".")[0].endswith(HEAD_NORMS)


def _gather_input(*, local_output: bool) -> ParallelStyle:
    """Tokens are gathered on the way in. As a DTensor a column-cut matrix sees that its gradient is a sum; a whole module's is not."""
    return PrepareModuleInput(
        input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),), use_local_output=local_output
    )


def _scatter_output() -> ParallelStyle:
    """Each rank goes on with its share of the tokens."""
    return PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=Shard(1))


def _mixture() -> list[ParallelStyle]:
    """A router needs whole tokens, and its experts answer with whole sums."""
    return [_gather_input(local_output=True), _scatter_output()]
