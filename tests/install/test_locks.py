"""What `make` installs is pinned: a version and at least one hash for everything, and everything that we ask for."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
GROUPS = PROJECT["dependency-groups"]
LOCKS = {
    "serve": (),
    "test": (*GROUPS["test"], *GROUPS["lint"], *GROUPS["release"]),
    "demo": ("nunatak[migration]", *GROUPS["demo"]),
}
OWN = re.compile(r"^nunatak\[(.*)\]$")
PINNED = re.compile(
    r"^(?P<name>[a-z0-9-]+)==\S+(?: ;[^\\]*)? \\(?P<hashes>(?:\n    --hash=sha256:[0-9a-f]{64}(?: \\)?)+)$", re.M
)


def name_of(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower().replace("_", "-").replace(".", "-")


def names_in(requirements: Iterable[str]) -> set[str]:
    """The names that requirements ask for; an extra that names our own extras means theirs."""
    found = set()
    for requirement in requirements:
        own = OWN.match(requirement)
        found |= (
            names_in(one for extra in own[1].split(",") for one in EXTRAS[extra]) if own else {name_of(requirement)}
        )
    return found


@pytest.mark.parametrize("lock", LOCKS)
def test_every_line_of_a_lock_has_a_hash(lock: str) -> None:
    text = (ROOT / "requirements" / f"{lock}.lock").read_text()

    entries = list(PINNED.finditer(text))

    assert "".join(entry[0] + "\n" for entry in entries) == text
    assert names_in((*PROJECT["project"]["dependencies"], *LOCKS[lock])) - {entry["name"] for entry in entries} == set()
    assert {"hatchling", "editables"} <= {entry["name"] for entry in entries}, "what builds the project is pinned, too"


def imported_by(file: Path) -> set[str]:
    """The packages that a file imports, without the standard library and our own."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            names.add(node.module)
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"nunatak", "nunatak_spark", "tests"}


def test_whatever_is_imported_is_asked_for_by_its_own_name() -> None:
    """A package that only comes with another one is gone when the other one no longer needs it."""
    groups = (*EXTRAS.values(), *GROUPS.values())
    asked = names_in((*PROJECT["project"]["dependencies"], *(one for group in groups for one in group)))
    distributions = packages_distributions()

    files = [file for folder in ("src", "tests", "docs") for file in (ROOT / folder).rglob("*.py")]
    unasked = {
        f"{file.relative_to(ROOT)}: {package}"
        for file in files
        for package in imported_by(file)
        if asked.isdisjoint(name_of(each) for each in distributions.get(package, [package]))
    }

    assert unasked == set()


def test_only_what_users_choose_is_published() -> None:
    assert EXTRAS.keys().isdisjoint(GROUPS)
    assert EXTRAS.keys().isdisjoint({"test", "lint", "dev", "demo", "docs"})


def test_make_installs_nothing_without_its_hash() -> None:
    lines = [
        line for line in (ROOT / "Makefile").read_text().splitlines() if "$(PIP_INSTALL)" in line and ":=" not in line
    ]

    assert lines
    for line in lines:
        for command in line.split("$(PIP_INSTALL)")[1:]:
            assert "--require-hashes" in command or "--no-deps --no-build-isolation -e ." in command, line
