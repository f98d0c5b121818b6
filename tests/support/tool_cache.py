"""Programs that no Python package brings: built with Go, or installed with npm, Maven or pip once, then kept."""

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.java.project import cache_folder, one_at_a_time

INSTALL_SECONDS = 1800  # a few minutes of two cores at most; a starved machine gets time
# Without what a debugger needs.
LEAN_GO = ("-modcacherw", "-trimpath", "-ldflags=-s -w")


class ToolMissing(Exception):
    """The machine lacks a program; the message says which one and what needs it."""


class InstallFailed(Exception):
    """The tool is there, and the installation failed; the message ends with what it printed."""


def go_program(name: str, module: str, version: str, flags: Sequence[str] = ()) -> Path:
    """Returns the program of a Go module, built if this is the first time."""
    program = cache_folder() / f"{name}-{version}"
    if program.exists():
        return program
    _require("go", name)
    with one_at_a_time(program):
        if not program.exists():
            _build_with_go(name, f"{module}@{version}", flags, program)
    return program


def go_project(name: str, folder: Path) -> Path:
    """Returns the program of a Go module in this repository, built if its files have changed."""
    files = sorted(path for path in folder.iterdir() if path.suffix in (".go", ".mod", ".sum"))
    key = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]
    program = cache_folder() / f"{name}-{key}"
    if program.exists():
        return program
    _require("go", name)
    with one_at_a_time(program):
        if not program.exists():
            _build_with_go(name, ".", ["-C", str(folder)], program)
    return program


def npm_program(name: str, package: str, version: str) -> Path:
    """Returns the program of an npm package, installed if this is the first time; it needs `node` to run."""
    _require("node", name)
    folder = cache_folder() / f"{package}-{version}"
    program = folder / "node_modules" / ".bin" / name
    if program.exists():
        return program
    _require("npm", name)
    with one_at_a_time(folder):
        if not program.exists():
            _install_with_npm(f"{package}@{version}", folder)
    return program


def maven_jars(name: str, version: str, poms: Mapping[str, str]) -> Path:
    """Returns a folder with the runtime jars of each POM in a folder of its own, fetched if this is the first time."""
    folder = cache_folder() / f"{name}-{version}"
    if folder.exists():
        return folder
    _require("mvn", name)
    with one_at_a_time(folder):
        if not folder.exists():
            _fetch_with_maven(poms, folder)
    return folder


def python_environment(name: str, packages: Sequence[str]) -> Path:
    """Returns the Python of an environment with these packages, installed if this is the first time.

    For engines whose libraries do not fit beside those of the other tests.
    """
    folder = cache_folder() / f"python-{name}-{hashlib.sha256(' '.join(packages).encode()).hexdigest()[:12]}"
    python = folder / "bin" / "python"
    done = folder / "done"
    if done.exists():
        return python
    with one_at_a_time(folder):
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            venv.create(folder, symlinks=True)
            pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-input"]
            _run(["nice", "-n", "10", *pip, *packages], {})
            done.touch()
    return python


def _require(tool: str, for_what: str) -> None:
    if shutil.which(tool) is None:
        raise ToolMissing(f"NOT RUN: {for_what} needs `{tool}`, which is not on the PATH")


def _build_with_go(name: str, module: str, flags: Sequence[str], program: Path) -> None:
    draft = program.with_name(f"{program.name}.build")
    shutil.rmtree(draft, ignore_errors=True)
    environment = {
        "CGO_ENABLED": "0",
        "GOBIN": str(draft),
        # A gigabyte of modules and objects that nothing else here uses: deleted once the program is built.
        "GOMODCACHE": str(draft / "modules"),
        "GOCACHE": str(draft / "objects"),
    }
    try:
        _run(["nice", "-n", "10", "go", "install", *flags, *LEAN_GO, module], environment)
        (draft / name).rename(program)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _install_with_npm(package: str, folder: Path) -> None:
    draft = folder.with_name(f"{folder.name}.build")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    quiet = ("--no-audit", "--no-fund", "--no-update-notifier", "--ignore-scripts", "--loglevel=error")
    try:
        _run(["nice", "-n", "10", "npm", "install", *quiet, "--prefix", str(draft), package], {})
        shutil.rmtree(folder, ignore_errors=True)
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _fetch_with_maven(poms: Mapping[str, str], folder: Path) -> None:
    draft = folder.with_name(f"{folder.name}.build")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        for name, text in poms.items():
            (draft / name).mkdir(parents=True)
            pom = draft / f"{name.replace('/', '-')}.xml"
            pom.write_text(text)
            goal = ("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={draft / name}")
            _run(["nice", "-n", "10", "mvn", "-q", "-B", "-f", str(pom), *goal], {})
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _run(command: Sequence[str], environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        command,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=INSTALL_SECONDS,
        check=False,
    )
    if done.returncode:
        raise InstallFailed(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
