"""Options that several commands share: those of a setting, and those of a command that talks to a server."""

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click

from nunatak.client import Client
from nunatak.settings import BY_NAME, load

DEFAULT_URI = "http://127.0.0.1:8181"

Command = Callable[..., Any]


def setting_options(*names: str) -> Callable[[Command], Command]:
    """Give a command a flag for each named setting; it is called with the `Settings` that come out of all sources."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_settings(**arguments: Any) -> Any:
            flags = {name: arguments.pop(name) for name in names}
            return command(settings=load(flags, os.environ), **arguments)

        decorated: Command = with_settings
        for name in reversed(names):
            decorated = _setting_option(name)(decorated)
        return decorated

    return decorate


def _setting_option(name: str) -> Callable[[Command], Command]:
    setting = BY_NAME[name]
    default = f"default {setting.default}; " if str(setting.default) else ""
    return click.option(
        "--" + name.replace("_", "-"),
        name,
        metavar=_placeholder(name, setting.default),
        help=f"{setting.meaning} [{default}{setting.environment_variable}]",
    )


def _placeholder(name: str, default: object) -> str:
    if isinstance(default, Path):
        return "FOLDER"
    return "NUMBER" if isinstance(default, int) else name.rpartition("_")[2].upper()


@dataclass(frozen=True)
class Session:
    """One command's conversation: whom it talks to, and how it prints what it hears."""

    client: Client
    output: Literal["table", "json"]


def talks_to_server(command: Command) -> Command:
    """Give a command --uri, --warehouse and -o; it is called with a `Session` first."""

    @click.option(
        "--uri", envvar="NUNATAK_URI", default=DEFAULT_URI, show_default=True, help="The catalog. [NUNATAK_URI]"
    )
    @click.option("--warehouse", help="Warehouse by name; the server's default one unless given.")
    @click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help="For people or for programs; 64-bit ids are strings in JSON.",
    )
    @functools.wraps(command)
    def with_session(
        *positional: Any, uri: str, warehouse: str | None, output: Literal["table", "json"], **arguments: Any
    ) -> Any:
        with Client(uri, warehouse=warehouse) as client:
            return command(Session(client, output), *positional, **arguments)

    return with_session
