"""A baseline: what was already wrong, so that only what is new is reported.

Counts by file and rule, not lines: a line that moves is not news, one finding more is.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from ndcheck.checker import FileReport, Report
from ndcheck.findings import Finding
from ndcheck.rules.text import UNREADABLE

VERSION = 1


class BaselineError(ValueError):
    """The baseline file cannot be read; the message says why."""


def render(report: Report, path: str) -> str:
    """The baseline of a report, as JSON with sorted keys: it belongs into version control, at ``path``."""
    files = {
        _from(path, file.path): dict(sorted(Counter(finding.name for finding in _known(file)).items()))
        for file in report.files
    }
    return (
        json.dumps({"version": VERSION, "files": {path: found for path, found in files.items() if found}}, indent=2)
        + "\n"
    )


def load(path: str) -> dict[str, dict[str, int]]:
    """Path -> rule -> how many findings are known. Raises BaselineError."""
    try:
        data = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise BaselineError(f"cannot read baseline {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise BaselineError(f"baseline {path} is not JSON: {error}") from None
    files = data.get("files") if isinstance(data, dict) and data.get("version") == VERSION else None
    if not isinstance(files, dict) or not all(_is_counts(counts) for counts in files.values()):
        raise BaselineError(f"baseline {path} was not written by --write-baseline (version {VERSION})")
    return files


def apply(report: Report, known: dict[str, dict[str, int]], path: str) -> tuple[Report, int]:
    """The report without what the baseline at ``path`` knows, and how many findings that were."""
    files = tuple(_without_known(file, known.get(_from(path, file.path), {})) for file in report.files)
    return Report(files=files), len(report.findings) - sum(len(file.findings) for file in files)


def _from(baseline: str, file: str) -> str:
    """A file's name as seen from the baseline's folder, however it was spelled; standard input keeps its name."""
    if not Path(file).exists():
        return file
    return Path(os.path.relpath(Path(file).resolve(), Path(baseline).resolve().parent)).as_posix()


def _known(file: FileReport) -> list[Finding]:
    """What can be known: a file that cannot be read has not been checked."""
    return [finding for finding in file.findings if finding.name not in UNREADABLE]


def _without_known(file: FileReport, counts: dict[str, int]) -> FileReport:
    left = Counter(counts)
    new: list[Finding] = []
    for finding in file.findings:
        if left[finding.name] > 0 and finding.name not in UNREADABLE:
            left[finding.name] -= 1
        else:
            new.append(finding)
    return replace(file, findings=tuple(new))


def _is_counts(value: Any) -> bool:
    return isinstance(value, dict) and all(type(count) is int and count >= 0 for count in value.values())
