"""Sizes of a model by the name that a config gives it: from a folder, from Hugging Face's cache, from a table of well-known models.

Paths alone decide; nothing is imported, and nothing is fetched.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path as FilePath
from typing import Any, NamedTuple

from ndcheck.facts import ModelShape, read_model_config

_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_COMMIT = re.compile(r"[0-9a-f]{6,64}")


class Found(NamedTuple):
    """A model's sizes. ``assumed``: they are of a well-known model of this name, and nobody looked at the weights' own config."""

    shape: ModelShape
    assumed: str = ""


def find(name: str, environment: Mapping[str, str] | None = None) -> Found | None:
    """The sizes of the model ``name``: a folder's, a cache entry's, or a well-known model's; None if it is none of them.

    Raises FactError if there is a ``config.json`` that cannot be read.
    """
    folder = _folder(name) or _cached(name, os.environ if environment is None else environment)
    if folder is not None:
        return Found(read_model_config(folder))
    row = _table().get(name.rpartition("/")[2].lower()) if _NAME.fullmatch(name) else None
    if row is None:
        return None
    called = row["names"][0]
    return Found(ModelShape.from_mapping(row["config"], f"ndcheck's table for {called}"), f"{called} ({row['source']})")


def _folder(name: str) -> FilePath | None:
    try:
        return FilePath(name) if name and FilePath(name).is_dir() else None
    except (OSError, ValueError):  # a name too long, or with a null byte, is no folder
        return None


def _cached(name: str, environment: Mapping[str, str]) -> FilePath | None:
    """The snapshot that the cache's ``main`` points to, if its ``config.json`` is there."""
    if not _NAME.fullmatch(name):
        return None
    entry = _hub(environment) / f"models--{name.replace('/', '--')}"
    try:
        commit = (entry / "refs/main").read_text(encoding="ascii").strip()
        snapshot = entry / "snapshots" / commit
        return snapshot if _COMMIT.fullmatch(commit) and (snapshot / "config.json").is_file() else None
    except (OSError, ValueError):
        return None


def _hub(environment: Mapping[str, str]) -> FilePath:
    """Where huggingface_hub keeps what it fetched, by its variables."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if environment.get(variable):
            return FilePath(environment[variable]).expanduser()
    cache_home = FilePath(environment.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return FilePath(environment.get("HF_HOME") or cache_home).expanduser() / "hub"


@cache
def _table() -> dict[str, dict[str, Any]]:
    rows = json.loads(files("ndcheck").joinpath("models.json").read_text(encoding="utf-8"))
    return {name.lower(): row for row in rows for name in row["names"]}
