"""``python -m ndcheck.conformance``: run a matrix.

Exit code 0: every cell that ran did what was expected, and at least one ran. 1: some did not, or none ran.
2: the command could not run. 130: interrupted.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ndcheck.conformance.faults import FAULTS

NEEDED = ("torch", "transformers", "numpy")
"""What the extra ``conformance`` brings and a run cannot do without."""


class CannotRunError(Exception):
    """The command could not do its work; the message says why."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        return _run(options)
    except CannotRunError as error:
        sys.stderr.write("".join(f"ndcheck.conformance: {line}\n" for line in str(error).splitlines()))
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted: all ranks are ended\n")
        return 130
    except BrokenPipeError:  # whoever read the table has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _parser() -> argparse.ArgumentParser:
    faults = "\n".join(f"  {fault.name}\n      {fault.description}" for fault in FAULTS.values())
    parser = argparse.ArgumentParser(
        prog="python -m ndcheck.conformance",
        description="Train a small model under every layout of a matrix and compare each with one process.",
        epilog=f"faults:\n{faults}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--gpus", type=_positive, default=4, metavar="N", help="ranks: GPUs if there are N, else CPU processes (4)")
    add("--matrix", default="smoke.yaml", metavar="FILE", help="a file, or the name of a shipped one (smoke.yaml)")
    add("--output", type=Path, metavar="DIR", help="write the report to DIR/matrix.json")
    add("--fault", choices=FAULTS, metavar="NAME", help="seed a fault: the cells it touches are expected to diverge")
    add("--time-limit", type=_positive, default=120, metavar="S", help="seconds until a cell counts as hanging (120)")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text!r}")
    return int(text)


def _run(options: argparse.Namespace) -> int:
    missing = [package for package in NEEDED if find_spec(package) is None]
    if missing:
        raise CannotRunError(f"{', '.join(missing)} not installed: pip install 'ndcheck[conformance]'")
    from ndcheck.conformance import report
    from ndcheck.conformance.matrix import MatrixError, load_matrix
    from ndcheck.conformance.pool import Failure, Pool
    from ndcheck.conformance.runner import Runner, gpu_count

    try:
        cells = load_matrix(options.matrix).cells()
    except MatrixError as error:
        raise CannotRunError(str(error)) from None
    if options.output is not None:
        _make_folder(options.output)  # before the run, not after it
    start = time.monotonic()
    pool = Pool()
    try:
        gpus = gpu_count(pool)
    except OSError as error:
        folder = tempfile.gettempdir()
        raise CannotRunError(f"the fork server could not start: {error} (its socket belongs in {folder})") from None
    if isinstance(gpus, Failure):
        raise CannotRunError(f"no process with torch could be started: {gpus.reason}\n{gpus.details}")
    device_type = "cuda" if gpus >= options.gpus else "cpu"
    _say(
        _devices(gpus, options.gpus), *([f"seeded fault: {options.fault}"] if options.fault else []), "", report.HEADER
    )

    results = []
    for result in Runner(pool, options.gpus, device_type, options.fault, float(options.time_limit)).run(cells):
        results.append(result)
        _say(*report.row(result))
    seconds = time.monotonic() - start
    _say("", *report.summary(results, seconds))
    if options.output is not None:
        environment = report.environment(
            device_type=device_type,
            ranks=options.gpus,
            matrix=options.matrix,
            fault=options.fault,
            time_limit=options.time_limit,
        )
        _write(report.to_json(results, environment, seconds), options.output / "matrix.json")
    ran = any(result.verdict != "skipped" for result in results)
    return 0 if ran and all(result.as_expected for result in results) else 1


def _devices(gpus: int, wanted: int) -> str:
    if gpus >= wanted:
        return f"{wanted} ranks on {wanted} of {gpus} GPUs (nccl)"
    return f"{wanted} ranks on the CPU (gloo): {wanted} GPUs wanted, {gpus} found"


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotRunError(f"{path}: cannot hold a report: {error.strerror or error}") from None


def _write(content: Mapping[str, Any], path: Path) -> None:
    from ndcheck.conformance.report import write_json

    try:
        write_json(content, path)
    except OSError as error:
        raise CannotRunError(f"{path}: cannot be written: {error.strerror}") from None
    _say(f"report: {path}")


def _say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwind, so that ranks are ended
    sys.exit(main())
