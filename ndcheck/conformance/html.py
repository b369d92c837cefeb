"""Report of a matrix run as one page of HTML that needs nothing else: no network, no script to read it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import StringIO
from math import ceil, floor, inf, log10, nan
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ndcheck.conformance.cells import as_expected
from ndcheck.conformance.foretell import confusion
from ndcheck.layout import Layout, counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Fields = Mapping[str, Any]

MARKS = {"agrees": "✓", "diverges": "≠", "crashes": "✕", "hangs": "∞", "refused": "⊘", "skipped": "○"}
"""Verdict -> glyph: colour alone would leave some readers out."""
PLURALS = {"agrees": "agree", "diverges": "diverge", "crashes": "crash", "hangs": "hang"}

SHAPES = {"s": "■", "^": "▲", "v": "▼", "D": "◆", "o": "●", "P": "✚"}
"""Marker of matplotlib -> the same as a character: beside the colour, they tell cells apart."""
PAINTS = ("ink", "muted", "line", "agrees", "limit", "band", *(f"series{index}" for index in range(len(SHAPES))))
"""What plots are painted with; the style sheet decides the colour, for light and for dark."""


def render(report: Fields) -> str:
    """The page for a parsed ``matrix.json``."""
    folder = FileSystemLoader(Path(__file__).parent)
    jinja = Environment(loader=folder, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    jinja.filters |= {"number": _number, "value": _value, "counted": counted}
    baselines = {baseline["id"]: baseline for baseline in report.get("baselines", [])}
    cells = [_shown(index, cell, baselines) for index, cell in enumerate(report["cells"])]
    return jinja.get_template("report.html.j2").render(
        headline=_headline(cells),
        environment=report["environment"],
        wall=report["totals"].get("seconds", 0),
        marks=MARKS,
        shapes=SHAPES,
        cells=sorted(cells, key=lambda cell: not cell["unexpected"]),
        worst={verdict: _worst(cell for cell in cells if cell["verdict"] == verdict) for verdict in MARKS},
        grids=list(_grids(cells)),
        baselines=[_baseline(baseline, cells) for baseline in baselines.values()],
        timings=_timings(cells),
        foreseen=confusion(cells),
    )


def _shown(index: int, cell: Fields, baselines: Mapping[str, Fields]) -> Fields:
    """A cell, and what the page adds to it."""
    error, quantity = cell["max_gradient_error"], (cell.get("first_divergence") or {}).get("quantity")
    chosen = {**(cell.get("settings") or {}), **(cell.get("options") or {})}
    settings = [f"{name} {_value(value)}" for name, value in chosen.items()]
    return {
        **dict.fromkeys(("losses", "gradient_errors", "rerun", "baseline", "rules", "because", "foretold", "shims")),
        **cell,
        "anchor": f"cell-{index}",  # an id may hold anything
        "place": str(Layout(**cell["layout"])),
        "mode": tuple(f"{name} {_value(cell[f'{name}_batches'])}" for name in ("dispatch", "split")),
        "variant": " · ".join([cell["engine"], cell["precision"], *settings]),
        "unexpected": not as_expected(cell["verdict"], cell["expected"]),
        "figure": _number(error) if error is not None else quantity or cell["verdict"],
        "tolerances": baselines.get(cell.get("baseline") or "", {}).get("gradient_tolerance") or {},
    }


def _headline(cells: Sequence[Fields]) -> str:
    """What came of the run, in one sentence."""
    verdicts = [cell["verdict"] for cell in cells]
    counts = {verdict: verdicts.count(verdict) for verdict in MARKS if verdict in verdicts}
    parts = [f"{count} {verdict if count == 1 else PLURALS.get(verdict, verdict)}" for verdict, count in counts.items()]
    unexpected = sum(cell["unexpected"] for cell in cells)
    ran = "all as expected" if counts.keys() - {"skipped"} else "nothing was compared"
    end = f"{unexpected} unexpected" if unexpected else ran
    return f"{counted(len(cells), 'cell')}: {'; '.join(filter(None, [', '.join(parts), end]))}"


def _worst(cells: Iterable[Fields]) -> Fields | None:
    """The gradient error that is nearest to its tolerance, or furthest beyond it; an error of None is not finite."""
    found: list[tuple[float, int, Fields]] = []
    for cell in cells:
        limits, largest = cell["tolerances"], cell["max_gradient_error"]
        for parameter, error in (cell["gradient_errors"] or ({} if largest is None else {None: largest})).items():
            limit = limits.get(parameter) or min(limits.values(), default=None)
            where = {"error": error, "limit": limit, "parameter": parameter, "cell": cell}
            found.append((inf if error is None else error / (limit or 1), len(found), where))
    return max(found)[2] if found else None


def _grids(cells: Sequence[Fields]) -> Iterator[Fields]:
    """Tables of cells: layouts by loader modes for a variant that ran in several, else variants by layouts."""
    alone: list[Fields] = []
    for variant in dict.fromkeys(cell["variant"] for cell in cells):
        members = [cell for cell in cells if cell["variant"] == variant]
        modes = sorted({cell["mode"] for cell in members}, reverse=True)
        if len(modes) > 1 or len(members) == len(cells):
            yield _grid(variant, "layout", modes, [(cell["place"], cell["mode"], cell) for cell in members])
        else:
            alone += members
    if alone:
        several = len({cell["mode"] for cell in alone}) > 1
        rows = [" · ".join([cell["variant"], *(cell["mode"] if several else ())]) for cell in alone]
        places = [tuple(cell["place"].split(" x ")) for cell in alone]
        title = " · ".join(["settings by layout", *(() if several else alone[0]["mode"])])
        yield _grid(title, "settings", list(dict.fromkeys(places)), list(zip(rows, places, alone, strict=True)))


def _grid(title: str, corner: str, columns: Sequence[Any], table: Sequence[tuple[str, Any, Fields]]) -> Fields:
    rows: dict[str, list[list[Fields]]] = {}
    for row, column, cell in table:
        rows.setdefault(row, [[] for _ in columns])[columns.index(column)].append(cell)
    return {"title": title, "corner": corner, "columns": columns, "rows": rows}


def _timings(cells: Sequence[Fields]) -> list[Fields]:
    """Mean seconds by layout, of the cells that ran to their end: a hang only measures the time limit."""
    ended: dict[str, list[float]] = {}
    for cell in cells:
        if cell["verdict"] in ("agrees", "diverges"):
            ended.setdefault(cell["place"], []).append(cell["seconds"])
    return [{"place": place, "mean": mean(seconds), "count": len(seconds)} for place, seconds in ended.items()]


def _baseline(baseline: Fields, cells: Sequence[Fields]) -> Fields:
    """The plots of one baseline and its cells, and the looks of the cells that do not share a tone in them."""
    mine = [cell for cell in cells if cell["baseline"] == baseline["id"]]
    calm = [cell for cell in mine if cell["verdict"] == cell["expected"] == "agrees"]
    loud = [cell for cell in mine if cell not in calm and (cell["losses"] or cell["gradient_errors"])]
    looks: list[Fields] = []
    for index, cell in enumerate(loud):
        own = min(index, len(SHAPES) - 1)  # cells beyond the last shape share it
        looks.append({"cell": cell, "marker": list(SHAPES)[own], "paint": f"series{own}"})
    plots = {"loss": _losses(baseline, calm, looks), "gradient": _gradients(baseline, calm, looks)} if mine else {}
    return {"id": baseline["id"], "band": baseline.get("gradient_band"), "calm": calm, "looks": looks, "plots": plots}


def _losses(baseline: Fields, calm: Sequence[Fields], looks: Sequence[Fields]) -> Markup:
    """Loss by step: the baseline, the cells that agree in one tone, every other in its own."""
    if not baseline.get("losses"):
        return Markup()
    axes = _axes(4.4, 3.6)
    curves = [list(enumerate([*cell["losses"], None], 1)) for cell in calm if cell["losses"]]
    _draw(axes, [point for curve in curves for point in curve], "agrees", linewidth=3, alpha=0.45)
    for look in looks:
        style = {"marker": look["marker"], "markersize": 5, "linewidth": 1.3}
        _draw(axes, list(enumerate(look["cell"]["losses"] or [], 1)), look["paint"], **style)
    _draw(axes, list(enumerate(baseline["losses"], 1)), "ink", linewidth=1.1, linestyle=(0, (5, 3)))
    axes.set(xlabel="optimizer step", xticks=range(1, len(baseline["losses"]) + 1))
    return _svg(axes, f"losses {baseline['id']}")


def _gradients(baseline: Fields, calm: Sequence[Fields], looks: Sequence[Fields]) -> Markup:
    """Relative gradient error by parameter, in powers of ten: 0 lies below all of them, and what is not finite above."""
    parameters = baseline.get("parameters") or []
    limits, band = ((baseline.get(f"gradient_{name}") or {}) for name in ("tolerance", "band"))
    measured = [cell["gradient_errors"] or {} for cell in (*calm, *(look["cell"] for look in looks))]
    sizes = [log10(error) for errors in (*measured, limits, band) for error in errors.values() if error] or [0]
    low, high = floor(min(sizes)), ceil(max(sizes))
    step = max(1, (high - low) // 6)
    if not parameters or not any(measured):
        return Markup()

    def points(errors: Mapping[str, float | None]) -> list[tuple[float, float]]:
        found = [(x, errors[name]) for x, name in enumerate(parameters) if name in errors]
        return [(x, high + step if error is None else log10(error) if error else low - step) for x, error in found]

    axes = _axes(max(6, 1 + 0.24 * len(parameters)), 4.2)
    for x, y in points(band):
        axes.fill_between([x - 0.5, x + 0.5], low - 1.5 * step, y, color=_paint("band"), alpha=0.25, linewidth=0)
    steps = [point for x, y in points(limits) for point in ((x - 0.5, y), (x + 0.5, y), (x, None))]
    _draw(axes, steps, "limit", linewidth=1.2)
    # a dot is a line of no length with round ends: a third of the size of a marker in SVG
    dots = [dot for errors in measured[: len(calm)] for x, y in points(errors) for dot in ((x, y), (x, y), (x, None))]
    _draw(axes, dots, "agrees", linewidth=4, alpha=0.35, solid_capstyle="round")
    for look, errors in zip(looks, measured[len(calm) :], strict=True):
        _draw(axes, points(errors), look["paint"], marker=look["marker"], markersize=4.5, linestyle="none")
    powers = range(low, high + 1, step)
    axes.set_yticks([low - step, *powers, high + step], ["0", *(f"1e{power}" for power in powers), "not finite"])
    axes.set(xlim=(-0.7, len(parameters) - 0.3), ylim=(low - 1.5 * step, high + 1.5 * step))
    # a name is no formula, whatever it holds
    axes.set_xticks(range(len(parameters)), [_short(name) for name in parameters], rotation=90, parse_math=False)
    return _svg(axes, f"gradients {baseline['id']}")


def _axes(width: float, height: float) -> Axes:
    """An empty plot, in inches."""
    from matplotlib.figure import Figure  # takes longer to import than most pages take to make

    axes = Figure(figsize=(width, height), layout="constrained").add_subplot(facecolor="none")
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_paint("line"))
    axes.tick_params(color=_paint("line"), labelcolor=_paint("muted"), labelsize=8)
    axes.xaxis.label.set(color=_paint("muted"), fontsize=8)
    axes.grid(axis="y", color=_paint("line"), linewidth=0.6, zorder=0)
    return axes


def _draw(axes: Axes, points: Sequence[tuple[float, float | None]], paint: str, **style: Any) -> None:
    """A line through the points, broken where one has no height."""
    heights = [nan if y is None else y for _, y in points]
    (line,) = axes.plot([x for x, _ in points], heights, color=_paint(paint), **style)
    line.get_path().should_simplify = False  # it would drop lines of no length


def _svg(axes: Axes, name: str) -> Markup:
    """The plot as an element of a page: without what only a file of its own needs, its colours left to the page."""
    import matplotlib

    file = StringIO()
    # the salt keeps the ids of several plots on one page apart, and the same from run to run
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        axes.figure.canvas.print_figure(file, format="svg", facecolor="none", metadata=nothing)
    text = file.getvalue().partition("<svg")[2].replace("xlink:href", "href")
    text = re.sub(r' xmlns(:\w+)?="[^"]*"| id="[\w.]+_\d+"|; font-family: [^;"]*|<style.*?</style>', "", text)
    text = re.sub(r' (?:d|x|y)="[^"]*"', lambda match: re.sub(r"(\.\d)\d+", r"\1", match[0]), text)
    for paint in PAINTS:
        text = text.replace(_paint(paint), f"var(--{paint})")
    return Markup('<svg role="img" aria-label="{}"').format(name) + Markup(" ".join(text.split()))


def _paint(name: str) -> str:
    """What stands for a colour until the page has it."""
    return f"#fe{PAINTS.index(name):04x}"


def _short(parameter: str) -> str:
    """'0.self_attn.q_proj' for 'model.layers.0.self_attn.q_proj.weight'."""
    words = [word for word in parameter.split(".") if word not in ("model", "layers", "weight")]
    name = ".".join(words) or parameter
    return name if len(name) <= 30 else f"{name[:12]}…{name[-17:]}"


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.1e}" if value else "0"


def _value(value: Any) -> str:
    """A setting as people write it."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return value if isinstance(value, str) else json.dumps(value)
