"""A trainer of somebody else, made an engine of ndcheck: torch's own FSDP and tensor parallelism, cp by sharing out the loss."""

import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import cross_entropy

from ndcheck.conformance.engines import Refused
from ndcheck.conformance.observe import Watch
from ndcheck.trainer.data import MapDataset, join
from ndcheck.trainer.gradients import LEARNING_RATE
from ndcheck.trainer.mesh import connected
from ndcheck.trainer.model import build_model, family
from ndcheck.trainer.precision import compute_in

COLUMNS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")


@contextmanager
def open_session(layout, rank, scratch, device, timeout):
    with connected(layout.world_size, rank, scratch / "rendezvous", device, timeout):
        axes, shape = layout.mesh_axes, layout.mesh_shape
        yield Trainer(layout, rank, device, init_device_mesh(device.type, shape, mesh_dim_names=axes) if axes else None)


class Trainer:
    def __init__(self, layout, rank, device, mesh):
        self.layout, self.rank, self.device, self.mesh = layout, rank, device, mesh

    def run(self, cell):
        settings, layout = cell.settings, cell.layout
        if layout.dp_replicate > 1 or settings.family != "llama" or settings.rows != "padded":
            raise Refused("this trainer has llama, padded rows, and no replicas")
        torch_dtype = getattr(torch, settings.precision)
        model = build_model(
            settings.family, seed=settings.seed, dtype=torch_dtype, device=self.device, attention="sdpa"
        )
        self.shard(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE["sgd"])
        watch = Watch(cell, self.rank)
        watch.begin(model)
        size = settings.sequence_length // layout.cp
        mine = slice(self.index("cp") * size, (self.index("cp") + 1) * size)
        watch.positions = tuple(range(mine.start, mine.stop))
        data = MapDataset(settings, family(settings.family).vocabulary)
        for start in range(0, settings.samples, settings.global_batch):
            rows = self.rows(settings, start)
            part = join([data[row] for row in rows])
            with compute_in(settings.precision):
                logits = model(input_ids=part.input_ids, position_ids=part.position_ids).logits
            # every cp rank runs the whole row, and answers for the tokens of its slice
            labels = part.labels[:, mine]
            total = cross_entropy(logits[:, mine].flatten(0, 1), labels.flatten(), reduction="sum")
            loss = total / self.sum((labels != -100).sum())
            # FSDP averages over its ranks
            (loss * layout.dp_shard * (layout.cp if self.sharded else 1)).backward()
            watch.losses.append(self.sum(loss.detach()).item())
            watch.step(tuple(rows))
            optimizer.step()
            optimizer.zero_grad()
        return watch.record()

    def shard(self, model):
        if self.layout.tp > 1:
            plan = {
                f"model.layers.*.{block}.{name}": ColwiseParallel()
                for block in ("self_attn", "mlp")
                for name in COLUMNS
            }
            rows = {f"model.layers.*.{name}": RowwiseParallel() for name in ("self_attn.o_proj", "mlp.down_proj")}
            parallelize_module(model, self.mesh["tp"], plan | rows)
        axes = [axis for axis in ("dp_shard", "cp") if getattr(self.layout, axis) > 1]
        self.sharded = bool(axes)
        if axes:
            mesh = self.mesh[tuple(axes)]._flatten("data") if len(axes) > 1 else self.mesh[axes[0]]
            for layer in model.model.layers:
                fully_shard(layer, mesh=mesh)
            fully_shard(model, mesh=mesh)

    def rows(self, settings, start):
        """This data rank's rows of a step: micro-batches dealt out as the settings say, the last one completed from the start."""
        wanted = range(start, min(start + settings.global_batch, settings.samples))
        wanted = list(wanted) + list(range(-len(wanted) % settings.micro_batch))
        size = settings.micro_batch // self.layout.dp_shard
        mine = self.index("dp_shard")
        parts = (wanted[at + mine * size :][:size] for at in range(0, len(wanted), settings.micro_batch))
        return [row for part in parts for row in part]

    def index(self, axis):
        return self.mesh.get_local_rank(axis) if getattr(self.layout, axis) > 1 else 0

    def sum(self, value):
        """Over data and cp ranks: tp peers hold the same."""
        if self.mesh is not None:
            dist.all_reduce(value)
        return value / self.layout.tp


class ForgetfulTrainer(Trainer):
    """It divides by its own count of label tokens, as if every rank had as many."""

    def sum(self, value):
        return value * self.layout.dp_shard * self.layout.cp if not value.is_floating_point() else super().sum(value)


if os.environ.get("EXAMPLE_FORGETS"):
    Trainer = ForgetfulTrainer
