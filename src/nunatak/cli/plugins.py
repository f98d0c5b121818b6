"""Commands that other packages add to `nunatak`: the entry points of the group `nunatak.commands`.

An entry point names a click command, as `check-costs = "my_package.cli:check_costs"`. Its package is imported when the
command is called and not before. A command of Nunatak itself cannot be replaced.
"""

from collections.abc import Container
from importlib.metadata import EntryPoint, entry_points

import click

from nunatak.terminal import printable

GROUP = "nunatak.commands"

# The commands of nunatak_spark, with the extra to install and their line in `--help`. They are repeated here so that
# help imports nothing, and so that a server without nunatak_spark can say what to install.
SPARK_COMMANDS = {
    "maintain": ("spark", "Run maintenance jobs: those due by policy, or one by name."),
    "report": ("spark", "Write a report page from telemetry: plots, figures and recommendations."),
    "spark": ("spark", "Configure PySpark for the catalog, and run a maintenance worker."),
    "migrate": ("migration", "Migrate tables from another catalog, and verify them."),
}


class Unavailable(click.ClickException):
    """The command is known, but its code is missing or broken."""


def find_plugins(taken: Container[str] = ()) -> dict[str, EntryPoint]:
    """Returns the entry points by command name, those of nunatak_spark first; without names in `taken`."""
    found: dict[str, EntryPoint] = {}
    for entry_point in entry_points(group=GROUP):
        if entry_point.name not in taken:
            found.setdefault(entry_point.name, entry_point)
    ours = {name: found.pop(name) for name in SPARK_COMMANDS if name in found}
    return {**ours, **dict(sorted(found.items()))}


def help_line(entry_point: EntryPoint) -> str:
    """Returns the line of the command in `nunatak --help`, without importing it."""
    if entry_point.name in SPARK_COMMANDS:
        return SPARK_COMMANDS[entry_point.name][1]
    return f"A command of the package {_package_of(entry_point)}."


def find_command(name: str) -> click.Command | None:
    """Returns the command of this name, or None; one that cannot be loaded becomes a command that prints the reason."""
    entry_point = find_plugins().get(name)
    if entry_point is not None:
        return _load(entry_point)
    if name in SPARK_COMMANDS:
        extra = SPARK_COMMANDS[name][0]
        return _unavailable(
            name,
            f"The command {name} belongs to nunatak_spark, which is not installed here",
            hint=f"pip install 'nunatak[{extra}]'",
        )
    return None


def _load(entry_point: EntryPoint) -> click.Command:
    package = _package_of(entry_point)
    broken = f"The command {entry_point.name} of the package {package} cannot be loaded: "
    hint = f"Install {package} again, or remove it."
    try:
        command = entry_point.load()
    except Exception as error:  # importing a foreign package may raise anything
        cause = printable(f"{type(error).__name__}: {error}", one_line=True)
        return _unavailable(entry_point.name, broken + cause, hint=hint)
    if not isinstance(command, click.Command):
        return _unavailable(entry_point.name, f"{broken}{entry_point.value} is not a click command", hint=hint)
    return command


def _unavailable(name: str, message: str, *, hint: str) -> click.Command:
    """Returns a command that fails with any arguments. Raising here would break help and shell completion, too."""

    def refuse(words: tuple[str, ...]) -> None:
        raise Unavailable(f"{message}\nHint: {hint}")

    return click.Command(
        name,
        callback=refuse,
        params=[click.Argument(["words"], nargs=-1, type=click.UNPROCESSED)],
        add_help_option=False,  # `--help` prints the reason, too
        context_settings={"ignore_unknown_options": True},
        help=message,
    )


def _package_of(entry_point: EntryPoint) -> str:
    return entry_point.module.partition(".")[0] if entry_point.dist is None else entry_point.dist.name
