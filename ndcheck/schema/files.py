"""Schemas as files: how they are written, where the published ones lie, and how an editor is told of them."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from ndcheck.schema.words import Words

VERSION = "v1"
"""Changes when a published schema changes in a way that breaks its users; the rules in it may grow without."""


def published(dialect: str) -> Path:
    """Where the package keeps the schema of a dialect: a path that an editor's settings may point to."""
    return Path(str(files("ndcheck.schema") / "published" / VERSION / f"{dialect}.schema.json"))


def written(schema: dict[str, Any]) -> str:
    """A schema as text, an entry to a line: to be read in a diff, and not twice as long for it."""
    lines = []
    for key, value in schema.items():
        opening, closing = ("[", "]") if isinstance(value, list) else ("{", "}")
        if isinstance(value, list):
            inside = [f"  {_line(item)}" for item in value]
        elif isinstance(value, dict):
            inside = [f"  {_line(name)}: {_line(item)}" for name, item in value.items()]
        else:
            lines.append(f"{_line(key)}: {_line(value)}")
            continue
        lines.append(f"{_line(key)}: {opening}\n" + ",\n".join(inside) + f"\n{closing}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def modeline(dialect: str) -> str:
    """The comment by which a YAML file names its schema to yaml-language-server."""
    return f"# yaml-language-server: $schema={published(dialect).as_uri()}\n"


class SettingsError(Exception):
    """An editor's settings cannot be written; the message says what to add by hand."""


def write_vscode(folder: Path, words: Words) -> Path:
    """Add the schema to the YAML settings of a folder in VS Code, and keep what is there. Raises SettingsError."""
    path = folder / ".vscode" / "settings.json"
    entry = {published(words.dialect.name).as_uri(): list(words.file_match)}
    settings = _read_settings(path, entry)
    schemas = settings.setdefault("yaml.schemas", {})
    if not isinstance(schemas, dict):
        raise SettingsError(_by_hand(path, "yaml.schemas is no mapping", entry))
    schemas |= entry
    try:
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"cannot write {path}: {error.strerror}") from error
    return path


def _read_settings(path: Path, entry: dict[str, Any]) -> dict[str, Any]:
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:  # VS Code allows comments there, which would be lost
        raise SettingsError(_by_hand(path, f"it is not plain JSON ({error})", entry)) from error
    if not isinstance(settings, dict):
        raise SettingsError(_by_hand(path, "it holds no mapping", entry))
    return settings


def _by_hand(path: Path, reason: str, entry: dict[str, Any]) -> str:
    return f"{path} stays as it is: {reason}; add to it by hand: {json.dumps({'yaml.schemas': entry})}"
