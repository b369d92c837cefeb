"""Type-check a mapping, all errors at once, and keep what is right usable."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from ndcheck.settings import TypeProblem
from ndcheck.values import Path

KeyTypes = Callable[[str], Any]
"""Key -> its Python type, for keys that are not fields of the model; None for a key that nobody knows."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """``typed``: the readable values after coercion, nested as the user nested them."""

    typed: dict[str, Any]
    problems: tuple[TypeProblem, ...]


def parse(model: type[BaseModel], key_types: KeyTypes, mapping: Mapping[Any, Any]) -> Parsed:
    """Check every value; wrong ones become problems and are left out of ``typed``."""
    fields = {info.alias or name for name, info in model.model_fields.items()}
    typed, problems = _parse_model(model, {key: mapping[key] for key in mapping if key in fields})
    for key, value in mapping.items():
        wanted = key_types(key) if isinstance(key, str) and key not in fields else None
        if wanted is None:
            continue
        try:
            typed[key] = _plain(_adapter(wanted).validate_python(value))
        except ValidationError as error:
            problems.append(_problem(wanted, (key,), value, error.errors(include_url=False)[0]))
    problems += _oversized(typed)
    return Parsed(typed, tuple(problems))


def _oversized(section: dict[str, Any], above: Path = ()) -> list[TypeProblem]:
    """Take integers out that no tensor size or step count can hold; products of what is left can be printed."""
    problems: list[TypeProblem] = []
    for key, value in list(section.items()):
        if isinstance(value, int) and value.bit_length() > 64:
            problems.append(TypeProblem((*above, key), value, "an integer of at most 64 bits", (), "int_too_large"))
            del section[key]
        elif isinstance(value, dict) and not above:
            problems += _oversized(value, (key,))
    return problems


def _plain(value: Any) -> Any:
    """A section as the mapping of what was written in it."""
    return (
        value.model_dump(exclude_unset=True, by_alias=True, warnings=False) if isinstance(value, BaseModel) else value
    )


@cache
def _adapter(annotation: Any) -> TypeAdapter[Any]:
    return TypeAdapter(annotation)


def _parse_model(model: type[BaseModel], data: dict[str, Any]) -> tuple[dict[str, Any], list[TypeProblem]]:
    problems: dict[Path, TypeProblem] = {}
    written = data
    while True:
        try:
            instance = model.model_validate(data)
        except ValidationError as error:
            for detail in error.errors(include_url=False):
                path, value = _written(written, detail["loc"])
                problems.setdefault(path, _problem(model, path, value, detail))
            for path in problems:
                data = _without(data, path)
        else:
            return instance.model_dump(exclude_unset=True, by_alias=True, warnings=False), list(problems.values())


def _written(data: Any, loc: tuple[int | str, ...]) -> tuple[Path, Any]:
    """The part of an error's location that exists in the file (unions append names of branches), and its value."""
    path: list[str | int] = []
    for part in loc:
        is_key = isinstance(data, Mapping) and part in data
        if not is_key and not (isinstance(data, list) and isinstance(part, int)):
            break
        data = data[part]
        path.append(part)
    return tuple(path), data


def _without(data: dict[str, Any], path: Path) -> dict[str, Any]:
    """A copy without the entry at ``path``; a list with a bad item goes as a whole."""
    key, rest = str(path[0]), path[1:]
    inner = data.get(key)
    if not rest or not isinstance(inner, dict) or isinstance(rest[0], int):
        return {name: value for name, value in data.items() if name != key}
    return {**data, key: _without(inner, rest)}


def _problem(annotation: Any, path: Path, value: Any, error: ErrorDetails) -> TypeProblem:
    inner = (
        _inner(annotation, path) if isinstance(annotation, type) and issubclass(annotation, BaseModel) else annotation
    )
    return TypeProblem(path, value, described(inner), _choices(inner), error["type"])


def _inner(annotation: Any, path: Path) -> Any:
    """The type of the entry at ``path``; Any where the model does not say."""
    for part in path:
        parts = branches(annotation)
        if isinstance(part, int):
            annotation = next((get_args(branch)[0] for branch in parts if get_origin(branch) is list), Any)
            continue
        section = next((branch for branch in parts if _is_model(branch)), None)
        fields = section.model_fields if section else {}
        annotation = next((info.annotation for name, info in fields.items() if (info.alias or name) == part), Any)
    return annotation


def _is_model(branch: Any) -> bool:
    return isinstance(branch, type) and issubclass(branch, BaseModel)


def branches(annotation: Any) -> tuple[Any, ...]:
    """The branches of a union, those of unions inside it included; anything else is its own only branch."""
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(branch for part in get_args(annotation) for branch in branches(part))
    return (annotation,)


def _choices(annotation: Any) -> tuple[str, ...]:
    words = (word for branch in branches(annotation) if get_origin(branch) is Literal for word in get_args(branch))
    return tuple(word for word in words if isinstance(word, str))


_WORDS = {
    int: "an integer",
    float: "a number",
    str: "a string",
    dict: "a mapping",
    list: "a list",
    tuple: "a list",
}
_LISTS = {str: "a list of strings", int: "a list of integers", float: "a list of numbers", dict: "a list of mappings"}


def described(annotation: Any) -> str:
    """A type in words: 'an integer', 'a list of strings', 'auto, true or false'."""
    words: list[str] = []
    for branch in branches(annotation):
        origin = get_origin(branch) or branch
        if origin is Literal:
            words += [str(word).lower() if isinstance(word, bool) else str(word) for word in get_args(branch)]
        elif origin is list:
            item = get_args(branch)[0] if get_args(branch) else Any
            words.append(_LISTS.get(get_origin(item) or item, "a list"))
        elif origin is bool:
            words += ["true", "false"]
        elif origin is not type(None):
            words.append("a mapping" if _is_model(branch) else _WORDS.get(origin, "another type"))
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
