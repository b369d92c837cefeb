"""Matrix files: YAML that lists cells. Mistakes are told with file, line and key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

import ndcheck
from ndcheck.conformance.cells import DEFAULTS, Cell
from ndcheck.conformance.engines import engines, options
from ndcheck.dialects import ALL
from ndcheck.layout import AXES, Layout, layouts
from ndcheck.trainer.settings import Settings

TRAINED_AXES = ("dp_replicate", "dp_shard", "cp", "tp")
"""The axes over which ``layouts: all`` enumerates."""

SETTINGS = tuple(field.name for field in fields(Settings))
RULES = tuple(rule.name for rule in ALL)


class MatrixError(ValueError):
    """The matrix file cannot be used: one line of text for each mistake."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A cell, the verdict that the matrix expects of it, and why if that is not agreement: rules that foretell it, and words."""

    cell: Cell
    expected: str
    because: str
    rules: tuple[str, ...] = ()


def _layout(value: object) -> Layout:
    if not isinstance(value, Mapping):
        raise ValueError("a layout is a mapping from axis to degree, such as {dp_shard: 2, tp: 2}")
    unknown = [key for key in value if key not in AXES]
    if unknown:
        raise ValueError(f"no such axis: {', '.join(map(repr, unknown))}; the axes are {', '.join(AXES)}")
    return Layout(**value)


def _known(value: object, kind: str, names: tuple[str, ...]) -> object:
    if value not in names:
        raise ValueError(f"no such {kind}: {value!r}; known are {', '.join(names)}")
    return value


OneLayout = Annotated[Any, BeforeValidator(_layout)]
Engine = Annotated[str, BeforeValidator(lambda value: _known(value, "engine", tuple(engines())))]
RuleName = Annotated[str, BeforeValidator(lambda value: _known(value, "rule", RULES))]


class Block(BaseModel):
    """A product of lists: every engine x layout x setting."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    layouts: Literal["all"] | Annotated[list[OneLayout], Field(min_length=1)]
    """Each a mapping from axis to degree, an axis left out has degree 1; ``all``: every layout of all ranks."""

    engines: list[Engine] = Field(default=["reference"], min_length=1)
    """What trains."""

    settings: dict[str, list[Any]] = {}
    """Setting of the trainer -> the values to run with."""

    options: dict[str, list[Any]] = {}
    """Option of the engines -> the values to run with."""

    saved_by: list[OneLayout] | None = None
    """Layouts that train the first steps of a resumed run (with ``resume_at``)."""

    @field_validator("settings")
    @classmethod
    def _settings(cls, value: dict[str, list[Any]]) -> dict[str, list[Any]]:
        for name, choices in value.items():
            _known(name, "setting", SETTINGS)
            for choice in choices:
                default = getattr(DEFAULTS, name)
                if default is not None and type(choice) is not type(default):
                    raise ValueError(f"{name} takes values like {default!r}, not {choice!r}")
        for combination in _combinations(value):
            Settings(**combination)
        return value

    @model_validator(mode="after")
    def _options(self) -> Block:
        for engine, (name, choices) in product(self.engines, self.options.items()):
            for choice in choices:
                options.check_option(engine, name, choice)
        return self

    def points(self, ranks: int) -> Iterator[Cell]:
        """Every cell of the block, for ``ranks`` ranks."""
        every = list(layouts(ranks, TRAINED_AXES)) if self.layouts == "all" else self.layouts
        for engine, layout, combination in product(self.engines, every, _combinations(self.settings)):
            for saved_by, chosen in product(self.saved_by or [None], _combinations(self.options)):
                changed = {name: value for name, value in chosen.items() if value != options.default(engine, name)}
                yield Cell(layout, engine, replace(DEFAULTS, **combination), saved_by, tuple(sorted(changed.items())))


def _pattern(value: dict[str, Any]) -> dict[str, Any]:
    for name in value:
        _known(name, "axis, setting or option", ("engine", *AXES, *SETTINGS, *options.NAMES))
    return value


class Expectation(BaseModel):
    """What is known of some cells."""

    model_config = ConfigDict(extra="forbid")

    cells: dict[str, Any]
    """Axis, setting, option or ``engine`` -> value, or list of values: cells that have them all."""
    verdict: Literal["agrees", "diverges", "crashes", "hangs", "refused"]
    rule: RuleName | list[RuleName] = []
    """The rules of which each foretells it."""
    because: str = ""
    """The reason in words, or the report of it: needed where there is no rule."""

    @model_validator(mode="after")
    def _reason(self) -> Expectation:
        if self.verdict != "agrees" and not self.rule and not self.because:
            raise ValueError("say why: a rule that foretells it, or because")
        return self

    @field_validator("cells")
    @classmethod
    def _cells(cls, value: dict[str, Any]) -> dict[str, Any]:
        return _pattern(value)


class Matrix(Block):
    """A matrix file: its cells are those of the file's own lists and of ``include``, without those of ``exclude``."""

    version: Literal[1]
    """Version of this format."""

    include: list[Block] = []
    """Further products."""

    exclude: list[dict[str, Any]] = []
    """Axis, setting or ``engine`` -> value, or list of values: cells that have them all are left out."""

    expect: list[Expectation] = []
    """The first that matches a cell says what is expected of it."""

    @field_validator("exclude")
    @classmethod
    def _exclude(cls, value: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [_pattern(pattern) for pattern in value]

    def cells(self, ranks: int) -> list[Planned]:
        """Every cell once, in the order of the file."""
        blocks = [self, *self.include]
        cells = dict.fromkeys(cell for block in blocks for cell in block.points(ranks))
        kept = [cell for cell in cells if not any(matches(cell, pattern) for pattern in self.exclude)]
        return [self._planned(cell) for cell in kept]

    def _planned(self, cell: Cell) -> Planned:
        for expectation in self.expect:
            if matches(cell, expectation.cells):
                rules = (expectation.rule,) if isinstance(expectation.rule, str) else tuple(expectation.rule)
                return Planned(cell, expectation.verdict, expectation.because, rules)
        return Planned(cell, "agrees", "")


def matches(cell: Cell, pattern: Mapping[str, Any]) -> bool:
    """Whether the cell has each of the values, or one of each list of values."""
    values = point(cell)
    return all(values[name] in (wanted if isinstance(wanted, list) else [wanted]) for name, wanted in pattern.items())


def point(cell: Cell) -> dict[str, Any]:
    """Name -> value, of everything that a matrix file can say of a cell: engine, axes, settings, options."""
    return {
        "engine": cell.engine,
        **cell.layout.degrees(),
        **{name: getattr(cell.settings, name) for name in SETTINGS},
        **{name: options.default(cell.engine, name) for name in options.NAMES},
        **dict(cell.options),
    }


def _combinations(settings: Mapping[str, list[Any]]) -> Iterator[dict[str, Any]]:
    for values in product(*settings.values()):
        yield dict(zip(settings, values, strict=True))


def load_matrix(name: str) -> Matrix:
    """Read the matrix file ``name``: a path, or the bare name of a shipped one.

    Raises MatrixError.
    """
    path = find_matrix(name)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MatrixError(f"{name}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else f"{path}"
        raise MatrixError(f"{where}: not YAML: {getattr(error, 'problem', None) or error}") from None
    try:
        return Matrix.model_validate(value)
    except ValidationError as error:
        problems = [problem for problem in error.errors() if "literal['all']" not in problem["loc"]]
        raise MatrixError("\n".join(_explain(path, node, problem) for problem in problems)) from None


def shipped_matrices() -> Path:
    """The folder of the matrices that come with ndcheck: inside an installed package, beside it in a checkout."""
    package = Path(ndcheck.__file__).parent
    inside = package / "matrices"
    return inside if inside.is_dir() else package.parent / "matrices"


def find_matrix(name: str) -> Path:
    """The path of the matrix file ``name``: a path, or the bare name of a shipped one. Raises MatrixError."""
    path = Path(name)
    if path.exists() or path.name != name:
        return path
    shipped = shipped_matrices() / name
    if shipped.exists():
        return shipped
    known = ", ".join(sorted(file.name for file in shipped_matrices().glob("*.yaml")))
    raise MatrixError(f"{name}: no such file, and no such shipped matrix (those are: {known})")


def _explain(path: Path, node: yaml.Node | None, problem: Mapping[str, Any]) -> str:
    """'matrices/mine.yaml:3: layouts[0]: no such axis ...'."""
    # the branches of a union are no part of the file
    place = [
        part for part in problem["loc"] if not (isinstance(part, str) and ("[" in part or part == "literal['all']"))
    ]
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")
    message = {
        "missing": f"the key is missing (it must be one of the top-level keys: {', '.join(Matrix.model_fields)})",
        "extra_forbidden": f"no such key; the keys are {', '.join(Matrix.model_fields)}",
        "list_type": "a list is wanted here" + (", or all" if place == ["layouts"] else ""),
        "model_type": "a matrix file is a mapping with the key layouts, and is empty or something else here",
    }.get(problem["type"], str(problem["msg"]).removeprefix("Value error, "))
    return f"{path}:{_line(node, place)}: {key + ': ' if key else ''}{message}"


def _line(node: yaml.Node | None, place: list[str | int]) -> int:
    """Line, from 1, of the innermost part of ``place`` that the file has."""
    line = node.start_mark.line + 1 if node is not None else 1
    for part in place:
        child: yaml.Node | None = None
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.value == part:
                    line, child = key.start_mark.line + 1, value
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            child = node.value[part]
            line = child.start_mark.line + 1
        node = child
    return line
