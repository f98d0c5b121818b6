"""Programs that no Python package brings: built with Go or installed with npm once, then kept in a cache."""

import os
import shutil
import subprocess
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
        _run(["nice", "-n", "10", "go", "install", *LEAN_GO, *flags, module], environment)
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
        raise InstallFailed(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")
