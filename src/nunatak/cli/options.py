"""Options that several commands share: flags for settings, and the options of commands that call a server."""

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click

from nunatak.cli.login import CommandLogin, elsewhere_hint, find_login, login_hint
from nunatak.client import TIMEOUT_SECONDS, Client, NoAddress, ServerUnreachable
from nunatak.errors import NotAuthenticated
from nunatak.settings import BY_NAME, SettingsError, load

DEFAULT_URI = "http://127.0.0.1:8181"

Command = Callable[..., Any]


def setting_options(*names: str) -> Callable[[Command], Command]:
    """Adds a flag for each named setting to a command, which is called with the `Settings` of all sources."""

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
class CommandSession:
    """The client and the output format of one command."""

    client: Client
    output: Literal["table", "json"]


uri_option = click.option(
    "--uri", envvar="NUNATAK_URI", default=DEFAULT_URI, show_default=True, help="The catalog. [NUNATAK_URI]"
)
output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="For people or for programs; 64-bit ids are strings in JSON.",
)


def talks_to_server(command: Command) -> Command:
    """Adds --uri, --warehouse and -o to a command, which gets a `CommandSession` as its first argument."""

    @uri_option
    @click.option("--warehouse", help="Warehouse by name; the server's default one unless given.")
    @output_option
    @functools.wraps(command)
    def with_session(
        *positional: Any, uri: str, warehouse: str | None, output: Literal["table", "json"], **arguments: Any
    ) -> Any:
        with connect(uri, warehouse) as client:
            return command(CommandSession(client, output), *positional, **arguments)

    return with_session


def administers(command: Command) -> Command:
    """Like `talks_to_server`, for a command that needs no warehouse."""

    @uri_option
    @output_option
    @functools.wraps(command)
    def with_session(*positional: Any, uri: str, output: Literal["table", "json"], **arguments: Any) -> Any:
        with connect(uri) as client:
            return command(CommandSession(client, output), *positional, **arguments)

    return with_session


@contextmanager
def connect(
    uri: str,
    warehouse: str | None = None,
    *,
    login: CommandLogin | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Iterator[Client]:
    """Opens a client that logs in with `login`, or else with the login of the environment or the data folder."""
    login = login or find_login(uri, os.environ)
    try:
        with Client(
            uri, warehouse=warehouse, token=login.token, credential=login.credential, timeout_seconds=timeout_seconds
        ) as client:
            yield client
    except NoAddress as error:
        raise SettingsError(str(error)) from error
    except ServerUnreachable as error:
        raise ServerUnreachable(f"{error}{elsewhere_hint(uri, os.environ)}") from error
    except NotAuthenticated as error:
        if login.token or login.credential:
            raise
        raise NotAuthenticated(error.message, hint=login_hint(os.environ)) from error
