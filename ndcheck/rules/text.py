"""Rules about the text itself: what YAML or JSON cannot read, or reads otherwise than it looks."""

from __future__ import annotations

from collections.abc import Iterator

from ndcheck.document import Document
from ndcheck.findings import Note, Severity, Violation
from ndcheck.rules.rule import Rule


def _reporter(
    kind: str,
    code: str,
    severity: Severity,
    summary: str,
    why: str,
    bad: str,
    good: str,
    evidence: str = "PyYAML 6.0's safe loader, which axolotl and accelerate use",
) -> Rule[Document]:
    """A rule whose violations the reader has already seen, as problems of this kind."""

    def check(document: Document) -> Iterator[Violation]:
        for problem in document.problems:
            if problem.kind == kind:
                notes = tuple(Note((), label, span) for span, label in problem.related)
                yield Violation((), problem.message, notes, span=problem.span)

    return Rule(
        code=code,
        name=kind,
        severity=severity,
        summary=summary,
        why=why,
        reads=Document,
        check=check,
        evidence=evidence,
        bad=bad,
        good=good,
    )


UNREADABLE = ("yaml-syntax", "json-syntax", "not-utf8", "not-a-mapping", "unknown-dialect")
"""Rules whose findings say that the file, or the rest of it, was not checked: nothing silences them."""

YAML_SYNTAX = _reporter(
    "yaml-syntax",
    "ND901",
    Severity.ERROR,
    "The file is not one YAML document",
    "Nothing else can be checked: the launcher stops here too.",
    "plugins: [axolotl.integrations.liger.LigerPlugin\n",
    "plugins: [axolotl.integrations.liger.LigerPlugin]\n",
)
DUPLICATE_KEY = _reporter(
    "duplicate-key",
    "ND902",
    Severity.ERROR,
    "A key is set twice in one mapping, with different values",
    "PyYAML keeps the last value and says nothing, so what stands first in the file, and is read first, has no effect.",
    "sequence_len: 2048\nsequence_len: 4096\n",
    "sequence_len: 4096\n",
)
DUPLICATE_SAME = _reporter(
    "duplicate-key-same-value",
    "ND903",
    Severity.WARNING,
    "A key is set twice in one mapping, with the same value",
    "Harmless until somebody changes the first one and wonders why nothing happens.",
    "sequence_len: 4096\nsequence_len: 4096\n",
    "sequence_len: 4096\n",
)
YAML_TAG = _reporter(
    "yaml-tag",
    "ND904",
    Severity.ERROR,
    "A value carries a tag that cannot be read",
    "A safe loader builds plain values only; it stops at any other tag, those that would run Python code first of all.",
    "output_dir: !here out\n",
    "output_dir: out\n",
)
YAML_SCALAR = _reporter(
    "yaml-scalar",
    "ND905",
    Severity.ERROR,
    "A value looks like a date or number that does not exist",
    "YAML 1.1 reads 2026-13-45 as a date, finds no such month, and the loader stops with a traceback.",
    "wandb_name: 2026-13-45\n",
    'wandb_name: "2026-13-45"\n',
)
YAML_ALIAS = _reporter(
    "yaml-alias",
    "ND906",
    Severity.ERROR,
    "An alias stands inside the value that it stands for",
    "The value would contain itself without end.",
    "eot_tokens: &tokens [a, *tokens]\n",
    "eot_tokens: &tokens [a]\n",
)
YAML_MERGE = _reporter(
    "yaml-merge",
    "ND907",
    Severity.ERROR,
    "A merge key does not merge a mapping",
    "<< copies the entries of a mapping, or of a list of mappings; anything else stops the loader.",
    "<<: 3\n",
    "<<: {sequence_len: 512}\n",
)
YAML_KEY = _reporter(
    "yaml-key",
    "ND908",
    Severity.ERROR,
    "A list or mapping is used as a key",
    "Python dictionaries cannot hold such a key; the loader stops.",
    "[sequence_len]: 512\n",
    "sequence_len: 512\n",
)
YAML_NESTING = _reporter(
    "yaml-nesting",
    "ND909",
    Severity.ERROR,
    "The file is nested too deeply",
    "No config needs a hundred levels; a file that has them is damaged, or made to exhaust its reader.",
    "special_tokens: " + "[" * 101 + "]" * 101 + "\n",
    "sequence_len: 512\n",
)
NOT_UTF8 = _reporter(
    "not-utf8",
    "ND910",
    Severity.ERROR,
    "The file is not UTF-8 text",
    "axolotl opens configs as UTF-8 and stops at the first byte that is not.",
    "",
    "",
)
NOT_A_MAPPING = _reporter(
    "not-a-mapping",
    "ND911",
    Severity.ERROR,
    "The file holds no keys",
    "A config is a mapping of keys to values; this file is empty, a list, or a single value.",
    "",
    "",
)
UNKNOWN_DIALECT = _reporter(
    "unknown-dialect",
    "ND912",
    Severity.ERROR,
    "The file is in no config language that ndcheck knows",
    "Nothing was checked. Rules of one framework say nothing about another's file, so nothing is guessed.",
    "",
    "",
    "each framework's own key names",
)
MODEL_CONFIG_UNREADABLE = _reporter(
    "model-config-unreadable",
    "ND913",
    Severity.WARNING,
    "base_model is a local directory whose config.json cannot be read",
    "The model's sizes are not known, so the rules about tp stay silent; loading the model will most likely fail as well.",
    "",
    "",
    "transformers reads config.json from the same place",
)
UNUSED_SUPPRESSION = _reporter(
    "unused-suppression",
    "ND914",
    Severity.WARNING,
    "A suppression comment silences nothing",
    "What it was for is gone, or its name is misspelt; left standing, it would hide the next real finding.",
    "sequence_len: 512  # ndcheck: ignore[unknown-key] on purpose\n",
    "sequence_len: 512  # on purpose\n",
    "the file itself",
)

JSON_SYNTAX = _reporter(
    "json-syntax",
    "ND915",
    Severity.ERROR,
    "The file is not JSON",
    "A file whose name ends in .json is read strictly: no comments, no comma after the last entry, no other quotes. "
    "Nothing else can be checked: the framework stops here too.",
    "",
    "",
    "Python's json, with which accelerate and transformers read .json files",
)

RULES: tuple[Rule[Document], ...] = (
    YAML_SYNTAX,
    JSON_SYNTAX,
    DUPLICATE_KEY,
    DUPLICATE_SAME,
    YAML_TAG,
    YAML_SCALAR,
    YAML_ALIAS,
    YAML_MERGE,
    YAML_KEY,
    YAML_NESTING,
    NOT_UTF8,
    NOT_A_MAPPING,
    UNKNOWN_DIALECT,
    MODEL_CONFIG_UNREADABLE,
    UNUSED_SUPPRESSION,
)
