"""Shared by the commands of `nunatak migrate`: options, state, source, target, and a lazily started Spark session."""

import difflib
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click
from click.core import ParameterSource

from nunatak.cli.login import find_login
from nunatak.cli.names import print_name
from nunatak.cli.options import connect, output_option, uri_option
from nunatak.cli.output import count_text
from nunatak_spark.cli.run_jobs import refusals
from nunatak_spark.compatibility import compatibility_matrix
from nunatak_spark.errors import CannotRun
from nunatak_spark.installation import is_running
from nunatak_spark.jars import jar_locations, load_jar
from nunatak_spark.jobs import Progress
from nunatak_spark.migration.catalog_state import CatalogState, migration_name, open_catalog_state
from nunatak_spark.migration.migration_run import MigrationRun
from nunatak_spark.migration.model import InventoryTable, MigrationSource, MigrationTable
from nunatak_spark.migration.planning_rules import is_wanted, matches
from nunatak_spark.migration.state import MigrationState, open_folder_state
from nunatak_spark.runner import PROGRESS_PRINTERS
from nunatak_spark.spark_session import session

Command = Callable[..., Any]


def state_option(command: Command) -> Command:
    return click.option(
        "--state",
        default="nunatak-migration",
        show_default=True,
        metavar="FOLDER|catalog|nunatak://NAME",
        help="State of this migration: a folder, or a name in the target's database.",
    )(command)


def runs(command: Command) -> Command:
    """Give a command the options of a run; it is called with the `Run` first, and with how to print."""

    @state_option
    @uri_option
    @click.option("--warehouse", help="Warehouse by name; the server's default one unless given.")
    @click.option("--catalog", default="nunatak", show_default=True, help="Name of the target's catalog in Spark.")
    @click.option("--master", help="Spark master, such as local[4]; default: as Spark is configured.")
    @click.option("--remote", help="A Spark Connect server, such as sc://host:15002.")
    @click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark; may be repeated.")
    @click.option("--bundle", "bundles", multiple=True, help="Also the jar for this cloud's storage, such as aws.")
    @click.option("--progress", type=click.Choice(list(PROGRESS_PRINTERS)), help="A bar in a terminal, else text.")
    @output_option
    @functools.wraps(command)
    def with_run(
        *positional: Any,
        state: str,
        uri: str,
        warehouse: str | None,
        catalog: str,
        master: str | None,
        remote: str | None,
        conf: tuple[str, ...],
        bundles: tuple[str, ...],
        progress: str | None,
        output: Literal["table", "json"],
        **arguments: Any,
    ) -> Any:
        config = pairs(conf, "--conf")
        new = arguments if command.__name__ == "inventory" else {}
        if new:
            kind_of(new)  # before a folder is made
        event_printer = PROGRESS_PRINTERS[progress or ("bar" if sys.stderr.isatty() else "text")]
        with refusals(), open_state(state, uri, command.__name__, create=bool(new)) as memory:
            uri, warehouse = _target(memory, uri, warehouse)
            needs = Needs.of(memory.list_sources(), new, bundles)
            start = _starter(uri, warehouse, catalog, master, remote, needs, config)
            with event_printer() as print_event, _run(memory, uri, warehouse, start, catalog, print_event) as run:
                return command(run, output, *positional, **arguments)

    return with_run


def open_state(state: str, uri: str, command: str, *, create: bool = False) -> AbstractContextManager[MigrationState]:
    """The memory of a migration as --state names it, for this command alone."""
    name = migration_name(state)
    if name is None:
        return open_folder_state(Path(state), command, create=create)
    return open_catalog_state(lambda: connect(uri, None), name, command, create=create)


def _target(state: MigrationState, uri: str, warehouse: str | None) -> tuple[str, str | None]:
    """Where tables go: as was said the first time, unless the command says it again, and then it must be the same.

    A migration that the catalog itself remembers goes to that catalog, by whichever address it was reached.
    """
    known = state.find_target()
    if isinstance(state, CatalogState):
        warehouse = warehouse or (known[1] if known else "") or None
        state.keep_target("", warehouse or "")
        return uri, warehouse
    is_said = click.get_current_context().get_parameter_source("uri") is not ParameterSource.DEFAULT
    if known is not None and not is_said:
        uri, warehouse = known[0], warehouse or known[1] or None
    state.keep_target(uri, warehouse or "")
    return uri, warehouse


@contextmanager
def _run(
    state: MigrationState, uri: str, warehouse: str | None, start: "Starter", catalog: str, print_event: Progress
) -> Iterator[MigrationRun]:
    try:
        with MigrationRun(state, lambda: connect(uri, warehouse), start, catalog, os.environ, print_event) as run:
            yield run
    finally:
        start.stop()


class Starter:
    """Starts Spark at its first use, and stops it at the end unless it ran before."""

    def __init__(self, start: Callable[[], Any]) -> None:
        self._start = start
        self._session: Any = None
        self._is_ours = False
        self._lock = threading.Lock()

    def __call__(self) -> Any:
        with self._lock:  # several threads may be the first
            if self._session is None:
                self._is_ours = not is_running()
                self._session = self._start()
        return self._session

    def stop(self) -> None:
        if self._is_ours and self._session is not None:
            self._session.stop()


def _starter(
    uri: str,
    warehouse: str | None,
    catalog: str,
    master: str | None,
    remote: str | None,
    needs: "Needs",
    config: Mapping[str, str],
) -> Starter:
    login = find_login(uri, os.environ)
    return Starter(
        lambda: session(
            uri,
            warehouse=warehouse,
            token=login.token,
            credential=login.credential_text,
            catalog=catalog,
            master=master,
            remote=remote,
            bundles=needs.bundles,
            jars=needs.jars(),
            config={"spark.scheduler.mode": "FAIR", **config},  # tables are verified side by side
            app_name="nunatak migrate",
        )
    )


@dataclass(frozen=True)
class Needs:
    """The jars that sources need beside Iceberg's runtime: of databases the driver, of Glue Amazon's own."""

    drivers: tuple[str, ...]
    bundles: tuple[str, ...]

    @classmethod
    def of(cls, sources: Sequence[MigrationSource], new: Mapping[str, Any], bundles: tuple[str, ...]) -> "Needs":
        addresses = [source.address for source in sources if source.kind == "jdbc"]
        addresses += [new["jdbc"]] if new.get("jdbc") else []
        kinds = {address.removeprefix("jdbc:").partition(":")[0] for address in addresses}
        is_aws = bool(new.get("glue")) or any(source.kind == "glue" for source in sources)
        drivers = tuple(sorted(kinds & compatibility_matrix().drivers.keys()))
        return cls(drivers, tuple(dict.fromkeys((*bundles, *(("aws",) if is_aws else ())))))

    def jars(self) -> list[Path]:
        places = jar_locations(os.environ)
        return [load_jar(compatibility_matrix().drivers[driver], places).path for driver in self.drivers]


def pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """KEY=VALUE, as an option was given that may be repeated."""
    wrong = [text for text in texts if "=" not in text]
    if wrong:
        raise click.UsageError(f"{option} {wrong[0]} has no value; write KEY=VALUE.")
    return dict(text.partition("=")[::2] for text in texts)


def chooses(command: Command) -> Command:
    """Give a command the options that choose among the tables; it is called with a function that does so."""

    @click.argument("tables", nargs=-1, metavar="[TABLE|PATTERN]...")
    @click.option("--wave", type=int, help="Only tables planned for this wave.")
    @functools.wraps(command)
    def with_choice(
        run: MigrationRun, output: str, *, tables: tuple[str, ...], wave: int | None, **arguments: Any
    ) -> Any:
        def choose(step: Step) -> Choice:
            wanted = [
                table for table in _planned(run.state.list_tables(), tables, wave) if is_wanted(table.found, tables, ())
            ]
            return chosen_for(step, wanted, is_explicit=bool(tables) or wave is not None)

        return command(run, output, choose, **arguments)

    return with_choice


@dataclass(frozen=True)
class Step:
    """One step of the command line: the states that it starts from, and those that lie behind it."""

    starts: frozenset[str]
    behind: frozenset[str]
    needs_all: bool = False  # whether tables that are not ready fail the command even if nobody named them


SHADOW = Step(frozenset({"planned", "rolled-back"}), frozenset({"shadowed", "verified", "cutover", "done", "retired"}))
VERIFY = Step(frozenset({"shadowed", "verified"}), frozenset({"cutover", "done", "retired"}))
CUTOVER = Step(frozenset({"verified", "cutover", "done"}), frozenset({"retired"}), needs_all=True)
ROLLBACK = Step(
    frozenset({"shadowed", "verified", "cutover", "done"}), frozenset({"discovered", "planned", "rolled-back"})
)
RETIRE = Step(frozenset({"done"}), frozenset({"retired"}), needs_all=True)
# What a table in a state is waiting for, if a step is asked for that it is not ready for.
WAITS_FOR: Mapping[str, str] = {
    "discovered": "it is not planned; run `nunatak migrate plan`",
    "planned": "it is not at the target; run `nunatak migrate shadow`",
    "shadowed": "it is not verified; run `nunatak migrate verify`",
    "verified": "it is not cut over; run `nunatak migrate cutover`",
    "cutover": "its cut-over is not complete; run `nunatak migrate cutover`",
    "retired": "its source is retired and cannot be rolled back",
    "rolled-back": "it was rolled back; run `nunatak migrate shadow`",
}


@dataclass(frozen=True)
class Choice:
    """Tables that a step takes, and those that were meant but are not ready, with the reason."""

    ready: Sequence[MigrationTable]
    waiting: Sequence[tuple[MigrationTable, str]]


def chosen_for(step: Step, wanted: Sequence[MigrationTable], *, is_explicit: bool) -> Choice:
    """Reports requested tables that are not ready: a script would take silence for success."""
    ready = [table for table in wanted if table.state in step.starts or _may_be_at_target(step, table)]
    if not (is_explicit or step.needs_all):
        return Choice(ready, ())
    waiting = [
        (table, WAITS_FOR[table.state] + (f" ({table.failed_at}: {table.problem})" if table.problem else ""))
        for table in wanted
        if table not in ready and table.state not in step.behind
    ]
    return Choice(ready, waiting)


def _may_be_at_target(step: Step, table: MigrationTable) -> bool:
    """A shadow that failed half-way may have made the target's entry: it can be rolled back."""
    return step is ROLLBACK and table.state == "planned" and bool(table.source_pointer)


def _planned(tables: Sequence[MigrationTable], names: Sequence[str], wave: int | None) -> list[MigrationTable]:
    """Those that move, in this wave or at all; a wave or a name that means none of them is refused.

    A script would take silence for a cut-over.
    """
    if not any(table.planned for table in tables):
        raise CannotRun("No table is planned", fix="Run `nunatak migrate plan` first.")
    moving = [(table, table.planned.wave) for table in tables if table.planned and table.planned.method != "refused"]
    if wave is not None and wave not in {each for _, each in moving}:
        known = ", ".join(map(str, sorted({each for _, each in moving}))) or "none"
        raise click.UsageError(f"No table is planned for wave {wave}; the waves are: {known}.")
    chosen = [table for table, each in moving if wave in {None, each}]
    for name in names:
        if not any(matches(table.found, [name]) for table in chosen):
            raise click.UsageError(_nothing_called(name, tables, chosen, wave))
    return chosen


def _nothing_called(
    name: str, tables: Sequence[MigrationTable], chosen: Sequence[MigrationTable], wave: int | None
) -> str:
    said = f"No table that is planned{'' if wave is None else f' for wave {wave}'} is called {name!r}."
    for table in tables:
        if matches(table.found, [name]):
            return f"{said} {name_of(table.found)} {_why_not(table)}."
    return said + _did_you_mean(name, chosen)


def _why_not(table: MigrationTable) -> str:
    if table.planned is None:
        return "is in the inventory but not planned; run `nunatak migrate plan`"
    if table.planned.method == "refused":
        return f"was refused: {table.planned.because}"
    return f"moves in wave {table.planned.wave}"


def require_some(tables: Sequence[MigrationTable], include: Sequence[str], exclude: Sequence[str]) -> None:
    """Refuse patterns that leave nothing to plan, and one that means nothing beside others."""
    if not tables:
        raise CannotRun(
            "The inventory is empty: no source holds a table",
            fix="Look at another one with `nunatak migrate inventory`.",
        )
    all_of_them = count_text(len(tables), "inventoried table")
    for pattern in include:
        if not any(matches(table.found, [pattern]) for table in tables):
            near = _did_you_mean(pattern, tables)
            raise click.UsageError(f"--include {pattern!r} matches none of the {all_of_them}.{near}")
    if not any(is_wanted(table.found, include, exclude) for table in tables):
        raise click.UsageError(f"--exclude leaves none of the {all_of_them} that --include chooses.")


def _did_you_mean(name: str, tables: Sequence[MigrationTable]) -> str:
    known = [name_of(table.found) if ":" in name else print_name(table.found.name) for table in tables]
    near = difflib.get_close_matches(name, known, n=3)
    return f" Did you mean {' or '.join(near)}?" if near else ""


def name_of(found: InventoryTable) -> str:
    """A table of a source as it is printed, and as it can be typed."""
    return f"{found.source}:{print_name(found.name)}"


def kind_of(given: Mapping[str, Any]) -> str:
    """The one source that was named, after a look at what is said about it."""
    kinds = [kind for kind in ("hive", "glue", "jdbc", "hadoop", "rest", "files") if given[kind]]
    if len(kinds) != 1:
        raise click.UsageError("Name one source: --hive, --glue, --jdbc, --hadoop, --rest or --folder.")
    pairs(given["more"], "--property")
    pairs(given["read"], "--read")
    if any(name.lower() == "authorization" for name in pairs(given["headers"], "--header")):
        raise click.UsageError("The folder keeps headers; set NUNATAK_SOURCE_TOKEN instead of --header Authorization.")
    return kinds[0]
