"""ndcheck agrees with axolotl's own validator as far as it must."""

from __future__ import annotations

import pytest

from tests.oracle.compare import UNCHECKED, Figures, read
from tests.oracle.verdicts import VERDICTS


@pytest.fixture(scope="module")
def figures() -> Figures:
    return read(VERDICTS)


def test_what_axolotl_refuses_is_an_error(figures: Figures) -> None:
    assert figures.schema.value >= 0.99


def test_it_is_the_error_that_says_the_same(figures: Figures) -> None:
    assert figures.corresponding.value >= 0.97, figures.unmatched


def test_meshes_that_do_not_fit_are_layout_errors(figures: Figures) -> None:
    assert figures.launch.value >= 0.98


def test_only_rules_marked_unchecked_are_stricter(figures: Figures) -> None:
    assert set(figures.stricter) <= UNCHECKED
