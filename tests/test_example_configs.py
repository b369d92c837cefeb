"""axolotl's own example configs: all in one call, and no error in a file that axolotl takes, unless it is true."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import pytest

from ndcheck.cli import main

EXAMPLES = Path(__file__).parent / "data/examples"
LABELS: dict[str, dict[str, str]] = json.loads((EXAMPLES / "labels.json").read_bytes())

_ACCUMULATION = "accumulation is left at 1, so batch_size changes the number of steps and not the batch"
_CHECKPOINTING = "transformers refuses the pair when the Trainer is made; axolotl's schema does not look"
TRUE: dict[str, dict[str, str]] = {
    "archived__falcon__config-7b-lora.yml": {"batch-size-without-effect": _ACCUMULATION},
    "archived__falcon__config-7b.yml": {"batch-size-without-effect": _ACCUMULATION},
    "archived__replit-3b__config-lora.yml": {"batch-size-without-effect": _ACCUMULATION},
    "falcon-h1__falcon-h1-1b-qlora-cp.yaml": {
        "unknown-key": "context_parapllel_size: the run trains without context parallelism"
    },
    "qwen3.5__122b-a10b-moe-qlora-fsdp.yaml": {"checkpointing-twice": _CHECKPOINTING},
    "qwen3.5__27b-fft.yaml": {"checkpointing-twice": _CHECKPOINTING},
}
"""File that axolotl accepts -> error that ndcheck finds -> why ndcheck is right."""


@pytest.fixture(scope="module")
def errors() -> dict[str, set[str]]:
    """File -> names of the rules that it breaks, from one call over all files."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        code = main(["validate", "--isolated", "--format", "json", *(str(EXAMPLES / name) for name in sorted(LABELS))])
    assert code == 1
    files = json.loads(output.getvalue())["files"]
    return {
        Path(file["path"]).name: {found["name"] for found in file["findings"] if found["severity"] == "error"}
        for file in files
    }


def test_every_example_is_read(errors: dict[str, set[str]]) -> None:
    assert errors.keys() == LABELS.keys()
    assert len(errors) == 126


@pytest.mark.parametrize("name", [name for name, label in LABELS.items() if label["verdict"] == "accept"])
def test_an_accepted_example_has_no_error_that_is_not_true(name: str, errors: dict[str, set[str]]) -> None:
    assert errors[name] == set(TRUE.get(name, {}))


@pytest.mark.parametrize("name", [name for name, label in LABELS.items() if label["verdict"] != "accept"])
def test_a_refused_example_has_an_error(name: str, errors: dict[str, set[str]]) -> None:
    assert errors[name]
