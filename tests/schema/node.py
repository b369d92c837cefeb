"""The programs of the tests that run under node, installed once per checkout."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from filelock import FileLock

HERE = Path(__file__).parent
INSTALLED = HERE / "node_modules"

needs_node = pytest.mark.skipif(
    shutil.which("node") is None or shutil.which("npm") is None, reason="node and npm are not on the path"
)


def install() -> Path:
    """``npm install`` of package.json, by the first test that asks; returns the folder of the packages."""
    with FileLock(HERE / ".npm.lock"):
        done = INSTALLED / ".done"
        if not done.exists() or done.read_text() != (HERE / "package.json").read_text():
            command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"]
            subprocess.run(command, cwd=HERE, check=True, timeout=300)
            done.write_text((HERE / "package.json").read_text())
    return INSTALLED
