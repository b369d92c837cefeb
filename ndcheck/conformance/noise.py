"""The noise of a baseline: the same work with its sums cut and put in another order, as layouts would.

A layout changes nothing but the order and grouping of sums. How much that matters in float32 or bfloat16 depends on the model, the
data and the tensor; so it is measured: one process runs the same steps again, under each of the variants here, and the
largest difference per tensor is that tensor's band. What each variant imitates::

    cut2, cut4, cut8    every matrix product in so many parts, over columns and over rows, each part rounded (tp);
                        attention over so many blocks of keys (cp)
    rows                each row's part of a weight's gradient computed and rounded on its own (dp, accumulation)
    reversed            rows in the opposite order
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

VARIANTS = ("cut2", "cut4", "cut8", "rows", "reversed")
_TENSORS = ("input_ids", "labels", "position_ids", "documents")


@contextmanager
def cut_sums(variant: str | None) -> Iterator[None]:
    """Compute as ``variant`` says while active; None: as usual."""
    with ExitStack() as undo:
        if variant is not None:
            for module, name, wrap in _patches(variant):
                original = getattr(module, name)
                undo.callback(setattr, module, name, original)
                setattr(module, name, wrap(original))
        yield


def _patches(variant: str) -> list[tuple[Any, str, Callable[[Any], Any]]]:
    from ndcheck.trainer import train
    from ndcheck.trainer.context_parallel import SlicedAttention

    if variant == "rows":
        return [(train, "micro_batch_loss", row_by_row)]
    if variant == "reversed":
        return [(train, "micro_batch_loss", rows_reversed)]
    pieces = int(variant.removeprefix("cut"))
    return [
        (train, "micro_batch_loss", partial(products_cut, pieces)),
        (SlicedAttention, "key_blocks", partial(keys_cut, pieces)),
    ]


def row_by_row(original: Callable[..., Any]) -> Callable[..., Any]:
    """The loss of a micro-batch as the sum of its rows' losses."""

    def micro_batch_loss(run: Any, part: Any) -> Any:
        rows = (_rows(part, slice(row, row + 1)) for row in range(len(part.labels)))
        return sum(original(run, row) for row in rows)

    return micro_batch_loss


def rows_reversed(original: Callable[..., Any]) -> Callable[..., Any]:
    """The rows of a micro-batch from the last to the first."""
    return lambda run, part: original(run, replace(part, **_flipped(part)))


def products_cut(pieces: int, original: Callable[..., Any]) -> Callable[..., Any]:
    """Every product with a weight matrix in ``pieces`` parts."""
    import torch
    from torch.overrides import TorchFunctionMode

    class Cut(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
        ) -> Any:
            if func is torch.nn.functional.linear and len(args) == 2 and not kwargs:
                return _cut_product(*args, pieces)
            return func(*args, **(kwargs or {}))

    def micro_batch_loss(run: Any, part: Any) -> Any:
        with Cut():
            return original(run, part)

    return micro_batch_loss


def _cut_product(inputs: Any, weight: Any, pieces: int) -> Any:
    """inputs [.., K] x weight [N, K] -> [.., N]: N in parts (their input gradients are a sum), each of them K in parts (a sum)."""
    import torch

    columns = []
    for part in weight.chunk(pieces, dim=0):
        products = zip(inputs.chunk(pieces, dim=-1), part.chunk(pieces, dim=-1), strict=True)
        columns.append(sum(piece @ matrix.transpose(0, 1) for piece, matrix in products))
    return torch.cat(columns, dim=-1)


def keys_cut(pieces: int, original: Callable[..., Any]) -> Callable[..., Any]:
    """Attention over ``pieces`` blocks of keys instead of one."""

    def key_blocks(self: Any, key: Any, value: Any) -> Iterator[tuple[Any, Any, Any]]:
        for positions, keys, values in original(self, key, value):
            yield from zip(positions.chunk(pieces), keys.chunk(pieces, dim=2), values.chunk(pieces, dim=2), strict=True)

    return key_blocks


def _rows(part: Any, which: slice) -> Any:
    return replace(part, samples=part.samples[which], **{name: getattr(part, name)[which] for name in _TENSORS})


def _flipped(part: Any) -> dict[str, Any]:
    return {"samples": part.samples[::-1]} | {name: getattr(part, name).flip(0) for name in _TENSORS}
