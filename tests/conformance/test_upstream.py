"""The reports for accelerate and transformers: each has its script, which is short, stands alone, and shows what the report says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "reports/upstream"
SCRIPTS = sorted(FOLDER.glob("[0-9]*.py"))


def test_each_script_has_its_report_and_the_index_names_it():
    assert [path.stem for path in SCRIPTS] == sorted(path.stem for path in FOLDER.glob("[0-9]*.md"))
    index = (FOLDER / "README.md").read_text()
    assert all(f"({path.stem}.md)" in index for path in SCRIPTS)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_is_short_and_stands_alone(path: Path):
    text = path.read_text()
    assert len(text.splitlines()) < 60
    assert "import ndcheck" not in text
    assert "from ndcheck" not in text


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_shows_what_its_report_says(path: Path, tmp_path: Path):
    seen = path.with_suffix(".md").read_text().split("```text\n")[1].split("```")[0].splitlines()
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, path], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    missing = [line for line in seen if line not in done.stdout.splitlines()]
    assert missing == []
