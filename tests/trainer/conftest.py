"""Ranks for the trainer's tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ndcheck.conformance.pool import Failure, Pool

TIME_LIMIT = 300.0


@pytest.fixture(scope="session")
def on_ranks() -> Callable[[Any, int], list[Any]]:
    """Run a task on so many ranks; their results in rank order."""
    pool = Pool()

    def run(task: Any, world_size: int) -> list[Any]:
        outcome = pool.run(task, world_size, TIME_LIMIT)
        assert not isinstance(outcome, Failure), f"{outcome.reason}\n{outcome.details}"
        return outcome

    return run
