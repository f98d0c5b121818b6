"""Prints results: tables for people, JSON for programs. Commands print only through this module and `echo`."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nunatak.terminal import echo, printable, printable_json

__all__ = [
    "count_text",
    "echo",
    "print_facts",
    "print_json",
    "print_rows",
    "printable",
    "properties_of",
    "time_of",
    "with_text_ids",
]

EXACT_IN_JSON = 2**53  # larger integers lose digits in readers that use floating point, such as jq
UNLIMITED_WIDTH = 10_000


def print_json(value: Any) -> None:
    click.echo(printable_json(json.dumps(with_text_ids(value), indent=2, ensure_ascii=False)))


def with_text_ids(value: Any, key: str = "") -> Any:
    """Converts snapshot ids and other integers that a double cannot hold to strings."""
    if isinstance(value, dict):
        return {name: with_text_ids(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [with_text_ids(item, key) for item in value]
    is_id = key.endswith(("snapshot-id", "snapshot-ids"))
    if isinstance(value, int) and not isinstance(value, bool) and (is_id or abs(value) >= EXACT_IN_JSON):
        return str(value)
    return value


def count_text(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(_cell(cell) for cell in row))
    _console().print(table)


def print_facts(facts: Mapping[str, object]) -> None:
    """Prints the facts about one object, a line each."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(_cell(name), Text(printable(value)))
    _console().print(table)


def _cell(value: object) -> Text:
    """Returns a cell without markup, as names may hold brackets, and with escaped newlines."""
    return Text(printable(value, one_line=True))


def _console() -> Console:
    # Output to a pipe is neither wrapped nor coloured.
    return Console() if sys.stdout.isatty() else Console(width=UNLIMITED_WIDTH, no_color=True)


def time_of(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")


def properties_of(properties: Mapping[str, str]) -> str:
    lines = (printable(f"{key}={value}", one_line=True) for key, value in sorted(properties.items()))
    return "\n".join(lines) or "none"
