"""The mesh rules: every row of what axolotl 0.18's Trainer was seen to say of a mesh, and each operand alone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers import FLASH, FSDP1, FSDP2, Seen, codes, findings, message, seen

MESH_RULES = {"ND101", "ND102", "ND103", "ND104", "ND201", "ND202", "ND204"}
EP = "plugins: [axolotl.integrations.expert_parallel.ExpertParallelPlugin]\n"
KEYS = {
    "tp": "tensor_parallel_size",
    "cp": "context_parallel_size",
    "shard": "dp_shard_size",
    "rep": "dp_replicate_size",
    "ep": "expert_parallel_size",
}
SHARDING = {"v2": FSDP2, "v1": FSDP1, "none": ""}

# Ranks, degrees, FSDP -> the codes. The Trainer's own verdict was: OK for an empty set, an error for any other,
# except where a comment says that ndcheck is stricter.
TABLE: list[tuple[int, dict[str, int], str, set[str]]] = [
    (8, {}, "v2", set()),
    (8, {"shard": 8}, "v2", set()),
    (8, {"shard": 4, "rep": 2}, "v2", set()),
    (8, {"shard": 4}, "v2", {"ND101"}),
    (8, {"rep": 2}, "v2", {"ND101"}),
    (8, {"rep": 8}, "v2", set()),
    (8, {"shard": 1}, "v2", {"ND202"}),  # the Trainer shards over 8 in spite of the 1: a warning
    (8, {"shard": 0}, "v2", {"ND102"}),  # the same; a degree of 0 is stricter, an error
    (8, {"shard": -1}, "v2", {"ND102"}),  # the same
    (8, {"shard": 3}, "v2", {"ND101"}),
    (8, {"shard": 16}, "v2", {"ND101"}),
    (8, {"shard": 4, "rep": 4}, "v2", {"ND101"}),
    (8, {"shard": 2, "rep": 2}, "v2", {"ND101"}),
    (8, {"tp": 2}, "v2", {"ND101"}),
    (8, {"tp": 2, "shard": 4}, "v2", set()),
    (8, {"tp": 2, "shard": 2, "rep": 2}, "v2", set()),
    (8, {"tp": 2, "rep": 4}, "v2", {"ND103"}),
    (8, {"tp": 2, "rep": 4, "shard": 1}, "v2", {"ND103", "ND202"}),
    (8, {"tp": 8}, "none", set()),
    (8, {"tp": 2}, "none", {"ND101"}),
    (8, {"tp": 3}, "v2", {"ND101"}),
    (8, {"tp": 16}, "none", {"ND101"}),
    (8, {"tp": 16}, "v2", {"ND101"}),
    (8, {"cp": 2}, "v2", {"ND101"}),
    (8, {"cp": 2, "shard": 4}, "v2", set()),
    (8, {"cp": 2, "shard": 4}, "v1", {"ND204"}),
    (8, {"cp": 2}, "none", {"ND101"}),
    (8, {"cp": 2, "rep": 4}, "none", {"ND103"}),
    (8, {"cp": 8}, "none", set()),
    (8, {"cp": 8, "shard": 8}, "v2", {"ND101"}),
    (8, {"tp": 2, "cp": 2, "shard": 2}, "v2", set()),
    (8, {"shard": 8}, "none", {"ND201"}),  # stricter: DDP runs, and the degree that was to save memory saves none
    (8, {"ep": 8}, "none", set()),
    (8, {"ep": 4}, "none", {"ND101"}),  # fails later, when the experts are sharded
    (8, {"ep": 4, "shard": 2}, "v2", set()),
    (8, {"ep": 4}, "v2", {"ND101"}),  # fails later, likewise
    (8, {"ep": 4, "cp": 2}, "none", set()),
    (8, {"ep": 2, "tp": 2, "shard": 2}, "v2", set()),  # the plug-in refuses ep with tp: not a rule about the mesh
    (8, {"ep": 2, "shard": 2, "rep": 2}, "v2", set()),  # the plug-in's own product leaves dp_replicate out: likewise
    (1, {"tp": 2}, "none", {"ND101"}),
]


def mesh(degrees: dict[str, Any], sharding: str) -> str:
    lines = "".join(f"{KEYS[axis]}: {degree}\n" for axis, degree in degrees.items())
    return lines + (FLASH if "cp" in degrees else "") + (EP if "ep" in degrees else "") + SHARDING[sharding]


@pytest.mark.parametrize(("ranks", "degrees", "sharding", "expected"), TABLE)
def test_what_the_trainer_says(ranks: int, degrees: dict[str, int], sharding: str, expected: set[str]) -> None:
    assert codes(mesh(degrees, sharding), world_size=ranks) & MESH_RULES == expected


@pytest.mark.parametrize(("ranks", "degrees", "sharding", "expected"), TABLE)
def test_without_a_world_size_the_product_is_not_judged(
    ranks: int, degrees: dict[str, int], sharding: str, expected: set[str]
) -> None:
    assert "ND101" not in codes(mesh(degrees, sharding))


@pytest.mark.parametrize(
    ("degrees", "text", "line", "repair"),
    [
        ({"tp": 3}, "3, but there are 8 ranks (world_size); tensor_parallel_size could be 1, 2, 4 or 8", 1, None),
        (
            {"tp": 2},
            "2, but there are 8 ranks",
            1,
            "set dp_shard_size: 4, which makes dp_shard 4 x tp 2 = 8",
        ),
        ({"shard": 4, "rep": 4}, "dp_replicate_size 4 x dp_shard_size 4 = 16, but there are 8 ranks", 2, None),
        (
            {"tp": 2, "shard": 3},
            "dp_shard_size 3 x tensor_parallel_size 2 = 6, but there are 8 ranks (world_size); dp_shard_size could be 1, 2 or 4",
            2,
            "set dp_shard_size: 4, which makes dp_shard 4 x tp 2 = 8",
        ),
    ],
)
def test_product_shows_its_arithmetic_and_the_repair(
    degrees: dict[str, int], text: str, line: int, repair: str | None
) -> None:
    (finding,) = findings("ND101", mesh(degrees, "v2"), world_size=8)
    assert text in finding.message
    assert finding.region.line == line
    if repair is not None:
        assert finding.fix is not None
        assert finding.fix.title == repair


def test_every_factor_is_underlined() -> None:
    (finding,) = findings("ND101", mesh({"tp": 3, "cp": 2, "rep": 5}, "none"), world_size=8)
    places = {finding.region.line: "", **{region.line: region.label for region in finding.related}}
    assert set(places) == {1, 2, 3}
    labels = {label for label in places.values() if label}
    assert labels <= {"tensor_parallel_size 3", "context_parallel_size 2", "dp_replicate_size 5"}
    assert len(labels) == 2


@pytest.mark.parametrize(
    ("degree", "ranks", "expected"),
    [
        ("8", 8, []),
        ('"8"', 8, []),  # a quoted number is a number to axolotl
        ("8.0", 8, []),
        ("010", 8, []),  # YAML 1.1: octal
        ("4", 8, [Seen("error", 1, "tensor_parallel_size")]),
        ('"4"', 8, [Seen("error", 1, "tensor_parallel_size")]),
        ("1:30", 90, []),  # YAML 1.1: base 60
        ("null", 8, []),
        ("", 8, []),
        ("1", 8, []),
        ("two", 8, []),  # the wrong type is ND802's
        ("[2]", 8, []),
        ("{a: 2}", 8, []),
        ("2.5", 8, []),
        (".inf", 8, []),
        (".nan", 8, []),
        ("-2", 8, []),  # ND102's
    ],
)
def test_spellings_of_a_degree(degree: str, ranks: int, expected: list[Seen]) -> None:
    assert seen("ND101", f"tensor_parallel_size: {degree}\n", world_size=ranks) == expected


@pytest.mark.parametrize("key", [*KEYS.values()])
@pytest.mark.parametrize(
    ("degree", "expected"),
    [("0", True), ("-1", True), ('"0"', True), ("1", False), ("2", False), ("null", False), ("none", False)],
)
def test_degree_positive(key: str, degree: str, expected: bool) -> None:
    fragment = f"{key}: {degree}\n{EP}"
    assert seen("ND102", fragment) == ([Seen("error", 1, key)] if expected else [])


def test_each_bad_degree_is_a_finding() -> None:
    fragment = "tensor_parallel_size: 0\ncontext_parallel_size: -3\ndp_shard_size: 4\n"
    assert sorted(seen("ND102", fragment), key=lambda item: item.line) == [
        Seen("error", 1, "tensor_parallel_size"),
        Seen("error", 2, "context_parallel_size"),
    ]
    assert codes(fragment, world_size=8).isdisjoint({"ND101", "ND103"})


@pytest.mark.parametrize(
    ("fragment", "expected"),
    [
        ("dp_replicate_size: 4\ntensor_parallel_size: 2\n", True),
        ("dp_replicate_size: 4\ncontext_parallel_size: 2\n", True),
        ("dp_replicate_size: 4\ntensor_parallel_size: 2\ndp_shard_size: 1\n", True),
        ("dp_replicate_size: 4\ntensor_parallel_size: 2\ndp_shard_size: null\n", True),
        ("dp_replicate_size: 2\ntensor_parallel_size: 2\ndp_shard_size: 2\n", False),
        ("dp_replicate_size: 1\ntensor_parallel_size: 2\n", False),
        ("dp_replicate_size: null\ntensor_parallel_size: 2\n", False),
        ("tensor_parallel_size: 2\n", False),
        ("dp_replicate_size: 4\n", False),
        ("dp_replicate_size: 4\ntensor_parallel_size: 1\ncontext_parallel_size: 1\n", False),
        ("dp_replicate_size: 4\ntensor_parallel_size: null\n", False),
        ("dp_replicate_size: four\ntensor_parallel_size: 2\n", False),
    ],
)
def test_replicate_without_shard(fragment: str, expected: bool) -> None:
    assert seen("ND103", fragment) == ([Seen("error", 1, "dp_replicate_size")] if expected else [])


def test_replicate_without_shard_names_both() -> None:
    fragment = "dp_replicate_size: 2\ntensor_parallel_size: 2\ncontext_parallel_size: 2\n"
    text = message("ND103", fragment)
    assert text == (
        "dp_replicate_size 2 without dp_shard cannot be combined with tensor_parallel_size 2 and context_parallel_size 2"
    )


@pytest.mark.parametrize(
    ("tp", "facts", "expected"),
    [
        ("8", {"gpus_per_node": 4}, True),
        ("3", {"gpus_per_node": 8}, True),
        ("4", {"gpus_per_node": 8}, False),
        ("8", {"gpus_per_node": 8}, False),
        ("1", {"gpus_per_node": 3}, False),
        ("null", {"gpus_per_node": 3}, False),
        ("8", {"world_size": 8, "nodes": 2}, True),
        ("8", {"world_size": 16, "nodes": 2}, False),
        ("8", {"world_size": 16}, False),
        ("8", {}, False),
    ],
)
def test_tp_across_nodes(tp: str, facts: dict[str, int], expected: bool) -> None:
    found = seen("ND104", f"tensor_parallel_size: {tp}\n", **facts)
    assert found == ([Seen("warning", 1, "tensor_parallel_size")] if expected else [])


@pytest.mark.parametrize(
    ("world_size", "gpus_per_node", "broken"),
    [(12, 8, True), (16, 8, False), (4, 8, False), (8, 8, False), (9, 8, True)],
)
def test_nodes_partly_used(world_size: int, gpus_per_node: int, broken: bool) -> None:
    assert bool(seen("ND105", "", world_size=world_size, gpus_per_node=gpus_per_node)) == broken
