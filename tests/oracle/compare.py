"""Two opinions of one config: axolotl's label and ndcheck's findings, and what they come to over many configs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ndcheck.checker import check
from ndcheck.dialects import ALL
from ndcheck.facts import gather
from ndcheck.findings import Severity
from ndcheck.policy import Policy
from tests.oracle.checks import CHECKS, FIELD, LAYOUT

LABELLED_BY = "0.18.0"
"""The axolotl behind labels that do not say which."""

UNCHECKED = frozenset(rule.name for rule in ALL if rule.unchecked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One config as both see it. ``errors``: rule and key of ndcheck's errors."""

    id: str
    schema: str
    by: tuple[str, ...]
    launch: str | None
    launch_by: tuple[str, ...]
    errors: frozenset[tuple[str, str]]

    @property
    def rules(self) -> frozenset[str]:
        """The rules that refuse."""
        return frozenset(name for name, _ in self.errors)

    @property
    def refused(self) -> bool:
        """axolotl's schema refuses, or crashes."""
        return self.schema != "accept"

    @property
    def accepted(self) -> bool:
        """Neither axolotl's schema nor its mesh code refuses."""
        return self.schema == "accept" and self.launch == "accept"

    def corresponds(self) -> bool:
        """For each check that refused, one of its rules did."""
        return not self.unmatched()

    def unmatched(self) -> list[str]:
        """The checks that refused, and none of their rules did."""
        return [name for name in self.by or ("unnamed",) if not self._matched(name)]

    def _matched(self, name: str) -> bool:
        if name.startswith("field:"):
            top = name.removeprefix("field:").split(".")[0]
            return any(rule in FIELD and key.split(".")[0].split("[")[0] == top for rule, key in self.errors)
        return not self.rules.isdisjoint(CHECKS.get(name, ()))

    def disagreement(self) -> str | None:
        """What the two say, where one refuses for a reason that the other does not see."""
        ours = ", ".join(sorted(self.rules)) or "accept"
        if self.refused and not self.corresponds():
            return f"{self.id}: axolotl {self.schema} ({', '.join(self.by) or 'unnamed'}); ndcheck: {ours}"
        if self.launch == "reject" and self.rules.isdisjoint(LAYOUT):
            return f"{self.id}: axolotl launch reject ({', '.join(self.launch_by)}); ndcheck: {ours}"
        if self.accepted and self.errors:
            mark = "" if self.rules <= UNCHECKED else " NOT MARKED unchecked"
            return f"{self.id}: axolotl accept; ndcheck: {ours}{mark}"
        return None


@dataclass(frozen=True, slots=True)
class Figures:
    """How far ndcheck agrees with axolotl over the rows."""

    rows: tuple[Row, ...]

    @property
    def schema(self) -> Share:
        """Rows that the schema refuses: how many get an error."""
        return share(bool(row.errors) for row in self.rows if row.refused)

    @property
    def corresponding(self) -> Share:
        """Rows that the schema refuses: how many get the error that says the same."""
        return share(row.corresponds() for row in self.rows if row.refused)

    @property
    def launch(self) -> Share:
        """Rows that the mesh code refuses: how many get an error about the layout."""
        return share(not row.rules.isdisjoint(LAYOUT) for row in self.rows if row.launch == "reject")

    @property
    def stricter(self) -> Counter[str]:
        """Rule -> rows that both of axolotl's accept and the rule refuses."""
        return Counter(rule for row in self.rows if row.accepted for rule in row.rules)

    @property
    def unmatched(self) -> Counter[str]:
        """Check of axolotl's -> rows that it refuses and no rule of its own does."""
        return Counter(name for row in self.rows if row.refused for name in row.unmatched())

    @property
    def matrix(self) -> Counter[tuple[str, str]]:
        """(axolotl, ndcheck) -> rows."""
        return Counter((_stage(row), "error" if row.errors else "no error") for row in self.rows)


@dataclass(frozen=True, slots=True)
class Share:
    """So many of so many."""

    part: int
    whole: int

    @property
    def value(self) -> float:
        """Between 0 and 1; 1 where there is nothing to count."""
        return self.part / self.whole if self.whole else 1.0

    def __str__(self) -> str:
        return f"{self.part} of {self.whole} ({100 * self.value:.1f} %)"


def share(marks: Iterable[bool]) -> Share:
    """How many are true."""
    marks = list(marks)
    return Share(sum(marks), len(marks))


def read(path: Path) -> Figures:
    """Judge every labelled config of a file of JSON lines."""
    with path.open(encoding="utf-8") as lines:
        return Figures(tuple(judged(json.loads(line)) for line in lines))


def judged(label: dict[str, Any]) -> Row:
    """A labelled config, with what ndcheck says of it as YAML text."""
    text = yaml.safe_dump(label["config"], sort_keys=False)
    policy = Policy(targets={"axolotl": label.get("axolotl", LABELLED_BY)})
    report = check(text, label["id"], gather(world_size=label["world_size"]), "axolotl", policy)
    return Row(
        id=label["id"],
        schema=label["schema"],
        by=tuple(label["by"]),
        launch=label["launch"],
        launch_by=tuple(label["launch_by"]),
        errors=frozenset((found.name, found.key) for found in report.findings if found.severity is Severity.ERROR),
    )


def lines(figures: Figures) -> Iterator[str]:
    """The figures and every disagreement, as text."""
    yield f"refused by axolotl's schema, error of ndcheck:    {figures.schema}"
    yield f"... and the one that corresponds to the check:    {figures.corresponding}"
    yield f"refused by axolotl at launch, layout error:       {figures.launch}"
    yield ""
    yield f"{'axolotl':16}{'error':>10}{'no error':>10}"
    for stage in ("schema crash", "schema reject", "launch reject", "accept"):
        counts = [figures.matrix[stage, ours] for ours in ("error", "no error")]
        yield f"{stage:16}{counts[0]:>10}{counts[1]:>10}"
    yield from _table("accepted by axolotl, refused by the rule", _marked(figures.stricter))
    yield from _table("refused by axolotl's check, by no rule that corresponds", figures.unmatched.most_common())
    yield from _table("disagreements", [])
    yield from filter(None, (row.disagreement() for row in figures.rows))


def _marked(counts: Counter[str]) -> list[tuple[str, int]]:
    marks = {name: "unchecked" if name in UNCHECKED else "NOT MARKED" for name in counts}
    return [(f"{name} ({marks[name]})", count) for name, count in counts.most_common()]


def _table(title: str, counts: Iterable[tuple[str, int]]) -> Iterator[str]:
    yield ""
    yield f"{title}:"
    for name, count in counts:
        yield f"{count:6}  {name}"


def _stage(row: Row) -> str:
    if row.refused:
        return f"schema {row.schema}"
    return "launch reject" if row.launch == "reject" else "accept"
