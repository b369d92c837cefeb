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

MATRIX = [sys.executable, "-m", "ndcheck", "matrix"]


def run(folder: Path, *arguments: str, text: str | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own: pytest inside pytest would share its state."""
    if text is not None:
        (folder / "mine.yaml").write_text(f"version: 1\n{text}")
        arguments = ("--matrix", str(folder / "mine.yaml"), *arguments)
    command = [*MATRIX, "--output", str(folder / "report"), *arguments]
    return subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, check=False, cwd=folder
    )


def cells(folder: Path) -> dict[str, dict]:
    content = json.loads((folder / "report" / "matrix.json").read_text())
    return {cell["id"]: cell for cell in content["cells"]}


def test_the_smoke_matrix_agrees(tmp_path: Path):
    done = run(tmp_path, "--matrix", "smoke.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    found = cells(tmp_path)
    assert set(found) == {"dp_shard2", "tp2", "cp2", "dp_shard2-tp2"}
    assert {cell["verdict"] for cell in found.values()} == {"agrees"}
    assert all(0 < cell["max_gradient_error"] <= 1e-10 for cell in found.values())
    assert all(cell["max_loss_error"] <= 1e-10 for cell in found.values())
    assert done.stdout.startswith("4 ranks on ")
    assert "smoke.yaml::dp_shard2 agrees" in done.stdout
    assert ": agrees 4\n" in done.stdout
    assert "dp_shard2-tp2" in (tmp_path / "report" / "index.html").read_text()
    assert not list(tmp_path.glob("**/__pycache__"))


def test_a_seeded_fault_is_expected_to_diverge(tmp_path: Path):
    fault = "gradients_not_averaged_over_dp_shard"
    done = run(tmp_path, "--fault", fault, text="layouts: [{dp_shard: 2}]\n")
    assert done.returncode == 0, done.stdout
    (cell,) = cells(tmp_path).values()
    assert (cell["verdict"], cell["expected"]) == ("diverges", "diverges")
    assert cell["first_divergence"]["parameter"] == "model.embed_tokens.weight"
    assert cell["first_divergence"]["ratio"] == pytest.approx(2)


def test_what_is_not_expected_fails_and_what_cannot_run_is_no_success(tmp_path: Path):
    refused = run(tmp_path, "--gpus", "3", text="layouts: [{tp: 3}]\n")
    assert refused.returncode == 1
    assert "refused, expected: agrees. tp 3 does not divide" in refused.stdout
    foretold = run(
        tmp_path,
        "--gpus",
        "3",
        text="layouts: [{tp: 3}]\nexpect: [{cells: {tp: 3}, verdict: refused, because: tp-attention-heads}]\n",
    )
    assert foretold.returncode == 0, foretold.stdout
    skipped = run(tmp_path, "--gpus", "1", text="layouts: [{tp: 8}]\n")
    assert skipped.returncode == 1
    assert "tp8 skipped" in skipped.stdout
    assert cells(tmp_path)["tp8"]["reason"] == "needs 8 ranks, there are 1"


def test_options_of_pytest_choose_and_distribute(tmp_path: Path):
    """-k, -n, --junitxml; two workers share 4 devices."""
    text = "layouts: [{dp_shard: 2}, {cp: 2}, {tp: 2}]\nsettings: {split_batches: [false, true]}\n"
    done = run(tmp_path, "-k", "cp2 or dp_shard2", "-n", "2", "--junitxml", "out.xml", text=text)
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(cells(tmp_path)) == {"cp2", "cp2/split", "dp_shard2", "dp_shard2/split"}
    assert 'tests="4"' in (tmp_path / "out.xml").read_text()


def test_a_run_that_was_interrupted_goes_on(tmp_path: Path):
    text = "layouts: [{dp_shard: 2}, {cp: 2}, {tp: 2}]\n"
    assert run(tmp_path, "-k", "cp2", text=text).returncode == 0
    journal = tmp_path / "report" / "journal.jsonl"
    assert len(journal.read_text().splitlines()) == 1
    done = run(tmp_path, "--resume", text=text)
    assert done.returncode == 0
    assert "mine.yaml::cp2" not in done.stdout
    assert "1 deselected" in done.stdout
    assert set(cells(tmp_path)) == {"dp_shard2", "cp2", "tp2"}, "the report is complete"
    assert len(json.loads((tmp_path / "report" / "matrix.json").read_text())["baselines"]) == 1
    again = run(tmp_path, "-k", "tp2", text=text)
    assert again.returncode == 0
    assert set(cells(tmp_path)) == {"tp2"}, "without --resume a run begins anew"


def test_a_matrix_that_cannot_be_used_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    broken = tmp_path / "broken.yaml"
    broken.write_text("version: 1\nlayouts:\n  - {pt: 2}\n")
    for name, message in (
        (str(broken), f"{broken}:3: layouts[0]: no such axis: 'pt'"),
        ("nowhere.yaml", "nowhere.yaml: no such file"),
    ):
        assert main(["--matrix", name, "--output", str(tmp_path / "report")]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert message in captured.err
        assert len(captured.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpus", "0"], "--gpus: must be a whole number of at least 1, not '0'"),
        (["--gpus", "four"], "--gpus: must be a whole number"),
        (["--fault", "gremlins"], "--fault: invalid choice: 'gremlins' (choose from"),
        (["--time-limit", "-1"], "--time-limit: must be a whole number"),
    ],
)
def test_a_bad_flag_ends_with_2(capsys: pytest.CaptureFixture[str], arguments, message):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_an_option_that_nobody_knows_ends_with_2(tmp_path: Path):
    done = run(tmp_path, "--rnaks", "2", text="layouts: [{tp: 2}]\n")
    assert done.returncode == 2
    assert "unrecognized arguments: --rnaks" in done.stderr


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A socket's path may have 107 characters, which ``tmp_path`` can use up."""
    with tempfile.TemporaryDirectory(prefix="nd") as folder:
        yield Path(folder)


def test_a_temporary_folder_that_cannot_hold_a_socket_ends_with_2(tmp_path: Path):
    deep = tmp_path / ("x" * 108)
    deep.mkdir()
    done = run(tmp_path, TMPDIR=str(deep))
    assert done.returncode == 2
    assert done.stderr == (
        f"ndcheck matrix: the fork server could not start: AF_UNIX path too long (its socket belongs in {deep})\n"
    )


LONG = "layouts: [{dp_shard: 2}, {dp_shard: 2, tp: 2}, {tp: 4}, {cp: 4}]\nsettings: {seed: [0, 1, 2, 3]}\n"


@pytest.mark.parametrize(
    ("signals", "code"), [([signal.SIGINT], 130), ([signal.SIGINT, signal.SIGINT], 130), ([signal.SIGKILL], -9)]
)
def test_no_process_survives_an_interrupt(tmp_path: Path, short_folder: Path, signals: list[int], code: int):
    """In the middle of a long matrix. Once: the cell is finished; twice: now. What was finished is reported."""
    (tmp_path / "long.yaml").write_text(f"version: 1\n{LONG}")
    command = [*MATRIX, "--matrix", str(tmp_path / "long.yaml"), "--output", str(tmp_path / "report")]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(short_folder)},
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "::cp4" in line and "agrees" in line:
                break
        descendants = psutil.Process(process.pid).children(recursive=True)
        assert descendants
        for number in signals:
            process.send_signal(number)
        rest = process.stdout.read() if code > 0 else ""
        assert process.wait(timeout=60) == code
        _, alive = psutil.wait_procs(descendants, timeout=60)
        assert alive == []
    if code > 0:
        assert 1 <= len(cells(tmp_path)) < 16, rest
        left = [path.name for path in short_folder.iterdir()]
        assert [name for name in left if not name.startswith("torchinductor")] == []  # torch keeps a cache there


def test_a_folder_that_cannot_be_made_ends_with_2_before_anything_runs(tmp_path: Path):
    (tmp_path / "report").write_text("")
    done = run(tmp_path)
    assert done.returncode == 2
    assert "cannot hold a report" in done.stderr
    assert done.stdout == ""
