"""Hugging Face's stack as engines: what agrees, and each kind of what does not, with the cause that is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from ndcheck.conformance.cells import DEFAULTS, Cell
from ndcheck.conformance.matrix import load_matrix
from tests.conformance.test_command import cells, run

PLAIN = "settings: {precision: [float32], samples: [48]}\n"
RESULTS = {
    # every axis that an engine has, and a composition
    "dp_shard2/accelerate": ("agrees", ""),
    "tp2/accelerate": ("agrees", ""),
    "cp2/accelerate": ("agrees", ""),
    "dp_shard2/trainer": ("agrees", ""),
    "tp2/trainer": ("agrees", ""),
    "cp2/trainer": ("agrees", ""),
    "dp_shard2/transformers": ("agrees", ""),
    "tp2/transformers": ("agrees", ""),
    "cp2/transformers": ("refused", "DistributedConfig has no cp axis"),
    # what the stack does without a word
    "tp2/trainer/average_tokens-False": ("diverges", "all 21 gradients are 2.00x the baseline (= tp)"),
    "dp_shard2/accelerate/fsdp-off": ("diverges", "rank 0 keeps 1 of the layers' matrices, not 1/2 (dp_shard)"),
    "cp2/accelerate/padding-left": ("diverges", "all 21 gradients are wrong"),
    "cp2/accelerate/sequence-sp": ("diverges", "other rows than its cp or tp peer"),
    # and with one
    "dp_shard2/accelerate/state-cpu": ("refused", "got DistributedType.MULTI_CPU"),
}
ENGINES = "[accelerate, trainer, transformers]"
TEXT = f"""\
layouts: [{{dp_shard: 2}}, {{tp: 2}}, {{cp: 2}}]
engines: {ENGINES}
{PLAIN}include:
- {{layouts: [{{tp: 2}}], engines: [trainer], settings: {{precision: [float32], samples: [48]}}, options: {{average_tokens: [false]}}}}
- {{layouts: [{{dp_shard: 2}}], engines: [accelerate], settings: {{precision: [float32], samples: [48]}}, options: {{fsdp: ["off"]}}}}
- {{layouts: [{{dp_shard: 2}}], engines: [accelerate], settings: {{precision: [float32], samples: [48]}}, options: {{state: [cpu]}}}}
- {{layouts: [{{cp: 2}}], engines: [accelerate], settings: {{precision: [float32], samples: [48]}}, options: {{padding: [left]}}}}
- {{layouts: [{{cp: 2}}], engines: [accelerate], settings: {{precision: [float32], samples: [48]}}, options: {{sequence: [sp]}}}}
"""


def test_the_stack_is_told_from_one_process(tmp_path: Path):
    run(tmp_path, text=TEXT)
    found = {name.replace("/float32/samples48", ""): cell for name, cell in cells(tmp_path).items()}
    assert set(found) == set(RESULTS)
    for name, (verdict, words) in RESULTS.items():
        assert (name, found[name]["verdict"]) == (name, verdict)
        assert words in (found[name]["reason"] or "")
    assert found["cp2/accelerate"]["shims"] == ["relabelled", "no-device-ids", "ring-attention"]
    assert found["tp2/transformers"]["shims"] is None


def test_the_rows_of_each_rank_are_told(tmp_path: Path):
    """dp_shard 2, micro-batches of 8: dealt in halves of 4. Dispatched under cp, the second rank gets the second batch."""
    text = f"layouts: [{{dp_shard: 2}}, {{cp: 2}}]\nengines: [accelerate]\n{PLAIN[:-2]}, dispatch_batches: [true]}}\n"
    run(tmp_path, text=text)
    found = cells(tmp_path)
    assert found["dp_shard2/accelerate/dispatch/float32/samples48"]["rows"] == [
        [0, 1, 2, 3, 8, 9, 10, 11],
        [4, 5, 6, 7, 12, 13, 14, 15],
    ]
    first, second = found["cp2/accelerate/dispatch/float32/samples48"]["rows"]
    assert first == [*range(8), *range(16, 24)]
    assert second == [*range(8, 16), *range(24, 32)]


@pytest.mark.parametrize("settings", ["precision: [float64]", "precision: [float32], family: [gemma2]"])
def test_what_is_not_compared_is_skipped_with_its_reason(tmp_path: Path, settings: str):
    run(tmp_path, text=f"layouts: [{{}}]\nengines: [accelerate]\nsettings: {{{settings}}}\n")
    (cell,) = cells(tmp_path).values()
    assert cell["verdict"] == "skipped"
    assert "the engine accelerate is compared for" in cell["reason"]


def test_options_have_names_and_values_of_their_engine(tmp_path: Path):
    done = run(tmp_path, text="layouts: [{tp: 2}]\noptions: {fsdp: ['2']}\n")
    assert (done.returncode, "engine reference has no option 'fsdp'; it has none" in done.stderr) == (2, True)
    done = run(tmp_path, text="layouts: [{tp: 2}]\nengines: [accelerate]\noptions: {fsdp: [3]}\n")
    assert "fsdp is one of 2, 1, off, not 3" in done.stderr


def test_an_option_that_differs_names_the_cell():
    cell = Cell(load_matrix("smoke.yaml").layouts[0], "trainer", DEFAULTS, options=(("average_tokens", False),))
    assert cell.id == "dp_shard2/trainer/average_tokens-False"


@pytest.mark.parametrize("name", ["stack.yaml", "witnesses.yaml"])
def test_every_expectation_of_the_shipped_matrices_is_of_some_cell(name: str):
    """One that no cell has is a typing error, or hidden by those before it."""
    matrix = load_matrix(name)
    used = {(plan.expected, plan.because, plan.rules) for plan in matrix.cells(8)}
    for entry in matrix.expect:
        rules = (entry.rule,) if isinstance(entry.rule, str) else tuple(entry.rule)
        assert (entry.verdict, entry.because, rules) in used
