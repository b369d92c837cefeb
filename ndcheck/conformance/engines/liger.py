"""Liger's kernels in a loaded model; on CPU ranks they run in Triton's interpreter."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import torch.distributed.tensor  # Liger looks it up without importing it
from torch import nn

from ndcheck.conformance.engines import Unrunnable

KERNELS = ("rope", "rms_norm", "swiglu", "cross_entropy", "fused_linear_cross_entropy")
"""Arguments by which Liger's kernels are chosen."""


def patch(model: nn.Module, kernel: str, *, on_cpu: bool) -> None:
    """Let ``model`` use ``kernel``; ``off``: none. Raises Unrunnable where Liger is not installed."""
    if kernel == "off":
        return
    missing = [name for name in ("liger_kernel", "triton") if find_spec(name) is None]
    if missing:
        raise Unrunnable(f"{' and '.join(missing)} not installed: nox -s liger installs both")
    if on_cpu:
        interpret()
    from liger_kernel.transformers import _apply_liger_kernel_to_instance

    _apply_liger_kernel_to_instance(model=model, **{name: name == kernel for name in KERNELS})


def interpret() -> None:
    """Teach Liger's kernels what Triton's interpreter lacks. For the life of the process. Raises Unrunnable."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        raise Unrunnable("Triton compiles for GPUs here: on CPU ranks, set TRITON_INTERPRET=1 before the run")
    from liger_kernel.ops import rms_norm

    from ndcheck.conformance.engines import interpreted

    module: Any = rms_norm
    module.rsqrt = interpreted.rsqrt


@contextmanager
def undone() -> Iterator[None]:
    """Liger replaces the cross entropy of the whole process: put torch's own back at the end."""
    own, functional = nn.functional.cross_entropy, torch.nn.functional
    try:
        yield
    finally:
        functional.cross_entropy = own
