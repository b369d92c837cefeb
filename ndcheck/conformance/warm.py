"""Imported once by the fork server: everything that ranks need, and nothing that starts a thread.

A fork copies only the thread that forks. A pool of OpenMP threads in the server would be gone in the ranks, which would wait
for it for ever; so the number of threads is set to 1 before the first operation.
"""

from __future__ import annotations

import os
from contextlib import suppress

import torch

if torch.version.cuda is None and torch.version.hip is None:
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported, which may happen below

import ndcheck.conformance.engines.reference
import ndcheck.conformance.worker

torch.set_num_threads(1)

with suppress(ImportError):  # with other versions of theirs, the cells of these engines are skipped and say why
    import ndcheck.conformance.engines.accelerate
    import ndcheck.conformance.engines.trainer  # noqa: F401
