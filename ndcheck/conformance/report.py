"""Reports of a matrix run: JSON for programs, a page of HTML, a table of Markdown, a few lines for the terminal."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from math import isfinite
from pathlib import Path
from typing import Any

import ndcheck
from ndcheck.conformance.cells import as_expected, changed
from ndcheck.conformance.foretell import confusion
from ndcheck.conformance.runner import VERDICTS, Baseline, Result
from ndcheck.conformance.tolerance import FLOAT64, MULTIPLE

PACKAGES = ("torch", "transformers", "accelerate", "numpy")
OWN_FIELDS = ("dispatch_batches", "split_batches", "precision")
"""Settings that stand beside a cell's verdict; the others are in its ``settings``."""


def cell(result: Result) -> dict[str, Any]:
    """What the report says of a cell."""
    settings = changed(result.cell.settings)
    saved_by = {"saved_by": str(result.cell.saved_by)} if result.cell.saved_by is not None else {}
    return {
        "id": result.cell.id,
        "engine": result.cell.engine,
        "layout": result.cell.layout.degrees(),
        **{name: getattr(result.cell.settings, name) for name in OWN_FIELDS},
        "settings": {name: value for name, value in settings.items() if name not in OWN_FIELDS} | saved_by,
        "verdict": result.verdict,
        "expected": result.expected,
        "seconds": round(result.seconds, 3),
        "max_gradient_error": finite(result.max_gradient_error),
        "max_loss_error": finite(result.max_loss_error),
        "first_divergence": _divergence(result),
        "reason": result.reason or None,
        "details": portable(result.details) or None,
        "baseline": result.cell.baseline.id,
        "options": dict(result.cell.options) or None,
        "rows": [list(rows) for rows in result.rows] or None,
        "shims": list(result.shims) or None,
        "losses": [finite(loss) for loss in result.losses] or None,
        "gradient_errors": {name: finite(error) for name, error in result.gradient_errors.items()} or None,
    }


def portable(text: str) -> str:
    """A traceback without the folders that packages lie in: they tell of the machine, not of the mistake."""
    checkout = Path(ndcheck.__file__).parents[1]
    text = re.sub(r'(?<=File ")[^"]*/(?:site-packages|lib/python3\.\d+)/', "", text)
    return text.replace(f'File "{checkout}/', 'File "')


def baseline(base: Baseline) -> dict[str, Any]:
    """What the report says of a baseline. ``gradient_band`` is null where the tolerance is no multiple of a measured noise."""
    measured = base.cell.settings.precision != "float64"
    band = {name: limit / MULTIPLE for name, limit in base.tolerance.gradient.items()}
    return {
        "id": base.cell.id,
        "seconds": round(base.seconds, 3),
        "losses": list(base.record.losses),
        "gradient_norms": list(base.record.gradient_norms),
        "parameters": list(base.record.gradients),
        "gradient_tolerance": dict(base.tolerance.gradient),
        "gradient_band": band if measured else None,
    }


def environment(
    *, device_type: str, ranks: int, matrix: str, fault: str | None, time_limit: float, started: str
) -> dict[str, Any]:
    """Where and how a run took place. ``started``: date and time, ISO 8601."""
    command = f"ndcheck matrix --gpus {ranks} --matrix {matrix}" + (f" --fault {fault}" if fault else "")
    return {
        "ndcheck": ndcheck.__version__,
        "python": platform.python_version(),
        **{package: _version(package) for package in PACKAGES},
        "platform": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "device": device_type,
        "ranks": ranks,
        "matrix": matrix,
        "fault": fault,
        "time_limit": time_limit,
        "command": command,
        "started": started,
    }


def fingerprint(ranks: int, device_type: str, fault: str | None) -> str:
    """What results have in common that may stand in one report."""
    facts = [ndcheck.__version__, *(_version(package) for package in PACKAGES), ranks, device_type, fault]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def to_json(
    cells: Sequence[Mapping[str, Any]],
    baselines: Sequence[Mapping[str, Any]],
    environment: Mapping[str, Any],
    seconds: float,
) -> dict[str, Any]:
    """The whole report. Fields may be added to it in later versions, none will change its meaning."""
    return {
        "version": 1,
        "environment": dict(environment),
        "cells": [dict(row) | {"rerun": f"{environment['command']} -k '{row['id']}'"} for row in cells],
        "baselines": [dict(row) for row in baselines],
        "totals": totals(cells) | {"seconds": round(seconds, 3)},
    }


def totals(cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Number of cells, of each verdict, and of those that did not do what was expected."""
    counts = {verdict: sum(row["verdict"] == verdict for row in cells) for verdict in VERDICTS}
    return {"cells": len(cells), **counts, "unexpected": sum(not _as_expected(row) for row in cells)}


def write(folder: Path, report: Mapping[str, Any]) -> None:
    """Write ``matrix.json``, ``matrix.md`` and ``index.html`` into ``folder``. Raises OSError."""
    from ndcheck.conformance.html import render

    replace_file(folder / "matrix.json", json.dumps(report, indent=1, allow_nan=False) + "\n")
    replace_file(folder / "matrix.md", markdown(report))
    replace_file(folder / "index.html", render(report))


def replace_file(path: Path, text: str) -> None:
    """Write ``text``; whoever reads ``path`` sees the whole old file or the whole new one. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def markdown(report: Mapping[str, Any]) -> str:
    """The cells as a table."""
    lines = [
        *summary(report),
        "",
        "| cell | verdict | gradient error | loss error | seconds |",
        "|---|---|---|---|---|",
    ]
    for row in report["cells"]:
        verdict = (
            row["verdict"] if _as_expected(row) else f"**{row['verdict']}**, not {row['expected']}: {row['reason']}"
        )
        figures = f"{number(row['max_gradient_error'])} | {number(row['max_loss_error'])} | {row['seconds']:.1f}"
        lines.append(f"| {row['id']} | {verdict.replace('|', chr(92) + '|')} | {figures} |")
    return "\n".join([*lines, *confusion_table(report["cells"])]) + "\n"


def confusion_table(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines of a table: what the pre-flight said of the cells, against what came of them. None where it says nothing."""
    table = confusion(cells)
    if not table:
        return []
    seen = [verdict for verdict in VERDICTS if any(row[verdict] for row in table.values())]
    lines = ["", f"| pre-flight | {' | '.join(seen)} |", f"|---|{'---|' * len(seen)}"]
    return lines + [
        f"| {level} | {' | '.join(str(row[verdict]) for verdict in seen)} |" for level, row in table.items()
    ]


def summary(report: Mapping[str, Any]) -> list[str]:
    """The run in a few lines."""
    counts, cells = report["totals"], report["cells"]
    verdicts = ", ".join(f"{verdict} {counts[verdict]}" for verdict in VERDICTS if counts[verdict])
    unexpected = f"; not as expected: {counts['unexpected']}" if counts["unexpected"] else ""
    lines = [f"{counts['cells']} cells in {counts['seconds']:.0f} s: {verdicts or 'none'}{unexpected}"]
    for precision in dict.fromkeys(row["precision"] for row in cells):
        errors = [
            row["max_gradient_error"] for row in cells if row["precision"] == precision and row["verdict"] == "agrees"
        ]
        known = [error for error in errors if error is not None]
        if known:
            limit = f"limit {FLOAT64:.0e}" if precision == "float64" else "limits measured per tensor"
            lines.append(f"{precision}: largest gradient error of a cell that agrees {number(max(known))} ({limit})")
    return lines


def explain(result: Result) -> str:
    """Why a cell is not as expected: a line, and what there is of traceback or stacks below it."""
    line = f"{result.verdict}, expected: {result.expected}. {result.reason}"
    return f"{line}\n\n{result.details}" if result.details else line


def number(value: float | None) -> str:
    """A figure of the table, empty if there is none."""
    return "" if value is None else f"{value:.1e}"


def finite(value: float | None) -> float | None:
    """JSON has no infinity: an error without a number is null."""
    return value if value is not None and isfinite(value) else None


def _as_expected(row: Mapping[str, Any]) -> bool:
    return as_expected(row["verdict"], row["expected"])


def _divergence(result: Result) -> dict[str, Any] | None:
    if result.first_divergence is None:
        return None
    fields = asdict(result.first_divergence)
    return fields | {"error": finite(fields["error"])}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
