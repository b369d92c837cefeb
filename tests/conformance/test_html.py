from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from typing import Any

import pytest

from ndcheck.conformance.html import render
from ndcheck.layout import Layout

PARAMETERS = ["model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight", "lm_head.weight"]
ENVIRONMENT = {
    "ndcheck": "0.1",
    "device": "cpu",
    "ranks": 8,
    "matrix": "default.yaml",
    "fault": None,
    "time_limit": 120,
}
HOSTILE = """</pre><script>alert("1")</script>'$x$'{0}"""
VOID = {"meta", "br"}


class Page(HTMLParser):
    """What a reader sees: the text, the links and where they lead, and what can be opened."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = ""
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        assert self.open == [], "an element is not closed"
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.text += f"{data} "

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def cell(name: str = "a", verdict: str = "agrees", **fields: Any) -> dict[str, Any]:
    return {
        "id": name,
        "engine": "reference",
        "layout": Layout(dp_shard=2, cp=2).degrees(),
        "dispatch_batches": True,
        "split_batches": True,
        "precision": "float64",
        "settings": {},
        "verdict": verdict,
        "expected": "agrees",
        "seconds": 2.0,
        "max_gradient_error": None,
        "max_loss_error": None,
        "first_divergence": None,
        "reason": None,
        "details": None,
        "baseline": "llama/float64",
        "losses": None,
        "gradient_errors": None,
        "rerun": None,
    } | fields


def baseline(**fields: Any) -> dict[str, Any]:
    return {
        "id": "llama/float64",
        "seconds": 1.0,
        "losses": [5.5, 5.4, 5.3],
        "gradient_norms": [1.0, 1.0, 1.0],
        "parameters": PARAMETERS,
        "gradient_tolerance": dict.fromkeys(PARAMETERS, 1e-10),
        "gradient_band": None,
    } | fields


def measured(name: str = "a", verdict: str = "agrees", error: float = 2e-15, **fields: Any) -> dict[str, Any]:
    errors = dict.fromkeys(PARAMETERS, 0.0) | {PARAMETERS[1]: error}
    figures = {"max_gradient_error": error, "max_loss_error": 0.0, "gradient_errors": errors, "losses": [5.5, 5.4, 5.3]}
    return cell(name, verdict, **(figures | fields))


def page(*cells: dict[str, Any], baselines: tuple[dict[str, Any], ...] = (), **environment: Any) -> Page:
    return Page(markup(*cells, baselines=baselines, **environment))


def markup(*cells: dict[str, Any], baselines: tuple[dict[str, Any], ...] = (), **environment: Any) -> str:
    return render(
        {
            "version": 1,
            "environment": ENVIRONMENT | environment,
            "cells": list(cells),
            "baselines": list(baselines),
            "totals": {"cells": len(cells), "seconds": 65.0},
        }
    )


@pytest.mark.parametrize(
    ("cells", "headline"),
    [
        ([], "0 cells: nothing was compared"),
        ([cell()], "1 cell: 1 agrees; all as expected"),
        ([cell(), cell(), cell(verdict="hangs")], "3 cells: 2 agree, 1 hangs; 1 unexpected"),
        ([cell(verdict="crashes"), cell(verdict="crashes")], "2 cells: 2 crash; 2 unexpected"),
        ([cell(verdict="diverges", expected="diverges")], "1 cell: 1 diverges; all as expected"),
        ([cell(expected="diverges")], "1 cell: 1 agrees; 1 unexpected"),
        ([cell(verdict="skipped"), cell(verdict="skipped")], "2 cells: 2 skipped; nothing was compared"),
    ],
)
def test_the_headline_is_the_outcome(cells: list[dict[str, Any]], headline: str):
    text = markup(*cells)
    assert f"<h1>{headline}</h1>" in text
    assert f"<title>ndcheck: {headline}</title>" in text


def test_what_the_run_cost_and_where_it_ran():
    text = page(cell(seconds=2.0), cell(seconds=3.0), cell(verdict="skipped", seconds=0.0)).text
    assert "8 ranks on the CPU with gloo 8 GPUs were not there" in text
    assert "Wall time 1 min 5 s 2.5 s per cell, mean of the 2 cells that ran" in text
    assert "1 rank on the CPU with gloo 1 GPU was not there" in page(ranks=1).text
    assert "8 ranks on 8 GPUs with nccl" in page(device="cuda").text


def test_the_worst_error_is_the_one_nearest_to_its_own_tolerance():
    tolerance = dict(zip(PARAMETERS, (1e-10, 1e-3, 1e-10), strict=True))
    errors = dict(zip(PARAMETERS, (3e-12, 1e-6, 0.0), strict=True))  # 0.03 and 0.001 of the tolerance
    text = page(measured(gradient_errors=errors), baselines=(baseline(gradient_tolerance=tolerance),)).text
    assert f"Worst gradient error where cells agree 3.0e-12 tolerance 1e-10; dp_shard 2 x cp 2, {PARAMETERS[0]}" in text
    assert "where cells diverge" not in text
    text = page(measured(), measured(verdict="diverges", error=0.5), baselines=(baseline(),)).text
    assert "where cells diverge 5.0e-01 tolerance 1e-10" in text
    odd = measured(verdict="diverges", error=0.5, gradient_errors={PARAMETERS[0]: 0.5, PARAMETERS[1]: None})
    text = page(odd, baselines=(baseline(),)).text
    assert f"where cells diverge not finite tolerance 1e-10; dp_shard 2 x cp 2, {PARAMETERS[1]}" in text


def test_a_seeded_fault_is_named():
    assert "Seeded fault: gradient-scale" in page(cell(), fault="gradient-scale").text
    assert "Seeded fault" not in page(cell()).text


def test_the_grid_has_layouts_by_loader_modes():
    cells = [
        measured("a", dispatch_batches=True, split_batches=False),
        measured("b", dispatch_batches=False, split_batches=True, error=3e-15),
        cell("c", "hangs", layout=Layout(tp=4).degrees()),
    ]
    text = page(*cells).text
    assert "layout dispatch yes split yes dispatch yes split no dispatch no split yes" in text
    assert "dp_shard 2 x cp 2 · ✓ 2.0e-15 ✓ 3.0e-15 tp 4 ∞ hangs · ·" in text


def test_other_settings_have_rows_of_their_own():
    cells = [
        measured("a"),
        measured("b", split_batches=False),
        measured("c", settings={"family": "qwen3", "tie": True}, error=4e-15),
        measured("d", engine="accelerate", layout=Layout(tp=2).degrees(), error=5e-15),
    ]
    text = page(*cells).text
    assert "settings by layout · dispatch yes · split yes settings dp_shard 2 cp 2 tp 2" in text
    assert "reference · float64 · family qwen3 · tie yes ✓ 4.0e-15 · accelerate · float64 · ✓ 5.0e-15" in text
    text = page(*cells, measured("e", precision="float32", dispatch_batches=False)).text
    assert "reference · float32 · dispatch no · split yes ✓ 2.0e-15" in text


def test_every_cell_of_the_grid_leads_to_its_details():
    shown = page(measured("a"), measured("b", "diverges", error=1.0), baselines=(baseline(),))
    ids = [attributes["id"] for _, attributes in shown.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = [link["href"] for link in shown.all("a")]
    assert {"#cell-0", "#cell-1"} <= set(targets)
    assert {str(target)[1:] for target in targets} <= set(ids)


def test_what_was_not_expected_stands_out_comes_first_and_is_open():
    shown = page(
        measured("calm"), cell("lost", "skipped", reason="no GPUs"), cell("stuck", "hangs", reason="rank 3 waits")
    )
    assert [("data-unexpected" in each, "open" in each) for each in shown.all("details")] == [
        (True, True),
        (False, False),
        (False, False),
    ]
    details = shown.text.partition("Details")[2]
    assert details.index("stuck") < details.index("calm") < details.index("lost")
    assert [link["class"] for link in shown.all("a") if "class" in link] == ["agrees", "skipped", "hangs loud"]
    assert "Not as expected stuck" in shown.text


def test_details_say_what_happened_and_how_to_see_it_again():
    divergence = {"step": 1, "quantity": "gradient", "rank": 3, "parameter": "w", "error": None, "ratio": 2.0}
    fields = {
        "max_gradient_error": None,
        "first_divergence": divergence,
        "reason": "twice",
        "details": "Traceback\n  x",
    }
    text = markup(measured("b", "diverges", rerun="ndcheck matrix -k 'b'", **fields))
    assert "<pre>Traceback\n  x</pre>" in text
    shown = Page(text).text
    assert "Verdict diverges; expected: agrees Reason twice" in shown
    assert "First divergence step 1, rank 3, gradient of w, 2 times the baseline" in shown
    assert "Gradient error not finite Loss error 0 " in shown
    assert "Run it again ndcheck matrix -k 'b'" in shown
    assert "Gradient error" not in page(cell(verdict="crashes")).text.partition("Details")[2]


def test_the_plots_name_the_cells_that_differ():
    cells = [measured("a"), measured("b"), measured("odd", "diverges", error=0.5, losses=[5.5, None, 5.9])]
    shown = page(*cells, baselines=(baseline(gradient_band=dict.fromkeys(PARAMETERS, 1e-12)),))
    assert [figure["class"] for figure in shown.all("figure")] == ["loss", "gradient"]
    assert "llama/float64 one process ● 2 cells that agree tolerance noise band ■ odd" in shown.text
    assert "1e-15" in shown.text
    assert "embed_tokens 0.self_attn.q_proj lm_head" in shown.text
    many = [measured(f"odd{index}", "diverges", error=0.5) for index in range(9)]
    assert "◆ odd3 ● odd4 ✚ 4 further cells" in page(*many, baselines=(baseline(),)).text


def test_every_error_is_a_dot():
    cells = [measured(f"c{index}", error=10.0**-index) for index in range(1, 61)]  # many: where simplifying starts
    path = re.search(
        r'<path d="([^"]*)" [^>]*stroke: var\(--agrees\)[^>]*stroke-linecap: round',
        markup(*cells, baselines=(baseline(),)),
    )
    assert path is not None
    dots = re.findall(r"M (\S+) (\S+) L (\S+) (\S+)", path[1])
    assert len(dots) == 60 * 3
    assert all(dot[:2] == dot[2:] for dot in dots)
    heights = [float(y) for _, y, _, _ in dots]
    zeros, others = {*heights[0::3], *heights[2::3]}, heights[1::3]
    assert len(zeros) == 1, "zeros lie at the floor"
    assert max(others) < zeros.pop(), "and every other error above it"
    assert others == sorted(others), "smaller errors lie lower"


def test_the_colours_of_plots_are_the_page_s():
    text = markup(measured(), measured("odd", "diverges", error=1.0), baselines=(baseline(),))
    plots = "".join(re.findall(r"<svg.*?</svg>", text))
    assert "var(--series0)" in plots
    assert not re.search(r"#[0-9a-f]{6}\b(?!\))", plots), "a colour of its own would be lost on light or on dark"


def test_the_name_of_a_parameter_is_no_formula():
    named = baseline(parameters=["$a_1$"], gradient_tolerance={})
    assert ">$a_1$</text>" in markup(measured(gradient_errors={"$a_1$": 1e-9}), baselines=(named,))


def test_a_baseline_without_figures_has_no_plots():
    bare = baseline(losses=[], parameters=[], gradient_tolerance={})
    assert page(cell(), baselines=(bare,)).all("svg") == []
    assert page(baselines=(baseline(),)).all("svg") == []
    assert "llama/float64" in page(cell(verdict="crashes"), baselines=(baseline(),)).text


def test_seconds_by_layout_leave_out_hangs():
    cells = [cell(seconds=1.0), cell(seconds=2.0), cell(verdict="hangs", seconds=120.0)]
    text = page(*cells, cell(seconds=3.0, layout=Layout(tp=8).degrees())).text
    assert "mean cells dp_shard 2 x cp 2 1.50 2 tp 8 3.00 1" in text
    assert "width:50.0%" in markup(*cells, cell(seconds=3.0, layout=Layout(tp=8).degrees()))


def test_nothing_in_a_report_becomes_markup():
    divergence = dict.fromkeys(("quantity", "parameter"), HOSTILE) | {"step": 1, "rank": 0, "error": 1.0, "ratio": 1.0}
    names = dict.fromkeys(("id", "engine", "precision", "reason", "details", "rerun", "baseline"), HOSTILE)
    odd = measured(verdict="diverges") | names | {"settings": {HOSTILE: HOSTILE}, "first_divergence": divergence}
    odd["gradient_errors"] = {HOSTILE: 1.0}
    hostile = baseline(id=HOSTILE, parameters=[HOSTILE], gradient_tolerance={HOSTILE: 1e-10})
    shown = page(odd, baselines=(hostile,), fault=HOSTILE, matrix=HOSTILE, more={HOSTILE: HOSTILE})
    assert len(shown.all("script")) == 1, "the page's own"
    assert len(shown.all("style")) == 1
    assert len(shown.all("svg")) == 2
    assert f"Reason {HOSTILE}" in shown.text


def test_the_page_needs_no_network():
    text = markup(measured(), measured("odd", "diverges", error=1.0), baselines=(baseline(),))
    assert "//" not in re.sub(r"^// .*$", "", text, flags=re.MULTILINE)
    shown = Page(text)
    for _, attributes in shown.elements:
        assert "src" not in attributes
        assert str(attributes.get("href", "#")).startswith("#")
    assert "url(" not in re.sub(r"url\(#\w+\)", "", text)


def test_a_report_of_an_earlier_version_has_a_page():
    earlier = cell()
    for field in ("settings", "baseline", "losses", "gradient_errors", "rerun"):
        del earlier[field]
    text = render({"version": 1, "environment": {"device": "cpu", "ranks": 2}, "cells": [earlier], "totals": {}})
    assert "1 cell: 1 agrees; all as expected" in Page(text).text


def test_the_same_report_makes_the_same_page():
    cells = [measured(), measured("odd", "diverges", error=1.0)]
    assert markup(*cells, baselines=(baseline(),)) == markup(*cells, baselines=(baseline(),))


def test_a_page_of_80_cells_stays_small():
    parameters = [f"model.layers.{layer}.mlp.p{index}.weight" for layer in range(4) for index in range(10)]
    errors = {name: 10.0 ** -(10 + index % 6) for index, name in enumerate(parameters)}
    cells = [measured(f"c{index}", gradient_errors=errors) for index in range(80)]
    text = markup(*cells, baselines=(baseline(parameters=parameters, gradient_tolerance={}),))
    assert len(text) < 500_000


def test_the_module_leaves_matplotlib_and_torch_alone_until_it_draws():
    code = "import sys, ndcheck.conformance.html; print({'matplotlib', 'torch'} & sys.modules.keys())"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "set()\n"
