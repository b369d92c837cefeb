"""How good is the comparison? Every seeded fault must be found, and no correct cell may raise an alarm.

``python -m ndcheck.conformance.score``: faults in float64 and bfloat16, then correct cells over seeds; writes a table.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ndcheck.conformance.cells import DEFAULTS, Cell
from ndcheck.conformance.faults import FAULTS
from ndcheck.conformance.matrix import TRAINED_AXES
from ndcheck.conformance.pool import Pool
from ndcheck.conformance.runner import Result, Runner
from ndcheck.layout import layouts
from ndcheck.trainer.settings import Precision

QUANTITIES = ("samples", "gradient", "gradient_norm", "loss", "weight", "evaluation_loss")
PRECISIONS: tuple[Precision, ...] = ("float64", "bfloat16")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything; exit code 0 if all faults were found in float64, and nothing else was."""
    parser = argparse.ArgumentParser(
        prog="python -m ndcheck.conformance.score", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--output", type=Path, help="write the table (Markdown) to this file")
    parser.add_argument(
        "--seeds", type=int, default=5, help="seeds for correct cells of up to 4 ranks (5); one at 8 ranks"
    )
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="ndcheck-score-") as folder:
        runner = Runner(Pool(), 8, "cpu", None, 300.0, Path(folder))
        faults = list(_faults(runner))
        correct = list(_correct(runner, options.seeds))
        runner.close()
    text = "\n".join([*_fault_table(faults), "", *_alarm_table(correct)]) + "\n"
    if options.output is not None:
        options.output.write_text(text, encoding="utf-8")
    sys.stdout.write(f"\n{text}")
    missed = [name for name, found in faults if found["float64"].verdict != "diverges"]
    alarms = [result for result in correct if result.verdict != "agrees"]
    return 1 if missed or alarms else 0


def _faults(runner: Runner) -> Iterator[tuple[str, dict[Precision, Result]]]:
    for name, fault in FAULTS.items():
        runner.fault = name
        found = {precision: runner.run(fault.example(precision)) for precision in PRECISIONS}
        _say(f"{name}: " + ", ".join(f"{precision} {result.verdict}" for precision, result in found.items()))
        yield name, found
    runner.fault = None


def _correct(runner: Runner, seeds: int) -> Iterator[Result]:
    """Every layout of 2 and 4 ranks with each seed, of 8 ranks with one; in float64, and up to 4 ranks in bfloat16."""
    for world_size in (2, 4, 8):
        for layout in layouts(world_size, TRAINED_AXES):
            for seed in range(seeds if world_size < 8 else 1):
                for precision in PRECISIONS if world_size < 8 else PRECISIONS[:1]:
                    result = runner.run(Cell(layout, settings=replace(DEFAULTS, seed=seed, precision=precision)))
                    if result.verdict != "agrees":
                        _say(f"{result.cell.id}: {result.verdict}: {result.reason}")
                    yield result
        _say(f"correct cells of {world_size} ranks: done")


def _fault_table(faults: Sequence[tuple[str, dict[Precision, Result]]]) -> Iterator[str]:
    """Which quantity sees which fault."""
    for precision in PRECISIONS:
        found = sum(results[precision].verdict == "diverges" for _, results in faults)
        yield f"Found in {precision}: {found} of {len(faults)} faults."
    yield ""
    yield "A cross: the quantity is beyond its tolerance in float64; in brackets, in bfloat16 as well."
    yield ""
    yield f"| fault | cell | {' | '.join(name.replace('_', ' ') for name in QUANTITIES)} |"
    yield f"|---|---|{'---|' * len(QUANTITIES)}"
    for name, results in faults:
        marks = " | ".join(_mark(quantity, results) for quantity in QUANTITIES)
        yield f"| {name} | {results['float64'].cell.id} | {marks} |"
    totals = [sum(quantity in results["float64"].seen for _, results in faults) for quantity in QUANTITIES]
    lower = [sum(quantity in results["bfloat16"].seen for _, results in faults) for quantity in QUANTITIES]
    figures = " | ".join(f"{wide} ({narrow})" for wide, narrow in zip(totals, lower, strict=True))
    yield f"| **all {len(faults)}** | | {figures} |"


def _mark(quantity: str, results: dict[Precision, Result]) -> str:
    wide, narrow = (quantity in results[precision].seen for precision in PRECISIONS)
    return ("x" if wide else "") + (" (x)" if narrow else "")


def _alarm_table(correct: Sequence[Result]) -> Iterator[str]:
    yield "| correct cells | cells | false alarms | largest gradient error |"
    yield "|---|---|---|---|"
    for precision in PRECISIONS:
        for world_size in (2, 4, 8):
            cells = [
                result
                for result in correct
                if result.cell.settings.precision == precision and result.cell.layout.world_size == world_size
            ]
            if cells:
                alarms = sum(result.verdict != "agrees" for result in cells)
                worst = max(result.max_gradient_error or 0.0 for result in cells)
                yield f"| {world_size} ranks, {precision} | {len(cells)} | {alarms} | {worst:.1e} |"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
