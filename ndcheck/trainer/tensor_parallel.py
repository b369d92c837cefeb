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

Attention is such a pair (q, k, v by heads, then o), the MLP is one (gate and up, then down). The embedding is cut by
rows of the vocabulary (a rank answers zero for tokens of another rank's rows; a sum follows), the LM head by columns
(logits are gathered). Backward, the sums and copies change places. Norms are whole on every rank and see whole
activations, so their gradients are equal on all tp peers and need no sum.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module

from ndcheck.trainer.mesh import Mesh


def plan() -> Mapping[str, ParallelStyle]:
    """Module -> how it is cut. ``*`` stands for any layer."""
    return {
        "model.embed_tokens": RowwiseParallel(input_layouts=Replicate()),
        "model.layers.*.self_attn.q_proj": ColwiseParallel(),
        "model.layers.*.self_attn.k_proj": ColwiseParallel(),
        "model.layers.*.self_attn.v_proj": ColwiseParallel(),
        "model.layers.*.self_attn.o_proj": RowwiseParallel(),
        "model.layers.*.mlp.gate_proj": ColwiseParallel(),
        "model.layers.*.mlp.up_proj": ColwiseParallel(),
        "model.layers.*.mlp.down_proj": RowwiseParallel(),
        "lm_head": ColwiseParallel(output_layouts=Replicate()),
    }


def shard_matrices(model: nn.Module, mesh: Mesh) -> None:
    """Replace the parameters named in the plan by DTensors cut over ``tp``; nothing happens at tp 1.

    Every rank has drawn the same whole weights, so each keeps its own piece and nothing is sent.
    """
    tp = mesh.submesh("tp")
    if tp is not None:
        parallelize_module(model, tp, dict(plan()), src_data_rank=None)


def shard_gradients(model: nn.Module) -> None:
    """Cut each gradient as its parameter is cut.

    The backward pass of the embedding leaves a whole gradient beside a parameter of which
    the rank holds a piece.
    """
    for parameter in model.parameters():
        gradient = parameter.grad
        if isinstance(parameter, DTensor) and isinstance(gradient, DTensor):
            parameter.grad = gradient.redistribute(placements=parameter.placements)
