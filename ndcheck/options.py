"""Settings of ndcheck itself: ``ndcheck.toml``, or ``[tool.ndcheck]`` in ``pyproject.toml``."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from ndcheck.dialects import DIALECTS
from ndcheck.findings import Severity


class OptionsError(ValueError):
    """A settings file cannot be read, or says something that there is no option for."""


LISTS = ("select", "ignore")
COUNTS = ("world-size", "nodes", "gpus-per-node")
STRINGS = ("dialect", "target", "baseline", "model-config", "severity")
TABLES = ("per-file-ignores", "severities")
KNOWN = (*LISTS, *COUNTS, *STRINGS, *TABLES)
"""Every option that a settings file can hold; spelled like the command line's flags."""


def find(folder: Path) -> Path | None:
    """The nearest settings file in ``folder`` or above it."""
    for place in (folder, *folder.parents):
        if (place / "ndcheck.toml").is_file():
            return place / "ndcheck.toml"
        project = place / "pyproject.toml"
        if project.is_file() and _table(project) is not None:
            return project
    return None


def load(file: Path) -> dict[str, Any]:
    """The options in a settings file, checked. Raises OptionsError."""
    options = _table(file) or {}
    for name, value in options.items():
        _check(file, name, value)
    return {
        **options,
        "per-file-ignores": {glob: tuple(names) for glob, names in options.get("per-file-ignores", {}).items()},
        "severities": {name: Severity(word) for name, word in options.get("severities", {}).items()},
    }


def _table(file: Path) -> dict[str, Any] | None:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionsError(f"{file}: {error.strerror or error}") from None
    except ValueError as error:  # bad TOML, and bytes that are no UTF-8
        raise OptionsError(f"{file}: {error}") from None
    if file.name == "pyproject.toml":
        table = content.get("tool", {})
        table = table.get("ndcheck") if isinstance(table, dict) else None
    else:
        table = content
    if table is not None and not isinstance(table, dict):
        raise OptionsError(f"{file}: [tool.ndcheck] must be a table")
    return table


def _check(file: Path, name: str, value: Any) -> None:
    if name not in KNOWN:
        raise OptionsError(f"{file}: there is no option {name!r}; there are {', '.join(KNOWN)}")
    wanted = _wanted(name, value)
    if wanted:
        raise OptionsError(f"{file}: {name} must be {wanted}")


def _wanted(name: str, value: Any) -> str | None:
    """What the option must be, if it is not that."""
    words = [severity.value for severity in Severity]
    if name in LISTS and not _is_strings(value):
        return "a list of rule names or codes"
    if name in COUNTS and (type(value) is not int or value < 1):
        return "an integer of at least 1"
    if name == "dialect" and value not in DIALECTS:
        return f"one of {', '.join(DIALECTS)}"
    if name in STRINGS and not isinstance(value, str):
        return "a string"
    if name == "severity" and value not in words:
        return f"one of {', '.join(words)}"
    if name == "per-file-ignores" and not (isinstance(value, dict) and all(map(_is_strings, value.values()))):
        return "a table of path patterns, each with a list of rule names or codes"
    if name == "severities" and not (isinstance(value, dict) and all(word in words for word in value.values())):
        return f"a table of rule names, each with one of {', '.join(words)}"
    return None


def _is_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
