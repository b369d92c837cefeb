"""ndcheck: pre-flight checks and conformance tests for N-D parallel training of language models.

    report = ndcheck.validate("config.yaml", world_size=8)
    if not report.ok:
        for finding in report.findings: ...

``AxolotlConfig.model_validate(mapping, context={"world_size": 8})`` is the same as a pydantic model.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ndcheck.checker import FileReport, Report
    from ndcheck.dialects.axolotl import AxolotlConfig
    from ndcheck.facts import Facts
    from ndcheck.findings import Finding, Severity
    from ndcheck.layout import Layout

__all__ = [
    "AxolotlConfig",
    "Facts",
    "FileReport",
    "Finding",
    "Layout",
    "Report",
    "Severity",
    "load",
    "validate",
]

_HOMES = {
    "AxolotlConfig": "ndcheck.dialects.axolotl",
    "Facts": "ndcheck.facts",
    "FileReport": "ndcheck.checker",
    "Finding": "ndcheck.findings",
    "Layout": "ndcheck.layout",
    "Report": "ndcheck.checker",
    "Severity": "ndcheck.findings",
}


def __getattr__(name: str) -> Any:
    """Import the public names when they are first used, so that ``import ndcheck`` stays cheap."""
    if name not in _HOMES:
        raise AttributeError(f"module 'ndcheck' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def validate(
    source: str | os.PathLike[str],
    *,
    world_size: int | None = None,
    nodes: int | None = None,
    gpus_per_node: int | None = None,
    model_config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    dialect: str | None = None,
    beside: Iterable[str | os.PathLike[str]] = (),
) -> Report:
    """Check one config: ``source`` is its path, or its text if it has a line break or a colon and is no file.

    ``beside`` are further files of the same run, such as accelerate's launch file: each is checked against the others. The report
    holds the config first, then those, then an engine's config that one of them names.

    The world size is the argument, else the environment variable ``WORLD_SIZE``, else unknown;
    ``model_config`` is a path of a config.json or its parsed content. What is wrong with the config is
    in the report, never an exception. Raises OSError if a file cannot be read, and
    ``ndcheck.facts.FactError`` or ``ndcheck.checker.PairError`` (ValueErrors) if an argument is unusable.
    """
    from ndcheck.checker import Report, Text, check_together
    from ndcheck.facts import gather

    facts = gather(
        world_size=world_size,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        model_config=model_config,
        environment=os.environ,
    )
    texts = [Text(name, content) for content, name in map(load, (source, *beside))]
    return Report(files=check_together(texts, facts, dialect))


def load(source: str | os.PathLike[str]) -> tuple[bytes | str, str]:
    """The content of a config and the name to show for it. Raises OSError if it is a path that cannot be read."""
    from pathlib import Path

    if isinstance(source, str) and ("\n" in source or (":" in source and not _is_file(source))):
        return source, "<text>"
    return Path(source).read_bytes(), str(source)


def _is_file(name: str) -> bool:
    try:
        return os.path.exists(name)
    except ValueError:  # a null byte
        return False
