"""Seeded faults: small patches of the trainer, each a bug of a kind seen in the wild.

A faulty run raises nothing and its loss looks plausible; only the comparison can tell. A fault is a function that is given
``patch(target, wrap)``: ``target`` names a function of ``ndcheck.trainer`` as ``module.function``, ``wrap`` turns the
original into its faulty version. A fault is called what its function is called; the docstring describes it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from ndcheck.layout import Layout

Function: TypeAlias = Callable[..., Any]
Patch: TypeAlias = Callable[[str, Callable[[Function], Function]], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """A bug that can be seeded."""

    name: str
    description: str
    axes: tuple[str, ...]
    """The fault shows where at least one of these axes has more than one rank."""
    install: Callable[[Patch, Layout], None]

    def touches(self, layout: Layout) -> bool:
        """Whether the fault changes a run under ``layout``."""
        return any(axis in layout.mesh_axes for axis in self.axes)


FAULTS: dict[str, Fault] = {}
"""Name -> fault."""


def fault(*axes: str) -> Callable[[Callable[[Patch, Layout], None]], Callable[[Patch, Layout], None]]:
    """Enter the decorated function into ``FAULTS``."""

    def enter(install: Callable[[Patch, Layout], None]) -> Callable[[Patch, Layout], None]:
        FAULTS[install.__name__] = Fault(install.__name__, (install.__doc__ or "").strip(), axes, install)
        return install

    return enter


@contextmanager
def seeded(name: str | None, layout: Layout) -> Iterator[None]:
    """Patch the trainer with fault ``name`` (None: no fault) while active, if it touches ``layout``."""
    with ExitStack() as undo:

        def patch(target: str, wrap: Callable[[Function], Function]) -> None:
            module_name, function = target.split(".")
            module = importlib.import_module(f"ndcheck.trainer.{module_name}")
            original = getattr(module, function)
            undo.callback(setattr, module, function, original)
            setattr(module, function, wrap(original))

        if name is not None and FAULTS[name].touches(layout):
            FAULTS[name].install(patch, layout)
        yield


@fault("dp_shard")
def gradients_not_averaged_over_dp_shard(patch: Patch, layout: Layout) -> None:
    """The division by the number of dp_shard ranks is missing: gradients are dp_shard times too large."""
    patch("data_parallel.gradient_divisor", lambda original: lambda layout: original(layout) / layout.dp_shard)


@fault("dp_replicate", "dp_shard", "cp")
def mean_of_means(patch: Patch, layout: Layout) -> None:
    """Each rank divides by its own count of label tokens, and the results are averaged over ranks."""
    holders = layout.data_ranks * layout.cp

    def own_count(labels: Any, mesh: Any) -> Any:
        return (labels >= 0).sum().clamp(min=1) * holders

    patch("loss.global_token_count", lambda original: own_count)


@fault("dp_replicate", "dp_shard")
def last_rank_dropped(patch: Patch, layout: Layout) -> None:
    """The last data rank's samples never reach the loss; the mean is over the others'."""

    def drop(original: Function) -> Function:
        def read(settings: Any, vocabulary: Any, mesh: Any, samples: Any) -> Any:
            batch = original(settings, vocabulary, mesh, samples)
            if mesh.data_rank == layout.data_ranks - 1:
                batch.labels.fill_(-100)
            return batch

        return read

    patch("data.read", drop)


@fault("cp")
def positions_restart_per_slice(patch: Patch, layout: Layout) -> None:
    """Every cp rank counts the positions of its slice from zero."""

    def restart(original: Function) -> Function:
        def read(*args: Any) -> Any:
            batch = original(*args)
            return replace(batch, position_ids=batch.position_ids - batch.position_ids[0, 0])

        return read

    patch("data.read", restart)


@fault("cp")
def labels_shifted_inside_slices(patch: Patch, layout: Layout) -> None:
    """Labels are made after slicing, so that the last token of a slice lost the one that follows it."""

    def lose(original: Function) -> Function:
        def read(settings: Any, vocabulary: Any, mesh: Any, samples: Any) -> Any:
            batch = original(settings, vocabulary, mesh, samples)
            if mesh.index("cp") < layout.cp - 1:
                batch.labels[:, -1] = -100
            return batch

        return read

    patch("data.read", lose)


@fault("cp")
def key_gradients_kept_local(patch: Patch, layout: Layout) -> None:
    """Keys and values are gathered over cp, but gradients from other ranks' queries do not flow back."""
    import torch
    import torch.distributed as dist

    def keep(original: Function) -> Function:
        def gather(local: Any, group: Any) -> Any:
            slices = list(original(local.detach(), group).chunk(layout.cp, dim=2))
            slices[dist.get_rank(group)] = local
            return torch.cat(slices, dim=2)

        return gather

    patch("context_parallel.gather_slices", keep)


@fault("tp")
def norm_gradients_summed_over_tp(patch: Patch, layout: Layout) -> None:
    """Gradients of norm weights, equal on all tp peers already, are summed over them."""
    from ndcheck.trainer.data_parallel import local

    def sum_again(original: Function) -> Function:
        def all_reduce(model: Any, mesh: Any) -> None:
            original(model, mesh)
            for name, parameter in model.named_parameters():
                if name.endswith("norm.weight"):
                    mesh.all_reduce(local(parameter.grad), "tp")

        return all_reduce

    patch("data_parallel.all_reduce_gradients", sum_again)
