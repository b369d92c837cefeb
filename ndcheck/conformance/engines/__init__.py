"""Engines: what trains a cell.

An engine is a module with a function ``run(cell, rank, scratch, device_type, timeout) -> Record``, called once in every
rank's process. It raises ``Refused`` if the engine says no before training.
"""

from __future__ import annotations

from collections.abc import Mapping

ENGINES: Mapping[str, str] = {"reference": "ndcheck.conformance.engines.reference"}
"""Engine -> its module, imported only in ranks: every engine needs torch."""


class Refused(Exception):  # noqa: N818 - a verdict, not an error
    """The engine will not train this cell, and says why."""
