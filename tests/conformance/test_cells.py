from __future__ import annotations

from pathlib import Path

import pytest

from ndcheck.conformance.cells import Cell
from ndcheck.conformance.matrix import MatrixError, load_matrix, shipped_matrices
from ndcheck.layout import Layout


@pytest.mark.parametrize(
    ("cell", "name"),
    [
        (Cell(Layout(dp_shard=2)), "dp_shard2"),
        (Cell(Layout(tp=2, dp_shard=4, dp_replicate=2)), "dp_replicate2-dp_shard4-tp2"),
        (Cell(Layout()), "1rank"),
        (Cell(Layout(cp=2), precision="float32"), "cp2/float32"),
    ],
)
def test_ids_are_readable(cell, name):
    assert cell.id == name


def test_the_smoke_matrix_is_the_four_layouts():
    for name in ("smoke.yaml", str(shipped_matrices() / "smoke.yaml")):
        layouts = [cell.layout for cell in load_matrix(name).cells()]
        assert layouts == [Layout(dp_shard=2), Layout(tp=2), Layout(cp=2), Layout(dp_shard=2, tp=2)]
        assert {cell.precision for cell in load_matrix(name).cells()} == {"float64"}


def test_cells_are_the_product_of_the_lists_each_once(tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_text("version: 1\nprecisions: [float64, float32]\nlayouts: [{tp: 2}, {cp: 2}, {tp: 2}]\n")
    assert [cell.id for cell in load_matrix(str(path)).cells()] == ["tp2", "cp2", "tp2/float32", "cp2/float32"]


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        (
            "version: 1\nlayouts:\n  - {dp_shard: 2}\n  - {dp_shrad: 2}\n",
            ["4: layouts[1]: no such axis: 'dp_shrad'; the axes are dp_r"],
        ),
        ("version: 1\nlayouts:\n  - {tp: 0}\n", ["3: layouts[0]: tp must be an integer of at least 1, not 0"]),
        ("version: 1\nlayouts:\n  - {tp: two}\n", ["3: layouts[0]: tp must be an integer of at least 1, not 'two'"]),
        ("version: 1\nlayouts:\n  - {1: 2}\n", ["3: layouts[0]: no such axis: 1"]),
        ("version: 1\nlayouts:\n  - dp_shard 2\n", ["3: layouts[0]: a layout is a mapping from axis to degree"]),
        ("version: 1\nlayouts: []\n", ["2: layouts: List should have at least 1 item"]),
        ("layouts: [{tp: 2}]\n", ["1: version: the key is missing"]),
        ("version: 2\nlayouts: [{tp: 2}]\n", ["1: version: Input should be 1"]),
        (
            "version: 1\n\nlayout: [{tp: 2}]\n",
            ["1: layouts: the key is missing", "3: layout: no such key; the keys are version, layouts,"],
        ),
        (
            "version: 1\nlayouts: [{tp: 2}]\nprecisions: [float16]\n",
            ["3: precisions[0]: no such precision: 'float16'; known are float64"],
        ),
        (
            "version: 1\nlayouts: [{tp: 2}]\nengines:\n- deepspeed\n",
            ["4: engines[0]: no such engine: 'deepspeed'; known are reference"],
        ),
        ("version: 1\nlayouts: [{tp: 2\n", ["not YAML: "]),
        ("", ["1: a matrix file is a mapping"]),
        ("- 1\n", ["1: a matrix file is a mapping"]),
        ("a: !!python/object:os.system {}\n", ["1: not YAML: could not determine a constructor"]),
    ],
)
def test_mistakes_are_told_with_line_and_key(tmp_path: Path, text: str, messages: list[str]):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(MatrixError) as caught:
        load_matrix(str(path))
    lines = str(caught.value).splitlines()
    assert len(lines) == len(messages), lines
    for line, message in zip(lines, messages, strict=True):
        assert line.startswith(f"{path}:")
        assert message in line


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path):
    with pytest.raises(
        MatrixError, match=r"nowhere\.yaml: no such file, and no such shipped matrix \(those are: .*smoke\.yaml"
    ):
        load_matrix("nowhere.yaml")
    with pytest.raises(MatrixError, match="cannot be read: No such file or directory"):
        load_matrix(str(tmp_path / "nowhere.yaml"))
    with pytest.raises(MatrixError, match="cannot be read: Is a directory"):
        load_matrix(str(tmp_path))
    (tmp_path / "latin.yaml").write_bytes(b"version: 1 # \xe9\n")
    with pytest.raises(MatrixError, match=r"cannot be read: .*utf-8"):
        load_matrix(str(tmp_path / "latin.yaml"))
