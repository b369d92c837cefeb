"""Liger's kernels against tp."""

from __future__ import annotations

import pytest

from tests.helpers import LIGER, Seen, findings, seen

FLAGS = [
    ("ND701", "liger_rms_norm"),
    ("ND702", "liger_fused_linear_cross_entropy"),
]


@pytest.mark.parametrize(("code", "flag"), FLAGS)
@pytest.mark.parametrize(
    ("value", "tp", "expected"),
    [
        ("true", "2", True),
        ("yes", "2", True),
        ('"true"', "2", True),
        ("1", "2", True),
        ("true", '"2"', True),
        ("true", "8", True),
        ("false", "2", False),
        ("null", "2", False),
        ("", "2", False),
        ("maybe", "2", False),
        ("[true]", "2", False),
        ("true", "1", False),
        ("true", "null", False),
        ("true", "", False),
        ("true", "0", False),
        ("true", "two", False),
    ],
)
def test_flag_with_tp(code: str, flag: str, value: str, tp: str, expected: bool) -> None:
    found = seen(code, f"{flag}: {value}\ntensor_parallel_size: {tp}\n{LIGER}")
    assert found == ([Seen("error", 1, flag)] if expected else [])


@pytest.mark.parametrize(("code", "flag"), FLAGS)
def test_flag_without_tp(code: str, flag: str) -> None:
    assert seen(code, f"{flag}: true\n{LIGER}", world_size=8) == []


@pytest.mark.parametrize("flag", ["liger_rope", "liger_glu_activation", "liger_layer_norm", "liger_cross_entropy"])
def test_other_kernels_of_liger(flag: str) -> None:
    fragment = f"{flag}: true\ntensor_parallel_size: 2\n{LIGER}"
    assert seen("ND701", fragment) + seen("ND702", fragment) == []


def test_the_degree_is_noted_beside_the_loss() -> None:
    (found,) = findings("ND702", "liger_fused_linear_cross_entropy: true\ntensor_parallel_size: 2\n" + LIGER)
    assert found.region.line == 1
    assert [region.line for region in found.related] == [2]
