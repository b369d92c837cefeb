"""What every test shares: no fact leaks in from the environment, and property tests are repeatable."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "ndcheck", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile("ndcheck")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--regenerate-golden",
        action="store_true",
        help="write tests/data/golden/*.txt from the present output instead of comparing; read the diff by hand",
    )


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WORLD_SIZE", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
