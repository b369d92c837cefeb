"""Reports of a matrix run: JSON for programs, a table for the terminal."""

from __future__ import annotations

import json
import os
import platform
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from math import isfinite
from pathlib import Path
from textwrap import wrap
from typing import Any

import ndcheck
from ndcheck.conformance.runner import VERDICTS, Result
from ndcheck.conformance.tolerance import TOLERANCES

WIDTH = 100
"""Columns of the table."""


def environment(*, device_type: str, ranks: int, matrix: str, fault: str | None, time_limit: float) -> dict[str, Any]:
    """Where and how a run took place."""
    return {
        "ndcheck": ndcheck.__version__,
        "python": platform.python_version(),
        **{package: _version(package) for package in ("torch", "transformers", "numpy")},
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "device": device_type,
        "ranks": ranks,
        "matrix": matrix,
        "fault": fault,
        "time_limit": time_limit,
        "tolerances": {precision: asdict(tolerance) for precision, tolerance in TOLERANCES.items()},
    }


def to_json(results: Sequence[Result], environment: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """The whole report. Fields may be added to it in later versions, none will change its meaning."""
    return {
        "version": 1,
        "environment": dict(environment),
        "cells": [_cell(result) for result in results],
        "totals": totals(results) | {"seconds": round(seconds, 3)},
    }


def totals(results: Sequence[Result]) -> dict[str, Any]:
    """Number of cells, of each verdict, and of those that did not do what was expected."""
    counts = {verdict: sum(result.verdict == verdict for result in results) for verdict in VERDICTS}
    return {"cells": len(results), **counts, "unexpected": sum(not result.as_expected for result in results)}


def write_json(report: Mapping[str, Any], path: Path) -> None:
    """Write ``report``; whoever reads ``path`` sees the whole old file or the whole new one. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=2, allow_nan=False)
            file.write("\n")
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


HEADER = f"{'cell':<32} {'verdict':<9} {'gradient error':>14} {'loss error':>11} {'seconds':>8}"


def row(result: Result) -> list[str]:
    """The lines of one cell: its figures, and below them the reason, if there is one."""
    figures = (
        f"{result.cell.id:<32} {result.verdict:<9} {_number(result.max_gradient_error):>14} "
        f"{_number(result.max_loss_error):>11} {result.seconds:>8.1f}"
    )
    surprise = [] if result.as_expected else [f"    expected: {result.expected}"]
    reason = wrap(result.reason, WIDTH, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)
    return [figures, *surprise, *reason]


def summary(results: Sequence[Result], seconds: float) -> list[str]:
    """The lines at the end of the table."""
    counts = totals(results)
    verdicts = ", ".join(f"{verdict} {counts[verdict]}" for verdict in VERDICTS if counts[verdict])
    unexpected = f"; not as expected: {counts['unexpected']}" if counts["unexpected"] else ""
    lines = [f"{len(results)} cells in {seconds:.0f} s: {verdicts or 'none'}{unexpected}"]
    errors = [result.max_gradient_error for result in results if result.max_gradient_error is not None]
    if errors:
        limits = {
            precision: tolerance.gradient
            for precision, tolerance in TOLERANCES.items()
            if any(result.cell.precision == precision for result in results)
        }
        tolerated = ", ".join(f"{limit:.0e} in {precision}" for precision, limit in limits.items())
        lines.append(f"largest gradient error {_number(max(errors))}; tolerance {tolerated}")
    return lines


def _cell(result: Result) -> dict[str, Any]:
    return {
        "id": result.cell.id,
        "engine": result.cell.engine,
        "layout": result.cell.layout.degrees(),
        # the reference loader: each rank reads its own share of a global batch
        "dispatch_batches": False,
        "split_batches": True,
        "precision": result.cell.precision,
        "verdict": result.verdict,
        "expected": result.expected,
        "seconds": round(result.seconds, 3),
        "max_gradient_error": _finite(result.max_gradient_error),
        "max_loss_error": _finite(result.max_loss_error),
        "first_divergence": _divergence(result),
        "reason": result.reason or None,
        "details": result.details or None,
    }


def _divergence(result: Result) -> dict[str, Any] | None:
    if result.first_divergence is None:
        return None
    fields = asdict(result.first_divergence)
    return fields | {"error": _finite(fields["error"])}


def _finite(value: float | None) -> float | None:
    """JSON has no infinity: an error without a number is null."""
    return value if value is not None and isfinite(value) else None


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1e}"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
