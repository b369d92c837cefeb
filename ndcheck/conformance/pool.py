"""The pool: warm, isolated ranks.

A server process imports torch once. Every task gets fresh ranks, forked from the server in milliseconds, which nothing
outlives: whether they finish, raise, are killed or stop answering, all of them are gone when ``Pool.run`` returns.

::

    this process --start--> fork server (torch imported, one thread, idle)
         ^                     |  fork, once per rank
         |                     v
         +------- answers -- rank 0, rank 1, ...   (own pipe, own log file, one scratch folder)
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
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from ndcheck.conformance.engines import Refused

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

    kind: Literal["crashes", "hangs", "refused"]
    reason: str
    """One line."""
    details: str = ""
    """A traceback, the end of a log, or each rank's stack."""


@dataclass(frozen=True, slots=True)
class _Answer:
    kind: Literal["done", "crashes", "refused"]
    value: Any = None
    reason: str = ""
    details: str = ""


class Pool:
    """Runs tasks on sets of ranks. One at a time: ranks are what is parallel here."""

    def __init__(self, preload: str = "ndcheck.conformance.warm"):
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([preload])

    def run(self, task: Task[T], world_size: int, time_limit: float) -> list[T] | Failure:
        """Run ``task`` on ``world_size`` ranks; their results in rank order, or what went wrong.

        ``time_limit``: seconds from the first rank's start to the last answer.
        """
        with TemporaryDirectory(prefix="ndcheck-", ignore_cleanup_errors=True) as scratch:
            ranks = _Ranks(self._context, task, world_size, Path(scratch))
            try:
                return ranks.results(time_limit)
            finally:
                ranks.end()


class _Ranks(Generic[T]):
    """The processes of one task."""

    def __init__(self, context: Any, task: Task[T], world_size: int, scratch: Path):
        self.scratch = scratch
        self.processes: list[BaseProcess] = []
        self.pipes: dict[Connection, int] = {}
        self.answers: dict[int, _Answer] = {}
        try:
            for rank in range(world_size):
                with _interrupt_deferred():
                    self._start(context, task, rank)
        except BaseException:
            self.end()
            raise

    def _start(self, context: Any, task: Task[T], rank: int) -> None:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_rank_main, args=(task, rank, self.scratch, theirs), daemon=True)
        self.pipes[ours] = rank
        process.start()
        self.processes.append(process)
        theirs.close()  # the rank's copy is then the only one, and its death closes the pipe

    def results(self, time_limit: float) -> list[T] | Failure:
        """Wait for every rank's answer."""
        self._collect(time.monotonic() + time_limit)
        if any(answer.kind != "done" for answer in self.answers.values()):
            self._collect(time.monotonic() + SETTLE_SECONDS, stop_at_failure=False)
            return self._cause()
        if self.pipes:
            return self._hang(time_limit)
        return [self.answers[rank].value for rank in sorted(self.answers)]

    def end(self) -> None:
        """Kill whatever still runs, and wait until it is gone."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.join()
            process.close()
        for pipe in self.pipes:
            pipe.close()

    def _collect(self, deadline: float, stop_at_failure: bool = True) -> None:
        """Take answers until all are in, ``deadline`` passes or, if ``stop_at_failure``, a rank fails."""
        while self.pipes:
            ready = wait(list(self.pipes), timeout=max(0.0, deadline - time.monotonic()))
            if not ready:
                return
            for pipe in ready:
                assert isinstance(pipe, Connection)
                rank = self.pipes[pipe]
                self.answers[rank] = self._answer(pipe, rank)
                del self.pipes[pipe]
                pipe.close()
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
        silent = sorted(self.pipes.values())
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


def _rank_main(task: Task[Any], rank: int, scratch: Path, pipe: Connection) -> None:
    """The life of a rank: run the task, tell what came of it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal; the parent ends the ranks
    threading.Thread(target=_die_with_parent, daemon=True).start()
    with (scratch / f"rank{rank}.log").open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        faulthandler.enable(log)
        faulthandler.register(signal.SIGUSR1, log)
        try:
            answer = _Answer("done", task(rank, scratch))
        except Refused as refusal:
            answer = _Answer("refused", reason=str(refusal))
        except BaseException as error:
            text = f"{type(error).__name__}: {error}".splitlines()[0]
            answer = _Answer("crashes", reason=f"rank {rank} raised {text}", details=traceback.format_exc())
        pipe.send(answer)
        sys.stdout.flush()


def _die_with_parent() -> None:
    """End this process when the one that started it is gone, however it went."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
