"""Settings of one training run, and whether a layout can carry them. No torch here: whoever plans a matrix reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from ndcheck.layout import Layout

Precision = Literal["float64", "float32", "bfloat16", "mixed"]
PRECISIONS: tuple[str, ...] = get_args(Precision)
"""Types that a run can have. ``mixed``: weights and gradients in float32, arithmetic in bfloat16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is trained and how, apart from the layout.

    Every number describes the whole run: neither a layout nor a loader mode may change what is learnt.
    """

    family: str = "llama"
    """Model family: a key of ``model.FAMILIES``."""

    precision: Precision = "float64"
    """Type of weights, activations and gradients."""

    samples: int = 44
    """Rows in the data set; a run is one epoch. The default leaves a last micro-batch that is half full."""

    global_batch: int = 16
    """Rows per optimizer step, over all data ranks."""

    micro_batches: int = 2
    """Forward and backward passes per optimizer step on each rank (gradient accumulation)."""

    sequence_length: int = 64
    """Tokens per row."""

    rows: Literal["padded", "packed"] = "padded"
    """One document a row and padding, or several documents a row that must not see each other."""

    dataset: Literal["map", "iterable"] = "map"
    """Rows by index, or a stream of unknown length."""

    dispatch_batches: bool = False
    """Rank 0 reads for everybody and sends; otherwise each rank reads its own rows."""

    split_batches: bool = False
    """The loader's batch is global, and cut; otherwise it belongs to one data rank, and batches are dealt."""

    even_batches: bool = True
    """Complete the last micro-batch with rows from the start; otherwise some data ranks get fewer rows, or none."""

    optimizer: Literal["sgd", "adamw"] = "sgd"
    """SGD shows a gradient that is wrong by a factor; AdamW hides it."""

    max_norm: float | None = None
    """Scale the gradient down to this norm if it is longer."""

    checkpointing: bool = False
    """Recompute each decoder layer's activations in the backward pass."""

    reshard_after_forward: bool = True
    """FSDP frees a layer's whole weights after its forward pass, and gathers them again for the backward pass."""

    cpu_offload: bool = False
    """FSDP keeps its pieces in the host's memory."""

    vocabulary_parallel: bool = True
    """Embedding and LM head are cut over tp; otherwise each tp rank holds them whole."""

    loss_parallel: bool = False
    """The loss is computed from logits that stay cut over tp."""

    sequence_parallel: bool = False
    """Between the matrices, tp ranks share out the tokens instead of repeating the norms."""

    cp_slices: Literal["contiguous", "zigzag"] = "contiguous"
    """Which tokens a cp rank holds."""

    cp_exchange: Literal["gather", "ring"] = "gather"
    """How keys and values travel between cp ranks."""

    evaluate: bool = False
    """Also compute the loss of the evaluation rows, after the last step."""

    resume_at: int = 0
    """Stop after this step, save, load into a new run and go on (0: train straight through)."""

    seed: int = 0
    """Of the weights and of the data."""

    def __post_init__(self) -> None:
        for field, choices in _CHOICES.items():
            if getattr(self, field) not in choices:
                raise ValueError(f"{field} {getattr(self, field)!r} is not one of {', '.join(choices)}")
        for field in ("samples", "global_batch", "micro_batches", "sequence_length"):
            if getattr(self, field) < 1:
                raise ValueError(f"{field} must be at least 1, not {getattr(self, field)}")
        if self.max_norm is not None and self.max_norm <= 0:
            raise ValueError(f"max_norm must be above 0, not {self.max_norm}")
        if self.global_batch % self.micro_batches:
            raise ValueError(
                f"global_batch {self.global_batch} does not split into {self.micro_batches} equal micro_batches"
            )
        if not 0 <= self.resume_at < self.steps:
            raise ValueError(f"resume_at must be from 0 to {self.steps - 1}, not {self.resume_at}")
        if self.loss_parallel and not self.vocabulary_parallel:
            raise ValueError("loss_parallel needs vocabulary_parallel: whole logits have nothing to be cut")

    @property
    def micro_batch(self) -> int:
        """Rows per forward pass, over all data ranks."""
        return self.global_batch // self.micro_batches

    @property
    def steps(self) -> int:
        """Optimizer steps of the epoch, the last one perhaps of fewer rows."""
        return -(-self.samples // self.global_batch)


_CHOICES: dict[str, tuple[str, ...]] = {
    "precision": PRECISIONS,
    "rows": ("padded", "packed"),
    "dataset": ("map", "iterable"),
    "optimizer": ("sgd", "adamw"),
    "cp_slices": ("contiguous", "zigzag"),
    "cp_exchange": ("gather", "ring"),
}


def check_fits(settings: Settings, layout: Layout, *, heads: int, kv_heads: int) -> None:
    """Raise ValueError, naming field and value, if ``layout`` cannot train ``settings`` on such a model."""
    for axis in ("ep", "pp"):
        degree = getattr(layout, axis)
        if degree > 1:
            raise ValueError(f"{axis} {degree}: the reference trainer has no {axis} axis, set it to 1")
    if settings.micro_batch % layout.data_ranks:
        raise ValueError(
            f"global_batch {settings.global_batch} / micro_batches {settings.micro_batches} = {settings.micro_batch} rows"
            f" do not split over {layout.data_ranks} data ranks"
        )
    slices = layout.cp * (2 if settings.cp_slices == "zigzag" else 1)
    if settings.sequence_length % slices:
        raise ValueError(
            f"sequence_length {settings.sequence_length} does not split into {slices} equal {settings.cp_slices} slices"
        )
    if settings.sequence_parallel and settings.sequence_length // layout.cp % layout.tp:
        raise ValueError(
            f"sequence_parallel: {settings.sequence_length // layout.cp} tokens do not split over tp {layout.tp}"
        )
    for name, count in (("attention heads", heads), ("key-value heads", kv_heads)):
        if count % layout.tp:
            raise ValueError(f"tp {layout.tp} does not divide the model's {count} {name}")
