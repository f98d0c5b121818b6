"""Commands of other packages: found by entry points, imported when they are called, told in one line if broken."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from nunatak import __version__
from nunatak.cli.plugins import SPARK_COMMANDS
from tests.support.catalogs.process import await_address
from tests.unit.cli.conftest import run_command

SOURCE = Path(__file__).parents[3] / "src"
GREETING = """
import click

@click.command()
@click.argument("name")
def greet(name):
    "Greet somebody."
    click.echo(f"Hello {name}")
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a package of one module and its entry points, as pip leaves it in site-packages."""

    def install(package: str, code: str, **commands: str) -> None:
        monkeypatch.delitem(sys.modules, package, raising=False)
        (tmp_path / f"{package}.py").write_text(code)
        metadata = tmp_path / f"{package}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        lines = [f"{name.replace('_', '-')} = {target}" for name, target in commands.items()]
        (metadata / "entry_points.txt").write_text("\n".join(["[nunatak.commands]", *lines, ""]))
        monkeypatch.syspath_prepend(tmp_path)

    return install


def test_a_command_of_another_package_runs(install: Install) -> None:
    install("greeting_plugin", GREETING, greet="greeting_plugin:greet")

    assert run_command("greet", "Ada").out == "Hello Ada\n"
    assert "Did you mean greet" in run_command("gret").err


def test_help_lists_it_and_imports_nothing(install: Install) -> None:
    install("eager_plugin", "raise SystemExit('imported')", greet="eager_plugin:greet")

    helped = run_command("--help")

    assert helped.code == 0
    assert re.search(r"^  greet +A command of the package eager_plugin\.$", helped.out, re.MULTILINE)
    assert "eager_plugin" not in sys.modules


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("import no_such_library", "ModuleNotFoundError: No module named 'no_such_library'"),
        ("raise RuntimeError('first line\\nsecond \\x1b[31mline')", r"RuntimeError: first line\x0asecond \x1b[31mline"),
        ("def greet(: pass", "SyntaxError: "),
        ("pass", "AttributeError: module 'broken_plugin' has no attribute 'greet'"),
        ("greet = 7", "broken_plugin:greet is not a click command"),
    ],
)
@pytest.mark.parametrize("words", [(), ("--help",), ("Ada", "--loud", "-x")])
def test_a_broken_command_is_told_in_one_line(install: Install, code: str, cause: str, words: tuple[str, ...]) -> None:
    install("broken_plugin", code, greet="broken_plugin:greet")

    ended = run_command("greet", *words)

    told, hint = ended.err.splitlines()
    assert ended.code == 1
    assert told.startswith(f"Error: The command greet of the package broken_plugin cannot be loaded: {cause}")
    assert hint == "Hint: Install broken_plugin again, or remove it."
    assert run_command("--help").code == 0
    assert run_command("version").code == 0


def test_a_broken_command_does_not_end_shell_completion(install: Install) -> None:
    install("broken_plugin", "import no_such_library", greet="broken_plugin:greet")

    completed = run_command(_NUNATAK_COMPLETE="bash_complete", COMP_WORDS="nunatak gr", COMP_CWORD="1")

    assert completed.out.splitlines() == ["plain,grant", "plain,greet"]


def test_a_command_of_nunatak_itself_is_not_replaced(install: Install) -> None:
    install("greeting_plugin", GREETING, version="greeting_plugin:greet", spark="greeting_plugin:greet")

    assert run_command("version").out.startswith(f"nunatak {__version__} ")
    assert run_command("--help").out.count("  version ") == 1


def without_spark(folder: Path) -> list[str]:
    """A Python that finds the server's package and the libraries, but not nunatak_spark, and no entry point of ours."""
    for path in Path(click.__file__).parents[1].iterdir():
        if "nunatak" not in path.name and path.suffix != ".pth":
            (folder / path.name).symlink_to(path)
    (folder / "nunatak").symlink_to(SOURCE / "nunatak")
    return [sys.executable, "-S", "-m", "nunatak"]


@pytest.fixture
def standalone(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    command = without_spark(tmp_path)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *words], cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, check=False
        )

    return run


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def test_without_nunatak_spark_its_commands_say_what_to_install(
    standalone: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    helped = standalone("--help")
    assert helped.returncode == 0, helped.stderr
    assert "spark" not in helped.stdout

    for name, (extra, _) in SPARK_COMMANDS.items():
        ended = standalone(name, "anything", "--at-all")
        assert (ended.returncode, ended.stderr) == (
            1,
            f"Error: The command {name} belongs to nunatak_spark, which is not installed here\n"
            f"Hint: pip install 'nunatak[{extra}]'\n",
        )


def test_the_server_serves_without_nunatak_spark(tmp_path: Path) -> None:
    command = [*without_spark(tmp_path), "serve", "--port", "0", "--data", str(tmp_path / "data")]
    environment = {**clean_environment(), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE) as server:
        try:
            assert run_command("namespace", "create", "shop", "--uri", await_address(server)).code == 0
        finally:
            server.terminate()
            server.wait(30)
