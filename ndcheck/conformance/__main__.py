"""``ndcheck matrix``: run a matrix with pytest and our plugin.

Exit code 0: every cell that ran did what was expected, and at least one ran. 1: some did not, or none ran.
2: the command could not run. 130: interrupted.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from ndcheck.conformance.faults import FAULTS

NEEDED = ("torch", "transformers", "numpy", "pytest", "jinja2", "matplotlib")
"""What the extra ``conformance`` brings and a run cannot do without."""

OK, UNEXPECTED, CANNOT_RUN, INTERRUPTED = 0, 1, 2, 130
CODES = {0: OK, 1: UNEXPECTED, 2: INTERRUPTED, 3: CANNOT_RUN, 4: CANNOT_RUN, 5: UNEXPECTED}
"""pytest's exit code -> ours. pytest ends with 2 when it was interrupted, and with 5 when nothing was there to run."""


class CannotRunError(Exception):
    """The command could not do its work; the message says why."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    options, rest = _parser().parse_known_args(arguments)
    try:
        return _run(options, rest)
    except CannotRunError as error:
        sys.stderr.write("".join(f"ndcheck matrix: {line}\n" for line in str(error).splitlines()))
        return CANNOT_RUN
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted: all ranks are ended\n")
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    faults = "\n".join(f"  {fault.name}\n      {fault.description}" for fault in FAULTS.values())
    parser = argparse.ArgumentParser(
        prog="ndcheck matrix",
        description="Train a small model in every cell of a matrix and compare each with one process.",
        usage="ndcheck matrix [options] [pytest options, such as -k dp_shard2 -x --lf -n 4 --junitxml FILE]",
        epilog=f"faults:\n{faults}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--gpus", type=_positive, default=4, metavar="N", help="ranks: GPUs if there are N, else CPU processes (4)")
    add("--matrix", default="default.yaml", metavar="FILE", help="a file, or the name of a shipped one (default.yaml)")
    add(
        "--output",
        type=Path,
        default=Path("ndcheck-report"),
        metavar="DIR",
        help="where the report goes (ndcheck-report)",
    )
    add("--fault", choices=FAULTS, metavar="NAME", help="seed a fault: the cells it touches are expected to diverge")
    add("--time-limit", type=_positive, default=120, metavar="S", help="seconds until a cell counts as hanging (120)")
    add("--sample", action="store_true", help="only so many cells that every two values of the matrix meet in one")
    add("--resume", action="store_true", help="go on where the run that wrote DIR was interrupted")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text!r}")
    return int(text)


def _run(options: argparse.Namespace, rest: Sequence[str]) -> int:
    missing = [package for package in NEEDED if find_spec(package) is None]
    if missing:
        raise CannotRunError(f"{', '.join(missing)} not installed: pip install 'ndcheck[conformance]'")
    import pytest

    from ndcheck.conformance.matrix import MatrixError, find_matrix, load_matrix

    try:
        path = find_matrix(options.matrix)
        load_matrix(str(path))
    except MatrixError as error:
        raise CannotRunError(str(error)) from None
    _make_folder(options.output)  # before the run, not after it
    device_type = _devices(options.gpus)
    known = {
        "--gpus": options.gpus,
        "--device-type": device_type,
        "--output": options.output,
        "--fault": options.fault,
        "--time-limit": options.time_limit,
    }
    own = [f"{name}={value}" for name, value in known.items() if value is not None]
    own += [flag for flag, chosen in (("--sample", options.sample), ("--resume", options.resume)) if chosen]
    # no settings of whatever project stands here; pytest's own memory (--lf) beside the report
    plain = ["-c", os.devnull, "--rootdir", str(path.parent), "-o", f"cache_dir={options.output.absolute()}/.cache"]
    shown = ["--tb=short", "-v", "--no-header", "-p", "ndcheck.conformance.plugin"]
    groups = ["--dist=loadgroup"] if any(re.match(r"-n|--numprocesses", argument) for argument in rest) else []
    return CODES[int(pytest.main([*plain, *shown, *groups, *own, str(path), *rest]))]


def _devices(wanted: int) -> str:
    """What ranks run on; says so."""
    from ndcheck.conformance.pool import Failure, Pool
    from ndcheck.conformance.runner import gpu_count

    try:
        gpus = gpu_count(Pool())
    except OSError as error:
        folder = tempfile.gettempdir()
        raise CannotRunError(f"the fork server could not start: {error} (its socket belongs in {folder})") from None
    if isinstance(gpus, Failure):
        raise CannotRunError(f"no process with torch could be started: {gpus.reason}\n{gpus.details}")
    enough = gpus >= wanted
    there = f"{wanted} of {gpus} GPUs (nccl)" if enough else f"the CPU (gloo): {wanted} GPUs wanted, {gpus} found"
    sys.stdout.write(f"{wanted} ranks on {there}\n")
    sys.stdout.flush()
    return "cuda" if enough else "cpu"


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise CannotRunError(f"{path}: cannot hold a report: {error.strerror or error}") from None


if __name__ == "__main__":
    sys.exit(main())
