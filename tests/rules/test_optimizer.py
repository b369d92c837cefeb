"""8-bit optimizers of bitsandbytes against DTensors."""

from __future__ import annotations

import pytest

from tests.helpers import FSDP1, FSDP2, Seen, findings, seen


@pytest.mark.parametrize(
    "name", ["adamw_8bit", "adamw_bnb_8bit", "paged_adamw_8bit", "lion_8bit", "paged_lion_8bit", "ademamix_8bit"]
)
@pytest.mark.parametrize(
    ("sharding", "expected"),
    [
        (FSDP2, True),
        ("tensor_parallel_size: 2\n", True),
        ("tensor_parallel_size: 2\n" + FSDP2, True),
        ("fsdp_config: {fsdp_version: 2}\n", True),
        (FSDP1, False),
        ("fsdp_config: {offload_params: false}\n", False),
        ("fsdp_version: 2\n", False),
        ("fsdp_version: two\nfsdp_config: {offload_params: false}\n", False),
        ("tensor_parallel_size: 1\n", False),
        ("tensor_parallel_size: null\n", False),
        ("deepspeed: zero2.json\n", False),
        ("", False),
    ],
)
def test_bitsandbytes(name: str, sharding: str, expected: bool) -> None:
    found = seen("ND601", f"optimizer: {name}\n{sharding}")
    assert found == ([Seen("error", 1, "optimizer")] if expected else [])


@pytest.mark.parametrize(
    "name",
    ["adamw_torch_8bit", "adamw_torch_fused", "ao_adamw_8bit", "muon", "null", "8", "[adamw_8bit]", "ADAMW_8BIT"],
)
def test_other_optimizers(name: str) -> None:
    assert seen("ND601", f"optimizer: {name}\n{FSDP2}") == []


def test_default_optimizer() -> None:
    assert seen("ND601", FSDP2) == []


def test_reason_names_every_cause() -> None:
    (finding,) = findings("ND601", f"optimizer: paged_adamw_8bit\ntensor_parallel_size: 2\n{FSDP2}")
    assert "the DTensors of FSDP2 and tensor_parallel_size 2" in finding.message
    assert [region.line for region in finding.related] == [2, 3]
