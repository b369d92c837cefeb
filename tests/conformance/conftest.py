from __future__ import annotations

import pytest

from ndcheck.conformance.pool import Pool
from tests.conformance.ranks import square

TIME_LIMIT = 300.0
"""Generous: it only keeps a broken test from running for ever."""


@pytest.fixture(scope="session")
def pool() -> Pool:
    """A pool whose server has started: its imports are no part of any test's time limit."""
    pool = Pool()
    assert pool.run(square, 1, TIME_LIMIT) == [0]
    return pool


@pytest.fixture(scope="session")
def time_limit() -> float:
    return TIME_LIMIT
