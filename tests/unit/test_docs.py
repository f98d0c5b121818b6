"""The documentation is true: reference pages are those of the code, links lead somewhere, marked examples run."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.server import running_server

PROJECT = Path(__file__).parents[2]
PAGES = sorted([*PROJECT.glob("*.md"), *(PROJECT / "docs").rglob("*.md")])
DEFAULT_URI = "http://127.0.0.1:8181"
# A fence opened by ```bash test or ```python test is run; everything else is only shown.
RUNNABLE = re.compile(r"^```(bash|python) test\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")


def load_generator() -> ModuleType:
    specification = importlib.util.spec_from_file_location("docs_generate", PROJECT / "docs" / "generate.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


GENERATOR = load_generator()


def title(path: Path) -> str:
    return str(path.relative_to(PROJECT))


@pytest.mark.parametrize("name", GENERATOR.PAGES)
def test_a_reference_page_is_what_the_code_says(name: str) -> None:
    written = (GENERATOR.REFERENCE / name).read_text("utf-8")

    assert written == GENERATOR.page(name), "run `make docs`"


def test_there_is_no_reference_page_that_nothing_makes() -> None:
    assert {path.name for path in GENERATOR.REFERENCE.iterdir()} == set(GENERATOR.PAGES)


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_links_lead_somewhere(page: Path) -> None:
    broken = [target for target in LINK.findall(page.read_text("utf-8")) if not (page.parent / target).exists()]

    assert broken == []


def runnable_pages() -> list[Path]:
    return [page for page in PAGES if RUNNABLE.search(page.read_text("utf-8"))]


@pytest.mark.parametrize("page", runnable_pages(), ids=title)
def test_the_marked_examples_of_a_page_run_in_order(page: Path, tmp_path: Path) -> None:
    folder = tmp_path / "reader"
    folder.mkdir()
    with running_server(tmp_path / "data") as server:
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "NUNATAK_URI": server.uri,
        }
        for language, example in RUNNABLE.findall(page.read_text("utf-8")):
            text = example.replace(DEFAULT_URI, server.uri)
            command = ["bash", "-euo", "pipefail", "-c", text] if language == "bash" else [sys.executable, "-c", text]
            ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            assert ended.returncode == 0, f"{text}\n{ended.stdout}\n{ended.stderr}"
            assert ended.stdout.strip(), f"an example that prints nothing shows nothing:\n{text}"


def test_some_examples_are_marked() -> None:
    assert {title(page) for page in runnable_pages()} >= {"README.md", "docs/tutorial/first-table.md"}


def test_no_page_speaks_of_places_that_only_its_author_has() -> None:
    for page in PAGES:
        assert not re.search(r"/home/|/Users/|/work/", page.read_text("utf-8")), title(page)
