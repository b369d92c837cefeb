"""How fast the pre-flight is: files a second beside PyYAML's own pure loader, and start-up beside a bare Python.

    python -m tests.benchmarks.validate

Everything is interleaved and the best of several rounds is taken, so that a busy machine disturbs all sides alike.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import yaml

from ndcheck.checker import check
from ndcheck.facts import gather

EXAMPLES = Path(__file__).parents[1] / "data" / "examples"
ROUNDS = 7


def best(*jobs: Callable[[], object]) -> list[float]:
    """Seconds of each job, the best of ROUNDS interleaved rounds."""
    seconds = [float("inf")] * len(jobs)
    for _ in range(ROUNDS):
        for at, job in enumerate(jobs):
            start = time.perf_counter()
            job()
            seconds[at] = min(seconds[at], time.perf_counter() - start)
    return seconds


def throughput() -> str:
    """The real example configs, all in one process."""
    files = {path.name: path.read_bytes() for path in sorted(EXAMPLES.glob("*.y*ml"))}
    facts = gather(world_size=8)

    def ours() -> None:
        for name, content in files.items():
            check(content, name, facts)

    def pure_yaml() -> None:
        for content in files.values():
            yaml.load(content, Loader=yaml.SafeLoader)

    check_seconds, yaml_seconds = best(ours, pure_yaml)
    return (
        f"{len(files)} real configs: {len(files) / check_seconds:.0f} files a second, "
        f"{check_seconds / yaml_seconds:.2f} x the time that yaml.load (pure Python) takes for the same files\n"
    )


def start_up() -> str:
    """One small file, a fresh process each time."""
    small = str(EXAMPLES.parent.parent.parent / "docs" / "examples" / "good.yaml")
    command = [sys.executable, "-m", "ndcheck", "validate", small, "--isolated", "--format", "json"]

    def ours() -> None:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def bare() -> None:
        subprocess.run([sys.executable, "-c", "pass"], check=True)

    def pydantic_alone() -> None:
        subprocess.run([sys.executable, "-c", "from pydantic import BaseModel"], check=True)

    check_seconds, bare_seconds, pydantic_seconds = best(ours, bare, pydantic_alone)
    return (
        f"one file, fresh process: {check_seconds * 1000:.0f} ms, {check_seconds / bare_seconds:.1f} x bare Python "
        f"({bare_seconds * 1000:.0f} ms), {check_seconds / pydantic_seconds:.1f} x importing pydantic ({pydantic_seconds * 1000:.0f} ms)\n"
    )


if __name__ == "__main__":
    sys.stdout.write(throughput() + start_up())
