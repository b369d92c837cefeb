"""Rules about keys: unknown, misspelt, renamed, of the wrong type, or of a plug-in that is not listed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, datetime
from difflib import SequenceMatcher
from functools import lru_cache

from ndcheck.findings import Fix, Mark, Note, RenameKey, SetValue, Severity, Violation
from ndcheck.rules.rule import Rule, rule
from ndcheck.settings import OldKey, Settings, TypeProblem, UnknownKey
from ndcheck.values import Path, dotted, shown

_CLOSE = 1 - 1 / 6


@rule(
    "ND801",
    Severity.WARNING,
    Settings,
    evidence="axolotl 0.18 ignores unknown keys at every level (facts run against its validator)",
    bad="contxt_parallel_size: 2\n",
    good="context_parallel_size: 1\n",
    unchecked=True,
)
def unknown_key(settings: Settings) -> Iterator[Violation]:
    """The framework does not know this key and drops it without a word.

    What the key was meant to switch stays as it was. When the name is close to a known one it is
    almost certainly a slip, and the run would silently train without the setting: an error. Other
    unknown keys may belong to an older version and are a warning.
    """
    for unknown in settings.unknown:
        if not unknown.refused:
            yield _unknown(settings.whose, unknown)


def _unknown(whose: str, unknown: UnknownKey) -> Violation:
    key = unknown.path[-1]
    if not isinstance(key, str):
        return Violation(unknown.path, f"YAML reads this key as {shown(key)}, not as a name; {whose} drops it")
    if unknown.elsewhere is not None:
        message = f"{key} has no effect here: it belongs in {unknown.elsewhere}"
        fix = Fix(f"move it into {unknown.elsewhere}")
        return Violation(unknown.path, message, fix=fix, severity=Severity.ERROR)
    if key.startswith(("x-", "x_", ".")):
        message = (
            f"{whose} does not know {dotted(unknown.path)} and drops it; where it holds an anchor, that does no harm"
        )
        return Violation(unknown.path, message, severity=Severity.INFO)
    near = nearest(key, unknown.known)
    if near is not None:
        return Violation(
            unknown.path,
            f"{whose} does not know {dotted(unknown.path)} and drops it; did you mean {near}?",
            fix=Fix(f"rename it to {near}", edits=(RenameKey(unknown.path, near),)),
            severity=Severity.ERROR,
        )
    if unknown.maybe_plugin is not None:
        message = f"{whose} itself does not know {dotted(unknown.path)}; the plug-in {unknown.maybe_plugin} may"
        return Violation(unknown.path, message, severity=Severity.INFO)
    return Violation(unknown.path, f"{whose} does not know {dotted(unknown.path)} and drops it", fix=Fix("remove it"))


@lru_cache(maxsize=1024)  # many files of one project share their slips
def nearest(word: str, known: tuple[str, ...]) -> str | None:
    """The known word that ``word`` was most likely meant to be; None if none is close.

    Close is: all but about one letter in six in place, the same letters with two of them swapped, or
    the same words in another order.
    """
    parts = sorted(word.lower().replace("-", "_").split("_"))
    for candidate in known:
        if sorted(candidate.split("_")) == parts or _swapped(word.lower(), candidate):
            return candidate
    best = max(((_ratio(word, candidate), candidate) for candidate in _similar(word, known)), default=(0.0, ""))
    return best[1] if best[0] >= _CLOSE and len(word) > 3 else None


def _swapped(word: str, candidate: str) -> bool:
    """The two differ in two neighbouring letters that changed places."""
    if len(word) != len(candidate):
        return False
    places = [at for at, (ours, theirs) in enumerate(zip(word, candidate, strict=True)) if ours != theirs]
    return (
        len(places) == 2
        and places[1] == places[0] + 1
        and word[places[0]] == candidate[places[1]]
        and word[places[1]] == candidate[places[0]]
    )


def _ratio(word: str, candidate: str) -> float:
    matcher = SequenceMatcher(None, word.lower(), candidate)
    return matcher.ratio() if matcher.quick_ratio() >= _CLOSE else 0.0  # the costly one only where it can be close


def _similar(word: str, known: tuple[str, ...]) -> Iterator[str]:
    """The known words that can be close at all: every letter that only one of two words has costs at least one place."""
    letters = _letters(word.lower())
    for candidate, candidates_letters in _lettered(known):
        places = len(word) + len(candidate)
        apart = max(abs(len(word) - len(candidate)), (letters ^ candidates_letters).bit_count())
        if apart <= places * (1 - _CLOSE):
            yield candidate


@lru_cache(maxsize=64)
def _lettered(known: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    return tuple((candidate, _letters(candidate)) for candidate in known)


def _letters(word: str) -> int:
    """The set of a word's characters (by their code modulo 64), as the bits of a number."""
    bits = 0
    for char in word:
        bits |= 1 << (ord(char) & 63)
    return bits


@rule(
    "ND802",
    Severity.ERROR,
    Settings,
    evidence="axolotl 0.18's field types",
    bad="tensor_parallel_size: two\n",
    good="tensor_parallel_size: 2\n",
    given={"world_size": 2},
)
def wrong_type(settings: Settings) -> Iterator[Violation]:
    """The value is of a type that the key does not take.

    The framework refuses the file, and so far as other rules need this value they stay silent.
    """
    for problem in settings.problems:
        yield _wrong_type(problem)


def _kind(value: object) -> str:
    kinds = {
        bool: "a boolean",
        int: "an integer",
        float: "a number",
        date: "a date",
        datetime: "a date",
        bytes: "binary",
    }
    return kinds.get(type(value), "of another type")


def _wrong_type(problem: TypeProblem) -> Violation:
    if isinstance(problem.value, str):
        was = f"the string {shown(problem.value)}"
    elif problem.value is None or isinstance(problem.value, dict | list):
        was = shown(problem.value)
    else:
        was = f"{shown(problem.value)}, which is {_kind(problem.value)}"
    meant = _meant(problem)
    hint = f"; did you mean {meant}?" if meant else ""
    fix = Fix(f"write {meant}", edits=(SetValue(problem.path, meant),)) if meant else None
    message = f"{dotted(problem.path)} must be {problem.expected}, not {was}{hint}"
    return Violation(problem.path, message, fix=fix, mark=Mark.VALUE)


def _meant(problem: TypeProblem) -> str | None:
    """The value that was probably meant, as YAML."""
    value, expected = problem.value, problem.expected
    if not isinstance(value, str):
        numbers = "a list of integers" in expected or "a list of numbers" in expected
        return f"[{shown(value)}]" if numbers and type(value) in (int, float) else None
    words = [*problem.choices, *(word for word in ("true", "false") if word in re.split(r"\W+", expected))]
    near = nearest(value.lower(), tuple(words)) or next((word for word in words if word.lower() == value.lower()), None)
    if near:
        return near
    if "a list of strings" in expected and re.fullmatch(r"[\w./-]+([ ,]+[\w./-]+)*", value):
        return f"[{', '.join(re.split('[ ,]+', value))}]"
    if "an integer" in expected and re.fullmatch(r"\d+([_,]\d{3})*|\d+(\.0*)?([eE]\+?\d)?", value):
        return _whole(re.sub("[_,]", "", value))
    return None


def _whole(text: str) -> str | None:
    """The whole number that a text stands for; None if it is beyond any that could be meant."""
    number = float(text)
    return str(int(number)) if number < 2**63 else None


@rule(
    "ND803",
    Severity.WARNING,
    Settings,
    evidence="axolotl 0.18's own deprecations",
    bad="sequence_parallel_degree: 1\n",
    good="context_parallel_size: 1\n",
    unchecked=True,
)
def renamed_key(settings: Settings) -> Iterator[Violation]:
    """The key is an older spelling that still works, or is no longer read at all.

    A deprecated key works until a release removes it; a key that nothing reads any more is an error.
    """
    for old in settings.old:
        if not old.conflict:
            yield _renamed(old)


def _renamed(old: OldKey) -> Violation:
    old_name, new_name = dotted(old.path), dotted(old.new)
    notes = (Note(old.new, "says the same"),) if old.both else ()
    reason = f": {old.reason}" if old.reason else ""
    if old.lost:
        message = f"{old_name} has no effect: the key is {new_name}{reason.replace(':', ',')}"
        return Violation(old.path, message, notes, old.fix, Severity.ERROR)
    return Violation(old.path, f"{old_name} is an older spelling of {new_name}{reason}", notes, old.fix)


@rule(
    "ND804",
    Severity.ERROR,
    Settings,
    evidence="axolotl 0.18, run: the newer key wins without a word, or the pair is refused",
    bad="sequence_parallel_degree: 2\ncontext_parallel_size: 1\n",
    good="context_parallel_size: 1\n",
    unchecked=True,
)
def renamed_key_conflict(settings: Settings) -> Iterator[Violation]:
    """An older and the current spelling of one setting are both there and disagree.

    One of the two is thrown away, and which one is not visible in the file.
    """
    for old in settings.old:
        if old.conflict:
            old_name, new_name = dotted(old.path), dotted(old.new)
            message = f"{old_name} is an older spelling of {new_name}, and the two are not to be set together"
            yield Violation(old.path, message, (Note(old.new, "the current spelling"),), old.fix)


@rule(
    "ND805",
    Severity.ERROR,
    Settings,
    evidence="axolotl 0.18, run: a key of a plug-in that is not listed is dropped",
    bad="liger_rope: true\n",
    good="plugins: [axolotl.integrations.liger.LigerPlugin]\nliger_rope: true\n",
    unchecked=True,
)
def plugin_not_listed(settings: Settings) -> Iterator[Violation]:
    """The key belongs to a plug-in that ``plugins`` does not list, so nothing reads it.

    The run goes on without what the key asks for. A key that only switches something off loses nothing.
    """
    unread: dict[str, list[Path]] = {}
    for inactive in settings.inactive:
        if inactive.value:
            unread.setdefault(inactive.plugin, []).append(inactive.path)
    for plugin, (first, *others) in unread.items():
        are = "are" if others else "is"
        message = f"{', '.join(map(dotted, [first, *others]))} {are} read by the plug-in {plugin}, which plugins does not list"
        related = tuple(Note(path, "read by the same plug-in") for path in others)
        yield Violation(first, message, related, Fix(f"list the class of {plugin} under plugins"))


RULES: tuple[Rule[Settings], ...] = (unknown_key, wrong_type, renamed_key, renamed_key_conflict, plugin_not_listed)
