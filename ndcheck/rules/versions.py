"""Which rules hold for which version of a framework."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache


def in_range(versions: str, targets: Mapping[str, str], assumed: Mapping[str, str]) -> bool:
    """Whether a requirement such as ``axolotl<0.19`` is met; an empty one is.

    The version is that of ``targets``, else the installed one, else the assumed one: that which the rules were written against.
    """
    if not versions:
        return True
    from packaging.requirements import Requirement

    wanted = Requirement(versions)
    version = targets.get(wanted.name) or _installed(wanted.name) or assumed[wanted.name]
    return wanted.specifier.contains(version, prereleases=True)


@cache
def _installed(name: str) -> str | None:
    """The version of a distribution that is installed here; looked up only if a rule asks, since it is slow."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None
