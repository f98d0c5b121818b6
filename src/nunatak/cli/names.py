"""Parses and prints names: levels joined by dots, in double quotes where a level holds a dot or a quote."""

import re
from typing import Any

import click

from nunatak.client import Levels

_LEVEL = re.compile(r'"((?:[^"]|"")*)"|([^."]+)')


def parse_name(text: str) -> Levels:
    """Parses a name such as `shop."a.b".orders` to its levels; raises ValueError."""
    levels, position = [], 0
    while True:
        found = _LEVEL.match(text, position)
        if found is None:
            raise ValueError(f"{text!r} is not a name: expected a level at character {position + 1}")
        levels.append(found[2] if found[1] is None else found[1].replace('""', '"'))
        position = found.end()
        if position == len(text):
            return tuple(levels)
        if text[position] != ".":
            raise ValueError(f"{text!r} is not a name: expected a dot at character {position + 1}")
        position += 1


def print_name(levels: Levels) -> str:
    """Formats levels; the inverse of `parse_name`."""
    return ".".join(f'"{level.replace(chr(34), chr(34) * 2)}"' if set(level) & set('."') else level for level in levels)


class NameType(click.ParamType):  # type: ignore[type-arg]  # of what, it can say only from click 8.4 on
    """A name as an argument; `at_least` is the minimum of levels, 2 for a table or view in a namespace."""

    def __init__(self, at_least: int = 1) -> None:
        self.at_least = at_least
        self.name = "namespace" if at_least == 1 else "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Levels:
        if isinstance(value, tuple):
            return value
        try:
            levels = parse_name(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if len(levels) < self.at_least:
            self.fail(f"{value!r} names no namespace; write it like sales.{value}", param, ctx)
        return levels


NAMESPACE = NameType()
NAME = NameType(at_least=2)


def beside(source: Levels, destination: Levels) -> Levels:
    """Completes a new name of a single level with the namespace of the old one."""
    return destination if len(destination) > 1 else (*source[:-1], *destination)
