"""What one rank leaves behind of a cell, in numpy: the process that compares needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class Record:
    """A rank's account of a whole run.

    ``coordinates``
        axis -> the rank's index along it
    ``losses``, ``gradient_norms``
        of the global batch, per step; the norm before any clipping
    ``samples``
        indices of the samples that this rank read, per step
    ``gradients``
        parameter -> whole gradient at step 1, put together from all ranks' pieces, in the order of the forward pass
    ``weights``
        parameter -> whole value after the last step, in the same order
    ``mesh_constructions``
        meshes that this process built (cutting a mesh along its axes is not building one)
    """

    rank: int
    coordinates: Mapping[str, int]
    losses: tuple[float, ...]
    gradient_norms: tuple[float, ...]
    samples: tuple[tuple[int, ...], ...]
    gradients: Mapping[str, Array]
    weights: Mapping[str, Array]
    mesh_constructions: int
