"""Save and resume, the resumed run perhaps under another layout.

Every rank writes the pieces that it holds, and where they lie in the whole; a run under any layout reads
the pieces that overlap with its own (torch.distributed.checkpoint)::

    saved under dp_shard 2              loaded under tp 2
      r0: rows 0..3   of W                r0: columns 0..3 of W   <- the left halves of both files
      r1: rows 4..7   of W                r1: columns 4..7 of W   <- the right halves
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn
from torch.distributed.checkpoint.state_dict_loader import load as read
from torch.distributed.checkpoint.state_dict_saver import save as write

from ndcheck.trainer.gradients import Optimizer
from ndcheck.trainer.mesh import Mesh


def save(folder: Path, network: nn.Module, optimizer: Optimizer, mesh: Mesh) -> None:
    """Write weights and the optimizer's state into ``folder``, which all ranks see."""
    write(state(network, optimizer), checkpoint_id=folder, no_dist=mesh.device_mesh is None)


def load(folder: Path, network: nn.Module, optimizer: Optimizer, mesh: Mesh) -> None:
    """Read what ``save`` wrote, under whatever layout, into this rank's pieces."""
    optimizer.prepare_state()
    read(state(network, optimizer), checkpoint_id=folder, no_dist=mesh.device_mesh is None)


def state(network: nn.Module, optimizer: Optimizer) -> dict[str, Any]:
    """All that a run needs to go on. The tensors share their memory with the run's."""
    weights = {name: parameter.detach() for name, parameter in network.named_parameters()}
    return {"weights": weights, "optimizer": optimizer.state()}
