"""What `make` installs is pinned: a version and at least one hash for everything, and everything that we ask for."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
LOCKS = {"serve": (), "test": ("test", "lint"), "demo": ("demo",)}
PINNED = re.compile(
    r"^(?P<name>[a-z0-9-]+)==\S+(?: ;[^\\]*)? \\(?P<hashes>(?:\n    --hash=sha256:[0-9a-f]{64}(?: \\)?)+)$", re.M
)


def name_of(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower().replace("_", "-").replace(".", "-")


def wanted(extras: tuple[str, ...]) -> set[str]:
    """The names that pyproject.toml asks for; an extra that names our own extras means theirs."""
    found = set(map(name_of, PROJECT["project"]["dependencies"]))
    for extra in extras:
        own = re.compile(r"^nunatak\[(.*)\]$")
        for requirement in EXTRAS[extra]:
            inner = own.match(requirement)
            found |= wanted(tuple(inner[1].split(","))) if inner else {name_of(requirement)}
    return found


@pytest.mark.parametrize("lock", LOCKS)
def test_every_line_of_a_lock_has_a_hash(lock: str) -> None:
    text = (ROOT / "requirements" / f"{lock}.lock").read_text()

    entries = list(PINNED.finditer(text))

    assert "".join(entry[0] + "\n" for entry in entries) == text
    assert wanted(LOCKS[lock]) - {entry["name"] for entry in entries} == set()
    assert {"hatchling", "editables"} <= {entry["name"] for entry in entries}, "what builds the project is pinned, too"


def test_make_installs_nothing_without_its_hash() -> None:
    lines = [
        line for line in (ROOT / "Makefile").read_text().splitlines() if "$(PIP_INSTALL)" in line and ":=" not in line
    ]

    assert lines
    for line in lines:
        for command in line.split("$(PIP_INSTALL)")[1:]:
            assert "--require-hashes" in command or "--no-deps --no-build-isolation -e ." in command, line
