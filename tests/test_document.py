"""Reading: the values are PyYAML's, and every span is where the user wrote the thing."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ndcheck.document import Document, Node, Position, Span, TextEdit, apply_edits
from ndcheck.reader import MAX_DEPTH, read

REAL = sorted(path for path in (Path(__file__).parent / "data/examples").iterdir() if path.suffix in (".yaml", ".yml"))


def kinds(text: str) -> list[str]:
    return [problem.kind for problem in read(text).problems]


def pieces(document: Document) -> Iterator[tuple[Span, Any]]:
    """Span and value of every key and value that is written in the file, aliases and merges not followed twice."""
    assert document.root is not None
    stack: list[Node] = [document.root]
    done: set[int] = set()
    while stack:
        node = stack.pop()
        if id(node) in done:
            continue
        done.add(id(node))
        for key, entry in (node.entries or {}).items():
            assert entry.key is not None
            yield entry.key, key
        for child in [*(node.entries or {}).values(), *(node.items or [])]:
            yield child.span, child.node.value
            stack.append(child.node)


def reads_as(text: str, span: Span, value: Any) -> bool:
    """What the span cuts out, put back to its column (a block needs it), reads as the value."""
    column = span.start - (text.rfind("\n", 0, span.start) + 1)
    return same(yaml.safe_load(" " * column + text[slice(*span)]), value)


def same(left: Any, right: Any) -> bool:
    """Equal in value and type; nan equals itself."""
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (left != left and right != right)
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
def test_real_configs_are_read_as_pyyaml_reads_them(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert same(read(text).data, yaml.safe_load(text))


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
def test_every_span_of_a_real_config_cuts_out_its_value(path: Path) -> None:
    document = read(path.read_text(encoding="utf-8"))
    spans = [(span, value) for span, value in pieces(document) if document.text[span.start : span.start + 1] != "*"]
    assert len(spans) > 20
    for span, value in spans:
        assert reads_as(document.text, span, value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2e-5", "2e-5"),
        ("2E5", "2E5"),
        ("1e5", "1e5"),
        ("1.5e-5", 1.5e-5),
        ("1.e5", "1.e5"),
        ("1.e+5", 1e5),
        (".5", 0.5),
        ("-.5", "-.5"),
        ("-0.5", -0.5),
        ("+5", 5),
        ("yes", True),
        ("No", False),
        ("off", False),
        ("ON", True),
        ("y", "y"),
        ("n", "n"),
        ("True", True),
        ("tRue", "tRue"),
        ("null", None),
        ("~", None),
        ("", None),
        ("None", "None"),
        ("010", 8),
        ("0o10", "0o10"),
        ("09", "09"),
        ("0x1F", 31),
        ("0b101", 5),
        ("1_000", 1000),
        ("12:30:45", 45045),
        ("1:30", 90),
        ("2026-01-02", datetime.date(2026, 1, 2)),
        ("2026-01-02 03:04:05", datetime.datetime(2026, 1, 2, 3, 4, 5)),
        (".inf", float("inf")),
        ("-.INF", float("-inf")),
        (".nan", float("nan")),
        ("inf", "inf"),
        ("'yes'", "yes"),
        ('"8"', "8"),
        ("!!str 8", "8"),
        ("!!int '8'", 8),
        ("!!float 8", 8.0),
        ("!!binary aGk=", b"hi"),
        ("a b", "a b"),
        ("a#b", "a#b"),
        ("a # b", "a"),
        ("[]", []),
        ("{}", {}),
        ("{a, b: }", {"a": None, "b": None}),
        ("[a: 1, b]", [{"a": 1}, "b"]),
        ("|\n  one\n  two\n", "one\ntwo\n"),
        ("|-\n  one\n", "one"),
        (">\n  one\n  two\n", "one two\n"),
        ("'it''s'", "it's"),
        (r'"\x41\u00e9"', "Aé"),
        ("'one\n  two'", "one two"),
    ],
)
def test_yaml_1_1_scalars(text: str, value: Any) -> None:
    document = read(f"key: {text}\nnext: 1\n")
    assert document.problems == []
    assert same(document.data, {"key": value, "next": 1})
    assert same(yaml.safe_load(document.text), {"key": value, "next": 1})


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\r\nb:\r\n  - x\r\n  - y\r\n",
        "\ufeffa: 1\nb: 2\n",
        "# 🙂 эмодзи\nключ: значение 🙂\nb: [日本, x]\n",
        'a: |\n  x\ty\nb: "x\ty" # a\tb\n',
        "a:\n- 1\n- 2\nb:\n  c:\n    d: 1\n\n\n# end\n",
        "{a: 1, b: [1, {c: d}], 'e f': \"g\"}\n",
        "? a\n: b\n? c\n",
        "%YAML 1.2\n---\na: no\n...\n",
        "---\na: 1\n",
        "a: &x 1\nb: *x\n",
        "a: |\n  text\n\n  more\nb: >-\n  folded\n  text\n",
        "on: 1\nnull: 2\n3: 4\n2026-01-02: 5\n1.5: 6\n",
        "",
        "# only a comment\n",
        "[1, 2]\n",
        "word\n",
    ],
)
def test_shapes_of_files_are_read_as_pyyaml_reads_them(text: str) -> None:
    document = read(text)
    assert document.problems == []
    assert same(document.data, yaml.safe_load(text))


def test_position_counts_lines_and_characters_from_one() -> None:
    document = read("# 🙂\r\nключ: 'é' # c\r\n\r\nb:\r\n  - 🙂🙂: x\r\n")
    place = document.locate(("ключ",))
    assert place is not None
    assert document.position(place.key.start if place.key else 0) == Position(2, 1)
    assert document.position(place.value.start) == Position(2, 7)
    assert document.position(place.value.end) == Position(2, 10)
    nested = document.locate(("b", 0, "🙂🙂"))
    assert nested is not None
    assert nested.key is not None
    assert document.position(nested.key.start) == Position(5, 5)
    assert document.position(nested.value.start) == Position(5, 9)
    assert document.line(2) == "ключ: 'é' # c"
    assert document.line(3) == ""


def test_byte_order_mark_is_no_column() -> None:
    document = read("\ufeffa: 1\n")
    place = document.locate(("a",))
    assert place is not None
    assert document.position(place.value.start) == Position(1, 4)


@pytest.mark.parametrize(
    ("text", "path", "key", "value"),
    [
        ("a: 1 # c\n", ("a",), "a", "1"),
        ("'a': \"x y\"\n", ("a",), "'a'", '"x y"'),
        ("a:\nb: 1\n", ("a",), "a", ""),
        ("a:\n  - x\n  - y: z\n\n# c\nb: 1\n", ("a",), "a", "- x\n  - y: z"),
        ("a:\n  - x\n  - y: z\n", ("a", 1), None, "y: z"),
        ("a:\n  - x\n  - y: z\n", ("a", 1, "y"), "y", "z"),
        ("a: [x, {y: z}]\nb: 1\n", ("a",), "a", "[x, {y: z}]"),
        ("a: [x, {y: z}]\n", ("a", 1), None, "{y: z}"),
        ("a:\n  b: 1\n  # c\n\nd: 1\n", ("a",), "a", "b: 1"),
        ("a:\n  b:\n    c: 1\nd: 1\n", ("a",), "a", "b:\n    c: 1"),
        ("a: {b: 1,\n  c: 2}\n", ("a", "c"), "c", "2"),
        ("a: &x {b: 1}\nc: *x\n", ("c",), "c", "*x"),
        ("a: &x {b: 1}\nc: *x\n", ("c", "b"), "b", "1"),
        ("x: &x {b: 1}\nc:\n  <<: *x\n  d: 2\n", ("c", "b"), "b", "1"),
        ("x: &x {b: 1}\nc:\n  <<: *x\n  b: 2\n", ("c", "b"), "b", "2"),
        ("c:\n  <<: {b: 1}\n", ("c", "b"), "b", "1"),
        ("? a\n: b\n", ("a",), "a", "b"),
        ("on: 1\n", (True,), "on", "1"),
    ],
)
def test_an_entry_is_where_the_user_wrote_it(text: str, path: tuple[Any, ...], key: str | None, value: str) -> None:
    document = read(text)
    place = document.locate(path)
    assert place is not None
    assert (None if place.key is None else text[slice(*place.key)]) == key
    assert text[slice(*place.value)] == value


def test_whole_entry_runs_from_the_key_to_the_end_of_the_value() -> None:
    text = "x: &x\n  b: 1\nc: *x\n"
    document = read(text)
    whole = {key: document.locate((key,)) for key in ("x", "c")}
    assert [text[slice(*place.whole)] for place in whole.values() if place] == ["x: &x\n  b: 1", "c: *x"]


@pytest.mark.parametrize("path", [("b",), ("a", "b"), ("a", 0, "x"), ("l", 2), ("l", -1), ("l", "x"), ("n", "x")])
def test_what_is_not_there_has_no_place(path: tuple[Any, ...]) -> None:
    assert read("a: [1]\nl: [1, 2]\nn: null\n").locate(path) is None


@pytest.mark.parametrize(
    ("text", "kind", "lost", "kept"),
    [
        ("a: 1\nb: 2\na: 3\n", "duplicate-key", (1, 1), (3, 1)),
        ("a: 1\nb: 2\na: 1\n", "duplicate-key-same-value", (1, 1), (3, 1)),
        ("a: 1\n'a': 2\n", "duplicate-key", (1, 1), (2, 1)),
        ("s:\n  a: 1\n  a: 2\n", "duplicate-key", (2, 3), (3, 3)),
        ("l:\n  - a: 1\n    a: 2\n", "duplicate-key", (2, 5), (3, 5)),
        ("s: {a: 1, a: 2}\n", "duplicate-key", (1, 5), (1, 11)),
        ("1: a\n1: b\n", "duplicate-key", (1, 1), (2, 1)),
        ("a: [1]\na: [1]\n", "duplicate-key", (1, 1), (2, 1)),
    ],
)
def test_duplicate_keys(text: str, kind: str, lost: tuple[int, int], kept: tuple[int, int]) -> None:
    document = read(text)
    (problem,) = document.problems
    assert problem.kind == kind
    assert document.position(problem.span.start) == kept
    assert [document.position(span.start) for span, _ in problem.related] == [lost]
    assert document.data == yaml.safe_load(text)


def test_three_of_a_key_are_two_duplicates() -> None:
    assert kinds("a: 1\na: 2\na: 3\n") == ["duplicate-key", "duplicate-key"]


@pytest.mark.parametrize(
    "text",
    [
        "x: &x {a: 1, b: 2}\ny:\n  <<: *x\n  b: 3\n",
        "x: &x {a: 1}\ny: &y {a: 2, c: 3}\nz:\n  <<: [*x, *y]\n",
        "x: &x {a: 1}\ny: {a: 2, <<: *x}\n",
        "x: &x {a: 1}\ny: &y {<<: *x, b: 2}\nz: {<<: *y, c: 3}\n",
        "x: &x {a: 1}\ny: {<<: *x, <<: {b: 2}}\n",
        "x: {<<: {a: {b: 1}}}\n",
        "x: {'<<': {a: 1}}\n",
        "x: {<<: []}\n",
    ],
)
def test_merge_keys_are_resolved_as_pyyaml_does(text: str) -> None:
    document = read(text)
    assert document.problems == []
    assert document.data == yaml.safe_load(text)


def test_keys_that_merge_brings_are_no_duplicates() -> None:
    assert kinds("x: &x {a: 1}\ny:\n  a: 2\n  <<: *x\n") == []


@pytest.mark.parametrize(
    ("text", "kind", "position"),
    [
        ("a: [1\nb: 2\n", "yaml-syntax", (2, 2)),
        ("a: b: c\n", "yaml-syntax", (1, 5)),
        ("a: 1\n\tb: 2\n", "yaml-syntax", (2, 1)),
        ("a: @x\n", "yaml-syntax", (1, 4)),
        ("a: 1\t# two\nb: 2\n", "yaml-syntax", (1, 5)),
        ("a: [1,\t2]\n", "yaml-syntax", (1, 7)),
        ("a:\t1\n", "yaml-syntax", (1, 3)),
        ("a: [b?c]\n", "yaml-syntax", (1, 6)),
        ("a: *x\n", "yaml-syntax", (1, 4)),
        ("a: &x 1\nb: &x 2\n", "yaml-syntax", (2, 4)),
        ("a: 'x\n", "yaml-syntax", (2, 1)),
        ("a: 1\n---\nb: 2\n", "yaml-syntax", (2, 1)),
        ("a: \0\n", "yaml-syntax", (1, 4)),
        ("a: \x07\n", "yaml-syntax", (1, 4)),
        ("a: &x [*x]\n", "yaml-alias", (1, 8)),
        ("a: &x {b: *x}\n", "yaml-alias", (1, 11)),
        ("a: !here x\n", "yaml-tag", (1, 4)),
        ("a: !!python/object/apply:os.system [ls]\n", "yaml-tag", (1, 4)),
        ("a: !!python/name:os.system\n", "yaml-tag", (1, 4)),
        ("a: !!map x\n", "yaml-tag", (1, 4)),
        ("a: !!set x\n", "yaml-tag", (1, 4)),
        ("a: 2026-13-45\n", "yaml-scalar", (1, 4)),
        ("a: 2026-02-30 10:00:00\n", "yaml-scalar", (1, 4)),
        ("a: !!int x\n", "yaml-scalar", (1, 4)),
        ("a: !!int ''\n", "yaml-scalar", (1, 4)),
        ("a: !!float ''\n", "yaml-scalar", (1, 4)),
        ("a: !!bool maybe\n", "yaml-scalar", (1, 4)),
        ("a: !!timestamp soon\n", "yaml-scalar", (1, 4)),
        (f"a: {'9' * 5000}\n", "yaml-scalar", (1, 4)),
        ("a: {<<: 1}\n", "yaml-merge", (1, 9)),
        ("a: {<<: [{b: 1}, 2]}\n", "yaml-merge", (1, 9)),
        ("a: {[b]: 1}\n", "yaml-key", (1, 5)),
        ("? {a: b}\n: 1\n", "yaml-key", (1, 3)),
    ],
)
def test_what_the_loader_refuses_is_a_problem_with_a_place(text: str, kind: str, position: tuple[int, int]) -> None:
    document = read(text)
    assert [problem.kind for problem in document.problems] == [kind]
    assert document.position(document.problems[0].span.start) == position
    with pytest.raises((yaml.YAMLError, ValueError, LookupError, AttributeError)):
        list(map(dict, yaml.safe_load(text)["a"])) if kind == "yaml-alias" else yaml.safe_load(text)


def test_reading_goes_on_after_a_value_that_cannot_be_built() -> None:
    document = read("a: 2026-13-45\nb: !here 1\nc: {d: 1}\n")
    assert document.data == {"a": "2026-13-45", "b": "1", "c": {"d": 1}}


def test_only_the_first_document_is_kept() -> None:
    assert read("a: 1\n---\nb: 2\n").data == {"a": 1}


def test_alias_bomb_is_shared_and_walked_once() -> None:
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    document = read("\n".join(lines))
    assert document.problems == []
    assert document.data["a29"][0] is document.data["a29"][8]
    assert len(list(document.scalars())) == 9


def test_nesting_is_bounded() -> None:
    assert kinds("a: " + "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1)) == []
    assert kinds("a: " + "[" * MAX_DEPTH + "]" * MAX_DEPTH) == ["yaml-nesting"]
    assert kinds("".join(" " * n + f"k{n}:\n" for n in range(MAX_DEPTH + 5))) == ["yaml-nesting"]
    assert kinds("[" * 100_000) != []


KEYS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=8) | st.sampled_from(
    ["on", "no", "null", "1", "2e-5", "<<", "a: b", "- x", "#", "'", '"', "é🙂"]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | KEYS
    | st.dates()
    | st.text(st.sampled_from("ab \n'\"#:-\t"), max_size=12)
)
MAPPINGS = st.dictionaries(
    KEYS,
    st.recursive(
        SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=150)
@given(MAPPINGS, st.sampled_from([True, False, None]), st.booleans(), st.sampled_from(["\n", "\r\n"]))
def test_whatever_yaml_writes_is_read_back_with_true_spans(
    data: dict[str, Any], flow: bool | None, unicode: bool, line_break: str
) -> None:
    text = yaml.safe_dump(data, default_flow_style=flow, allow_unicode=unicode, line_break=line_break, sort_keys=False)
    document = read(text)
    assert document.problems == []
    assert same(document.data, yaml.safe_load(text))
    for span, value in pieces(document):
        if text[span.start : span.start + 1] != "*":
            assert reads_as(text, span, value)


@pytest.mark.parametrize(
    ("edits", "result"),
    [
        ([], "tp: 2 # two\ncp: 1\n"),
        ([TextEdit(4, 5, "4")], "tp: 4 # two\ncp: 1\n"),
        ([TextEdit(4, 5, "4"), TextEdit(16, 17, "8")], "tp: 4 # two\ncp: 8\n"),
        ([TextEdit(16, 17, "8"), TextEdit(4, 5, "4")], "tp: 4 # two\ncp: 8\n"),
        ([TextEdit(0, 2, "tensor_parallel_size"), TextEdit(4, 5, "16")], "tensor_parallel_size: 16 # two\ncp: 1\n"),
        ([TextEdit(18, 18, "pp: 1\n")], "tp: 2 # two\ncp: 1\npp: 1\n"),
        ([TextEdit(12, 18, "")], "tp: 2 # two\n"),
        ([TextEdit(4, 5, "4"), TextEdit(4, 5, "4")], "tp: 4 # two\ncp: 1\n"),
        ([TextEdit(4, 5, "4"), TextEdit(5, 5, "0")], "tp: 40 # two\ncp: 1\n"),
    ],
)
def test_edits_change_nothing_else(edits: list[TextEdit], result: str) -> None:
    assert apply_edits("tp: 2 # two\ncp: 1\n", edits) == result


@pytest.mark.parametrize(
    "edits",
    [
        [TextEdit(0, 5, "a"), TextEdit(4, 6, "b")],
        [TextEdit(4, 6, "b"), TextEdit(0, 5, "a")],
        [TextEdit(0, 9, "a"), TextEdit(3, 4, "b")],
        [TextEdit(4, 5, "a"), TextEdit(4, 5, "b")],
        [TextEdit(4, 4, "a"), TextEdit(4, 4, "b")],
    ],
)
def test_edits_that_overlap_are_refused(edits: list[TextEdit]) -> None:
    with pytest.raises(ValueError, match="overlap"):
        apply_edits("tp: 2 # two\n", edits)


def test_span_of_a_file_without_anything_is_empty() -> None:
    document = read("# comment\n")
    assert document.root is None
    assert document.position(Span(0, 0).start) == Position(1, 1)
