"""iceberg-go: a small program that reads a table and appends to it, built once."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.support.tool_cache import go_project

RUN_SECONDS = 300


class ProgramFailed(Exception):
    """The program failed; the message ends with its output."""


def read_and_append(uri: str, table: str, row: tuple[int, str]) -> dict[str, list[list[Any]]]:
    """Appends a row to a table of (id, city); returns all rows `before` and `after`. It has no key of a store."""
    program = go_project("iceberg_go", Path(__file__).parent)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    ended = subprocess.run(
        [str(program), uri, table, str(row[0]), row[1]],
        env={**inherited, "AWS_EC2_METADATA_DISABLED": "true"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    if ended.returncode:
        raise ProgramFailed(ended.stderr[-4000:])
    found: dict[str, list[list[Any]]] = json.loads(ended.stdout)
    return found
