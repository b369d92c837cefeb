"""The command line: what it prints, writes and returns, and what it leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from ndcheck.conformance.__main__ import main


def test_the_smoke_matrix_agrees(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["--gpus", "4", "--matrix", "smoke.yaml", "--output", str(tmp_path / "report")]) == 0
    content = json.loads((tmp_path / "report" / "matrix.json").read_text())
    assert [cell["id"] for cell in content["cells"]] == ["dp_shard2", "tp2", "cp2", "dp_shard2-tp2"]
    assert {cell["verdict"] for cell in content["cells"]} == {"agrees"}
    assert all(0 < cell["max_gradient_error"] <= 1e-10 for cell in content["cells"])
    assert all(cell["max_loss_error"] <= 1e-10 for cell in content["cells"])
    printed = capsys.readouterr().out
    assert "4 ranks on " in printed.splitlines()[0]
    assert ": agrees 4\nlargest gradient error" in printed


def test_a_seeded_fault_is_expected_to_diverge(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    fault = "gradients_not_averaged_over_dp_shard"
    (tmp_path / "one.yaml").write_text("version: 1\nlayouts: [{dp_shard: 2}]\n")
    assert main(["--matrix", str(tmp_path / "one.yaml"), "--fault", fault, "--output", str(tmp_path)]) == 0
    (cell,) = json.loads((tmp_path / "matrix.json").read_text())["cells"]
    assert cell["verdict"] == "diverges"
    assert cell["first_divergence"]["parameter"] == "model.embed_tokens.weight"
    assert cell["first_divergence"]["ratio"] == pytest.approx(2)
    assert f"seeded fault: {fault}" in capsys.readouterr().out


def test_nothing_that_ran_is_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "big.yaml").write_text("version: 1\nlayouts: [{tp: 8}]\n")
    assert main(["--gpus", "1", "--matrix", str(tmp_path / "big.yaml")]) == 1
    assert "needs 8 ranks, there are 1" in capsys.readouterr().out


def test_a_refused_layout_is_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "odd.yaml").write_text("version: 1\nlayouts: [{tp: 3}]\n")
    assert main(["--gpus", "3", "--matrix", str(tmp_path / "odd.yaml")]) == 1
    assert "tp 3 does not divide" in capsys.readouterr().out


def test_a_matrix_that_cannot_be_used_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    broken = tmp_path / "broken.yaml"
    broken.write_text("version: 1\nlayouts:\n  - {pt: 2}\n")
    for name, message in (
        (str(broken), f"{broken}:3: layouts[0]: no such axis: 'pt'"),
        ("nowhere.yaml", "nowhere.yaml: no such file"),
    ):
        assert main(["--matrix", name]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert message in captured.err
        assert len(captured.err.splitlines()) == 1


def test_a_report_that_cannot_be_written_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "one.yaml").write_text("version: 1\nlayouts: [{tp: 2}]\n")
    report = tmp_path / "report" / "matrix.json"
    report.mkdir(parents=True)
    assert main(["--gpus", "1", "--matrix", str(tmp_path / "one.yaml"), "--output", str(report.parent)]) == 2
    assert f"{report}: cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpus", "0"], "--gpus: must be a whole number of at least 1, not '0'"),
        (["--gpus", "four"], "--gpus: must be a whole number"),
        (["--fault", "gremlins"], "--fault: invalid choice: 'gremlins' (choose from"),
        (["--time-limit", "-1"], "--time-limit: must be a whole number"),
        (["--rnaks", "2"], "unrecognized arguments: --rnaks"),
    ],
)
def test_a_bad_flag_ends_with_2(capsys: pytest.CaptureFixture[str], arguments, message):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A socket's path may have 107 characters, which ``tmp_path`` can use up."""
    with tempfile.TemporaryDirectory(prefix="nd") as folder:
        yield Path(folder)


def test_a_temporary_folder_that_cannot_hold_a_socket_ends_with_2(tmp_path: Path):
    deep = tmp_path / ("x" * 108)
    deep.mkdir()
    command = [sys.executable, "-m", "ndcheck.conformance"]
    done = subprocess.run(command, env=os.environ | {"TMPDIR": str(deep)}, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == (
        f"ndcheck.conformance: the fork server could not start: AF_UNIX path too long (its socket belongs in {deep})\n"
    )


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_no_process_survives_an_interrupt(tmp_path: Path, short_folder: Path, number: signal.Signals, code: int):
    """Interrupted in the middle of a long matrix: the exit code tells, and every process that it started is gone."""
    layouts = ", ".join(["{dp_shard: 2}", "{dp_shard: 2, tp: 2}", "{tp: 4}", "{cp: 4}", "{dp_shard: 4}"])
    (tmp_path / "long.yaml").write_text(f"version: 1\nprecisions: [float64, float32]\nlayouts: [{layouts}]\n")
    scratch = short_folder
    command = [sys.executable, "-m", "ndcheck.conformance", "--matrix", str(tmp_path / "long.yaml")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"TMPDIR": str(scratch)}
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stdout:
            if line.startswith("dp_shard2"):
                break
        descendants = psutil.Process(process.pid).children(recursive=True)
        assert descendants
        process.send_signal(number)
        assert process.wait(timeout=60) == code
        _, alive = psutil.wait_procs(descendants, timeout=60)
        assert alive == []
        if number == signal.SIGINT:
            assert process.stderr.read() == "\ninterrupted: all ranks are ended\n"
            left = [path.name for path in scratch.iterdir()]
            assert [name for name in left if not name.startswith("torchinductor")] == []  # torch keeps a cache there


def test_a_folder_that_cannot_be_made_ends_with_2_before_anything_runs(tmp_path: Path):
    (tmp_path / "file").write_text("")
    command = [sys.executable, "-m", "ndcheck.conformance", "--output", str(tmp_path / "file" / "report")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "cannot hold a report" in done.stderr
    assert done.stdout == ""
