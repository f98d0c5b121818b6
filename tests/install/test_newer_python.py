"""The unit and API tests on the newest Python of this machine, with the same locked libraries.

The other tests run on the Python that made the environment. NUNATAK_TEST_PYTHON names another one to try.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Say

ROOT = Path(__file__).parents[2]
SECONDS = 1800  # about four minutes on a quiet machine
NEWEST = 14  # the newest minor version that the lock has wheels for
SELECTION = ("-m", "not slow and not spark and not java", "tests/unit", "tests/api")


def candidates() -> Iterator[Path]:
    """Interpreters by their names on the PATH, and those that pyenv keeps beside the one that is chosen."""
    if named := os.environ.get("NUNATAK_TEST_PYTHON"):
        yield Path(named)
        return
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for minor in range(NEWEST, sys.version_info.minor, -1):
        if found := shutil.which(f"python3.{minor}"):
            yield Path(found)
        yield from sorted(pyenv.glob(f"3.{minor}.*/bin/python3.{minor}"))


def find_newer_python() -> Path | None:
    for path in candidates():
        # A shim of pyenv is on the PATH also where its version is not chosen; then it ends with an error.
        asked = subprocess.run([path, "-c", "import ensurepip, venv"], capture_output=True, check=False)
        if asked.returncode == 0:
            return path
    return None


def outside() -> dict[str, str]:
    dropped = ("PYTEST_", "NUNATAK_", "PYTHONPATH", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if not name.startswith(dropped)}


def run(*command: str | Path) -> str:
    ended = subprocess.run(
        command, cwd=ROOT, env=outside(), capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-5000:]
    return ended.stdout


@pytest.mark.timeout(2 * SECONDS)
def test_the_unit_and_api_tests_pass_on_the_newest_python(tmp_path: Path, say: Say) -> None:
    newer = find_newer_python()
    if newer is None:
        pytest.skip(f"NOT RUN: no Python newer than {sys.version.split()[0]} on this machine")
    python = tmp_path / "venv" / "bin" / "python"
    run(newer, "-m", "venv", tmp_path / "venv")
    install = (python, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", "--no-compile")
    run(*install, "--require-hashes", "-r", "requirements/test.lock")
    run(*install, "--no-deps", "--no-build-isolation", "-e", ".")

    summary = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *SELECTION).splitlines()[-1]

    say(f"on Python {run(python, '-c', 'import platform; print(platform.python_version())').strip()}: {summary}")
    assert re.match(r"\d{3,} passed", summary), summary
