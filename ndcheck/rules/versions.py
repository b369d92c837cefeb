"""Which rules hold for which version of a framework."""

from __future__ import annotations

from functools import cache

ASSUMED = "0.18"
"""The version of axolotl that the catalogue was written against: assumed where nobody says another."""


def in_range(versions: str, target: str | None) -> bool:
    """Whether ``target`` lies in a PEP 440 range; empty is any. Without a target: the installed version, else ASSUMED."""
    if not versions:
        return True
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(versions).contains(target or _installed("axolotl") or ASSUMED, prereleases=True)


@cache
def _installed(name: str) -> str | None:
    """The version of a distribution that is installed here; looked up only if a rule asks, since it is slow."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None
