"""The pool: warm, isolated ranks.

A server process imports torch once. Teams of ranks are forked from it in milliseconds. A team may run several tasks, one after
the other, so that what a layout has warmed up (process groups, caches of DTensor) serves all its cells. The first task that
raises, is killed or stops answering ends its team: all ranks are gone before the next task starts, in a fresh one.

::

    this process --start--> fork server (torch imported, one thread, idle)
      |      ^                 |  fork, once per rank
      |      |                 v
      |      +--- answers -- rank 0, rank 1, ...   (own pipe, own log file, one scratch folder)
      +---------- tasks ------^
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeAlias, TypeVar

from ndcheck.conformance.engines import Refused, Unrunnable

T = TypeVar("T")
Task: TypeAlias = Callable[[int, Path], T]
"""Called in each rank's process with the rank and the scratch folder; must be picklable, as must its result."""

SETTLE_SECONDS = 0.5
"""After a first failure, time for the other ranks to tell what they know, so that the cause is not mistaken for an effect."""

STACK_SECONDS = 0.5
"""Time for ranks that hang to write their stacks down."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A task that came to no result."""

    kind: Literal["crashes", "hangs", "refused", "skipped"]
    reason: str
    """One line."""
    details: str = ""
    """A traceback, the end of a log, or each rank's stack."""


@dataclass(frozen=True, slots=True)
class _Answer:
    kind: Literal["done", "crashes", "refused", "skipped"]
    value: Any = None
    reason: str = ""
    details: str = ""


class Pool:
    """Makes teams of ranks."""

    def __init__(self, preload: str = "ndcheck.conformance.warm"):
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([preload])

    def team(self, world_size: int) -> Team:
        """A fresh team of ``world_size`` ranks."""
        return Team(self._context, world_size)

    def run(self, task: Task[T], world_size: int, time_limit: float) -> list[T] | Failure:
        """Run one task on a team of its own; see ``Team.run``."""
        team = self.team(world_size)
        try:
            return team.run(task, time_limit)
        finally:
            team.end()


class Team:
    """A set of ranks, alive until a task fails or ``end`` is called."""

    def __init__(self, context: Any, world_size: int):
        self.processes: list[BaseProcess] = []
        self.pipes: list[Connection] = []
        self.waiting: dict[Connection, int] = {}
        self.answers: dict[int, _Answer] = {}
        self._folder = TemporaryDirectory(prefix="ndcheck-", ignore_cleanup_errors=True)
        self.scratch = Path(self._folder.name)
        try:
            for rank in range(world_size):
                with _interrupt_deferred():
                    self._start(context, rank)
        except BaseException:
            self.end()
            raise

    @property
    def alive(self) -> bool:
        """Whether it can run another task."""
        return bool(self.processes)

    def _start(self, context: Any, rank: int) -> None:
        ours, theirs = context.Pipe()
        process = context.Process(target=_rank_main, args=(rank, self.scratch, theirs), daemon=True)
        self.pipes.append(ours)
        process.start()
        self.processes.append(process)
        theirs.close()  # the rank's copy is then the only one, and its death closes the pipe

    def run(self, task: Task[T], time_limit: float) -> list[T] | Failure:
        """Run ``task`` on every rank; their results in rank order, or what went wrong, and then the team has ended.

        ``time_limit``: seconds until the last answer.
        """
        assert self.alive, "a task that failed has ended this team"
        finished = False
        try:
            self.answers.clear()
            self.waiting = {pipe: rank for rank, pipe in enumerate(self.pipes)}
            for pipe in self.pipes:
                self._tell(pipe, task)
            outcome: list[T] | Failure = self._outcome(time_limit)
            finished = not isinstance(outcome, Failure)
            return outcome
        finally:
            if not finished:
                self.end()

    def _tell(self, pipe: Connection, task: Task[T]) -> None:
        with suppress(ConnectionError):  # the rank has died; its silence is noticed when answers are collected
            pipe.send(task)

    def _outcome(self, time_limit: float) -> list[T] | Failure:
        self._collect(time.monotonic() + time_limit)
        if any(answer.kind != "done" for answer in self.answers.values()):
            self._collect(time.monotonic() + SETTLE_SECONDS, stop_at_failure=False)
            return self._cause()
        if self.waiting:
            return self._hang(time_limit)
        return [self.answers[rank].value for rank in sorted(self.answers)]

    def end(self) -> None:
        """Kill whatever still runs, wait until it is gone, and remove its folder."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.join()
            process.close()
        for pipe in self.pipes:
            pipe.close()
        self.processes.clear()
        self.pipes.clear()
        self._folder.cleanup()

    def _collect(self, deadline: float, stop_at_failure: bool = True) -> None:
        """Take answers until all are in, ``deadline`` passes or, if ``stop_at_failure``, a rank fails."""
        while self.waiting:
            ready = wait(list(self.waiting), timeout=max(0.0, deadline - time.monotonic()))
            if not ready:
                return
            for pipe in ready:
                assert isinstance(pipe, Connection)
                rank = self.waiting.pop(pipe)
                self.answers[rank] = self._answer(pipe, rank)
            if stop_at_failure and any(answer.kind != "done" for answer in self.answers.values()):
                return

    def _answer(self, pipe: Connection, rank: int) -> _Answer:
        try:
            answer: _Answer = pipe.recv()
        except (EOFError, ConnectionError):
            return self._died(rank)
        return answer

    def _died(self, rank: int) -> _Answer:
        process = self.processes[rank]
        process.join(SETTLE_SECONDS)
        code = process.exitcode
        how = (
            f"was killed by {signal.Signals(-code).name}"
            if code is not None and code < 0
            else f"exited with code {code}"
        )
        return _Answer("crashes", value=code, reason=f"rank {rank} {how}", details=self._log(rank))

    def _cause(self) -> Failure:
        """The failure that came first: a death explains the errors of the others, else the earliest answer does."""
        failures = [answer for answer in self.answers.values() if answer.kind != "done"]
        deaths = [answer for answer in failures if answer.value is not None]
        first = (deaths or failures)[0]
        assert first.kind != "done"
        return Failure(first.kind, first.reason, first.details)

    def _hang(self, time_limit: float) -> Failure:
        silent = sorted(self.waiting.values())
        for rank in silent:
            pid = self.processes[rank].pid
            assert pid is not None, "it was started"
            os.kill(pid, signal.SIGUSR1)  # see _rank_main: the rank writes its stacks to its log
        time.sleep(STACK_SECONDS)
        names = f"rank{'s' if len(silent) > 1 else ''} {', '.join(map(str, silent))}"
        stacks = "\n".join(f"rank {rank}:\n{self._log(rank)}" for rank in silent)
        return Failure("hangs", f"no answer from {names} within {time_limit:g} s", stacks)

    def _log(self, rank: int, lines: int = 40) -> str:
        try:
            text = (self.scratch / f"rank{rank}.log").read_text(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])


@contextmanager
def _interrupt_deferred() -> Iterator[None]:
    """Let Ctrl-C wait until the block is done: a process that was started must not be lost before it is noted."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python interrupts the main thread only
        return
    came: list[int] = []
    # not a signal mask: that is one thread's, and libraries start others, to which the signal would then go
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        signal.raise_signal(signal.SIGINT)


def _rank_main(rank: int, scratch: Path, pipe: Connection) -> None:
    """The life of a rank: run tasks, tell what came of each, until one fails or nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal; the parent ends the ranks
    threading.Thread(target=_die_with_parent, daemon=True).start()
    with (scratch / f"rank{rank}.log").open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        faulthandler.enable(log)
        faulthandler.register(signal.SIGUSR1, log)
        answer = _Answer("done")
        while answer.kind == "done":
            try:
                task: Task[Any] = pipe.recv()
            except EOFError:
                return
            answer = _attempt(task, rank, scratch)
            pipe.send(answer)
            sys.stdout.flush()


def _attempt(task: Task[Any], rank: int, scratch: Path) -> _Answer:
    try:
        return _Answer("done", task(rank, scratch))
    except Refused as refusal:
        return _Answer("refused", reason=str(refusal))
    except Unrunnable as missing:
        return _Answer("skipped", reason=str(missing))
    except BaseException as error:
        text = f"{type(error).__name__}: {error}".splitlines()[0].removesuffix(": ")
        return _Answer("crashes", reason=f"rank {rank} raised {text}", details=traceback.format_exc())


def _die_with_parent() -> None:
    """End this process when the one that started it is gone, however it went."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
