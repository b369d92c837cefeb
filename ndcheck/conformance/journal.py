"""The journal: one line of JSON for each finished cell, written as it comes, so that an interrupted run loses nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Journal:
    """Lines of runs with the same ``fingerprint``; those of others are passed over."""

    def __init__(self, path: Path, fingerprint: str):
        self.path, self.fingerprint = path, fingerprint
        path.parent.mkdir(parents=True, exist_ok=True)

    def clear(self) -> None:
        """Begin anew."""
        self.path.unlink(missing_ok=True)

    def add(self, rows: dict[str, Any]) -> None:
        """Take down what came of a cell."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"run": self.fingerprint, **rows}) + "\n")

    def rows(self) -> Iterator[dict[str, Any]]:
        """What came of each cell; a line that was cut off, by whatever ended the run, is passed over."""
        if not self.path.exists():
            return
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                rows = json.loads(line)
            except ValueError:
                continue
            if rows.get("run") == self.fingerprint:
                yield rows

    def ids(self) -> list[str]:
        """The cells that have a result."""
        return [rows["cell"]["id"] for rows in self.rows()]
