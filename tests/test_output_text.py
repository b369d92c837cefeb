"""Text for people, compared with files that were read by hand before they were kept.

``pytest --regenerate-golden`` writes them anew; the difference is then to be read, line by line.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from ndcheck.checker import Report, check
from ndcheck.cli import main
from ndcheck.facts import gather
from ndcheck.output import as_text

GOLDEN = Path(__file__).parent / "data/golden"
GIVEN: dict[str, dict[str, int]] = {
    "good": {"world_size": 8},
    "product": {"world_size": 8},
    "related": {"world_size": 8},
    "wide": {},
    "long_line": {},
    "control": {},
    "syntax": {},
    "empty": {},
}


@pytest.mark.parametrize("name", GIVEN)
def test_golden(name: str, request: pytest.FixtureRequest) -> None:
    file = check((GOLDEN / f"{name}.yaml").read_bytes(), f"{name}.yaml", gather(**GIVEN[name], flags=True))
    text = as_text.render(Report(files=(file,)), {})
    golden = GOLDEN / f"{name}.txt"
    if request.config.getoption("--regenerate-golden"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


def test_every_golden_file_is_used() -> None:
    assert {path.stem for path in GOLDEN.glob("*.yaml")} == {path.stem for path in GOLDEN.glob("*.txt")} == set(GIVEN)


def shown(text: str, *, colour: bool = False, unreadable: dict[str, str] | None = None) -> str:
    return as_text.render(Report(files=(check(text, "a.yaml", gather()),)), unreadable or {}, colour=colour)


def lines_about(text: str, source: str) -> list[str]:
    """The frame's line that shows ``source``, and the one below it."""
    lines = text.splitlines()
    at = next(number for number, line in enumerate(lines) if source in line)
    return lines[at : at + 2]


@pytest.mark.parametrize(
    ("source", "columns", "width"),
    [
        ("key_x: 1", 0, 5),
        ("ключ: 1", 0, 4),
        ("日本: 1", 0, 4),  # two columns each
        ("🙂: 1", 0, 2),
        ("e\u0301te\u0301: 1", 0, 3),  # a combining accent takes no column
        ("x: 1", 0, 1),
    ],
)
def test_underline_stands_under_the_key(source: str, columns: int, width: int) -> None:
    above, below = lines_about(shown(f"base_model: a\n{source}\n"), f"| {source}")
    start = above.index("| ") + 2
    assert below[start:].rstrip() == " " * columns + "^" * width


def test_underline_after_wide_characters() -> None:
    text = shown("base_model: a\nfsdp_config: {日本: 1, ofload_params: true}\n")
    # fsdp_config: { is 14 columns, 日本 is 4, and ": 1, " is 5
    assert any(line.endswith("| " + " " * 23 + "^" * 13) for line in text.splitlines())


@pytest.mark.parametrize("control", ["\\e[31m", "\\a", "\\r", "\\b", "\\x9b", "\\u202e", "\\0", "\\x7f"])
def test_no_control_character_reaches_the_terminal(control: str) -> None:
    text = shown(f'base_model: a\n"k{control}y": 1\ntensor_parallel_size: "t{control}o"\n')
    assert all(char.isprintable() or char == "\n" for char in text)
    assert text.count("error") >= 1


def test_a_path_cannot_repaint_the_terminal_either() -> None:
    report = Report(files=(check("a: 1\n", "\033[2Jevil\n.yaml", gather()),))
    text = as_text.render(report, {})
    assert "\033" not in text
    assert r"\x1b[2Jevil\n.yaml:1:1: error ND912" in text


def test_colour_changes_no_character() -> None:
    source = "base_model: a\ntensor_parallel_size: two\nsequence_parallel_degree: 2\nmy_note: 1\n"
    coloured = shown(source, colour=True)
    assert "\033[1;31merror\033[0m" in coloured
    assert "\033[1;33mwarning\033[0m" in coloured
    assert re.sub(r"\033\[[\d;]*m", "", coloured) == shown(source)


@pytest.mark.parametrize(
    ("environment", "terminal", "expected"),
    [
        ({}, False, False),
        ({}, True, True),
        ({"TERM": "dumb"}, True, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": ""}, False, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, False, True),
    ],
)
def test_when_to_colour(
    environment: dict[str, str],
    terminal: bool,
    expected: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    Path("a.yaml").write_text("base_model: a\ntensor_parallel_size: two\n")
    assert main(["validate", "a.yaml"]) == 1
    assert ("\033[" in capsys.readouterr().out) is expected


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("", "1 error, 0 warnings in 1 file."),
        ("a: 1\nb: [\n", "1 error, 0 warnings in 1 file."),
    ],
)
def test_summary(source: str, line: str) -> None:
    assert line in shown(source).splitlines()


def test_summary_of_files_that_could_not_be_opened() -> None:
    assert "1 file could not be opened." in shown("", unreadable={"b.yaml": "gone"}).splitlines()
    assert "2 files could not be opened." in shown("", unreadable={"b": "gone", "c": "gone"}).splitlines()
