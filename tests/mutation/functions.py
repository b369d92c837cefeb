"""Wrong versions of every rule that is a function, against every config that the tests of rules look at.

    python -m tests.mutation.functions [module ...]      # counts, and what survives

A mutant is the module with one comparison, "and", "or", "not", condition or number changed in the deciding part of a
function (not in the text of a message or a repair). It is killed if on some config the module's rules find something else, or
something elsewhere, than the real ones. Configs are recorded while the tests run, so what survives is what no test looks at.
"""

from __future__ import annotations

import ast
import copy
import sys
import types
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import tests.helpers
from ndcheck.checker import FileReport, check
from ndcheck.dialects import ALL, DIALECTS
from ndcheck.dialects.dialect import Dialect
from ndcheck.dialects.examples import facts_of, language, whole
from ndcheck.document import Document
from ndcheck.facts import Facts, gather
from ndcheck.findings import Violation
from ndcheck.reader import read
from ndcheck.rules.rule import Rule
from ndcheck.run import Run
from ndcheck.settings import Settings

Subjects = dict[type, Any]
Outcome = frozenset[tuple[str, Any, Any]]

TEXT_NAMES = frozenset(
    """
    message fix edits hint there arithmetic total why how outcome where named instead limit fitting reason extra fixes
    """.split()
)
"""Names whose values only end in a sentence or a repair."""

TEXT_CALLS = frozenset(
    {"Fix", "SetValue", "RemoveKey", "RenameKey", "Note", "notes", "counted", "listed", "shown", "dotted"}
)

SWAPS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


def recorded() -> list[Subjects]:
    """What the rules are given for every config in the tests of rules, and for every example."""
    seen: dict[tuple[str, str], tuple[str, Facts, Dialect]] = {}

    def recording(text: str, path: str, facts: Facts, dialect: str, *rest: Any) -> FileReport:
        seen.setdefault((text, repr(facts)), (text, facts, DIALECTS[dialect]))
        return check(text, path, facts, dialect, *rest)

    tests.helpers.check = recording  # type: ignore[attr-defined]
    pytest.main(["-q", "-p", "no:xdist", "-p", "no:cacheprovider", "--no-header", "-x", "tests/rules"])
    for rule in ALL:
        for fragment in (rule.bad, rule.good):
            text, facts = whole(rule, fragment), gather(**facts_of(rule))
            seen.setdefault((text, repr(facts)), (text, facts, language(rule, fragment)))
    return [subjects for known in seen.values() if (subjects := _subjects(*known))]


def _subjects(text: str, facts: Facts, dialect: Dialect) -> Subjects | None:
    document = read(text)
    if not isinstance(document.data, dict):
        return None
    settings = dialect.resolve(document.data)
    return {Document: document, Settings: settings, Run: dialect.to_run(settings, facts)}


def sites(tree: ast.Module) -> Iterator[tuple[ast.AST, Callable[[ast.AST], None]]]:
    """Every node of a function that can be changed, with the change."""
    for function in [node for node in tree.body if isinstance(node, ast.FunctionDef)]:
        for node in _deciding(function):
            yield from ((node, change) for change in _changes(node))


def _deciding(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes under a function's body that do not only make text."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.JoinedStr | ast.arguments) or (
            isinstance(node, ast.FunctionDef) and child in node.decorator_list
        ):
            continue
        if isinstance(child, ast.Assign) and any(
            isinstance(name, ast.Name) and name.id in TEXT_NAMES for name in child.targets
        ):
            continue
        if isinstance(child, ast.AugAssign) or (isinstance(child, ast.keyword) and child.arg in TEXT_NAMES):
            continue
        if isinstance(child, ast.Call) and isinstance(child.func, ast.Name) and child.func.id in TEXT_CALLS:
            continue
        yield child
        yield from _deciding(child)


def _changes(node: ast.AST) -> Iterator[Callable[[ast.AST], None]]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in SWAPS:
        yield lambda copied: setattr(copied, "ops", [SWAPS[type(copied.ops[0])]()])  # type: ignore[attr-defined]
    if isinstance(node, ast.BoolOp):
        other = ast.Or if isinstance(node.op, ast.And) else ast.And
        yield lambda copied: setattr(copied, "op", other())
    if isinstance(node, ast.If | ast.IfExp):
        yield lambda copied: setattr(copied, "test", ast.UnaryOp(ast.Not(), copied.test))  # type: ignore[attr-defined]
    if isinstance(node, ast.Constant) and type(node.value) is int:
        yield lambda copied: setattr(copied, "value", copied.value + 1)  # type: ignore[attr-defined]
    if isinstance(node, ast.Constant) and type(node.value) is bool:
        yield lambda copied: setattr(copied, "value", not copied.value)  # type: ignore[attr-defined]


def survivors(name: str, subjects: list[Subjects]) -> tuple[int, list[str]]:
    """How many mutants the module has, and those that no config tells from it."""
    module = import_module(f"ndcheck.rules.{name}")
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    expected = [outcome(module.RULES, known) for known in subjects]
    count, left = 0, []
    for at, (node, change) in enumerate(list(sites(tree))):
        count += 1
        mutated = copy.deepcopy(tree)
        copied, _ = list(sites(mutated))[at]
        before = ast.unparse(node)
        change(copied)
        if not _killed(module, ast.fix_missing_locations(mutated), subjects, expected):
            left.append(f"{name}.py:{getattr(node, 'lineno', '?')}: {before}  ->  {ast.unparse(copied)}"[:200])
    return count, left


def outcome(rules: tuple[Rule[Any], ...], subjects: Subjects) -> Outcome:
    """What the function rules find and say; an exception is an outcome too."""
    found: set[tuple[str, Any, Any]] = set()
    for rule in rules:
        if rule.clause is None and rule.reads in subjects:
            try:
                violations: list[Violation] = list(rule.check(subjects[rule.reads]))
            except Exception as error:
                found.add((rule.name, type(error).__name__, str(error)))
            else:
                found |= {(rule.name, (seen.path, seen.severity), (seen.message, seen.fix)) for seen in violations}
    return frozenset(found)


def _killed(module: types.ModuleType, tree: ast.Module, subjects: list[Subjects], expected: list[Outcome]) -> bool:
    mutant = types.ModuleType(module.__name__)
    mutant.__dict__["__package__"] = module.__package__
    try:
        exec(compile(tree, str(module.__file__), "exec"), mutant.__dict__)
    except Exception:
        return True
    return any(outcome(mutant.RULES, known) != wanted for known, wanted in zip(subjects, expected, strict=True))


def main(names: list[str]) -> None:
    modules = names or sorted(
        {rule.check.__module__.removeprefix("ndcheck.rules.") for rule in ALL if rule.clause is None} - {"text"}
    )
    subjects = recorded()
    total, surviving = 0, 0
    for name in modules:
        count, left = survivors(name, subjects)
        total, surviving = total + count, surviving + len(left)
        sys.stdout.write(f"{name}: {count} mutants, {len(left)} survive\n" + "".join(f"  {line}\n" for line in left))
    sys.stdout.write(f"{total} mutants on {len(subjects)} configs, {surviving} survive\n")


if __name__ == "__main__":
    main(sys.argv[1:])
