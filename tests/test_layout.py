"""Degrees, products, coordinates, and the resolution of a partial layout."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ndcheck.layout import AXES, Layout, LayoutError, divisors, layouts, listed, product_text, resolve


@pytest.mark.parametrize(
    ("degrees", "world_size", "data_ranks", "hsdp", "mesh", "text"),
    [
        ({}, 1, 1, False, {}, "1 rank"),
        ({"dp_shard": 8}, 8, 8, False, {"dp_shard": 8}, "dp_shard 8"),
        ({"dp_replicate": 8}, 8, 8, False, {"dp_replicate": 8}, "dp_replicate 8"),
        (
            {"tp": 2, "dp_shard": 4, "dp_replicate": 3},
            24,
            12,
            True,
            {"dp_replicate": 3, "dp_shard": 4, "tp": 2},
            "dp_replicate 3 x dp_shard 4 x tp 2",
        ),
        ({"cp": 2, "tp": 2, "pp": 2}, 8, 1, False, {"pp": 2, "cp": 2, "tp": 2}, "cp 2 x tp 2 x pp 2"),
        ({"ep": 4, "dp_shard": 2}, 8, 8, False, {"ep": 4, "dp_shard": 2}, "dp_shard 2 x ep 4"),
    ],
)
def test_layout(
    degrees: dict[str, int], world_size: int, data_ranks: int, hsdp: bool, mesh: dict[str, int], text: str
) -> None:
    layout = Layout(**degrees)
    assert layout.world_size == world_size
    assert layout.data_ranks == data_ranks
    assert layout.is_hsdp is hsdp
    assert layout.mesh_axes == tuple(mesh)
    assert layout.mesh_shape == tuple(mesh.values())
    assert str(layout) == text


@pytest.mark.parametrize("degree", [0, -1, 2.0, True, "2", None, float("nan")])
@pytest.mark.parametrize("axis", AXES)
def test_a_degree_is_a_positive_integer(axis: str, degree: Any) -> None:
    with pytest.raises(LayoutError, match="at least 1") as caught:
        Layout(**{axis: degree})
    assert caught.value.axis == axis


def test_tp_neighbours_are_neighbouring_ranks() -> None:
    layout = Layout(dp_replicate=2, dp_shard=2, tp=2)
    places = [(at["dp_replicate"], at["dp_shard"], at["tp"]) for at in map(layout.coordinates, range(8))]
    assert places == [(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1), (1, 0, 0), (1, 0, 1), (1, 1, 0), (1, 1, 1)]


def test_cp_is_outside_tp_and_pp_outside_all() -> None:
    layout = Layout(pp=2, cp=2, tp=2)
    assert [layout.coordinates(rank)["pp"] for rank in range(8)] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [layout.coordinates(rank)["cp"] for rank in range(8)] == [0, 0, 1, 1, 0, 0, 1, 1]
    assert layout.coordinates(7) == {"dp_replicate": 0, "dp_shard": 0, "cp": 1, "tp": 1, "ep": 0, "pp": 1}


@pytest.mark.parametrize("rank", [-1, 8, 100])
def test_a_rank_outside_the_world_has_no_place(rank: int) -> None:
    with pytest.raises(ValueError, match=r"outside 0\.\.7"):
        Layout(dp_shard=8).coordinates(rank)


@pytest.mark.parametrize(
    ("world_size", "degrees", "expected"),
    [
        (1, {}, Layout()),
        (8, {"dp_shard": 8}, Layout(dp_shard=8)),
        (8, {"dp_shard": None}, Layout(dp_shard=8)),
        (8, {"tp": 2, "dp_shard": None}, Layout(tp=2, dp_shard=4)),
        (8, {"tp": 2, "cp": 2, "dp_replicate": None}, Layout(tp=2, cp=2, dp_replicate=2)),
        (8, {"tp": 8, "dp_shard": None}, Layout(tp=8)),
        (8, {"tp": 8, "dp_shard": None, "cp": None}, Layout(tp=8)),
        (8, {"tp": 1, "dp_shard": 4, "dp_replicate": 2}, Layout(dp_shard=4, dp_replicate=2)),
        (6, {"tp": 3, "dp_shard": None}, Layout(tp=3, dp_shard=2)),
        (7, {"pp": None}, Layout(pp=7)),
        (16, {"ep": 4, "dp_shard": None}, Layout(ep=4, dp_shard=4)),
    ],
)
def test_resolve(world_size: int, degrees: dict[str, int | None], expected: Layout) -> None:
    assert resolve(world_size, degrees) == expected


@pytest.mark.parametrize(
    ("world_size", "degrees", "message", "axis", "choices"),
    [
        (8, {"tp": 3, "dp_shard": None}, "tp 3 does not divide 8 ranks: 1, 2, 4 or 8", "tp", (1, 2, 4, 8)),
        (8, {"tp": 3}, "tp 3 does not divide 8 ranks", "tp", (1, 2, 4, 8)),
        (8, {"tp": 16}, "tp 16 does not divide 8 ranks", "tp", (1, 2, 4, 8)),
        (8, {"tp": 2, "dp_shard": 3}, "dp_shard 3 does not divide 4 ranks: 1, 2 or 4", "dp_shard", (1, 2, 4)),
        (8, {"tp": 2, "dp_shard": 8}, "tp 2 x dp_shard 8 = 16, but there are 8 ranks", None, ()),
        (8, {"dp_shard": 4}, "dp_shard 4, but there are 8 ranks", None, ()),
        (8, {"dp_shard": 2, "dp_replicate": 2}, "dp_shard 2 x dp_replicate 2 = 4, but there are 8 ranks", None, ()),
        (8, {"tp": 3, "dp_shard": 3}, "tp 3 x dp_shard 3 = 9, but there are 8 ranks", None, ()),
        (8, {"tp": 1}, "every degree is 1, but there are 8 ranks", None, ()),
        (8, {}, "every degree is 1, but there are 8 ranks", None, ()),
        (1, {"tp": 2}, "tp 2 does not divide 1 rank: 1 would fit", "tp", (1,)),
        (8, {"tp": None, "cp": None}, "8 ranks are left for cp and tp: more than one split", "cp", (1, 2, 4, 8)),
        (8, {"pp": 2, "tp": None, "dp_shard": None}, "4 ranks are left for dp_shard and tp", "dp_shard", (1, 2, 4)),
    ],
)
def test_resolve_refuses(
    world_size: int, degrees: dict[str, int | None], message: str, axis: str | None, choices: tuple[int, ...]
) -> None:
    with pytest.raises(LayoutError) as caught:
        resolve(world_size, degrees)
    assert message in str(caught.value)
    assert (caught.value.axis, caught.value.choices) == (axis, choices)


@pytest.mark.parametrize("degree", [0, -2])
def test_resolve_refuses_a_degree_that_counts_nothing(degree: int) -> None:
    with pytest.raises(LayoutError, match="at least 1"):
        resolve(8, {"tp": degree, "dp_shard": None})


def test_resolve_knows_its_axes() -> None:
    with pytest.raises(KeyError, match="sp"):
        resolve(8, {"sp": 2})


DEGREES = st.dictionaries(st.sampled_from(AXES), st.none() | st.integers(1, 9), max_size=6)


@given(st.integers(1, 64), DEGREES)
def test_resolve_never_rounds(world_size: int, degrees: dict[str, int | None]) -> None:
    written = {axis: degree for axis, degree in degrees.items() if degree is not None}
    product = prod(written.values())
    unset = len(degrees) - len(written)
    rest = world_size // product if world_size % product == 0 else 0
    if rest == 1 or (rest and unset == 1):
        layout = resolve(world_size, degrees)
        assert prod(layout.degrees().values()) == world_size
        assert {axis: getattr(layout, axis) for axis in written} == written
        assert all(degree == 1 for axis, degree in layout.degrees().items() if axis not in degrees)
        return
    with pytest.raises(LayoutError) as caught:
        resolve(world_size, degrees)
    axis, choices = caught.value.axis, caught.value.choices
    if axis in written:
        assert written[axis] not in choices
        assert choices
        assert all(world_size % (product // written[axis] * choice) == 0 for choice in choices)


@given(st.integers(1, 48))
def test_every_layout_multiplies_to_the_world_size_and_comes_once(world_size: int) -> None:
    found = list(layouts(world_size))
    assert {layout.world_size for layout in found} == {world_size}
    assert len(set(found)) == len(found)


def test_layouts_are_complete() -> None:
    assert len(list(layouts(8))) == 56  # 2^3 over 6 axes: C(3 + 5, 5)
    assert list(layouts(6, ("tp", "cp"))) == [
        Layout(tp=1, cp=6),
        Layout(tp=2, cp=3),
        Layout(tp=3, cp=2),
        Layout(tp=6, cp=1),
    ]


@pytest.mark.parametrize(
    ("number", "expected"),
    [(1, (1,)), (7, (1, 7)), (12, (1, 2, 3, 4, 6, 12)), (36, (1, 2, 3, 4, 6, 9, 12, 18, 36))],
)
def test_divisors(number: int, expected: tuple[int, ...]) -> None:
    assert divisors(number) == expected


def test_words() -> None:
    assert listed((1,)) == "1"
    assert listed((1, 2)) == "1 or 2"
    assert listed((1, 2, 4)) == "1, 2 or 4"
    assert product_text({"tp": 2}) == "tp 2"
    assert product_text({"tp": 2, "cp": 3}) == "tp 2 x cp 3 = 6"
