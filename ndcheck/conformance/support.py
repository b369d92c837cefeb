"""The measured support matrix, as a page: ``python -m ndcheck.conformance.support matrix.json [...] > docs/support.md``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ndcheck.conformance import foretell
from ndcheck.conformance.report import confusion_table
from ndcheck.layout import Layout

ENGINES = {
    "accelerate": "accelerate, `ParallelismConfig`",
    "trainer": "transformers.Trainer",
    "transformers": "transformers, `DistributedConfig`",
}
MODES = {
    (dispatch, split): f"{'dispatch' if dispatch else 'no dispatch'}, {'split' if split else 'no split'}"
    for dispatch in (False, True)
    for split in (False, True)
}
CLAIMS = (
    "What their own documentation says: accelerate combines all four axes as one likes, but for tp or cp beside dp_replicate without",
    "dp_shard (guide to N-D parallelism of August 2025, docstring of `ParallelismConfig`), and the Trainer hands its",
    "`parallelism_config` on to accelerate; `DistributedConfig` has dp_replicate, fsdp and tp in any combination, and no cp. Where a",
    "layout is documented and does not train, the table says so.",
)
PLAIN = {"samples"}
"""Settings that all cells of the matrix have in common."""

Fields = Mapping[str, Any]


def main(paths: Sequence[str]) -> None:
    """Print the page for the reports at ``paths``."""
    reports = [json.loads(Path(path).read_text(encoding="utf-8")) for path in paths]
    sys.stdout.write(page(reports))


def page(reports: Sequence[Fields]) -> str:
    """Markdown: what each engine does with each layout and loader mode, the rows that ranks had, and the ways to go wrong."""
    cells = [cell for report in reports for cell in report["cells"] if cell["engine"] in ENGINES]
    where = reports[0]["environment"]
    versions = ", ".join(f"{name} {where[name]}" for name in ("torch", "transformers", "accelerate"))
    lines = [
        "# What Hugging Face's stack supports, measured",
        "",
        f"{versions}; {where['device']}. Generated from {counted(reports)} by `python -m ndcheck.conformance.support`.",
        "A cell agrees if losses, the gradient of every parameter, weights and rows are those of one process.",
        "",
        "## Layouts",
        "",
        "Loaders as they are by default for data with a length: every rank reads its own rows.",
        "",
        *CLAIMS,
        "",
        *table("layout", list(ENGINES.values()), layout_rows(cells)),
        "",
        "## Loader modes",
        "",
        *table("engine, layout, data", list(MODES.values()), mode_rows(cells)),
        "",
        "## Which rows each rank had",
        "",
        "The first step of 16 rows in two micro-batches, of the cells above that did not get the rows they should.",
        "",
        *rows_of_ranks(cells),
        "",
        "## One value from right to wrong",
        "",
        *witnesses(cells),
        "",
        "## What the pre-flight says of these cells",
        "",
        "Each cell's config, put to the rules, against what came of the cell. Errors and warnings beside cells that agree, and at",
        "most notes beside cells that do not, are listed below with their reason.",
        "",
        *foreseen(cells),
    ]
    return "\n".join(lines) + "\n"


def counted(reports: Sequence[Fields]) -> str:
    """'96 + 150 cells'."""
    return " + ".join(str(report["totals"]["cells"]) for report in reports) + " cells"


def table(corner: str, columns: Sequence[str], rows: Mapping[str, Sequence[str]]) -> list[str]:
    """Lines of a table."""
    head = [f"| {' | '.join([corner, *columns])} |", f"|{'---|' * (len(columns) + 1)}"]
    return head + [f"| {' | '.join([name, *texts])} |" for name, texts in rows.items()]


def is_plain(cell: Fields) -> bool:
    """No option, and no setting but those of the loader's modes."""
    return not cell["options"] and not set(cell["settings"]) - PLAIN - {"dataset"}


def mode(cell: Fields) -> tuple[bool, bool]:
    """How its loader works."""
    return cell["dispatch_batches"], cell["split_batches"]


def layout_rows(cells: Iterable[Fields]) -> dict[str, list[str]]:
    """Layout -> what each engine made of it."""
    found: dict[str, dict[str, str]] = {}
    for cell in cells:
        if is_plain(cell) and mode(cell) == (False, False) and "dataset" not in cell["settings"]:
            layout = Layout(**cell["layout"])
            told = verdict(cell)
            if told != "agrees" and is_claimed(cell["engine"], layout):
                told = f"**{told}**, documented"
            found.setdefault(str(layout), {})[cell["engine"]] = told
    return {place: [told.get(engine, "") for engine in ENGINES] for place, told in found.items()}


def is_claimed(engine: str, layout: Layout) -> bool:
    """The engine's documentation says that it trains the layout: see CLAIMS."""
    inner = layout.tp > 1 or layout.cp > 1
    if engine == "transformers":
        return layout.cp == 1
    return not (inner and layout.dp_replicate > 1 and layout.dp_shard == 1)


def mode_rows(cells: Sequence[Fields]) -> dict[str, list[str]]:
    """Engine, layout and kind of data -> what came of each mode, where all modes were tried and the layout is there at all.

    Kinds of data with the same outcome share a row.
    """
    found: dict[tuple[str, str, str], dict[tuple[bool, bool], str]] = {}
    for cell in cells:
        if is_plain(cell):
            data = cell["settings"].get("dataset", "map")
            found.setdefault((cell["engine"], str(Layout(**cell["layout"])), data), {})[mode(cell)] = verdict(cell)
    rows: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for (engine, layout, data), told in found.items():
        if len(told) == len(MODES) and told[False, False].startswith("agrees"):
            rows.setdefault((engine, layout, tuple(told[each] for each in MODES)), []).append(data)
    return {f"{engine}, {layout}, {' and '.join(kinds)}": list(told) for (engine, layout, told), kinds in rows.items()}


def verdict(cell: Fields) -> str:
    """A cell's verdict, and the rule or the quantity that tells why."""
    if cell["verdict"] != "diverges":
        return str(cell["verdict"])
    return f"**diverges** ({', '.join(cell['rules'] or [cell['first_divergence']['quantity']])})"


def rows_of_ranks(cells: Iterable[Fields]) -> list[str]:
    """A table of the cells that got wrong rows: who got them, and what each rank had. Engines with the same rows share a line."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for cell in cells:
        if is_plain(cell) and cell["rows"] and (cell["first_divergence"] or {}).get("quantity") == "samples":
            ranks = "; ".join(f"{rank}: {spans(rows)}" for rank, rows in enumerate(cell["rows"]))
            who = f"{cell['engine']} ({cell['settings'].get('dataset', 'map')})"
            found.setdefault((str(Layout(**cell["layout"])), MODES[mode(cell)], ranks), []).append(who)
    lines = ["| layout | mode | rows of each rank | engines and data |", "|---|---|---|---|"]
    return lines + [f"| {place} | {how} | {ranks} | {', '.join(who)} |" for (place, how, ranks), who in found.items()]


def spans(rows: Sequence[int]) -> str:
    """'0-3 8-11', 'none'."""
    parts: list[list[int]] = []
    for row in rows:
        if parts and row == parts[-1][-1] + 1:
            parts[-1].append(row)
        else:
            parts.append([row])
    texts = [str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts]
    return " ".join(texts) or "none"


def witnesses(cells: Iterable[Fields]) -> list[str]:
    """A table of the cells with options or other rows that do not agree: what was set, what came of it, why, and which rules
    of the pre-flight say so."""
    lines = ["| engine, layout | set | verdict | why | pre-flight |", "|---|---|---|---|---|"]
    for cell in cells:
        chosen = {name: value for name, value in cell["settings"].items() if name not in PLAIN | {"dataset"}}
        chosen |= cell["options"] or {}
        if chosen and cell["verdict"] != "agrees":
            text = ", ".join(f"{name} {value}" for name, value in chosen.items())
            place = f"{cell['engine']}, {Layout(**cell['layout'])}"
            lines.append(f"| {place} | {text} | {plain_verdict(cell)} | {cell['because'] or ''} | {said(cell)} |")
    return lines


def plain_verdict(cell: Fields) -> str:
    """A cell's verdict, and the quantity that diverged first."""
    if cell["verdict"] != "diverges":
        return str(cell["verdict"])
    return f"**diverges** ({cell['first_divergence']['quantity']})"


def said(cell: Fields) -> str:
    """The rules by which a cell is foretold: those that its matrix names, else those of the loudest level."""
    found = cell["foretold"] or {}
    if cell["rules"]:
        return ", ".join(f"`{rule}`" for rule in cell["rules"])
    level = foretell.verdict(found)
    return ", ".join(f"`{rule}`" for rule, severity in found.items() if severity == level) or "nothing"


def foreseen(cells: Sequence[Fields]) -> list[str]:
    """The confusion matrix, and the cells beside its diagonal by reason."""
    lines = [*confusion_table(cells)[1:], ""]
    beside: dict[tuple[str, str, str, str], int] = {}
    for cell in foretell.off_diagonal(cells):
        level = foretell.verdict(cell["foretold"] or {})
        beside[level, cell["verdict"], cell["because"] or "", said(cell)] = (
            beside.get((level, cell["verdict"], cell["because"] or "", said(cell)), 0) + 1
        )
    for (level, came, why, rules), count in beside.items():
        lines.append(f"- {counted_cells(count)}, {level} and {came}: {why} ({rules})")
    return lines


def counted_cells(count: int) -> str:
    """'1 cell', '12 cells'."""
    return "1 cell" if count == 1 else f"{count} cells"


if __name__ == "__main__":
    main(sys.argv[1:])
