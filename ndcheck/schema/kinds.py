"""What a key takes, as pydantic reads it, and which raw values satisfy a test once they are read.

A raw value is what YAML gives: ``"4"`` is read as 4 where a number is wanted, ``"yes"`` as true where a switch is. Every
schema here is about raw values. An integral float (``2.0``) is an integer to a JSON Schema, so the two are told apart nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, Strict

from ndcheck.dialects.accelerate.model import Word
from ndcheck.dialects.parse import branches, described
from ndcheck.schema import texts
from ndcheck.schema.logic import Schema, all_of, any_of, present

_MOST = 2**64 - 1  # an integer of more bits is refused


@dataclass(frozen=True, slots=True)
class Kind:
    """The branches of a type. ``word`` is text, whatever YAML takes it for; ``strict`` takes no text for a number.

    ``items``: of a list. ``entries``: of a mapping with free keys. ``section``: key -> kind of a mapping with known ones.
    ``loose``: a wrong entry of the section is left out alone, where otherwise it takes the section with it.
    ``described`` says the type in words.
    """

    described: str = "anything"
    anything: bool = False
    null: bool = False
    boolean: bool = False
    integer: bool = False
    strict: bool = False
    number: bool = False
    string: bool = False
    word: bool = False
    words: tuple[str, ...] = ()
    false: bool = False
    items: Kind | None = None
    entries: Kind | None = None
    section: Mapping[str, Kind] | None = field(default=None, hash=False)
    loose: bool = False

    @property
    def only_switch(self) -> bool:
        """It is true or false, or null."""
        others = self.anything or self.integer or self.number or self.string or self.word or self.words or self.items
        return self.boolean and not others and not self.mapping

    def entry(self, key: str) -> Kind:
        """The kind of an entry, where it takes a mapping."""
        if self.section is not None:
            return self.section.get(key, ANYTHING)
        return self.entries or ANYTHING

    def flat(self) -> Kind:
        """The kind without mappings."""
        return replace(self, anything=False, entries=None, section=None)

    @property
    def mapping(self) -> bool:
        """It takes a mapping."""
        return self.anything or self.entries is not None or self.section is not None


ANYTHING = Kind(anything=True, null=True)


def kind_of(annotation: Any) -> Kind:
    """The kind of a Python type."""
    return _kind_of(annotation)


@cache
def _kind_of(annotation: Any) -> Kind:
    if annotation is Any:
        return ANYTHING
    found: dict[str, Any] = {"described": described(annotation)}
    for branch in branches(annotation):
        words = found.get("words", ())
        found |= _branch(branch)
        if get_origin(branch) is Literal:
            found["words"] = (*words, *found["words"])  # one Literal may follow another
    return Kind(**found)


def _branch(branch: Any) -> dict[str, Any]:
    origin, inside = get_origin(branch), get_args(branch)
    if branch is Word:
        return {"word": True}
    if any(isinstance(mark, Strict) for mark in getattr(branch, "__metadata__", ())):
        return {"integer": True, "strict": True}
    if origin is Literal:
        return {"words": tuple(word for word in inside if isinstance(word, str)), "false": False in inside}
    if origin is list:
        return {"items": kind_of(inside[0])}
    if origin is tuple:
        return {"items": ANYTHING if inside[1:] in ((), (...,)) else kind_of(inside[0])}
    if origin is dict:
        return {"entries": kind_of(inside[1])}
    if isinstance(branch, type) and issubclass(branch, BaseModel):
        fields = branch.model_fields.items()
        return {"section": {info.alias or name: kind_of(info.annotation) for name, info in fields}}
    return {_ATOMS[branch]: True}


_ATOMS: dict[Any, str] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    Any: "anything",
}


def reads(kind: Kind) -> Schema:
    """The raw values that are of the right type; one flat schema, so that an editor shows one message."""
    if kind.anything:
        return True
    found: dict[str, dict[str, Any]] = {}
    if kind.boolean or kind.word or ((kind.integer or kind.number) and not kind.strict):
        found["boolean"] = {}
    found |= _numbers_read(kind)
    patterns = _texts_read(kind)
    if kind.string or kind.word or patterns:
        found["string"] = {"pattern": texts.exactly(*patterns)} if patterns else {}
    if kind.items is not None:
        items = reads(kind.items)
        found["array"] = {} if items is True else {"items": items}
    if kind.mapping:
        found["object"] = _inside(kind)
    if kind.null:
        found["null"] = {}  # last: an editor proposes a value of the first type
    return _closed(kind, list(found), {key: limit for limits in found.values() for key, limit in limits.items()})


def _numbers_read(kind: Kind) -> dict[str, dict[str, Any]]:
    if kind.number or kind.word:
        return {"number": {}}
    if kind.integer:
        return {"integer": {"minimum": -_MOST, "maximum": _MOST}}
    return {"integer": {"minimum": 0, "maximum": 1}} if kind.boolean else {}


def _closed(kind: Kind, types: list[str], limits: dict[str, Any]) -> Schema:
    """Where only words are possible, as ``enum``, which editors complete from."""
    other = kind.boolean or kind.integer or kind.number or kind.string or kind.word or kind.items or kind.mapping
    if not kind.words or other:
        return {"type": types[0] if len(types) == 1 else types, **limits}
    words = {"enum": [*kind.words, *([0] if kind.false else []), *([None] if kind.null else [])]}
    return any_of(words, _boolean(False)) if kind.false else words


def _inside(kind: Kind) -> dict[str, Any]:
    if kind.section is not None:
        known = {key: schema for key, inner in kind.section.items() if (schema := reads(inner)) is not True}
        return {"properties": known}
    assert kind.entries is not None
    entries = reads(kind.entries)
    return {} if entries is True else {"additionalProperties": entries}


def _texts_read(kind: Kind) -> list[str]:
    """Patterns of the text that is read; none where any text is."""
    if kind.string or kind.word:
        return []
    patterns = [re.escape(word) for word in kind.words]
    if kind.boolean:
        patterns.append(texts.switch())
    if kind.number:
        patterns.append(texts.NUMBER)
    elif kind.integer and not kind.strict:
        patterns.append(texts.INTEGER)
    return patterns


def satisfies(kind: Kind, operator: str, operand: Any) -> Schema:
    """The raw values that are of the right type, and with which a test of ``ndcheck.rules.conditions`` holds."""
    return _SATISFY[operator](kind, operand)


def _text(*patterns: str) -> Schema:
    return {"type": "string", "pattern": texts.exactly(*patterns)} if patterns else False


def _boolean(value: bool) -> Schema:
    """True or false; yaml-language-server compares the text in the file with constants, so that is there as well."""
    word = str(value)
    return {"type": "boolean", "enum": [value, word.lower(), word, word.upper()]}


def _on(kind: Kind, _: Any) -> Schema:
    found: list[Schema] = []
    if kind.word:
        found.append({"type": "boolean"})
    elif kind.anything or kind.boolean or kind.number or (kind.integer and not kind.strict):
        found.append(_boolean(True))
    if kind.word:
        found.append({"type": "number"})
    elif kind.anything or kind.number or kind.integer:
        found.append({"type": "number" if kind.anything or kind.number else "integer", "not": {"const": 0}})
    elif kind.boolean:
        found.append({"const": 1})
    found.append(_text_on(kind))
    if kind.anything:
        found.append({"type": "array", "minItems": 1})
    elif kind.items is not None:
        found.append(all_of({"type": "array", "minItems": 1}, reads(Kind(items=kind.items))))
    if kind.section is not None:
        found.append(_some_known_key(kind))
    elif kind.mapping:
        found.append({"type": "object", "minProperties": 1})
    return any_of(*found)


def _some_known_key(kind: Kind) -> Schema:
    """Keys that nobody knows are dropped as the section is read, and so are wrong ones or the whole; what is left may be empty."""
    assert kind.section is not None
    if kind.loose:
        return any_of(*(present(key, reads(inner)) for key, inner in sorted(kind.section.items())))
    strange = {"not": {"enum": sorted(kind.section)}}
    return all_of({"type": "object", "not": {"propertyNames": strange}}, reads(Kind(section=kind.section)))


def _text_on(kind: Kind) -> Schema:
    if kind.anything or kind.string or kind.word:
        return {"type": "string", "minLength": 1}
    patterns = [re.escape(word) for word in kind.words]
    if kind.boolean:
        patterns.append(texts.switch(True))
    if kind.number:
        patterns.append(texts.NONZERO_NUMBER)
    elif kind.integer and not kind.strict:
        patterns.append(texts.NONZERO_INTEGER)
    return _text(*patterns)


def _set(kind: Kind, _: Any) -> Schema:
    return all_of(reads(kind), {"not": {"type": "null"}}) if kind.null else reads(kind)


def _equals(kind: Kind, operand: Any) -> Schema:
    if isinstance(operand, bool):
        return _equals_boolean(kind, operand)
    if isinstance(operand, str):
        takes = kind.anything or kind.string or kind.word or operand in kind.words
        return any_of({"const": operand}, *_spellings(kind, operand)) if takes else False
    if isinstance(operand, int):
        return _equals_integer(kind, operand)
    assert operand == 0, "no rule compares other floats"
    assert kind.number, "of a key that takes floats"
    return any_of(_boolean(False), {"const": 0}, _text(texts.ZERO))


def _spellings(kind: Kind, word: str) -> list[Schema]:
    """The raw values that become a word."""
    switches = [_boolean(value) for value in (True, False) if kind.word and str(value).lower() == word]
    return [*switches, {"const": int(word)}] if kind.word and word.isdigit() else switches


def _equals_boolean(kind: Kind, operand: bool) -> Schema:
    if kind.false and not operand:
        return any_of(_boolean(False), {"const": 0})
    if kind.anything:
        return _boolean(operand)
    if not kind.boolean:
        return False
    numbers: Schema = False if kind.integer or kind.number else {"const": int(operand)}
    return any_of(_boolean(operand), numbers, False if kind.string else _text(texts.switch(operand)))


def _equals_integer(kind: Kind, operand: int) -> Schema:
    if kind.anything or kind.strict:
        return {"const": operand}
    if not kind.integer:
        return False
    switched: Schema = _boolean(bool(operand)) if operand in (0, 1) and not kind.boolean else False
    return any_of({"const": operand}, switched, False if kind.string else _text(texts.integer(operand)))


def _one_of(kind: Kind, operands: frozenset[Any]) -> Schema:
    ordered = sorted(operands, key=str)
    assert not (kind.anything and any(not isinstance(operand, str) for operand in ordered)), "1 and true are equal"
    return any_of(*_merged([_equals(kind, operand) for operand in ordered]))


def _merged(schemas: list[Schema]) -> list[Schema]:
    """Several constants as one ``enum``."""
    alone = [schema for schema in schemas if isinstance(schema, dict) and schema.keys() == {"const"}]
    constants = [schema["const"] for schema in alone]
    others = [schema for schema in schemas if schema not in alone]
    return [{"enum": constants}, *others] if len(constants) > 1 else schemas


def _above(kind: Kind, operand: float) -> Schema:
    if kind.anything or kind.number or kind.integer:
        kind_of_number = "number" if kind.anything or kind.number else "integer"
        numbers: Schema = {"type": kind_of_number, "exclusiveMinimum": operand}
    else:
        numbers = {"const": 1} if kind.boolean and operand < 1 else False
    counts = kind.anything or kind.boolean or kind.number or (kind.integer and not kind.strict)
    switches = [_boolean(value) for value in (False, True) if counts and value > operand]
    return any_of(numbers, *switches, _text_above(kind, operand))


def _text_above(kind: Kind, operand: float) -> Schema:
    if kind.anything or kind.string or kind.word or kind.strict:
        return False
    if kind.integer:
        return _text(texts.integer_above(int(operand)))
    if kind.number:
        assert operand == 0, "no rule asks for more of a number that is not whole"
        return _text(texts.POSITIVE_NUMBER)
    return _text(texts.switch(True)) if kind.boolean and operand < 1 else False


def _at_least(kind: Kind, operand: float) -> Schema:
    assert not kind.number, "no rule asks for that"
    if kind.anything:
        return any_of(
            {"type": "number", "minimum": operand}, *(_boolean(value) for value in (False, True) if value >= operand)
        )
    return _above(kind, operand - 1)


def _matches(kind: Kind, pattern: str) -> Schema:
    if kind.anything or kind.string:
        return {"type": "string", "pattern": texts.portable(pattern)}
    if kind.word:
        numbers = [sample for sample, minimum in ((7, 0), (-7, None)) if re.search(pattern, str(sample))]
        whole: Schema = (
            {"type": "integer", "minimum": 0} if numbers == [7] else {"type": "integer"} if numbers else False
        )
        switched = [value for value in (False, True) if re.search(pattern, str(value).lower())]
        constants: Schema = any_of(*map(_boolean, switched))
        return any_of({"type": "string", "pattern": texts.portable(pattern)}, whole, constants)
    words = [word for word in kind.words if re.search(pattern, word)]
    return {"enum": words} if words else False


def _lists(kind: Kind, pattern: str) -> Schema:
    if kind.items is None and not kind.anything:
        return False
    inside = {"type": "string", "pattern": texts.portable(pattern)}
    found: Schema = {"type": "array", "contains": inside}
    return found if kind.anything else all_of(found, reads(Kind(items=kind.items)))


def _is_mapping(kind: Kind, _: Any) -> Schema:
    if not kind.mapping:
        return False
    return {"type": "object"} if kind.anything else all_of({"type": "object"}, reads(kind))


_SATISFY: dict[str, Callable[[Kind, Any], Schema]] = {
    "on": _on,
    "set": _set,
    "equals": _equals,
    "one of": _one_of,
    "above": _above,
    "at least": _at_least,
    "matches": _matches,
    "lists": _lists,
    "mapping": _is_mapping,
}
