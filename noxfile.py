"""Sessions: `nox -l` lists them. They share one environment, so that torch is installed once."""

from __future__ import annotations

import nox

nox.needs_version = ">=2025.2"
nox.options.sessions = ["lint", "tests"]
nox.options.reuse_venv = "yes"

SHARED = {"venv_location": ".nox/ndcheck"}
CONSTRAINTS = ("-c", "constraints.txt")
GROUPS = nox.project.load_toml("pyproject.toml")


def install(session: nox.Session, *groups: str) -> None:
    """ndcheck in editable mode with everything that its rooms need, at the tested versions."""
    wanted = [requirement for group in groups for requirement in nox.project.dependency_groups(GROUPS, group)]
    session.install("--quiet", *CONSTRAINTS, "-e", ".[conformance]", *wanted)


@nox.session(**SHARED)
def demo(session: nox.Session) -> None:
    """Validate a good and a broken config, then prove four layouts on CPU ranks. [-- arguments of the matrix]"""
    install(session)
    session.run("ndcheck", "validate", "docs/examples/good.yaml", "--world-size", "8")
    # the broken one ends with exit code 1: that is what it is for
    session.run("ndcheck", "validate", "docs/examples/broken.yaml", "--world-size", "8", success_codes=[1])
    arguments = session.posargs or ["--gpus", "4", "--matrix", "smoke.yaml"]
    session.run("python", "-m", "ndcheck.conformance", *arguments)


@nox.session(**SHARED)
def tests(session: nox.Session) -> None:
    """Run the tests. [-- arguments of pytest]"""
    install(session, "tests")
    session.run("pytest", "-n", "auto", *session.posargs)


@nox.session(**SHARED)
def matrix(session: nox.Session) -> None:
    """Run a conformance matrix. [-- --gpus 4 --matrix matrices/smoke.yaml]"""
    install(session)
    session.run("python", "-m", "ndcheck.conformance", *session.posargs)


@nox.session(**SHARED)
def lint(session: nox.Session) -> None:
    """Format, style, types, and which room may import which."""
    install(session, "lint")
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")
    session.run("mypy")
    session.run("lint-imports")
