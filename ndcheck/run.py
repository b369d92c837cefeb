"""Run: what a config means, in words that belong to no framework, each value with its origin.

Neutral rules read nothing else. A dialect's ``to_run`` fills it; what a dialect does not have is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from ndcheck.facts import FactMissing, Facts, ModelShape
from ndcheck.findings import SetValue
from ndcheck.layout import AXES, Layout, LayoutError
from ndcheck.values import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """Which engine shards parameters.

    ``fsdp_version`` is the one in force when FSDP is on. ``stands_beside``: axes that the framework lets stand beside FSDP1.
    ``switch``: how FSDP2 is switched on, in the framework's words. ``cpu``: ranks have no GPU. ``by_mesh``: accelerate's mesh
    places the ranks, with DDP or FSDP for the data axes; else the framework shards in a way of its own (Megatron-LM, transformers'
    DistributedConfig). ``fills``: a dp_shard that nobody wrote takes the ranks that are left.
    ``wraps``: classes of the layers that are wrapped, with commas or as a list. ``by_launcher``: the framework leaves FSDP to its
    launcher as readily as it sets it up itself.
    """

    fsdp: Value[bool]
    fsdp_version: Value[int] | None = None
    deepspeed: Value[bool]
    stands_beside: frozenset[str] = frozenset()
    switch: str = "fsdp_version: 2"
    by_mesh: bool = True
    fills: bool = False
    by_launcher: bool = False
    wraps: Value[str | list[str]] | None = None
    cpu: Value[bool] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """``micro``: rows per rank and forward pass. ``total``: rows per optimizer step, if the user states it."""

    micro: Value[int] | None = None
    accumulation: Value[int] | None = None
    total: Value[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequence:
    """``length`` in tokens. ``zigzag``: cp gives each rank two slices, one from each end. ``pads``: odd lengths are padded.

    ``cp_by_torch``: torch's ``context_parallel`` cuts the rows, which replaces one attention function and drops masks.
    ``attention``: implementation by name. ``packed``: a row holds several documents. ``padding_side``: left or right.
    ``ulysses``: ranks that trade tokens for heads (``sp_size``), beside the mesh.
    """

    length: Value[int] | None = None
    zigzag: Value[bool]
    pads: bool
    cp_by_torch: bool = False
    attention: Value[str] | None = None
    packed: Value[bool] | None = None
    padding_side: Value[str] | None = None
    ulysses: Value[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loader:
    """``streaming``: the data set can only be iterated. None for dispatch: the framework chooses.

    ``even_batches``: rows are repeated so that every rank has as many batches.
    """

    streaming: Value[bool]
    dispatch_batches: Value[bool | None]
    split_batches: Value[bool]
    pads_to_length: Value[bool]
    even_batches: Value[bool] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """Fused kernels of Liger that the run asks for; ``key_stride``: key heads that ring attention takes at a time."""

    key_stride: Value[int] | None = None
    liger_rms_norm: Value[bool] | None = None
    liger_loss: Value[bool] | None = None
    liger_fused_loss: Value[bool] | None = None
    liger_flags: Mapping[str, Value[bool]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Reinforcement learning in groups: ``size`` completions a prompt, ``rows`` in a rank's batch of one step."""

    method: Value[str]
    size: Value[int] | None = None
    rows: Value[int]
    generation_batch: Value[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One training run. ``degrees`` holds the axes that the user wrote (null left out), whatever their value."""

    facts: Facts
    degrees: Mapping[str, Value[int]]
    degree_keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sharding: Sharding
    batch: Batch
    sequence: Sequence
    loader: Loader
    kernels: Kernels
    optimizer: Value[str] | None = None
    quantized: Value[bool] | None = None
    groups: Groups | None = None
    adapter: Value[str] | None = None
    reentrant: Value[bool] | None = None
    precision: Value[str] | None = None
    """bf16, fp16, fp8 or no, where the file says one."""
    stated: Mapping[str, Value[Any]] = field(default_factory=dict)
    """Further values of a trainer that an engine's config may state as well, by neutral names (learning_rate, ...)."""
    average_tokens: Value[bool] | None = None
    """The loss is divided by the label tokens of all ranks, not by each rank's own."""

    def degree(self, axis: str) -> int:
        """The degree of an axis; 1 if unset. Raises Unreadable if its type was wrong."""
        value = self.degrees.get(axis)
        return 1 if value is None else max(value.value, 1)

    def explicit(self) -> dict[str, Value[int]]:
        """The axes that the user set above 1. Raises Unreadable if one of them cannot be read."""
        return {axis: self.degrees[axis] for axis in AXES if self.degree(axis) > 1}

    def product(self) -> int:
        """Product of the explicit degrees."""
        return prod(value.value for value in self.explicit().values())

    def degree_name(self, axis: str) -> str:
        """The framework's key of an axis."""
        return self.degree_keys.get(axis, (axis,))[-1]

    def set_degree(self, axis: str, degree: int) -> tuple[SetValue, ...]:
        """The edit that gives an axis this degree; none if the framework has no key for it."""
        return (SetValue(self.degree_keys[axis], str(degree)),) if axis in self.degree_keys else ()

    def beside_mesh(self) -> bool:
        """Ranks are divided by Ulysses as well, which is no axis of the mesh."""
        ulysses = self.sequence.ulysses
        return ulysses is not None and ulysses.value is not None and ulysses.value > 1

    def legal_degrees(self) -> bool:
        """Every written degree is at least 1."""
        return all(value.value >= 1 for value in self.degrees.values())

    def world_size(self) -> Value[int]:
        """Number of ranks. Raises FactMissing if nobody said."""
        if self.facts.world_size is None:
            raise FactMissing("world_size")
        return self.facts.world_size

    def gpus_per_node(self) -> Value[int]:
        """Raises FactMissing if nobody said."""
        if self.facts.gpus_per_node is None:
            raise FactMissing("gpus_per_node")
        return self.facts.gpus_per_node

    def model(self) -> ModelShape:
        """Shape of the model. Raises FactMissing if it is not known."""
        if self.facts.model is None:
            raise FactMissing("model_config")
        return self.facts.model

    def ranks(self) -> int:
        """Number of ranks if given, else what the explicit degrees need at least."""
        return self.facts.world_size.value if self.facts.world_size else self.product()

    def layout(self) -> Layout | None:
        """The layout, if the degrees are legal and fill the ranks; with no degree set, FSDP or replicas fill them."""
        degrees = {axis: value.value for axis, value in self.explicit().items()}
        if not self.legal_degrees():
            return None
        try:
            if not degrees and self.facts.world_size is not None:
                axis = "dp_shard" if self.sharding.fsdp.value else "dp_replicate"
                return Layout(**{axis: self.facts.world_size.value})
            layout = Layout(**degrees)
        except LayoutError:
            return None
        if not degrees or layout.world_size != self.ranks():
            return None
        return layout

    def global_batch_size(self) -> int | None:
        """Rows per optimizer step: micro batch x accumulation x data ranks. cp, tp and pp peers share their rows."""
        layout = self.layout()
        micro, accumulation = self.batch.micro, self.batch.accumulation
        if layout is None or micro is None or accumulation is None:
            return None
        if not micro.value or not accumulation.value:
            return None
        return micro.value * accumulation.value * layout.data_ranks

    def value(self, name: str) -> Value[Any] | None:
        """A value by dotted name (``sharding.fsdp``, ``degrees.tp``), for rules that are written as conditions."""
        found: Any = self
        for part in name.split("."):
            found = found.get(part) if isinstance(found, Mapping) else getattr(found, part)
        return found if isinstance(found, Value) else None

    def written(self, name: str) -> Value[Any] | None:
        """The same, if the user wrote it."""
        found = self.value(name)
        return found if found is not None and found.path is not None else None
