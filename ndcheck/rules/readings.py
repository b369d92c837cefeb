"""Rules about scalars that do not mean what they look like: YAML 1.1, which the launcher reads, is full of them.

Editors and most other tools read YAML 1.2. Where the two differ, both readings are shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ndcheck.document import Document
from ndcheck.findings import Fix, Mark, Safety, SetValue, Severity, Violation
from ndcheck.rules.rule import Rule, rule
from ndcheck.settings import Settings
from ndcheck.values import dotted, shown

EVIDENCE = "PyYAML 6.0 resolves plain scalars by YAML 1.1 (run); yaml-language-server reads 1.2"
BOOLEAN_WORDS = frozenset(
    word for base in ("yes", "no", "on", "off") for word in (base, base.capitalize(), base.upper())
)
NUMBER_AS_TEXT = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")


@rule(
    "ND921",
    Severity.WARNING,
    Document,
    evidence=EVIDENCE,
    bad="seed: 010\n",
    good="seed: 8\n",
    unchecked=True,
)
def number_in_another_base(document: Document) -> Iterator[Violation]:
    """An integer is not read in base ten.

    YAML 1.1 reads a leading zero as octal, colons as base 60, 0b as binary, and drops underscores. YAML 1.2
    reads most of these as other numbers, or as text.
    """
    for path, entry in document.scalars():
        node = entry.node
        if not node.plain or type(node.value) is not int or node.text is None or node.text.startswith(("0x", "0X")):
            continue
        if node.text.lstrip("+-") == str(abs(node.value)):
            continue
        message = f"{dotted(path)}: the launcher reads {node.text} as {shown(node.value)}; YAML 1.2 reads {_in_1_2(node.text)}"
        fix = Fix(f"write {shown(node.value)}", Safety.SAFE, (SetValue(path, str(node.value)),))
        yield Violation(path, message, fix=fix, mark=Mark.VALUE)


def _in_1_2(text: str) -> str:
    """How YAML 1.2's core schema reads a plain scalar that 1.1 reads as an integer."""
    return str(int(text)) if re.fullmatch(r"[-+]?[0-9]+", text) else "text"


@rule(
    "ND922",
    Severity.INFO,
    Document,
    evidence=EVIDENCE,
    bad="shuffle_merged_datasets: yes\n",
    good="shuffle_merged_datasets: true\n",
    unchecked=True,
)
def boolean_word(document: Document) -> Iterator[Violation]:
    """A word is read as true or false.

    yes, no, on and off are booleans in YAML 1.1 and text in YAML 1.2, so editors and other tools see something else.
    """
    for path, entry in document.scalars():
        node = entry.node
        if node.plain and node.text in BOOLEAN_WORDS:
            message = f"{dotted(path)}: the launcher reads {node.text} as {shown(node.value)}; YAML 1.2 reads text"
            fix = Fix(f"write {shown(node.value)}", Safety.SAFE, (SetValue(path, shown(node.value)),))
            yield Violation(path, message, fix=fix, mark=Mark.VALUE)


@rule(
    "ND923",
    Severity.WARNING,
    Document,
    evidence=EVIDENCE,
    bad="wandb_name: None\n",
    good="wandb_name: null\n",
    unchecked=True,
)
def null_word(document: Document) -> Iterator[Violation]:
    """The word None is text.

    Python's None is null in YAML. Written as None it is a string of four letters: a name, a path, a true value.
    """
    for path, entry in document.scalars():
        if entry.node.plain and entry.node.text == "None":
            message = f"{dotted(path)}: None is text in YAML, not the absence of a value"
            fix = Fix("write null, or leave the key out", edits=(SetValue(path, "null"),))
            yield Violation(path, message, fix=fix, mark=Mark.VALUE)


@rule(
    "ND924",
    Severity.WARNING,
    Settings,
    evidence="PyYAML 6.0 reads 1e-5 as text for want of a dot (run); free mappings are handed on without conversion",
    bad="lr_scheduler_kwargs: {min_lr: 1e-5}\n",
    good="lr_scheduler_kwargs: {min_lr: 1.0e-5}\n",
    unchecked=True,
)
def number_as_text(settings: Settings) -> Iterator[Violation]:
    """A number in exponent notation is text.

    YAML 1.1 wants a dot in it: 1e-5 is text, 1.0e-5 a number. Where a key has a type the framework converts it;
    inside a free mapping nobody does, and the first arithmetic fails.
    """
    for path, text in settings.texts():
        if len(path) > 1 and NUMBER_AS_TEXT.fullmatch(text):
            mantissa, exponent = re.split("[eE]", text)
            dotted_number = f"{mantissa if '.' in mantissa else mantissa + '.0'}e{exponent}"
            signed = re.sub(r"e(\d)", r"e+\1", dotted_number)  # YAML 1.1 wants the sign of the exponent as well
            message = f"{dotted(path)}: {text} is read as text, not as a number"
            fix = Fix(f"write {signed}", edits=(SetValue(path, signed),))
            yield Violation(path, message, fix=fix, mark=Mark.VALUE)


RULES: tuple[Rule[Document] | Rule[Settings], ...] = (number_in_another_base, boolean_word, null_word, number_as_text)
