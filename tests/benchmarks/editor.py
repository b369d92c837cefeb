"""How long yaml-language-server takes with the schema, beside the same types without a cross-field rule.

    python -m tests.benchmarks.editor

A file of a hundred lines is opened, then changed again and again; the server waits a fixed time before it looks at a change,
which both figures contain. Both servers run at once and are asked in turn.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from ndcheck.schema.export import WORDS, export
from ndcheck.schema.files import written
from tests.schema.lsp import Server, serving

EXAMPLES = Path(__file__).parents[1] / "data" / "examples"
ROUNDS = 15


def hundred_lines() -> str:
    """An example config, filled up with keys that no rule knows."""
    text = (EXAMPLES / "falcon-h1__falcon-h1-1b-qlora-cp.yaml").read_text().rstrip("\n")
    lines = text.split("\n")
    return "\n".join([*lines, *(f"strange_{number}: {number}" for number in range(100 - len(lines)))]) + "\n"


def _seconds(server: Server, version: int, text: str) -> float:
    start = time.perf_counter()
    server.change("bench.yaml", version, text)
    return time.perf_counter() - start


def main() -> None:
    """Print the best of several rounds, interleaved."""
    full = export(WORDS["axolotl"])
    types = {key: part for key, part in full.items() if key not in ("allOf", "definitions")}
    text = hundred_lines()
    with tempfile.TemporaryDirectory() as folder:
        paths = {"with rules": Path(folder, "full.json"), "types alone": Path(folder, "types.json")}
        for path, schema in zip(paths.values(), (full, types), strict=True):
            path.write_text(written(schema))
        with serving(paths["with rules"]) as ruled, serving(paths["types alone"]) as typed:
            servers = {"with rules": ruled, "types alone": typed}
            opened = {}
            for name, server in servers.items():
                start = time.perf_counter()
                server.open("bench.yaml", text)
                opened[name] = time.perf_counter() - start
            changed = dict.fromkeys(servers, float("inf"))
            for version in range(2, ROUNDS + 2):
                for name, server in servers.items():
                    changed[name] = min(changed[name], _seconds(server, version, f"{text}# {version}\n"))
    size = {name: len(json.dumps(schema)) for name, schema in zip(servers, (full, types), strict=True)}
    for label, figures, unit in (("first answer", opened, "s"), ("a change", changed, "s"), ("schema", size, "bytes")):
        ratio = figures["with rules"] / figures["types alone"]
        told = ", ".join(f"{name} {figure:.3g} {unit}" for name, figure in figures.items())
        sys.stdout.write(f"{label}: {told}: {ratio:.1f} times\n")


if __name__ == "__main__":
    main()
