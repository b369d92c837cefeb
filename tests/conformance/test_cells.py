from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from ndcheck.conformance.cells import Cell
from ndcheck.conformance.matrix import MatrixError, load_matrix, shipped_matrices
from ndcheck.layout import Layout
from ndcheck.trainer.model import FAMILIES
from ndcheck.trainer.settings import PRECISIONS, Settings
from ndcheck.trainer.train import check


def with_settings(layout: Layout, **settings: object) -> Cell:
    return Cell(layout, settings=Settings(**settings))


@pytest.mark.parametrize(
    ("cell", "name"),
    [
        (Cell(Layout(dp_shard=2)), "dp_shard2"),
        (Cell(Layout(tp=2, dp_shard=4, dp_replicate=2)), "dp_replicate2-dp_shard4-tp2"),
        (Cell(Layout()), "1rank"),
        (with_settings(Layout(cp=2), precision="float32"), "cp2/float32"),
        (
            with_settings(Layout(dp_shard=2, cp=2, tp=2), dispatch_batches=True, split_batches=True),
            "dp_shard2-cp2-tp2/dispatch/split",
        ),
        (
            with_settings(Layout(tp=2), family="qwen3", even_batches=False, max_norm=0.5, checkpointing=True),
            "tp2/uneven/qwen3/max_norm0.5/checkpointing",
        ),
        (Cell(Layout(tp=2), settings=Settings(resume_at=1), saved_by=Layout(cp=2)), "tp2/resume_at1/from-cp2"),
    ],
)
def test_ids_are_readable(cell, name):
    assert cell.id == name


def test_every_setting_shows_in_the_id():
    changed = {
        "family": "qwen3", "precision": "float32", "samples": 20, "global_batch": 32, "micro_batches": 4, "sequence_length": 32,
        "rows": "packed", "dataset": "iterable", "dispatch_batches": True, "split_batches": True, "even_batches": False,
        "optimizer": "adamw", "max_norm": 1.0, "checkpointing": True, "reshard_after_forward": False, "cpu_offload": True,
        "vocabulary_parallel": False, "loss_parallel": True, "sequence_parallel": True, "cp_slices": "zigzag",
        "cp_exchange": "ring", "evaluate": True, "resume_at": 1, "seed": 1,
    }  # fmt: skip
    assert set(changed) == {field.name for field in fields(Settings)}
    ids = {with_settings(Layout(tp=2), **{name: value}).id for name, value in changed.items()}
    assert len(ids) == len(changed)
    assert "tp2" not in ids


def test_loader_modes_and_options_of_axes_share_a_baseline():
    how = {"dispatch_batches": True, "split_batches": True, "sequence_parallel": True, "cp_exchange": "ring"}
    assert with_settings(Layout(tp=2), **how).baseline == Cell(Layout())
    what = {"family": "qwen3", "even_batches": False, "rows": "packed", "micro_batches": 4, "seed": 3}
    assert with_settings(Layout(tp=2), **what).baseline == with_settings(Layout(), **what)


def cells(name: str, ranks: int = 8) -> list[Cell]:
    return [planned.cell for planned in load_matrix(name).cells(ranks)]


def test_the_smoke_matrix_is_the_four_layouts():
    for name in ("smoke.yaml", str(shipped_matrices() / "smoke.yaml")):
        layouts = [Layout(dp_shard=2), Layout(tp=2), Layout(cp=2), Layout(dp_shard=2, tp=2)]
        assert cells(name) == [Cell(layout) for layout in layouts]


@pytest.mark.parametrize(("ranks", "count"), [(2, 4), (4, 10), (8, 20)])
def test_the_default_matrix_is_every_layout_under_every_loader_mode(ranks, count):
    """Ways to write 2^k as an ordered product of four degrees: (k + 3 choose 3)."""
    found = cells("default.yaml", ranks)
    assert len({cell.layout for cell in found}) == count
    assert len(set(found)) == len(found) == 4 * count
    assert {cell.layout.world_size for cell in found} == {ranks}
    modes = {(cell.settings.dispatch_batches, cell.settings.split_batches) for cell in found}
    assert modes == {(False, False), (False, True), (True, False), (True, True)}


def test_the_full_matrix_has_every_family_precision_and_option():
    found = cells("full.yaml")
    assert {cell.settings.family for cell in found} == set(FAMILIES)
    assert {cell.settings.precision for cell in found} == set(PRECISIONS)
    for name in ("rows", "dataset", "optimizer", "cp_slices", "cp_exchange", "checkpointing", "sequence_parallel"):
        assert len({getattr(cell.settings, name) for cell in found}) == 2, name
    assert any(cell.saved_by for cell in found)
    for cell in found:
        check(cell.settings, cell.layout)


def test_cells_are_the_product_of_the_lists_each_once(tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "version: 1\nlayouts: [{tp: 2}, {cp: 2}, {tp: 2}]\nsettings: {precision: [float64, float32]}\n"
        "include: [{layouts: [{tp: 2}, {tp: 4}]}]\nexclude: [{precision: float32, cp: [2, 4]}]\n"
        "expect: [{cells: {tp: 4}, verdict: refused, because: too many}]\n"
    )
    planned = load_matrix(str(path)).cells(8)
    assert [plan.cell.id for plan in planned] == ["tp2", "tp2/float32", "cp2", "tp4"]
    assert [plan.expected for plan in planned] == ["agrees", "agrees", "agrees", "refused"]


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
        ("version: 1\nlayouts: every\n", ["2: layouts: a list is wanted here, or all"]),
        ("version: 1\nlayouts: []\n", ["2: layouts: List should have at least 1 item"]),
        ("layouts: [{tp: 2}]\n", ["1: version: the key is missing"]),
        ("version: 2\nlayouts: [{tp: 2}]\n", ["1: version: Input should be 1"]),
        (
            "version: 1\n\nlayout: [{tp: 2}]\n",
            ["1: layouts: the key is missing", "3: layout: no such key; the keys are"],
        ),
        (
            "version: 1\nlayouts: [{tp: 2}]\nsettings: {precision: [float16]}\n",
            ["3: settings: precision 'float16' is not one of float64, float32"],
        ),
        (
            "version: 1\nlayouts: [{tp: 2}]\nsettings: {micro_batches: [2, two]}\n",
            ["3: settings: micro_batches takes values like 2, not 'two'"],
        ),
        (
            "version: 1\nlayouts: [{tp: 2}]\ninclude:\n  - layouts: all\n    settings: {dispatch: [true]}\n",
            ["5: include[0].settings: no such setting: 'dispatch'; known are family,"],
        ),
        (
            "version: 1\nlayouts: [{tp: 2}]\nexclude: [{pt: 2}]\n",
            ["3: exclude: no such axis, setting or option: 'pt'; known are engine, dp_replicate"],
        ),
        (
            "version: 1\nlayouts: [{tp: 2}]\nexpect: [{cells: {pt: 2}, verdict: agrees, because: x}]\n",
            ["3: expect[0].cells: no such axis, setting or option: 'pt'"],
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
