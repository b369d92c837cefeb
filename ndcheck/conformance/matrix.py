"""Matrix files: YAML that lists cells. Mistakes are told with file, line and key."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

import ndcheck
from ndcheck.conformance.cells import Cell
from ndcheck.conformance.engines import ENGINES
from ndcheck.conformance.tolerance import TOLERANCES
from ndcheck.layout import AXES, Layout


class MatrixError(ValueError):
    """The matrix file cannot be used: one line of text for each mistake."""


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


class Matrix(BaseModel):
    """A matrix file: its cells are every engine x precision x layout."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    version: Literal[1]
    """Version of this format."""

    layouts: list[Annotated[Any, BeforeValidator(_layout)]] = Field(min_length=1)
    """Each a mapping from axis to degree; an axis left out has degree 1."""

    engines: list[Annotated[str, BeforeValidator(lambda value: _known(value, "engine", tuple(ENGINES)))]] = Field(
        default=["reference"], min_length=1
    )
    """What trains."""

    precisions: list[Annotated[str, BeforeValidator(lambda value: _known(value, "precision", tuple(TOLERANCES)))]] = (
        Field(default=["float64"], min_length=1)
    )
    """Types to train in."""

    def cells(self) -> list[Cell]:
        """Every cell once, in the order of the file."""
        points = product(self.engines, self.precisions, self.layouts)
        return list(dict.fromkeys(Cell(layout, engine, precision) for engine, precision, layout in points))


def load_matrix(name: str) -> Matrix:
    """Read the matrix file ``name``: a path, or the bare name of a shipped one.

    Raises MatrixError.
    """
    path = _find(name)
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
        raise MatrixError("\n".join(_explain(path, node, problem) for problem in error.errors())) from None


def shipped_matrices() -> Path:
    """The folder of the matrices that come with ndcheck: inside an installed package, beside it in a checkout."""
    package = Path(ndcheck.__file__).parent
    inside = package / "matrices"
    return inside if inside.is_dir() else package.parent / "matrices"


def _find(name: str) -> Path:
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
    place = [part for part in problem["loc"] if isinstance(part, str | int)]
    key = "".join(f"[{part}]" if isinstance(part, int) else part for part in place)
    message = {
        "missing": f"the key is missing (it must be one of the top-level keys: {', '.join(Matrix.model_fields)})",
        "extra_forbidden": f"no such key; the keys are {', '.join(Matrix.model_fields)}",
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
