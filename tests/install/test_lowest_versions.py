"""The oldest libraries that pyproject.toml allows: what is promised there works with them too.

The lock file knows only the newest; whoever installs Nunatak beside other programs gets what these leave.
"""

import json
import os
import re
import site
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest
from packaging.version import Version

from tests.conftest import Say

ROOT = Path(__file__).parents[2]
SECONDS = 1200  # about a minute on a quiet machine
# Where a library shows: requests cut in odd places, malformed ones, TLS, forged tokens, and every database and store.
FILES = (
    "tests/api/test_exchange.py",
    "tests/api/test_malformed.py",
    "tests/access/test_tls.py",
    "tests/access/test_forged_oidc_tokens.py",
    "tests/backends/test_store.py",
    "tests/backends/test_object_store_emulators.py",
    "tests/backends/test_storages.py",
    "tests/backends/test_vending.py",
)
_BOUND = re.compile(r"([A-Za-z0-9_.-]+)>=([0-9.]+)(?:,<[0-9.]+)?")


def lower_bounds() -> dict[str, str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    used = ("postgres", "mariadb", "s3", "azure", "gcs")
    written = list(dict.fromkeys([*project["dependencies"], *(each for extra in used for each in extras[extra])]))
    bounds = {found[1]: found[2] for found in map(_BOUND.fullmatch, written) if found}
    assert len(bounds) == len(written), "each has a lower bound"
    return bounds


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with the oldest libraries, and with ours for everything that only tests need."""
    folder = tmp_path_factory.mktemp("lowest")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    pins = [f"{name}=={version}" for name, version in lower_bounds().items()]
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    installed = subprocess.run(
        [*pip, "install", "--quiet", "--no-input", "--only-binary=:all:", *pins],
        capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    if "No matching distribution" in installed.stderr:
        pytest.skip(f"NOT RUN: an oldest library has no wheel for Python {sys.version.split()[0]}")
    assert installed.returncode == 0, installed.stderr
    (own,) = folder.glob("lib/python*/site-packages")
    (own / "ours.pth").write_text("\n".join([str(ROOT / "src"), *site.getsitepackages()]) + "\n")  # after its own
    return python


def ran(python: Path, *words: str) -> str:
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "NUNATAK_"))}
    ended = subprocess.run(
        [python, *words], cwd=ROOT, env=outside, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-5000:]
    return ended.stdout


@pytest.mark.timeout(2 * SECONDS)
def test_the_oldest_libraries_are_good_enough(python: Path, say: Say) -> None:
    bounds = lower_bounds()
    ask = "import json, sys; from importlib.metadata import version; print(json.dumps([*map(version, sys.argv[1:])]))"
    found = json.loads(ran(python, "-c", ask, *bounds))
    assert [Version(each) for each in found] == [Version(each) for each in bounds.values()]

    assert "serve" in ran(python, "-m", "nunatak", "--help")
    summary = ran(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *FILES).splitlines()[-1]

    say(f"with the oldest libraries: {summary}")
    assert re.match(r"\d{3,} passed", summary), summary
