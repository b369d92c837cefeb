"""Which rules speak, how loudly, and about which files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatch
from pathlib import PurePath
from typing import Any

from ndcheck.dialects import ALL, ASSUMED
from ndcheck.findings import Severity
from ndcheck.rules.rule import Rule
from ndcheck.rules.versions import in_range

LOUDNESS = (Severity.INFO, Severity.WARNING, Severity.ERROR)


class PolicyError(ValueError):
    """A selector names no rule, or a setting has no such value; the message says what to write instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Selectors are codes, prefixes of codes (``ND1``) or names.

    ``select`` empty means every rule; ``ignore`` wins over it. ``per_file_ignores``: glob of paths ->
    selectors. ``severities``: name or code -> another severity. ``lowest``: quieter findings are left out.
    ``targets``: package -> version that rules with a version range are held against; without it the
    installed one, else the one that the catalogue was written against.
    """

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    per_file_ignores: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    severities: Mapping[str, Severity] = field(default_factory=dict)
    lowest: Severity = Severity.INFO
    targets: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        selectors = [*self.select, *self.ignore, *self.severities]
        for globbed in self.per_file_ignores.values():
            selectors += globbed
        for selector in selectors:
            _check_selector(selector)

    def allows(self, rule: Rule[Any], path: str) -> bool:
        """The rule is to run on this file."""
        if not (self.select or self.ignore or self.per_file_ignores or rule.versions):
            return True
        if self.select and not _selected(rule, self.select):
            return False
        ignored = (*self.ignore, *self._ignored_for(path))
        return not _selected(rule, ignored) and in_range(rule.versions, self.targets, ASSUMED)

    def severity(self, rule: Rule[Any], own: Severity) -> Severity:
        """The severity to report, given the finding's own."""
        return self.severities.get(rule.name) or self.severities.get(rule.code) or own

    def shows(self, severity: Severity) -> bool:
        """Findings of this severity are to be reported."""
        return LOUDNESS.index(severity) >= LOUDNESS.index(self.lowest)

    def _ignored_for(self, path: str) -> Iterable[str]:
        for pattern, selectors in self.per_file_ignores.items():
            if fnmatch(path, pattern) or fnmatch(PurePath(path).name, pattern):
                yield from selectors


def _selected(rule: Rule[Any], selectors: Iterable[str]) -> bool:
    return any(selector == rule.name or rule.code.startswith(selector) for selector in selectors)


def find_rule(word: str) -> Rule[Any]:
    """The rule of this name or code, whatever the case. Raises PolicyError with the nearest name."""
    for rule in ALL:
        if word.lower() in (rule.name, rule.code.lower()):
            return rule
    raise _no_rule(word)


def _check_selector(selector: str) -> None:
    if not selector or not any(_selected(rule, [selector]) for rule in ALL):
        raise _no_rule(selector)


def _no_rule(selector: str) -> PolicyError:
    near = get_close_matches(selector, [*(rule.name for rule in ALL), *(rule.code for rule in ALL)], 1)
    hint = f"; did you mean {near[0]}?" if near else "; `ndcheck rules` lists them"
    return PolicyError(f"no rule is called {selector!r}{hint}")
