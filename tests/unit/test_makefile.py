"""What `make` lists is what it can do, and a suite says how long it takes."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
TESTED = {"unit", "test-api", "test-db", "test-spark", "test"}


def make(*words: str) -> "subprocess.CompletedProcess[str]":
    # `make test` runs these tests, too, and hands its own flags on.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(["make", *words], cwd=ROOT, env=variables, capture_output=True, text=True, check=False)


def test_make_lists_every_command() -> None:
    listed = {line.split()[1]: line for line in make().stdout.splitlines()}
    phony = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert phony is not None

    assert listed.keys() == set(phony[1].split()) - {".tools"}
    assert {name for name, line in listed.items() if re.search(r"\d+ minutes?\b", line)} >= TESTED


def test_an_environment_of_another_python_is_not_used_in_silence(tmp_path: Path) -> None:
    other = tmp_path / "bin" / "python"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho 2.7\n")
    other.chmod(0o755)

    refused = make("help", "PYTHON=python3", f"VENV={tmp_path}")

    assert refused.returncode != 0
    assert "is of another Python than python3" in refused.stderr


@pytest.mark.parametrize("name", ["unit", "test-api", "test-db", "test-spark"])
def test_a_suite_names_folders_that_exist(name: str) -> None:
    recipe = re.search(rf"^{name}:.*\n\t(.*)$", MAKEFILE, re.MULTILINE)
    assert recipe is not None
    folders = re.findall(r"\btests/\S+", recipe[1])

    assert folders
    assert all((ROOT / folder).is_dir() for folder in folders)
