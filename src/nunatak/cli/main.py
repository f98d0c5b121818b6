"""The command `nunatak`: its subcommands, and the translation of errors to exit codes.

Other packages add commands by entry points; see plugins.py.
"""

import difflib
import importlib
from typing import Any

import click

from nunatak import __version__
from nunatak.cli.plugins import find_command, find_plugins, help_line
from nunatak.errors import CatalogError
from nunatak.settings import SettingsError
from nunatak.terminal import with_printable_message

# The module of each subcommand and its line in `--help`. The lines are repeated here so that help and completion
# import no command: `nunatak --help` takes a tenth of a second.
COMMANDS = {
    "serve": ("nunatak.cli.serve:serve", "Start the catalog."),
    "init": ("nunatak.cli.init:init", "Create the first administrator."),
    "connect": ("nunatak.cli.connect:connect", "Print the configuration of an engine for the catalog."),
    "namespace": ("nunatak.cli.namespace:namespace", "List, show, create and drop namespaces."),
    "table": ("nunatak.cli.table:table", "List, show, create, drop and rename tables."),
    "view": ("nunatak.cli.view:view", "List, show, create, drop and rename views."),
    "register": ("nunatak.cli.register:register", "Register an existing table or view by its metadata file."),
    "search": ("nunatak.cli.search:search", "Find tables and views by part of their name."),
    "warehouse": ("nunatak.cli.warehouse:warehouse", "List, show, create, change, check and drop warehouses."),
    "principal": ("nunatak.cli.principal:principal", "List, show, create, disable and drop principals."),
    "role": ("nunatak.cli.role:role", "List, create and drop roles, and manage their members."),
    "grant": ("nunatak.cli.grant:grant", "List, add and remove grants."),
    "credential": ("nunatak.cli.credential:credential", "List, create and drop the credentials of principals."),
    "access": ("nunatak.cli.access:access", "Explain the privileges of principals."),
    "health": ("nunatak.cli.health:health", "Print the health scores of tables, and how to improve them."),
    "policy": ("nunatak.cli.policy:policy", "Set, show, drop and explain maintenance policies."),
    "job": ("nunatak.cli.job:job", "List, show and cancel maintenance jobs."),
    "get": ("nunatak.cli.get:get", "Answer one GET request without a running server."),
    "config": ("nunatak.cli.config:config", "Print and check the settings."),
    "backup": ("nunatak.cli.backup:backup", "Copy the catalog's database into FILE while the server runs."),
    "restore": (
        "nunatak.cli.backup:restore",
        "Restore the catalog's database from a backup while no server runs.",
    ),
    "database": ("nunatak.cli.database:database", "Migrate the catalog's database."),
    "fsck": ("nunatak.cli.fsck:fsck", "Check that pointers, files and logs agree, and repair them."),
    "encryption-key": (
        "nunatak.cli.encryption_key:encryption_key",
        "List, rotate and retire the keys that encrypt secrets.",
    ),
    "audit": ("nunatak.cli.audit:audit", "List, export and verify the audit trail."),
    "version": ("nunatak.cli.version:version", "Print the version."),
}

EXIT_REFUSED = 1


class CommandRefused(click.ClickException):
    """The catalog refused the command; the message has the error, and a hint on the next line."""

    exit_code = EXIT_REFUSED

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message}\nHint: {hint}")


class WrongSettings(click.ClickException):
    exit_code = 2  # click's own exit code for usage errors


class Unreachable(click.ClickException):
    """No server answered; the same command may work later."""

    exit_code = 3


class SuggestingGroup(click.Group):
    """A command group that suggests similar commands for a mistyped one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None:
            near = difflib.get_close_matches(args[0], self.list_commands(ctx), n=3)
            if near:
                raise click.UsageError(f"No such command '{args[0]}'. Did you mean {' or '.join(near)}?", ctx)
        return super().resolve_command(ctx, args)


class LazyGroup(SuggestingGroup):
    """The root group: knows its commands by name and imports one only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *find_plugins(COMMANDS)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return find_command(cmd_name)
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own = [(name, line) for name, (_, line) in COMMANDS.items()]
        plugged = [(name, help_line(entry_point)) for name, entry_point in find_plugins(COMMANDS).items()]
        with formatter.section("Commands"):
            formatter.write_dl(own + plugged)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return self._invoke(ctx)
        except click.ClickException as error:
            with_printable_message(error)
            raise

    def _invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except CatalogError as error:
            raise CommandRefused(error.message, hint=error.hint) from error
        except SettingsError as error:
            raise WrongSettings(str(error)) from error
        except BrokenPipeError:  # the reader of the pipe is gone, as in `nunatak table list | head`; click exits
            raise
        except ConnectionError as error:  # the base of client.ServerUnreachable; importing client.py would be slow
            raise Unreachable(str(error)) from error
        except OSError as error:  # an unreadable or unwritable file, a full disk
            message = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            raise click.ClickException(message) from error


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 refused by the catalog, 2 wrong usage or settings, 3 server not reachable.",
)
@click.version_option(__version__, message="nunatak %(version)s")
def root() -> None:
    """Nunatak, an Apache Iceberg REST catalog."""


def main() -> None:
    """Entry point of the console script and of `python -m nunatak`."""
    root(prog_name="nunatak")
