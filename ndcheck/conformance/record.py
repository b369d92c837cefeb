"""What one rank leaves behind of a cell, in numpy: the process that compares needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class Record:
    """A rank's account of a run, or of the part of it after it was resumed.

    ``coordinates``
        axis -> the rank's index along it
    ``first_step``
        number of the first step that this record is about: 1, or the one after it was resumed
    ``losses``, ``gradient_norms``
        of the global batch, per step; the norm before any clipping
    ``samples``
        indices of the rows that this rank had a share in, per step
    ``positions``
        which tokens of them it had, in its order; None: not told
    ``rows_read``
        rows that it took from the data set itself
    ``gradients``
        parameter -> whole gradient at the first step, put together from all ranks' pieces, in the order of the forward pass
    ``weights``
        parameter -> whole value after the last step, in the same order
    ``evaluation_loss``
        after the last step; None if it was not asked for
    ``row_parameter``, ``row_gradients``
        of a baseline, for one parameter: row -> the part of its gradient that this row brings
    ``evaluated``
        indices of the evaluation rows that the evaluation loss counts, over all ranks, as often as it counts them; None: not told
    ``mesh_constructions``
        meshes that this process has built in its life (cutting a mesh along its axes is not building one); None where the
        engine makes no promise about that
    ``held``
        share of the decoder layers' matrices that this rank keeps between steps, from 0 to 1; None: not told
    ``shims``
        what was done to the software under test so that it runs here: names of ``engines.shims.SHIMS``
    """

    rank: int
    coordinates: Mapping[str, int]
    first_step: int
    losses: tuple[float, ...]
    gradient_norms: tuple[float, ...]
    samples: tuple[tuple[int, ...], ...]
    positions: tuple[int, ...] | None
    rows_read: int
    gradients: Mapping[str, Array]
    weights: Mapping[str, Array]
    evaluation_loss: float | None
    mesh_constructions: int | None
    evaluated: tuple[int, ...] | None = None
    held: float | None = None
    shims: tuple[str, ...] = ()
    row_parameter: str | None = None
    row_gradients: Mapping[int, Array] = field(default_factory=dict)
