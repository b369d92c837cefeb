"""Layout: the degrees of one run. The only place that multiplies degrees or names mesh axes.

Ranks are laid out row-major over the mesh axes, outermost first::

    pp, ep, dp_replicate, dp_shard, cp, tp

so neighbouring ranks differ in ``tp`` first: the axis that talks most sits inside a node, the one
that talks least (pipeline, replicas) crosses nodes. This is the order of accelerate and torchtitan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from math import prod

AXES = ("dp_replicate", "dp_shard", "cp", "tp", "ep", "pp")
"""Every axis, in the order in which people write them."""

MESH_ORDER = ("pp", "ep", "dp_replicate", "dp_shard", "cp", "tp")
"""Every axis, outermost (slowest varying rank index) first."""


class LayoutError(ValueError):
    """The degrees do not make a layout.

    ``axis`` is the axis to change, or None when it is the product that is wrong;
    ``choices`` are the values of that axis that would fit, ascending.
    """

    def __init__(self, message: str, axis: str | None = None, choices: tuple[int, ...] = ()):
        super().__init__(message)
        self.axis = axis
        self.choices = choices


@dataclass(frozen=True, slots=True)
class Layout:
    """Degrees of one run; an axis that is not used has degree 1.

    Raises LayoutError for a degree that is not a positive integer.
    """

    dp_replicate: int = 1
    dp_shard: int = 1
    cp: int = 1
    tp: int = 1
    ep: int = 1
    pp: int = 1

    def __post_init__(self) -> None:
        for axis, degree in self.degrees().items():
            if type(degree) is not int or degree < 1:
                raise LayoutError(f"{axis} must be an integer of at least 1, not {degree!r}", axis)

    def degrees(self) -> dict[str, int]:
        """Axis -> degree, every axis included."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def world_size(self) -> int:
        """Number of ranks: the product of all degrees."""
        return prod(self.degrees().values())

    @property
    def data_ranks(self) -> int:
        """Ranks that read different samples: dp_replicate x dp_shard x ep. cp, tp and pp peers share theirs."""
        return self.dp_replicate * self.dp_shard * self.ep

    @property
    def is_hsdp(self) -> bool:
        """Parameters sharded inside a group of ranks and replicated over several such groups."""
        return self.dp_replicate > 1 and self.dp_shard > 1

    @property
    def mesh_axes(self) -> tuple[str, ...]:
        """Names of the axes with more than one rank, outermost first."""
        return tuple(axis for axis in MESH_ORDER if getattr(self, axis) > 1)

    @property
    def mesh_shape(self) -> tuple[int, ...]:
        """Degrees of ``mesh_axes``, in the same order."""
        return tuple(getattr(self, axis) for axis in self.mesh_axes)

    def coordinates(self, rank: int) -> dict[str, int]:
        """Axis -> index of ``rank`` along it, every axis included."""
        if not 0 <= rank < self.world_size:
            raise ValueError(f"rank {rank} is outside 0..{self.world_size - 1}")
        index = {}
        for axis in reversed(MESH_ORDER):
            rank, index[axis] = divmod(rank, getattr(self, axis))
        return {axis: index[axis] for axis in AXES}

    def __str__(self) -> str:
        used = [f"{axis} {degree}" for axis, degree in self.degrees().items() if degree > 1]
        return " x ".join(used) or "1 rank"


def resolve(world_size: int, degrees: Mapping[str, int | None]) -> Layout:
    """The one layout of ``world_size`` ranks with these degrees.

    An axis that is absent has degree 1; an axis that is None is filled where exactly one value
    fits. Nothing is rounded: a degree that does not divide the ranks is an error that lists the
    degrees that would.

    Raises LayoutError (no value fits, or more than one does) and KeyError for an unknown axis.
    """
    unknown = degrees.keys() - set(AXES)
    if unknown:
        raise KeyError(f"no such axis: {', '.join(sorted(unknown))}")
    fixed = {axis: degree for axis, degree in degrees.items() if degree is not None}
    unset = [axis for axis in AXES if axis in degrees and degrees[axis] is None]
    known = Layout(**fixed).world_size
    rest, remainder = divmod(world_size, known)
    if remainder or not rest:
        raise _misfit(world_size, fixed)
    if rest == 1 or len(unset) == 1:
        return Layout(**fixed, **dict.fromkeys(unset, rest))
    if not unset:
        raise _misfit(world_size, fixed)
    raise LayoutError(
        f"{counted(rest, 'rank')} are left for {' and '.join(unset)}: more than one split fits, set all but one of them",
        unset[0],
        divisors(rest),
    )


def divisors(number: int) -> tuple[int, ...]:
    """All divisors of a positive integer, ascending."""
    small = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return tuple(sorted({*small, *(number // n for n in small)}))


def layouts(world_size: int, axes: tuple[str, ...] = AXES) -> Iterator[Layout]:
    """Every layout of ``world_size`` ranks over ``axes``, in ascending order of degrees."""
    if len(axes) == 1:
        yield Layout(**{axes[0]: world_size})
        return
    for degree in divisors(world_size):
        for tail in layouts(world_size // degree, axes[1:]):
            yield Layout(**{**tail.degrees(), axes[0]: degree})


def listed(values: tuple[int, ...]) -> str:
    """'1, 2, 4 or 8'."""
    words = [str(value) for value in values]
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def counted(number: int, noun: str) -> str:
    """'1 rank', '8 ranks'."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def product_text(degrees: Mapping[str, int]) -> str:
    """'dp_shard 2 x tp 3 = 6', for messages."""
    product = " x ".join(f"{axis} {degree}" for axis, degree in degrees.items())
    return product if len(degrees) == 1 else f"{product} = {prod(degrees.values())}"


def _misfit(world_size: int, fixed: Mapping[str, int]) -> LayoutError:
    used = {axis: degree for axis, degree in fixed.items() if degree > 1}
    for axis, degree in used.items():
        others = prod(used.values()) // degree
        if world_size % degree and world_size % others == 0:
            fitting = divisors(world_size // others)
            return LayoutError(
                f"{axis} {degree} does not divide {counted(world_size // others, 'rank')}: {listed(fitting)} would fit",
                axis,
                fitting,
            )
    what = product_text(used) if used else "every degree is 1"
    there = "there is 1 rank" if world_size == 1 else f"there are {world_size} ranks"
    return LayoutError(f"{what}, but {there}")
