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


def test_every_file_has_a_name_that_is_read_and_says_something() -> None:
    """`KIND` is one of those above; right after a release there is no file."""
    assert [path.name for path in FILES if not FRAGMENT.fullmatch(path.name)] == []
    assert [path.name for path in FILES if not path.read_text("utf-8").strip()] == []


@pytest.mark.parametrize(
    ("name", "is_read"),
    [
        ("312.fixed.md", True),
        ("14-lost-replies.added.md", True),
        ("312.mended.md", False),
        ("lost-replies.fixed.md", False),
        ("312.fixed.txt", False),
        ("14_lost.fixed.md", False),
    ],
)
def test_a_name_tells_the_issue_and_the_kind(name: str, is_read: bool) -> None:
    assert bool(FRAGMENT.fullmatch(name)) == is_read


def test_the_place_where_the_next_release_goes_is_marked() -> None:
    assert (ROOT / SETTINGS["filename"]).read_text("utf-8").count(SETTINGS["start_string"]) == 1
