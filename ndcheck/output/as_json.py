"""JSON for programs. Fields may be added, never changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ndcheck.checker import FileReport, Report
from ndcheck.findings import Finding, Region, Severity

VERSION = 1


def render(report: Report, unreadable: Mapping[str, str]) -> str:
    """The whole report; ``unreadable`` is path -> why a file could not be opened."""
    data = {
        "version": VERSION,
        "files": [_file(file) for file in report.files],
        "unreadable": [{"path": path, "message": message} for path, message in unreadable.items()],
        "summary": {
            "files": len(report.files),
            "errors": report.count(Severity.ERROR),
            "warnings": report.count(Severity.WARNING),
            "infos": report.count(Severity.INFO),
            "not_run": {fact: len(names) for fact, names in sorted(report.not_run.items())},
        },
    }
    return json.dumps(data, indent=2) + "\n"


def _file(file: FileReport) -> dict[str, Any]:
    return {
        "path": file.path,
        "dialect": file.dialect,
        "dialect_told_by": file.told_by or None,
        "findings": [_finding(finding) for finding in file.findings],
        "derived": {
            "world_size": file.derived.world_size,
            "layout": file.derived.layout,
            "global_batch_size": file.derived.global_batch_size,
            "assumed_model": file.derived.assumed_model or None,
        },
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity.value,
        "key": finding.key,
        **_region(finding.region),
        "message": finding.message,
        "related": [
            {**({"path": region.path} if region.path else {}), **_region(region), "label": region.label}
            for region in finding.related
        ],
        "fix": {"safety": finding.fix.safety.value, "title": finding.fix.title} if finding.fix else None,
    }


def _region(region: Region) -> dict[str, int]:
    return {
        "line": region.line,
        "column": region.column,
        "end_line": region.end_line,
        "end_column": region.end_column,
    }
