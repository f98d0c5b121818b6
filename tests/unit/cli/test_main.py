"""The command as a whole: its help, its suggestions, its exit codes."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from nunatak import __version__
from nunatak.cli.main import COMMANDS, root
from nunatak.cli.plugins import SPARK_COMMANDS, find_plugins
from tests.unit.cli.conftest import run_command

# What --help must not import: each of these costs more than all the rest of it.
HEAVY = {"rich", "apsw", "uvicorn", "msgspec", "http.client", "nunatak.server", "nunatak_spark", "pyspark"}
LINES = {name: line for name, (_, line) in (COMMANDS | SPARK_COMMANDS).items()}


def commands() -> dict[str, click.Command]:
    context = click.Context(root)
    return {name: command for name in LINES if (command := root.get_command(context, name)) is not None}


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; from nunatak.cli.main import root; root(['--help'], standalone_mode=False); print(*sys.modules)"
    )
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout

    assert "Start the catalog." in printed
    assert HEAVY & set(printed.splitlines()[-1].split()) == set()


def test_every_command_exists_and_help_prints_its_own_words() -> None:
    found = commands()

    assert set(find_plugins()) >= set(SPARK_COMMANDS), "pyproject.toml changed: install the project again"
    for name, command in found.items():
        assert LINES[name] == (command.help or "").splitlines()[0], name


def every_command() -> list[list[str]]:
    paths = []
    for name, command in commands().items():
        paths.append([name])
        if isinstance(command, click.Group):
            paths += [[name, sub] for sub in command.commands]
    return paths


@pytest.mark.parametrize("path", every_command(), ids=" ".join)
def test_every_command_explains_itself(path: list[str]) -> None:
    outcome = run_command(*path, "--help")

    assert outcome.code == 0
    assert outcome.out.startswith(f"Usage: nunatak {' '.join(path)} ")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["nampespace"], "namespace"),
        (["tables"], "table"),
        (["table", "crate"], "create"),
        (["config", "chek"], "check"),
    ],
)
def test_a_mistyped_command_is_answered_with_the_nearest(typed: list[str], meant: str) -> None:
    outcome = run_command(*typed)

    assert outcome.code == 2
    assert f"Did you mean {meant}" in outcome.err


def test_an_unknown_command_is_a_usage_error() -> None:
    outcome = run_command("xyzzy")

    assert outcome.code == 2
    assert "No such command 'xyzzy'" in outcome.err


def test_a_server_that_is_not_there_ends_with_3_and_says_how_to_start_one() -> None:
    # Port 1 is reserved and nobody listens on it.
    outcome = run_command("namespace", "list", "--uri", "http://127.0.0.1:1")

    assert outcome.code == 3
    assert outcome.out == ""
    assert "no catalog answers at http://127.0.0.1:1" in outcome.err
    assert "nunatak serve" in outcome.err


@pytest.mark.parametrize("uri", ["ftp://host", "http://", "http://host:notaport"])
def test_an_address_that_is_none_is_refused(uri: str) -> None:
    outcome = run_command("namespace", "list", "--uri", uri)

    assert outcome.code == 2
    assert "is not the address of a catalog" in outcome.err


def test_a_file_that_cannot_be_written_is_named_in_one_line(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    run_command("init", "--data", data, NUNATAK_CONFIG=os.devnull)
    outcome = run_command("audit", "export", f"{tmp_path}/nowhere/audit.jsonl", "--data", data)
    full = run_command("audit", "export", "/dev/full", "--data", data)

    assert outcome.code != 0
    assert "No such file or directory" in outcome.err
    assert (full.code, full.err) == (1, "Error: [Errno 28] No space left on device\n")


def test_the_version_is_printed_with_what_it_stands_on() -> None:
    assert run_command("--version").out == f"nunatak {__version__}\n"
    assert run_command("version").out.startswith(f"nunatak {__version__} (Python ")
