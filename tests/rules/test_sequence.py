"""The sequence length against cp and tp."""

from __future__ import annotations

import pytest

from ndcheck.facts import Facts
from ndcheck.rules.sequence import sequence_length_cp, sequence_length_tp
from ndcheck.run import Batch, Kernels, Loader, Run, Sequence, Sharding
from ndcheck.values import default, from_key
from tests.helpers import Seen, findings, message, seen


@pytest.mark.parametrize(
    ("length", "cp", "expected"),
    [
        ("4096", "2", False),
        ("4095", "2", True),
        ("4098", "4", True),
        ("4097", "1", False),
        ("4097", "null", False),
        ("4097", "", False),
        ("4097", "two", False),
        ("4097", "0", False),
        ("4097", "-2", False),
        ('"4095"', '"2"', True),
        ("0", "2", False),
        ("long", "2", False),
        ("3", "8", True),
        ("8", "8", False),
    ],
)
def test_cp(length: str, cp: str, expected: bool) -> None:
    found = seen("ND401", f"sequence_len: {length}\ncontext_parallel_size: {cp}\n")
    assert found == ([Seen("warning", 1, "sequence_len")] if expected else [])


def test_the_default_length_is_judged_at_the_degree() -> None:
    # axolotl's default of 512 over 3 ranks: 512 = 3 x 170 + 2
    assert seen("ND401", "context_parallel_size: 3\n") == [Seen("warning", 1, "context_parallel_size")]
    assert "512 (axolotl's default)" in message("ND401", "context_parallel_size: 3\n")
    assert seen("ND401", "context_parallel_size: 4\n") == []


@pytest.mark.parametrize(
    ("length", "cp", "kernel", "expected"),
    [(4098, 2, "batch_zigzag", True), (4100, 2, "batch_zigzag", False), (4098, 2, "varlen_llama3", False)],
)
def test_zigzag_needs_twice_as_much(length: int, cp: int, kernel: str, expected: bool) -> None:
    fragment = f"sequence_len: {length}\ncontext_parallel_size: {cp}\nring_attn_func: {kernel}\n"
    assert bool(seen("ND401", fragment)) is expected
    if expected:
        assert "2 x context_parallel_size 2 = 4 (zig-zag slices)" in message("ND401", fragment)


@pytest.mark.parametrize(
    ("length", "degrees", "expected"),
    [
        ("4096", "tensor_parallel_size: 2", False),
        ("4095", "tensor_parallel_size: 2", True),
        ("4095", "tensor_parallel_size: 1", False),
        ("4095", "tensor_parallel_size: null", False),
        ("4095", "tensor_parallel_size: [2]", False),
        ("4098", "tensor_parallel_size: 2\ncontext_parallel_size: 2", True),  # 4098 / 4 leaves 2
        ("4100", "tensor_parallel_size: 2\ncontext_parallel_size: 2", False),
        ("4099", "tensor_parallel_size: 2\ncontext_parallel_size: 2", False),  # ND401 says it already
    ],
)
def test_tp(length: str, degrees: str, expected: bool) -> None:
    found = seen("ND402", f"sequence_len: {length}\n{degrees}\n")
    assert found == ([Seen("warning", 1, "sequence_len")] if expected else [])


@pytest.mark.parametrize(
    ("length", "cp", "repair"),
    [("4095", "2", "set it to 4096, or 4094"), ("3", "8", "set it to 8"), ("4097", "4", "set it to 4100, or 4096")],
)
def test_repair_offers_the_lengths_next_to_it(length: str, cp: str, repair: str) -> None:
    (finding,) = findings("ND401", f"sequence_len: {length}\ncontext_parallel_size: {cp}\n")
    assert finding.fix is not None
    assert finding.fix.title == repair


def run(length: int, *, zigzag: bool, pads: bool, **degrees: int) -> Run:
    off = default(False, "nobody")
    return Run(
        facts=Facts(),
        degrees={axis: from_key(degree, (axis,)) for axis, degree in degrees.items()},
        sharding=Sharding(fsdp=off, deepspeed=off),
        batch=Batch(),
        sequence=Sequence(length=from_key(length, ("length",)), zigzag=default(zigzag, "nobody"), pads=pads),
        loader=Loader(streaming=off, dispatch_batches=default(None, "nobody"), split_batches=off, pads_to_length=off),
        kernels=Kernels(),
    )


@pytest.mark.parametrize("length", range(1, 50))
@pytest.mark.parametrize("cp", [1, 2, 3, 4])
@pytest.mark.parametrize("zigzag", [False, True])
def test_every_rank_gets_equal_slices_or_the_rule_speaks(length: int, cp: int, zigzag: bool) -> None:
    slices = (2 * cp if zigzag else cp) if cp > 1 else 1
    sizes = {len(range(length)[at::slices]) for at in range(slices)}
    found = list(sequence_length_cp.check(run(length, zigzag=zigzag, pads=False, cp=cp)))
    assert bool(found) is (len(sizes) > 1)


def test_an_error_where_nothing_pads() -> None:
    (violation,) = sequence_length_tp.check(run(7, zigzag=False, pads=False, tp=2))
    assert violation.severity == "error"
    assert "padded" not in violation.message
    (violation,) = sequence_length_tp.check(run(7, zigzag=False, pads=True, tp=2))
    assert violation.severity == "warning"
    assert "padded to 8" in violation.message
