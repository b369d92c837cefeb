"""The command line: arguments and exit codes, nothing else. Each command imports what it needs when it runs."""

from __future__ import annotations

import argparse
import os
import sys

from ndcheck import __version__

OK, FINDINGS, FAILED, INTERRUPTED = 0, 1, 2, 130

_EPILOG = "exit codes: 0 no errors, 1 errors found (broken YAML too), 2 the command itself could not work"


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    argv = sys.argv[1:] if argv is None else argv
    try:
        if argv[:1] == ["matrix"]:  # it takes pytest's options too, which only its own parser can tell apart
            return _matrix(argv[1:])
        arguments = _parser().parse_args(argv)
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
    explain = commands.add_parser("explain", help="one rule: what, why, examples", allow_abbrev=False)
    explain.add_argument("rule", metavar="NAME|CODE")
    explain.set_defaults(run=_explain)
    rules = commands.add_parser("rules", help="all rules", allow_abbrev=False)
    rules.add_argument("--format", choices=["text", "json", "markdown"], default="text")
    rules.set_defaults(run=_rules)
    dialects = commands.add_parser("dialects", help="the config languages that are read", allow_abbrev=False)
    dialects.set_defaults(run=_dialects)
    _add_schema(commands)
    commands.add_parser("matrix", help="prove layouts: train in every cell and compare with one process")
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
    facts = validate.add_argument_group(
        "facts", "what the file does not say; rules that need a missing one stay silent"
    )
    facts.add_argument(
        "--with",
        dest="beside",
        action="append",
        default=[],
        metavar="FILE",
        help="a file of the same run, such as accelerate's launch file: each is checked against the other; repeatable",
    )
    facts.add_argument("--world-size", type=int, metavar="N", help="number of ranks (default: $WORLD_SIZE, if set)")
    facts.add_argument("--nodes", type=int, metavar="N", help="number of machines")
    facts.add_argument("--gpus-per-node", type=int, metavar="N", help="GPUs in each machine")
    facts.add_argument(
        "--model-config",
        metavar="FILE",
        help="the model's config.json (default: base_model, if it is a local directory)",
    )
    facts.add_argument(
        "--dialect",
        choices=["accelerate", "axolotl", "deepspeed", "transformers"],
        help="config language (default: told by the keys)",
    )
    facts.add_argument(
        "--target",
        action="append",
        metavar="PACKAGE==X",
        help="a framework's version, such as axolotl==0.18 (default: the installed one, if any)",
    )
    rules = validate.add_argument_group("rules", "names, codes, or prefixes of codes such as ND1, separated by commas")
    rules.add_argument("--select", metavar="RULES", help="run these only")
    rules.add_argument("--ignore", metavar="RULES", help="leave these out")
    rules.add_argument(
        "--severity", choices=["error", "warning", "info"], help="report findings of at least this severity"
    )
    rules.add_argument("--baseline", metavar="FILE", help="report only what this file does not know")
    rules.add_argument("--write-baseline", metavar="FILE", help="note everything found as known, and report nothing")
    repair = validate.add_argument_group("repairs")
    repair.add_argument("--fix", action="store_true", help="repair the files, as far as the run stays the same")
    repair.add_argument(
        "--unsafe-fixes", action="store_true", help="with --fix or --diff: repairs that change the run, too"
    )
    repair.add_argument("--diff", action="store_true", help="show what --fix would change, and change nothing")
    output = validate.add_argument_group("output")
    output.add_argument("--format", choices=["text", "json"], default="text", help="output format (default: text)")
    output.add_argument("-v", "--verbose", action="store_true", help="say what each file was taken for, and why")
    output.add_argument("--stdin-filename", metavar="NAME", default="<stdin>", help="name to show for standard input")
    output.add_argument(
        "--config", metavar="FILE", help="settings (default: the nearest ndcheck.toml or pyproject.toml)"
    )
    output.add_argument("--isolated", action="store_true", help="read no settings file")
    validate.set_defaults(run=_validate)


def _add_schema(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    schema = commands.add_parser(
        "schema",
        help="JSON Schema for editors",
        description="A JSON Schema with every key, its type, and the rules that one file alone can break.",
        epilog="The package carries the schemas as they are without options; --print-modeline and --vscode point to those.",
        allow_abbrev=False,
    )
    schema.add_argument(
        "--dialect",
        choices=["accelerate", "axolotl", "deepspeed", "transformers"],
        default="axolotl",
        help="config language (default: axolotl)",
    )
    schema.add_argument("-o", "--output", metavar="FILE", help="write it there (default: standard output)")
    schema.add_argument("--strict", action="store_true", help="refuse keys that the framework does not know")
    schema.add_argument(
        "--draft",
        choices=["7", "2019-09", "2020-12"],
        default="7",
        help="of JSON Schema (default: 7, which editors know)",
    )
    editors = schema.add_mutually_exclusive_group()
    editors.add_argument("--print-modeline", action="store_true", help="print the first line that a YAML file needs")
    editors.add_argument("--vscode", metavar="FOLDER", help="add the schema to the folder's settings of VS Code")
    schema.set_defaults(run=_schema)


def _validate(arguments: argparse.Namespace) -> int:
    # pydantic would look for plug-ins of other programs in every installed package: slow, and none of our business
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from ndcheck.commands import UsageError, validate

    try:
        return validate(arguments, sys.stdin.buffer, _write, _complain, colour=_wants_colour())
    except UsageError as error:
        _complain(str(error))
        return FAILED


def _schema(arguments: argparse.Namespace) -> int:
    from ndcheck.schema.command import schema

    return OK if schema(arguments, _write, _complain) else FAILED


def _explain(arguments: argparse.Namespace) -> int:
    from ndcheck.output import explain
    from ndcheck.policy import PolicyError, find_rule

    try:
        _write(explain.page(find_rule(arguments.rule)))
    except PolicyError as error:
        _complain(str(error))
        return FAILED
    return OK


def _rules(arguments: argparse.Namespace) -> int:
    from ndcheck.dialects import ALL
    from ndcheck.output import explain

    _write(explain.table(ALL, arguments.format))
    return OK


def _dialects(arguments: argparse.Namespace) -> int:
    from ndcheck.dialects import DIALECTS

    for dialect in DIALECTS.values():
        counts = f"{dialect.key_count} keys, {len(dialect.rules)} rules"
        _write(f"{dialect.name:<14}{counts:<24}{dialect.summary}\n")
    return OK


def _wants_colour() -> bool:
    """The habits of NO_COLOR and FORCE_COLOR; else colour on a terminal only."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (sys.stdout.isatty() and os.environ.get("TERM") != "dumb")


def _write(text: str) -> None:
    """A terminal or pipe that cannot show a character gets an escape instead of a traceback."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))


def _complain(message: str) -> None:
    sys.stderr.write(f"ndcheck: {message}\n")


def _matrix(argv: list[str]) -> int:
    from ndcheck.conformance.__main__ import main as run_matrix

    return run_matrix(argv)
