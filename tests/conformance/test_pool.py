from __future__ import annotations

import tempfile

import psutil
import pytest

from ndcheck.conformance.pool import Failure
from tests.conformance import ranks

HANG_LIMIT = 10.0
"""Seconds that a rank which hangs is given. Its start costs a fork; that of its peers is no longer."""


def gone(pid: int) -> bool:
    """Whether a process has ended (one that its parent has not yet taken note of has ended, too)."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_results_come_in_rank_order(pool, time_limit):
    assert pool.run(ranks.square, 5, time_limit) == [0, 1, 4, 9, 16]


def test_ranks_are_warm_and_have_one_thread(pool, time_limit):
    assert pool.run(ranks.warm, 2, time_limit) == [True, True]
    assert pool.run(ranks.threads, 1, time_limit) == [1]


def test_a_fresh_team_sees_nothing_of_the_one_before(pool, time_limit):
    assert pool.run(ranks.leave_a_mark, 1, time_limit) == [(False, [])]
    assert pool.run(ranks.leave_a_mark, 1, time_limit) == [(False, [])]


def test_a_team_runs_task_after_task_until_one_fails(pool, time_limit, tmp_path):
    one = pool.team(1)
    assert one.run(ranks.leave_a_mark, time_limit) == [(False, [])]
    assert one.run(ranks.square, time_limit) == [0]
    assert one.run(ranks.leave_a_mark, time_limit) == [(True, ["mark0"])], "the same process"
    one.end()
    team = pool.team(2)
    pids = [process.pid for process in team.processes]
    outcome = team.run(ranks.Misbehave("raise", tmp_path), time_limit)
    assert isinstance(outcome, Failure)
    assert not team.alive
    assert all(map(gone, pids))
    assert not team.scratch.exists()


@pytest.mark.parametrize(
    ("manner", "kind", "reason", "details"),
    [
        ("raise", "crashes", "rank 1 raised RuntimeError: the seventh layer is missing", "and a second line"),
        ("kill", "crashes", "rank 1 was killed by SIGKILL", ""),
        ("exit", "crashes", "rank 1 exited with code 3", ""),
        ("refuse", "refused", "sdpa with softcap is not supported", ""),
        ("hang", "hangs", f"no answer from ranks 0, 2 within {HANG_LIMIT:g} s", "wait_for_ever"),
    ],
)
def test_one_rank_fails_and_nothing_is_left_behind(
    pool, time_limit, tmp_path, monkeypatch, manner, kind, reason, details
):
    pids, scratch = tmp_path / "pids", tmp_path / "scratch"
    pids.mkdir()
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    outcome = pool.run(ranks.Misbehave(manner, pids), 3, HANG_LIMIT if manner == "hang" else time_limit)
    assert isinstance(outcome, Failure)
    assert (outcome.kind, outcome.reason) == (kind, reason)
    assert details in outcome.details
    started = [int(path.read_text()) for path in pids.iterdir()]
    assert started
    assert all(map(gone, started))
    assert list(scratch.iterdir()) == []
    assert pool.run(ranks.square, 2, time_limit) == [0, 1], "the pool goes on"


def test_a_mesh_is_counted_where_it_is_built_and_not_where_it_is_cut(pool, time_limit):
    assert pool.run(ranks.count_built_meshes, 8, time_limit) == [(1, 2)] * 8


def test_a_task_that_cannot_be_sent_leaves_nothing_behind(pool, time_limit):
    children = psutil.Process().children(recursive=True)
    with pytest.raises((AttributeError, TypeError), match="pickle"):
        pool.run(lambda rank, scratch: rank, 2, time_limit)
    assert set(psutil.Process().children(recursive=True)) <= set(children)
