"""A trainer of somebody else as an engine: an installed package brings it, and the right one is told from the wrong one."""

from __future__ import annotations

from pathlib import Path

from ndcheck.conformance.matrix import shipped_matrices
from tests.conformance.test_command import cells, run

PACKAGE = Path(__file__).parent / "example_engine"
SMOKE = (shipped_matrices() / "smoke.yaml").read_text()
EXAMPLE = "engines: [example]\n" + SMOKE[SMOKE.index("layouts:") :]


def test_the_example_engine_passes_the_smoke_matrix(tmp_path: Path):
    done = run(tmp_path, text=EXAMPLE, PYTHONPATH=str(PACKAGE))
    assert done.returncode == 0, done.stdout + done.stderr
    found = cells(tmp_path)
    assert set(found) == {f"{layout}/example" for layout in ("dp_shard2", "tp2", "cp2", "dp_shard2-tp2")}
    assert {cell["verdict"] for cell in found.values()} == {"agrees"}
    assert all(0 < cell["max_gradient_error"] <= 1e-10 for cell in found.values())


def test_a_wrong_one_is_caught_and_diagnosed(tmp_path: Path):
    """It divides by each rank's own count of label tokens: with tp alone every rank has them all, and nothing is wrong."""
    done = run(tmp_path, text=EXAMPLE, PYTHONPATH=str(PACKAGE), EXAMPLE_FORGETS="1")
    assert done.returncode == 1, done.stdout + done.stderr
    found = cells(tmp_path)
    verdicts = {name: cell["verdict"] for name, cell in found.items()}
    assert verdicts.pop("tp2/example") == "agrees"
    assert set(verdicts.values()) == {"diverges"}
    assert found["dp_shard2/example"]["first_divergence"]["quantity"] == "gradient"
    assert (
        "rows 0, 1, 2, 3, 8, 9, 10, 11 count 1.002x, rows 4, 5, 6, 7, 12, 13, 14, 15 count 0.998x"
        in (found["dp_shard2/example"]["reason"])
    )


def test_an_engine_that_no_package_brings_is_named(tmp_path: Path):
    done = run(tmp_path, text=EXAMPLE)
    assert done.returncode == 2
    assert "no such engine: 'example'; known are reference, accelerate, trainer, transformers" in done.stderr


def test_the_guide_shows_the_package_as_it_is():
    guide = (Path(__file__).parents[2] / "docs" / "your-trainer.md").read_text()
    code = (PACKAGE / "example_trainer.py").read_text()
    shown = code[: code.index("\n\nclass ForgetfulTrainer")].strip()
    assert f"```python\n{shown}\n```" in guide
