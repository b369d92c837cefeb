"""Sessions: `nox -l` lists them. They share one environment, `.nox/ndcheck`, so that torch is installed once."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2025.2"
nox.options.sessions = ["lint", "tests"]
# nox itself gives every session an environment of its own; ours make and share one
nox.options.default_venv_backend = "none"

SHARED = Path(".nox", "ndcheck").absolute()
PROJECT = nox.project.load_toml("pyproject.toml")
AXOLOTL = "axolotl==0.19.0"
TORCH = "torch==2.13.0"
TRITON = "triton==3.9.0"
LIGER = ("0.7.0", "0.6.5")
"""Releases of Liger that are compared, newest first: older ones do not load beside transformers 5, newer ones not in this interpreter."""
PAIRS = (("1.16.0", "5.25.0"), ("1.15.0", "5.24.0"), ("1.14.0", "5.20.0"), ("1.13.0", "5.14.0"))
"""Releases of accelerate and transformers that are compared, newest first."""


def install(session: nox.Session, *groups: str) -> None:
    """ndcheck in editable mode with everything that its rooms need, at the tested versions."""
    if not (SHARED / "bin" / "python").exists():
        session.run(sys.executable, "-m", "venv", str(SHARED))
    wanted = [requirement for group in groups for requirement in nox.project.dependency_groups(PROJECT, group)]
    quiet = ["--quiet", "--disable-pip-version-check"]
    run(session, "python", "-m", "pip", "install", *quiet, "-c", "constraints.txt", "-e", ".[conformance]", *wanted)


def run(session: nox.Session, program: str, *arguments: str, success_codes: tuple[int, ...] = (0,)) -> None:
    """Run a program of the shared environment."""
    path = os.pathsep.join([str(SHARED / "bin"), os.environ.get("PATH", "")])
    session.run(str(SHARED / "bin" / program), *arguments, env={"PATH": path}, success_codes=success_codes)


@nox.session
def demo(session: nox.Session) -> None:
    """Validate a good and a broken config, then prove four layouts and write a report. [-- arguments of the matrix]"""
    install(session)
    run(session, "ndcheck", "validate", "docs/examples/good.yaml", "--world-size", "8")
    # the broken one ends with exit code 1: that is what it is for
    run(session, "ndcheck", "validate", "docs/examples/broken.yaml", "--world-size", "8", success_codes=(1,))
    run(session, "ndcheck", "matrix", *(session.posargs or ["--gpus", "4", "--matrix", "matrices/smoke.yaml"]))


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests. [-- arguments of pytest]"""
    install(session, "tests")
    run(session, "pytest", "-n", "auto", *session.posargs)


@nox.session
def matrix(session: nox.Session) -> None:
    """Run a conformance matrix, the default one unless told otherwise. [-- --gpus 8, arguments of pytest]"""
    install(session)
    run(session, "ndcheck", "matrix", *session.posargs)


@nox.session
def stack(session: nox.Session) -> None:
    """Hold Hugging Face's stack to one process: a sample of its matrix. [-- --versions: pairs of releases, and the table]"""
    install(session)
    sample = ["matrix", "--gpus", "8", "--matrix", "stack.yaml", "--sample"]
    if "--versions" not in session.posargs:
        run(session, "ndcheck", *sample, *session.posargs)
        return
    reports = []
    for accelerate, transformers in PAIRS:
        home = Path(".nox", f"stack-{accelerate}-{transformers}").absolute()
        if not (home / "bin" / "python").exists():
            session.run(sys.executable, "-m", "venv", str(home))
        pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        session.run(*pip, TORCH, f"accelerate=={accelerate}", f"transformers=={transformers}", "-e", ".[conformance]")
        output = Path("ndcheck-report", f"{accelerate}-{transformers}")
        # what is expected is what the tested pair does; with another a surprise is what the table is for
        session.run(str(home / "bin" / "ndcheck"), *sample, "--output", str(output), success_codes=(0, 1, 5))
        reports.append(str(output / "matrix.json"))
    run(session, "python", "-m", "ndcheck.conformance.versions", *reports)


@nox.session
def liger(session: nox.Session) -> None:
    """Liger's kernels under every axis, by release: in Triton's interpreter on a CPU. [-- releases of liger-kernel]"""
    install(session)
    run(session, "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", TRITON)
    for release in session.posargs or LIGER:
        one = [f"liger-kernel=={release}", "--no-deps"]  # its requirements would bring another torch
        run(session, "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *one)
        output = str(Path("ndcheck-report", f"liger-{release}"))
        # what is expected is what the newest does
        run(
            session,
            "ndcheck",
            "matrix",
            "--gpus",
            "4",
            "--matrix",
            "liger.yaml",
            "--output",
            output,
            success_codes=(0, 1),
        )


@nox.session
def faults(session: nox.Session) -> None:
    """Seed every fault, and none over many seeds: what is found, by which quantity, and what is a false alarm."""
    install(session)
    run(session, "python", "-m", "ndcheck.conformance.score", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure, as ratios: the pre-flight (files a second, start-up); cells against one torchrun each; an editor. [-- validate | cells | editor]"""
    install(session)
    for name in session.posargs or ["validate", "cells", "editor"]:
        run(session, "python", "-m", f"tests.benchmarks.{name}")


@nox.session
def oracle(session: nox.Session) -> None:
    """Compare with the newest axolotl we know, on fresh configs, in its own environment. [-- --seed 1 --count 300]"""
    install(session)
    own = Path(".nox", "oracle").absolute()
    if not (own / "bin" / "python").exists():
        session.run(sys.executable, "-m", "venv", str(own))
    pip = [str(own / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    # what its validator imports, at our versions; all else that axolotl asks for is for training
    needed = ["torch", "transformers", "accelerate", "pydantic", "PyYAML", "addict", "pillow"]
    try:
        session.run(*pip, "-c", "constraints.txt", *needed)
        session.run(*pip, "--no-deps", "peft==0.20.0", AXOLOTL)
    except nox.command.CommandFailed:
        session.skip(f"{AXOLOTL} or what it imports cannot be installed here")
    labels = str(own / "labels.jsonl")
    session.run(str(own / "bin" / "python"), "-m", "tests.oracle.run_axolotl", labels, *session.posargs)
    run(session, "python", "-m", "tests.oracle.verdicts", labels)


@nox.session
def mutants(session: nox.Session) -> None:
    """Wrong versions of every rule, and which of them no test tells from the right one. [-- rule modules]"""
    install(session, "tests")
    run(session, "python", "-m", "tests.mutation.mutants")
    run(session, "python", "-m", "tests.mutation.functions", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Format, style, types, and which room may import which."""
    install(session, "lint")
    run(session, "ruff", "format", "--check", ".")
    run(session, "ruff", "check", ".")
    run(session, "mypy")
    run(session, "lint-imports")
