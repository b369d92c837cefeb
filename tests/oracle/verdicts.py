"""``python -m tests.oracle.verdicts [FILE]``: how far ndcheck agrees with axolotl's labels, and where it does not."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.oracle.compare import lines, read

VERDICTS = Path(__file__).parents[1] / "data/axolotl_verdicts.jsonl"


def main(arguments: list[str]) -> None:
    """Print the figures of the file that is named, else of the labels kept with the tests."""
    figures = read(Path(arguments[0]) if arguments else VERDICTS)
    sys.stdout.writelines(f"{line}\n" for line in lines(figures))


if __name__ == "__main__":
    main(sys.argv[1:])
