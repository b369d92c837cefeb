"""pytest plugin: the cells of a matrix file are test items.

Loaded with ``-p ndcheck.conformance.plugin``, as ``ndcheck matrix`` does, and by nothing else. pytest's own options choose and
order cells (``-k``, ``-x``, ``--lf``), distribute them (``-n``, pytest-xdist) and report on them (``--junitxml``).

With pytest-xdist, workers run cells and the controller keeps the journal and writes the report; without, one process does both.
"""

from __future__ import annotations

import json
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ndcheck.conformance import report
from ndcheck.conformance.cells import Cell, as_expected, layout_id
from ndcheck.conformance.faults import FAULTS
from ndcheck.conformance.foretell import foretold
from ndcheck.conformance.journal import Journal
from ndcheck.conformance.matrix import MatrixError, Planned, load_matrix, shipped_matrices
from ndcheck.conformance.pool import Pool
from ndcheck.conformance.runner import Baseline, Result, Runner
from ndcheck.conformance.sample import pairwise

RUN = pytest.StashKey["MatrixRun"]()
PROPERTY = "ndcheck"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of a matrix run."""
    group = parser.getgroup("ndcheck", "conformance matrix")
    group.addoption("--gpus", type=int, default=4, help="ranks: GPUs if there are N, else CPU processes")
    group.addoption("--device-type", choices=["cpu", "cuda"], default="cpu", help="what ranks run on")
    group.addoption("--output", type=Path, default=None, help="folder of the journal and the report")
    group.addoption("--fault", choices=list(FAULTS), default=None, help="seed a fault")
    group.addoption("--time-limit", type=float, default=120.0, help="seconds until a cell counts as hanging")
    group.addoption("--sample", action="store_true", help="a part of the cells in which every two values meet")
    group.addoption("--resume", action="store_true", help="leave out cells that the journal has a result of")


def pytest_configure(config: pytest.Config) -> None:
    """Prepare the run."""
    config.addinivalue_line("markers", "xdist_group: cells of one layout go to one worker")
    run = MatrixRun(config)
    config.stash[RUN] = run
    config.pluginmanager.register(run, "ndcheck-matrix-run")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> MatrixFile | None:
    """Every YAML file that is named is a matrix."""
    if file_path.suffix in (".yaml", ".yml"):
        return MatrixFile.from_parent(parent, path=file_path)
    return None


class MatrixFile(pytest.File):
    """A matrix file."""

    def collect(self) -> Iterator[CellItem]:
        """Its cells, those of one layout together."""
        try:
            planned = load_matrix(str(self.path)).cells(self.config.getoption("--gpus"))
        except MatrixError as error:
            raise self.CollectError(str(error)) from None
        if self.config.getoption("--sample"):
            planned = pairwise(planned)
        for plan in sorted(planned, key=lambda plan: _order(plan.cell)):
            yield CellItem.from_parent(self, name=plan.cell.id, plan=plan)


def _order(cell: Cell) -> tuple[int, str, str]:
    return cell.layout.world_size, layout_id(cell.layout), cell.engine


class Unexpected(Exception):  # noqa: N818 - an outcome, not an error
    """A cell that did not do what was expected."""


class CellItem(pytest.Item):
    """A cell."""

    def __init__(self, *, plan: Planned, **kwargs: Any):
        super().__init__(**kwargs)
        self.plan = plan
        self.add_marker(pytest.mark.xdist_group(layout_id(plan.cell.layout)))

    def runtest(self) -> None:
        """Run it, and fail if it does not do what is expected."""
        result, baseline = self.config.stash[RUN].measure(self.plan)
        told = {
            "rules": list(self.plan.rules) or None,
            "because": self.plan.because or None,
            "foretold": foretold(self.plan.cell) or None,
        }
        rows = {"cell": report.cell(result) | told, "baseline": report.baseline(baseline) if baseline else None}
        self.user_properties.append((PROPERTY, json.dumps(rows)))
        if result.verdict == "skipped":
            pytest.skip(result.reason)
        if not result.as_expected:
            raise Unexpected(report.explain(result))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The reason of a verdict; a traceback for anything else, which is a defect of ndcheck."""
        if isinstance(excinfo.value, Unexpected):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Where it comes from."""
        return self.path, None, self.name


class MatrixRun:
    """One run: what all its cells share. Registered as a plugin, for its hooks."""

    def __init__(self, config: pytest.Config):
        self.config = config
        shared = getattr(config, "workerinput", None)  # of a pytest-xdist worker
        self.is_worker = shared is not None
        self.folder = Path(shared["ndcheck_folder"] if shared else tempfile.mkdtemp(prefix="ndcheck-run-"))
        option = config.getoption
        self.fingerprint = report.fingerprint(option("--gpus"), option("--device-type"), option("--fault"))
        output = option("--output")
        self.journal = None if self.is_worker or output is None else Journal(output / "journal.jsonl", self.fingerprint)
        if self.journal is not None and not option("--resume"):
            self.journal.clear()
        self.done: list[str] = shared["ndcheck_done"] if shared else self.journal.ids() if self.journal else []
        self.rows: dict[str, dict[str, Any]] = {}
        self.baselines: dict[str, dict[str, Any]] = {}
        self.started, self.start = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), time.monotonic()
        self._runner: Runner | None = None

    def measure(self, plan: Planned) -> tuple[Result, Baseline | None]:
        """Run a cell in this process's runner."""
        if self._runner is None:
            option = self.config.getoption
            self._runner = Runner(
                Pool(),
                option("--gpus"),
                option("--device-type"),
                option("--fault"),
                option("--time-limit"),
                self.folder,
            )
        result = self._runner.run(plan.cell, plan.expected)
        return result, self._runner.known_baseline(plan.cell)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker of pytest-xdist what this run is."""
        node.workerinput["ndcheck_folder"] = str(self.folder)
        node.workerinput["ndcheck_done"] = self.done

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out what an interrupted run has finished."""
        done = set(self.done)
        left = [item for item in items if item.name not in done]
        if len(left) != len(items):
            config.hook.pytest_deselected(items=[item for item in items if item.name in done])
            items[:] = left

    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        """Keep ranks warm for the next cell of the layout; otherwise let others have the devices."""
        if self._runner is not None and not (isinstance(nextitem, CellItem) and _same_ranks(item, nextitem)):
            self._runner.close()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take down a cell's result as it comes."""
        for name, value in report.user_properties:
            if self.is_worker or report.when != "call" or name != PROPERTY:
                continue
            rows = json.loads(str(value))
            self._take(rows)
            if self.journal is not None:
                self.journal.add(rows)

    def _take(self, rows: dict[str, Any]) -> None:
        self.rows[rows["cell"]["id"]] = rows["cell"]
        if rows["baseline"] is not None:
            self.baselines[rows["baseline"]["id"]] = rows["baseline"]

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Say the verdict instead of 'passed' or 'failed'."""
        for name, value in report.user_properties:
            if report.when == "call" and name == PROPERTY:
                cell = json.loads(str(value))["cell"]
                return report.outcome, cell["verdict"][0], cell["verdict"]
        return None

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Ctrl-C once: stop after this cell. Twice: now."""

        def interrupt(number: int, frame: object) -> None:
            if session.shouldstop:
                raise KeyboardInterrupt
            session.shouldstop = "interrupted; the journal keeps what was finished, --resume goes on"

        signal.signal(signal.SIGINT, interrupt)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """End all ranks; write the report."""
        if self._runner is not None:
            self._runner.close()
        if self.is_worker:
            return
        for rows in self.journal.rows() if self.journal is not None else []:
            if rows["cell"]["id"] not in self.rows:
                self._take(rows)
        shutil.rmtree(self.folder, ignore_errors=True)
        self._decide(session)
        output = self.config.getoption("--output")
        if output is not None and self.rows:
            report.write(output, self.content())

    def _decide(self, session: pytest.Session) -> None:
        """An exit status for all cells of the report, those of the run that is resumed too; skipped ones prove nothing."""
        if session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            ran = [row for row in self.rows.values() if row["verdict"] != "skipped"]
            if not ran:
                session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED
            elif all(as_expected(row["verdict"], row["expected"]) for row in ran):
                session.exitstatus = pytest.ExitCode.OK
            else:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def content(self) -> dict[str, Any]:
        """The whole report."""
        option = self.config.getoption
        matrices = " ".join(_named(Path(str(argument))) for argument in self.config.args)
        environment = report.environment(
            device_type=option("--device-type"),
            ranks=option("--gpus"),
            matrix=matrices,
            fault=option("--fault"),
            time_limit=option("--time-limit"),
            started=self.started,
        )
        return report.to_json(
            list(self.rows.values()), list(self.baselines.values()), environment, time.monotonic() - self.start
        )

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """What came of it, in a few lines."""
        if self.is_worker or not self.rows:
            return
        terminalreporter.section("conformance")
        for line in report.summary(self.content()):
            terminalreporter.write_line(line)
        output = self.config.getoption("--output")
        if output is not None:
            terminalreporter.write_line(f"report: {output / 'index.html'} (data: {output / 'matrix.json'})")


def _named(path: Path) -> str:
    """A matrix as one would name it on the command line: a shipped one by its name alone."""
    if path.parent == shipped_matrices():
        return path.name
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _same_ranks(item: pytest.Item, other: pytest.Item) -> bool:
    cells: Sequence[Cell] = [one.plan.cell for one in (item, other) if isinstance(one, CellItem)]
    return len(cells) == 2 and (cells[0].engine, cells[0].layout) == (cells[1].engine, cells[1].layout)
