"""The command line: arguments and exit codes, nothing else. Each command imports what it needs when it runs."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from ndcheck import __version__

OK, FINDINGS, FAILED, INTERRUPTED = 0, 1, 2, 130

_EPILOG = """exit codes: 0 no errors, 1 errors found (broken YAML too), 2 the command itself could not work"""


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # the reader (head, less) went away; keep the interpreter from complaining while it closes stdout
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FINDINGS
    except KeyboardInterrupt:
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ndcheck",
        description="Pre-flight checks and conformance tests for N-D parallel training of language models.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"ndcheck {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_validate(commands)
    return parser


def _add_validate(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    validate = commands.add_parser(
        "validate",
        help="check training configs",
        description="Check training configs, with no GPU and no framework: every violated constraint in one pass.",
        epilog=_EPILOG,
        allow_abbrev=False,
    )
    validate.add_argument("files", nargs="+", metavar="FILE", help="config to check; - reads standard input")
    validate.add_argument("--world-size", type=int, metavar="N", help="number of ranks (default: $WORLD_SIZE, if set)")
    validate.add_argument("--nodes", type=int, metavar="N", help="number of machines")
    validate.add_argument("--gpus-per-node", type=int, metavar="N", help="GPUs in each machine")
    validate.add_argument(
        "--model-config",
        metavar="FILE",
        help="the model's config.json (default: base_model, if it is a local directory)",
    )
    validate.add_argument("--dialect", choices=["axolotl"], help="config language (default: told by the keys)")
    validate.add_argument("--format", choices=["text", "json"], default="text", help="output format (default: text)")
    validate.add_argument("--stdin-filename", metavar="NAME", default="<stdin>", help="name to show for standard input")
    validate.set_defaults(run=_validate)


def _validate(arguments: argparse.Namespace) -> int:
    from ndcheck.checker import Report, check
    from ndcheck.facts import FactError, gather

    try:
        facts = gather(
            world_size=arguments.world_size,
            nodes=arguments.nodes,
            gpus_per_node=arguments.gpus_per_node,
            model_config=arguments.model_config,
            environment=os.environ,
            flags=True,
        )
    except FactError as error:
        return _fail(str(error))
    reports, unreadable = [], {}
    for name in dict.fromkeys(arguments.files):
        try:
            content = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        except (OSError, ValueError) as error:
            unreadable[name] = getattr(error, "strerror", None) or str(error)
            _fail(f"{name}: {unreadable[name]}")
            continue
        shown_name = arguments.stdin_filename if name == "-" else name
        reports.append(check(content, shown_name, facts, arguments.dialect))
    report = Report(files=tuple(reports))
    _write(_render(report, unreadable, arguments.format))
    if unreadable:
        return FAILED
    return OK if report.ok else FINDINGS


def _render(report: object, unreadable: dict[str, str], form: str) -> str:
    from ndcheck.checker import Report

    assert isinstance(report, Report)
    if form == "json":
        from ndcheck.output import as_json

        return as_json.render(report, unreadable)
    from ndcheck.output import as_text

    return as_text.render(report, unreadable, colour=_wants_colour())


def _wants_colour() -> bool:
    """The habits of NO_COLOR and FORCE_COLOR; else colour on a terminal only."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (sys.stdout.isatty() and os.environ.get("TERM") != "dumb")


def _write(text: str) -> None:
    """A terminal or pipe that cannot show a character gets an escape instead of a traceback."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))


def _fail(message: str) -> int:
    sys.stderr.write(f"ndcheck: {message}\n")
    return FAILED
