"""Shims: what makes software that expects GPUs run on CPU ranks.

A shim lets a device-type block be passed, and changes no arithmetic of what is put to the test. The report names them beside
the cells that used them. On GPUs none is in use.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

SHIMS: Mapping[str, str] = {
    "relabelled": "accelerate's process state says MULTI_GPU instead of MULTI_CPU, so that it takes FSDP and a mesh seriously on "
    "CPU ranks; collectives still go through gloo",
    "no-device-ids": "ACCELERATE_BYPASS_DEVICE_MAP=true, so that DDP gets no device ids: a CPU has none",
    "triton-interpreter": "Liger's kernels run in Triton's interpreter, which has no libdevice: a reciprocal square root is "
    "triton.language's own",
    "ring-attention": "torch's table of attention operators for context parallelism has an entry for the CPU's operator, which "
    "calls torch's own ring algorithm with it",
}
"""Name -> what it does."""


@contextmanager
def relabelled_state() -> Iterator[None]:
    """accelerate takes CPU ranks for GPUs while active."""
    from accelerate import PartialState
    from accelerate.utils import DistributedType

    state = PartialState(cpu=True)
    before = state.distributed_type
    if state.num_processes > 1:
        PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    os.environ["ACCELERATE_BYPASS_DEVICE_MAP"] = "true"
    try:
        yield
    finally:
        PartialState._shared_state["distributed_type"] = before
        del os.environ["ACCELERATE_BYPASS_DEVICE_MAP"]


def teach_ring_attention() -> None:
    """Give torch's context parallelism the CPU's flash attention operator, forward and backward. For the life of the process."""
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor.experimental._context_parallel import _attention

    aten: Any = torch.ops.aten
    forward_op = aten._scaled_dot_product_flash_attention_for_cpu.default
    backward_op = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    table: dict[Any, Any] = _attention.custom_ops
    if forward_op in table:
        return

    def local(value: Any) -> Any:
        return value.to_local() if isinstance(value, DTensor) else value

    def like(tensor: torch.Tensor, model: DTensor) -> DTensor:
        return DTensor.from_local(tensor, model.device_mesh, model.placements, run_check=False)

    def forward(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[DTensor, DTensor]:
        names = ("query", "key", "value", "dropout_p", "is_causal")
        given = {"dropout_p": 0.0, "is_causal": False} | dict(zip(names, args, strict=False)) | kwargs
        if given.get("attn_mask") is not None:
            raise NotImplementedError("context parallelism with an attention mask")
        query = given["query"]
        out, sums, *_rest = _attention._templated_ring_attention(
            query.device_mesh.get_group(),
            2,
            forward_op,
            local(query),
            local(given["key"]),
            local(given["value"]),
            is_causal=given["is_causal"],
            dropout_p=given["dropout_p"],
            scale=given.get("scale"),
        )
        return like(out, query), like(sums, query)

    def backward(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[DTensor, DTensor, DTensor]:
        gradient, query, key, value, out, sums, dropout, causal = args[:8]
        ring: Any = _attention._templated_ring_attention_backward  # its signature is that of whatever op it is given
        found = ring(
            query.device_mesh.get_group(),
            2,
            backward_op,
            local(gradient).contiguous(),
            "grad_out",
            *map(local, (query, key, value, out, sums)),
            causal,
            dropout_p=dropout,
            scale=kwargs.get("scale"),
        )
        return like(found[0], query), like(found[1], key), like(found[2], value)

    table[forward_op], table[backward_op] = forward, backward
