"""What the engines of the Hugging Face stack have in common: a checkpoint, rows as dictionaries, a clean state for each cell."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from inspect import signature
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler

from ndcheck.conformance.cells import Cell
from ndcheck.conformance.engines import Refused, Unrunnable, liger
from ndcheck.conformance.engines.shims import relabelled_state, teach_ring_attention
from ndcheck.conformance.observe import Watch
from ndcheck.conformance.record import Record
from ndcheck.layout import Layout
from ndcheck.trainer.data import MapDataset
from ndcheck.trainer.gradients import LEARNING_RATE
from ndcheck.trainer.mesh import connected
from ndcheck.trainer.model import IGNORED_LABEL, build_model, family
from ndcheck.trainer.settings import Settings

FAMILIES = ("llama", "llama-tied", "qwen3")
"""Families whose network here is transformers' own, and whose padding says nothing to a token."""

Sample = Mapping[str, Tensor]


@dataclass(frozen=True)
class Place:
    """Where a rank stands. ``scratch``: a folder that all ranks share, empty at first."""

    layout: Layout
    rank: int
    scratch: Path
    device: torch.device

    @property
    def on_cpu(self) -> bool:
        """Whether shims are needed."""
        return self.device.type == "cpu"


class StackSession:
    """Trains cells one after the other; an engine says how in ``train``."""

    options: type[Any]

    def __init__(self, place: Place):
        self.place = place

    def run(self, cell: Cell) -> Record:
        """See ``Session``."""
        check(cell)
        options = self.options(**dict(cell.options))
        # an engine without that option leaves accelerate as it is
        interpreted = ("triton-interpreter",) if options.liger != "off" and self.place.on_cpu else ()
        with clean_state(), liger.undone(), relabelling(self.place, getattr(options, "state", "cpu")) as shims:
            torch.manual_seed(cell.settings.seed)
            watch = Watch(cell, self.place.rank)
            with refusals(watch):
                used = self.train(cell, options, watch)
            return watch.record(shims=(*shims, *used, *interpreted))

    def train(self, cell: Cell, options: Any, watch: Watch) -> tuple[str, ...]:
        """Train ``cell``, telling ``watch``; returns the shims in use beyond the relabelled state."""
        raise NotImplementedError


@contextmanager
def connect(layout: Layout, rank: int, scratch: Path, device: torch.device, timeout: timedelta) -> Iterator[Place]:
    """A process group, and the environment variables by which the stack finds its place, while active."""
    launched = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": layout.world_size,
        "LOCAL_WORLD_SIZE": layout.world_size,
    }
    # the group is there already, by a file: nobody connects to this address
    unused = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    variables = {name: str(value) for name, value in launched.items()} if layout.world_size > 1 else {}
    before = dict(os.environ)
    os.environ.update(variables | unused)
    try:
        with connected(layout.world_size, rank, scratch / "rendezvous", device, timeout):
            yield Place(layout, rank, scratch, device)
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def clean_state() -> Iterator[None]:
    """accelerate keeps its state in class attributes: forget it before and after."""
    from accelerate.state import AcceleratorState, GradientState

    def forget() -> None:
        AcceleratorState._reset_state(reset_partial_state=True)
        GradientState._reset_state()

    before = dict(os.environ)
    forget()
    try:
        yield
    finally:
        forget()
        os.environ.clear()
        os.environ.update(before)  # plug-ins leave variables behind


@contextmanager
def relabelling(place: Place, state: str) -> Iterator[tuple[str, ...]]:
    """accelerate's state as the option says; yields the shims."""
    if place.on_cpu and state != "cpu" and place.layout.world_size > 1:
        with relabelled_state():
            yield "relabelled", "no-device-ids"
    else:
        yield ()


@contextmanager
def refusals(watch: Watch) -> Iterator[None]:
    """What the stack raises as a considered no, before the first step is done, is a refusal; all else stays what it is."""
    try:
        yield
    except (ValueError, NotImplementedError) as error:
        if watch.samples:
            raise
        raise Refused(f"{type(error).__name__}: {' '.join(str(error).split())}") from error


def check(cell: Cell) -> None:
    """Raise Unrunnable, naming field and value, for what these engines do not put to the test."""
    settings = cell.settings
    kinds = {
        "family": FAMILIES,
        "precision": ("float32",),
        "evaluate": (False,),
        "resume_at": (0,),
        "optimizer": ("sgd",),
    }
    for name, known in kinds.items():
        if getattr(settings, name) not in known:
            allowed = ", ".join(map(str, known))
            raise Unrunnable(
                f"{name} {getattr(settings, name)}: the engine {cell.engine} is compared for {allowed} only"
            )
    if settings.micro_batch % cell.layout.data_ranks:
        raise Unrunnable(f"{settings.micro_batch} rows do not split over {cell.layout.data_ranks} data ranks")


def checkpoint(settings: Settings, place: Place) -> Path:
    """A folder with the model of ``settings`` as ``from_pretrained`` reads it."""
    return write_checkpoint(place, settings.family, settings.seed)


@cache
def write_checkpoint(place: Place, name: str, seed: int) -> Path:
    """Rank 0 writes (``save_pretrained`` does not on any other), the others wait."""
    folder = place.scratch / f"checkpoint-{name}-{seed}"
    if place.rank == 0:
        model: Any = build_model(name, seed=seed, dtype=torch.float32, device=torch.device("cpu"), attention="sdpa")
        model.save_pretrained(folder)
    if place.layout.world_size > 1:
        dist.barrier()
    return folder


def load_model(settings: Settings, place: Place, options: Any, **sharding: Any) -> nn.Module:
    """The model as a user loads it. ``sharding``: arguments of ``from_pretrained``, such as ``distributed_config``."""
    from transformers import AutoModelForCausalLM

    model: nn.Module = AutoModelForCausalLM.from_pretrained(
        checkpoint(settings, place), attn_implementation=options.attention, dtype=torch.float32, **sharding
    )
    liger.patch(model, options.liger, on_cpu=place.on_cpu)
    return model.train()


def shards_natively() -> bool:
    """The installed transformers shards a model by sizes; releases before 5.14 know ``tp_plan`` and a mesh only."""
    from transformers.distributed import DistributedConfig

    return "tp_size" in signature(DistributedConfig).parameters


def tensor_parallel(layout: Layout, mesh: Any) -> dict[str, Any]:
    """Arguments of ``from_pretrained`` that cut a model over tp, as the installed release takes them.

    ``mesh``: accelerate's, which a release that shards natively does not look at.
    """
    from transformers.distributed import DistributedConfig

    if layout.tp == 1:
        return {}
    if shards_natively():
        return {"distributed_config": DistributedConfig(tp_size=layout.tp)}
    return {"tp_plan": "auto", "tp_size": layout.tp, "device_mesh": mesh["tp"]}


def make_optimizer(settings: Settings, model: nn.Module) -> torch.optim.Optimizer:
    """The reference trainer's."""
    return torch.optim.SGD(model.parameters(), lr=LEARNING_RATE[settings.optimizer])


def dataset(settings: Settings, padding: str) -> Dataset[Any]:
    """The rows, by index or as a stream."""
    rows = StackRows(settings, padding)
    return RowStream(rows) if settings.dataset == "iterable" else rows


def batch_size(settings: Settings, layout: Layout) -> int:
    """Rows of a batch of the loader, so that the global batch is what the settings say."""
    return settings.micro_batch if settings.split_batches else settings.micro_batch // layout.data_ranks


def loader(settings: Settings, layout: Layout, padding: str, seed: int | None = None) -> DataLoader[Any]:
    """The loader as a user builds it, before accelerate prepares it. With ``seed`` the order of the rows is drawn from it."""
    size = batch_size(settings, layout)
    rows: Any = dataset(settings, padding)
    if seed is None:
        return DataLoader(rows, batch_size=size, collate_fn=collate)
    sampler = RandomSampler(rows, generator=torch.Generator().manual_seed(seed))
    return DataLoader(Undone(rows, settings.seed), batch_size=size, sampler=sampler, collate_fn=collate)


def steps(batches: Any, settings: Settings) -> Iterator[list[dict[str, Tensor]]]:
    """The micro-batches of each optimizer step, of as many steps as the run has; fewer if ``batches`` ends before."""
    stream = iter(batches)
    for _ in range(settings.steps):
        parts = list(islice(stream, settings.micro_batches))
        if not parts:
            return
        yield parts


class StackRows(Dataset[Sample]):
    """The reference trainer's rows, by index, as dictionaries of [S] tensors."""

    def __init__(self, settings: Settings, padding: str):
        self.rows = MapDataset(settings, family(settings.family).vocabulary)
        self.padding = padding

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Sample:
        return make_sample(self.rows, index, self.padding)


class Undone(Dataset[Sample]):
    """Rows laid out so that the order which ``seed`` draws brings them in their own."""

    def __init__(self, source: StackRows, seed: int):
        self.source = source
        drawn = torch.randperm(len(source), generator=torch.Generator().manual_seed(seed))
        self.position = {int(index): place for place, index in enumerate(drawn)}

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> Sample:
        return self.source[self.position[index]]


class RowStream(IterableDataset[Sample]):
    """The same rows as a stream."""

    def __init__(self, source: StackRows):
        self.source = source

    def __iter__(self) -> Iterator[Sample]:
        return (self.source[index] for index in range(len(self.source)))


def make_sample(rows: MapDataset, index: int, padding: str) -> Sample:
    """Row ``index``: ``input_ids``, ``labels`` (unshifted), ``shift_labels``, ``position_ids``, ``row``; padded rows have an
    ``attention_mask``, packed ones do without, as collators that pack do."""
    row = rows[index]
    input_ids, shifted, positions, documents = (tensor[0] for tensor in row.tensors)
    labels = torch.cat([torch.tensor([IGNORED_LABEL]), shifted[:-1]])
    sample = {"input_ids": input_ids, "labels": labels, "shift_labels": shifted, "position_ids": positions}
    if rows.settings.rows == "padded":
        sample["attention_mask"] = (documents == 0).long()
        if padding == "left":
            blank = int((documents != 0).sum())
            sample = {name: tensor.roll(blank) for name, tensor in sample.items()}
            sample["position_ids"] = (torch.arange(len(input_ids)) - blank).clamp(min=0)
    return sample | {"row": torch.tensor(index)}


def collate(samples: list[Sample]) -> dict[str, Tensor]:
    """A batch: tensors of [B, S], ``row`` of [B]."""
    return {name: torch.stack([sample[name] for sample in samples]) for name in samples[0]}


def take_rows(batch: dict[str, Tensor]) -> tuple[int, ...]:
    """Which rows a batch holds; they are taken out of it."""
    return tuple(batch.pop("row").tolist())


def note_positions(model: nn.Module, watch: Watch) -> Any:
    """Let ``watch`` know which positions of a padded row reach the model under cp. Returns a handle that can be removed."""

    def look(_module: nn.Module, _args: Any, inputs: dict[str, Any]) -> None:
        positions = inputs.get("position_ids")
        if watch.cell.settings.rows == "padded" and positions is not None and len(positions):
            watch.positions = tuple(positions[0].tolist())

    return model.register_forward_pre_hook(look, with_kwargs=True)


def ring_attention(place: Place) -> tuple[str, ...]:
    """Make context parallelism possible where this rank is; returns the shim if it took one."""
    if not place.on_cpu or place.layout.cp == 1:
        return ()
    teach_ring_attention()
    return ("ring-attention",)
