"""Somebody who follows pages of the documentation: a folder, a shell that remembers, and an installation."""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from tests.support.pages import DEFAULT_URI, PROJECT, Block, blocks_of

SECONDS = 900  # a command; the largest, with PySpark, takes about a minute on a quiet machine
START_SECONDS = 120
# What the shell of whoever runs the tests says is not what a reader has.
DROPPED = ("PYTEST_", "NUNATAK_", "PYTHONPATH", "SPARK_", "VIRTUAL_ENV", "MAKE", "MFLAGS")
DUCKDB_INSTALL = "INSTALL iceberg; LOAD iceberg"  # asks DuckDB's own network, which tests do not
SERVE = re.compile(r"^((?:\w+=\S+ (?:\\\n *)?)*)(nunatak|make) serve\b(.*)\Z", re.MULTILINE | re.DOTALL)
FREE_PORT = {"nunatak": "--port 0", "make": f"PORT=0 PYTHON={shlex.quote(sys.executable)}"}
LAST_PRINTED = "--- curl"


def clean_variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(DROPPED)}


def pip(python: Path, *words: str, **more: str) -> None:
    command = [sys.executable, "-m", "pip", "--python", str(python), *words, "--quiet", "--no-input"]
    variables = {**clean_variables(), **more}
    ended = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert ended.returncode == 0, ended.stderr


@dataclass(frozen=True)
class Wheel:
    """What a release would be, built from the tree, and the versions that the lock files name."""

    file: Path
    pins: Path

    @classmethod
    def build(cls, folder: Path) -> "Wheel":
        pip(Path(sys.executable), "wheel", "--no-deps", "--wheel-dir", str(folder), str(PROJECT))
        (found,) = folder.glob("*.whl")
        locks = [*PROJECT.glob("requirements*.lock"), *PROJECT.glob("requirements/*.lock")]
        pins = {pin for lock in locks for pin in re.findall(r"^[\w.-]+==[\w.+!-]+", lock.read_text(), re.MULTILINE)}
        (folder / "pins").write_text("\n".join(sorted(pins)))
        return cls(found, folder / "pins")


def make_installation(folder: Path, wheel: Wheel, base: Path | None = None) -> Path:
    """An environment with `nunatak` and nothing else, and a `pip`; with `base`, what that one holds is shared.

    `pip install 'nunatak[extra]'` finds nunatak there and adds what the extra needs. Returns the folder of programs.
    """
    venv.create(folder, symlinks=True)
    programs = folder / "bin"
    python = programs / "python"
    if base is None:
        pip(python, "install", "--no-compile", str(wheel.file), PIP_CONSTRAINT=str(wheel.pins))
    else:
        (own,) = folder.glob("lib/python*/site-packages")
        (shared,) = base.parent.glob("lib/python*/site-packages")
        (own / "shared.pth").write_text(f"{shared}\n")
        _write_program(programs / "nunatak", f"#!{python}\nfrom nunatak.cli.main import main\nmain()\n")
    outer = f'exec {shlex.quote(sys.executable)} -m pip --python {shlex.quote(str(python))} "$@" --quiet --no-compile\n'
    _write_program(programs / "pip", f"#!/bin/sh\n{outer}")
    return programs


def _write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


@dataclass
class Reader:
    """Follows pages in `folder`; what a block exports, the next one finds, as in one terminal.

    `replaced` are words of the pages that mean something else here: an address, a folder of the system, a server.
    """

    folder: Path
    variables: dict[str, str]
    replaced: dict[str, str] = field(default_factory=dict)
    printed: list[tuple[Block, str]] = field(default_factory=list)
    name: str = "reader"
    _server: subprocess.Popen[bytes] | None = None
    _program: list[str] = field(default_factory=list)

    def beside(self, programs: Path, name: str, **more: str) -> "Reader":
        """Another terminal in the same folder, with the same server and another installation."""
        if self._server is None:
            self.serve("make serve")
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        other = Reader(self.folder, {**self.variables, "PATH": path, **more}, dict(self.replaced), name=name)
        other._server = self._server
        other.run(f"export NUNATAK_URI={self.replaced[DEFAULT_URI]}")
        return other

    def follow(self, page: Path) -> None:
        """Every marked block, in order; a page that starts no server finds one with the default settings."""
        blocks = [block for block in blocks_of(page) if block.is_followed]
        if not any(block.mark == "serve" for block in blocks) and self._server is None:
            self.serve("nunatak serve\n")
        for number, block in enumerate(blocks):
            more = [later for later in blocks[number + 1 :] if later.mark == "session"]
            said = self._follow(block, is_last_of_session=not more)
            self.printed.append((block, said))

    def said(self, word: str) -> str:
        """What the block printed in which this word stands."""
        (found,) = [text for block, text in self.printed if word in block.text]
        return found

    def _follow(self, block: Block, *, is_last_of_session: bool) -> str:
        if block.mark == "serve":
            return self.serve(block.text)
        if block.language == "python":
            if block.mark == "session":
                self._program.append(block.text)
                if not is_last_of_session:
                    return ""
            text = "\n".join(self._program) if block.mark == "session" else block.text
            (self.folder / "example.py").write_text(self._here(text))
            return self.run("python example.py")
        if block.language == "bash":
            return self.run(block.text)
        raise AssertionError(f"a block of {block.language} cannot be followed")

    def run(self, text: str) -> str:
        script = f"{self._remembered}{self._here(text)}\nexport -p > {self._shell}\n"
        ended = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.folder, env=self.variables, capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, f"{text}\n{ended.stdout[-4000:]}\n{ended.stderr[-4000:]}"
        return ended.stdout + ended.stderr

    @property
    def _remembered(self) -> str:
        return f". ./{self._shell}\n" if (self.folder / self._shell).exists() else ""

    @property
    def _shell(self) -> str:
        return f".{self.name}.shell"

    def _here(self, text: str) -> str:
        for word, other in self.replaced.items():
            text = text.replace(word, other)
        if DUCKDB_INSTALL in text:
            text = text.replace(DUCKDB_INSTALL, _load_extensions())
        return text

    def serve(self, text: str) -> str:
        """Carry out what stands before `nunatak serve`, start it on a free port, and copy the lines it prints."""
        self.stop()
        found = SERVE.search(text)
        assert found is not None, text
        if text[: found.start()].strip():
            self.run(text[: found.start()])
        settings, program, options = found.groups()
        return self.start(f"{settings}exec {program} serve {FREE_PORT[program]} {options.strip()}")

    def start(self, command: str) -> str:
        printed = self.folder / "server.out"
        # What `make` installs is pinned by its own lock.
        variables = {name: value for name, value in self.variables.items() if name != "PIP_CONSTRAINT"}
        with printed.open("wb") as out, (self.folder / "server.log").open("ab") as log:
            self._server = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", f"{self._remembered}{self._here(command)}"],
                cwd=self.folder, env={**variables, "PYTHONUNBUFFERED": "1"}, stdout=out, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + START_SECONDS
        while LAST_PRINTED not in printed.read_text() and self._server.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        said = printed.read_text()
        log_text = (self.folder / "server.log").read_text()
        assert LAST_PRINTED in said, f"{command}\n{said}\n{log_text[-4000:]}"
        self._copy_exports(said)
        return said

    def _copy_exports(self, said: str) -> None:
        """As the server asks for: another terminal needs these lines before its commands reach the server."""
        lines = re.findall(r"^export NUNATAK_\w+=.*$", said, re.MULTILINE)
        (uri,) = [line.removeprefix("export NUNATAK_URI=") for line in lines if "NUNATAK_URI" in line]
        self.replaced[DEFAULT_URI] = uri
        self.run("\n".join(lines))

    def stop(self) -> None:
        """As Ctrl-C does: `make` and what it started alike."""
        if self._server is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._server.pid, signal.SIGINT)
            self._server.wait(60)
            self._server = None


@contextlib.contextmanager
def reading(
    folder: Path, programs: Path, *, pins: Path, replaced: Mapping[str, str] | None = None, **more: str
) -> Iterator[Reader]:
    """A reader in a new folder whose `PATH` begins with `programs`; what it started is stopped at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    variables = {**clean_variables(), "PATH": path, "PIP_CONSTRAINT": str(pins), **more}
    reader = Reader(folder, variables, dict(replaced or {}))
    try:
        yield reader
    finally:
        reader.stop()


def _load_extensions() -> str:
    """DuckDB's extensions from the wheels of the tests, of the version in the lock; iceberg needs the others."""
    names: Sequence[str] = ("avro", "httpfs", "iceberg")
    found = [next(Path(str(files(f"duckdb_extension_{name}"))).rglob(f"{name}.duckdb_extension")) for name in names]
    return "; ".join(f"LOAD '{extension}'" for extension in found)
