"""The pages of the documentation as a reader meets them: their fenced blocks, and which of them are followed.

A fence is opened by three backticks, a language and a mark, as in `bash test`:

    test      run by the reader's shell, or by Python, where the page has it
    serve     ends in `nunatak serve`: what stands before is run, then the server is started beside the reader
    session   blocks of Python that are one program, run where the last of them stands

A block with another mark, or with none, is only shown.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

PROJECT = Path(__file__).parents[2]
DOCS = PROJECT / "docs"
README = PROJECT / "README.md"
PAGES = sorted([*PROJECT.glob("*.md"), *DOCS.rglob("*.md")])
DEFAULT_URI = "http://127.0.0.1:8181"
FOLLOWED = ("test", "serve", "session")
_FENCE = re.compile(r"^( *)```(\w*)(?: (\w+))?\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^(?:\w+=\S+ )*(?:nunatak|make|pip|python|opa|mariadb|psql|pg_\w+|mariadb-\w+) ", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One fenced block; `mark` is empty if the fence has none."""

    language: str
    mark: str
    text: str

    @property
    def is_followed(self) -> bool:
        return self.mark in FOLLOWED

    @property
    def has_commands(self) -> bool:
        return self.language in ("", "bash") and _COMMAND.search(self.text) is not None


def blocks_of(page: Path) -> list[Block]:
    return [Block(language, mark, dedent(text)) for _, language, mark, text in _FENCE.findall(page.read_text("utf-8"))]


def blocks_with(page: Path, language: str, mark: str = "") -> list[str]:
    """The texts of the page's blocks of this language and mark."""
    return [block.text for block in blocks_of(page) if (block.language, block.mark) == (language, mark)]


def title(page: Path) -> str:
    return str(page.relative_to(PROJECT))
