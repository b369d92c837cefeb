"""Device slots: how many ranks may run at once, over all processes of a matrix run.

Each of N devices is a file; to hold its lock is to hold the device. Locks end with the process that holds them, however
it ends. Whoever needs k devices takes all k or none, so that two who need the last ones cannot wait for each other.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

RETRY_SECONDS = 0.05


class Slots:
    """``count`` devices, shared by all processes that were given the same ``folder``."""

    def __init__(self, folder: Path, count: int):
        self.folder, self.count = folder, count
        self.held: dict[int, int] = {}  # device -> open file
        folder.mkdir(parents=True, exist_ok=True)

    def acquire(self, number: int) -> tuple[int, ...]:
        """Wait for ``number`` devices and hold them; their indices. ``number`` must not exceed ``count``."""
        assert number <= self.count, "nobody has so many"
        assert not self.held, "a holder that waits for more could wait for ever"
        while True:
            with self._door():
                taken = self._try(number)
            if taken is not None:
                return taken
            time.sleep(RETRY_SECONDS)

    def release(self) -> None:
        """Give all devices back."""
        for file in self.held.values():
            os.close(file)
        self.held.clear()

    def _try(self, number: int) -> tuple[int, ...] | None:
        for device in range(self.count):
            file = os.open(self.folder / f"device{device}", os.O_CREAT | os.O_RDWR, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(file)
                continue
            self.held[device] = file
            if len(self.held) == number:
                return tuple(self.held)
        self.release()
        return None

    def _door(self) -> Lock:
        return Lock(self.folder / "door")


class Lock:
    """A lock between processes, on a file."""

    def __init__(self, path: Path):
        self.path = path

    def __enter__(self) -> None:
        self.file = os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        os.close(self.file)
