"""Regular expressions for text that YAML leaves as text and pydantic reads as a number or a switch.

They are written for both dialects that meet here: Python's ``re`` and ECMA 262.
"""

from __future__ import annotations

import re

END = r"(?!\n)$"
"""The end of the text: ``$`` alone stands before a last line break in Python."""

_DIGITS = "[0-9](?:_?[0-9])*"
_ZEROS = "0(?:_?0)*"
_LEADING = "(?:0_?)*"
_WHOLE_END = r"(?:\.0+)?\s*"
_EXPONENT = f"(?:[eE][+-]?{_DIGITS})?"
_ENDLESS = "[iI][nN][fF](?:[iI][nN][iI][tT][yY])?|[nN][aA][nN]"
_TRUE = ("1", "on", "t", "true", "y", "yes")
_FALSE = ("0", "off", "f", "false", "n", "no")

INTEGER = rf"\s*[+-]?{_DIGITS}{_WHOLE_END}"
NONZERO_INTEGER = rf"\s*[+-]?{_LEADING}[1-9](?:_?[0-9])*{_WHOLE_END}"
NUMBER = rf"\s*[+-]?(?:(?:{_DIGITS}(?:\.(?:_?{_DIGITS})?)?|\.{_DIGITS}){_EXPONENT}|{_ENDLESS})\s*"
ZERO = rf"\s*[+-]?(?:{_ZEROS}(?:\.(?:_?{_ZEROS})?)?|\.{_ZEROS}){_EXPONENT}\s*"
NONZERO_NUMBER = f"(?!{ZERO}$){NUMBER}"
POSITIVE_NUMBER = rf"(?!\s*-|\s*\+?[nN]|{ZERO}$){NUMBER}"


def any_case(text: str) -> str:
    """A pattern for a text in capitals and small letters."""
    return "".join(f"[{char.lower()}{char.upper()}]" if char.isalpha() else re.escape(char) for char in text)


def switch(value: bool | None = None) -> str:
    """A pattern for the words that stand for true, for false, or for either."""
    words = {True: _TRUE, False: _FALSE, None: _TRUE + _FALSE}[value]
    return "|".join(any_case(word) for word in words)


def integer(value: int) -> str:
    """A pattern for text that is read as this integer, which must not be negative."""
    assert value >= 0
    return rf"\s*\+?{_LEADING}{value}{_WHOLE_END}" if value else rf"\s*[+-]?{_ZEROS}{_WHOLE_END}"


def integer_above(value: int) -> str:
    """A pattern for text that is read as an integer above this one, -1 or of one digit."""
    assert -1 <= value <= 9
    if value < 0:
        return rf"\s*(?:\+?{_DIGITS}|-{_ZEROS}){_WHOLE_END}"
    one_digit = f"[{value + 1}-9]|" if value < 9 else ""
    return rf"\s*\+?{_LEADING}(?:{one_digit}[1-9](?:_?[0-9])+){_WHOLE_END}"


def exactly(*patterns: str) -> str:
    """A pattern for text that is one of these from end to end."""
    return f"^(?:{'|'.join(patterns)}){END}"


def portable(pattern: str) -> str:
    """A pattern of a rule, without what only Python's ``re`` has: flags in the pattern, and ``\\Z``."""
    pattern = re.sub(r"\(\?i:([^()]*)\)", lambda group: f"(?:{_letters(group[1])})", pattern)
    if pattern.startswith("(?i)"):
        pattern = _letters(pattern.removeprefix("(?i)"))
    return pattern.replace(r"\Z", END)


def _letters(text: str) -> str:
    assert "\\" not in text, "an escape is not a letter"
    return "".join(f"[{char.lower()}{char.upper()}]" if char.isalpha() else char for char in text)
