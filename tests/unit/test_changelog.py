"""Every file in changelog.d is one that `make release` reads; another name would be left out in silence."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["towncrier"]
KINDS = "|".join(kind["directory"] for kind in SETTINGS["type"])
FRAGMENT = re.compile(rf"\d+(-[a-z0-9-]+)?\.({KINDS})\.md")  # 312.fixed.md, 312-lost-replies.fixed.md
FILES = sorted(path for path in (ROOT / SETTINGS["directory"]).iterdir() if path.name not in SETTINGS["ignore"])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_line_of_the_changelog_has_a_name_that_is_read_and_says_something(path: Path) -> None:
    assert FRAGMENT.fullmatch(path.name), f"call it ISSUE.KIND.md or ISSUE-NAME.KIND.md, with a KIND of {KINDS}"
    assert path.read_text("utf-8").strip()


def test_the_place_where_the_next_release_goes_is_marked() -> None:
    assert (ROOT / SETTINGS["filename"]).read_text("utf-8").count(SETTINGS["start_string"]) == 1
