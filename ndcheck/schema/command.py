"""What ``ndcheck schema`` does."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

from ndcheck.schema.export import WORDS, export
from ndcheck.schema.files import SettingsError, modeline, published, write_vscode, written


def schema(arguments: Namespace, write: Callable[[str], None], complain: Callable[[str], None]) -> bool:
    """Write a schema, or what tells an editor of the published one. False if it could not."""
    words = WORDS[arguments.dialect]
    try:
        if arguments.print_modeline:
            write(modeline(arguments.dialect))
        elif arguments.vscode is not None:
            write(f"{write_vscode(Path(arguments.vscode), words)}\n")
        else:
            _put(written(export(words, draft=arguments.draft, strict=arguments.strict)), arguments.output, write)
    except SettingsError as error:
        complain(str(error))
        return False
    return True


def _put(text: str, output: str | None, write: Callable[[str], None]) -> None:
    if output is None or output == "-":
        write(text)
        return
    try:
        Path(output).write_text(text, encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"cannot write {output}: {error.strerror}") from error


def publish() -> None:
    """Write the schemas that the package carries."""
    for name, words in WORDS.items():
        published(name).parent.mkdir(parents=True, exist_ok=True)
        published(name).write_text(written(export(words)), encoding="utf-8")


if __name__ == "__main__":
    publish()
