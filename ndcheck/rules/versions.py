"""Which rules hold for which version of a framework."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

ASSUMED = {"accelerate": "1.15", "axolotl": "0.18", "deepspeed": "0.19.8", "transformers": "5.24", "trl": "1.10"}
"""Package -> the version that its rules were written against: assumed where nobody says another."""


def in_range(versions: str, targets: Mapping[str, str]) -> bool:
    """Whether a requirement such as ``axolotl<0.19`` is met; an empty one is.

    The version is that of ``targets``, else the installed one, else the assumed one.
    """
    if not versions:
        return True
    from packaging.requirements import Requirement

    wanted = Requirement(versions)
    version = targets.get(wanted.name) or _installed(wanted.name) or ASSUMED[wanted.name]
    return wanted.specifier.contains(version, prereleases=True)


@cache
def _installed(name: str) -> str | None:
    """The version of a distribution that is installed here; looked up only if a rule asks, since it is slow."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None
