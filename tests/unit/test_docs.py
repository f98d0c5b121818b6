"""The documentation is true: reference pages are those of the code, links lead somewhere, every block has a meaning.

That the examples run is the work of tests/install/test_documents.py.
"""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.pages import DOCS, FOLLOWED, PAGES, PROJECT, blocks_of, title

LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]+))?\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
FENCED = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
# Marks that another test looks for.
OTHER_MARKS = {"login", "rules", "view"}


def load_generator() -> ModuleType:
    specification = importlib.util.spec_from_file_location("docs_generate", PROJECT / "docs" / "generate.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


GENERATOR = load_generator()


@pytest.mark.parametrize("name", GENERATOR.PAGES)
def test_a_reference_page_is_what_the_code_says(name: str) -> None:
    written = (GENERATOR.REFERENCE / name).read_text("utf-8")

    assert written == GENERATOR.page(name), "run `make docs`"


def test_there_is_no_reference_page_that_nothing_makes() -> None:
    assert {path.name for path in GENERATOR.REFERENCE.iterdir()} == set(GENERATOR.PAGES)


def prose_of(page: Path) -> str:
    return FENCED.sub("", page.read_text("utf-8"))


def anchors_of(page: Path) -> set[str]:
    """As GitHub makes them from headings: small letters, no punctuation, hyphens for spaces."""
    headings = [re.sub(r"\]\([^)]*\)|[`\[*]", "", heading) for heading in HEADING.findall(prose_of(page))]
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target, anchor in LINK.findall(prose_of(page)):
        file = (page.parent / target) if target else page
        if not file.exists() or (anchor and anchor not in anchors_of(file)):
            broken.append(f"{target}#{anchor}")

    assert broken == []


def test_every_page_is_reached_from_the_readme() -> None:
    """By links, however many; whoever starts at README finds every page."""
    seen, waiting = set[Path](), [PROJECT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        targets = [(page.parent / target).resolve() for target, _ in LINK.findall(prose_of(page)) if target]
        waiting += [target / "README.md" if target.is_dir() else target for target in targets]

    assert [title(page) for page in DOCS.rglob("*.md") if page not in seen] == []


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_a_mark_of_a_block_is_one_that_a_test_knows(page: Path) -> None:
    marks = {block.mark for block in blocks_of(page) if block.mark}

    assert marks <= {*FOLLOWED, *OTHER_MARKS}


def test_no_page_speaks_of_places_that_only_its_author_has() -> None:
    for page in PAGES:
        assert not re.search(r"/home/|/Users/|/work/", page.read_text("utf-8")), title(page)


def test_every_decision_is_in_the_index_and_no_number_is_missing_without_a_word() -> None:
    index = (DOCS / "decisions" / "README.md").read_text("utf-8")
    numbers = [int(path.name[:4]) for path in (DOCS / "decisions").glob("[0-9]*.md")]

    assert [number for number in range(1, max(numbers) + 1) if f"{number:04}" not in index] == []
    assert len(numbers) == len(set(numbers))
