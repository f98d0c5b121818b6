"""What every step of a migration is handed: the folder, both ends, Spark when needed, and how to tell of progress."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Self

import msgspec

from nunatak.client import Client, Levels, ServerUnreachable
from nunatak.errors import AlreadyExists, CatalogError
from nunatak_spark.errors import CannotRun
from nunatak_spark.failure_reason import failure_reason
from nunatak_spark.jobs import Progress, ProgressStep, no_progress
from nunatak_spark.migration import reader_options
from nunatak_spark.migration.model import InventoryTable, MigrationSource, MigrationTable, table_title
from nunatak_spark.migration.shadow_flags import require_shadow_support
from nunatak_spark.migration.source_files import StartSpark, UnreadableFile
from nunatak_spark.migration.sources.source_catalog import SourceCatalog
from nunatak_spark.migration.sources.source_kinds import open_source_catalog
from nunatak_spark.migration.state import MigrationState
from nunatak_spark.redaction import redact_text
from nunatak_spark.session_settings import temporary_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOT_CARRIED = frozenset({"location"})  # of a namespace: the target decides itself where new tables lie
MOVED = "__moved"  # what a frozen table's name at the source ends with


class StepBlocked(Exception):
    """This table cannot go on; the others can. The text says why, and what to do about it."""


@dataclass
class MigrationRun:
    """One command. `connect` gives a new client of the target; sources are opened once and closed with the run.

    While it runs, its Spark session reads files as `reading` says, whatever the session's own settings are.
    """

    state: MigrationState
    connect: Callable[[], AbstractContextManager[Client]]
    spark: StartSpark
    catalog: str
    environment: Mapping[str, str]
    progress: Progress = no_progress
    source_lock: threading.Lock = field(default_factory=threading.Lock)  # clients of sources know one thread at a time
    _source_catalogs: dict[str, SourceCatalog] = field(default_factory=dict)
    _client: Client | None = None
    carried: set[tuple[str, Levels, Levels]] = field(default_factory=set)  # namespaces, once for each run
    _knows_shadows: bool = False
    _namespaces: dict[tuple[str, Levels], dict[str, str]] = field(default_factory=dict)
    _open: ExitStack = field(default_factory=ExitStack)
    _start: StartSpark = field(init=False, repr=False)
    _is_prepared: bool = False

    def __post_init__(self) -> None:
        self._start, self.spark = self.spark, self._prepared_session

    def _prepared_session(self) -> "SparkSession":
        session = self._start()
        if not self._is_prepared:
            self._is_prepared = True
            self._open.enter_context(temporary_settings(session, reader_options.SETTINGS))
        return session

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    @property
    def client(self) -> Client:
        """One client of the target that lives as long as the run, for this thread."""
        if self._client is None:
            self._client = self._open.enter_context(self.connect())
        return self._client

    def namespace_properties(self, found: InventoryTable, namespace: Levels) -> dict[str, str]:
        """The properties of a source's namespace that a target can have; each namespace is asked for once."""
        key = (found.source, namespace)
        if key not in self._namespaces:
            properties = self.source_catalog(found).namespace_properties(namespace)
            self._namespaces[key] = {name: value for name, value in properties.items() if name not in NOT_CARRIED}
        return self._namespaces[key]

    def require_shadow_support(self) -> None:
        """Ask the target once whether it knows shadows."""
        if not self._knows_shadows:
            require_shadow_support(self.client)
            self._knows_shadows = True

    def source_catalog(self, found: InventoryTable) -> SourceCatalog:
        if found.source not in self._source_catalogs:
            opened = open_source_catalog(self.state.load_source(found.source), self.spark, self.environment)
            self._open.callback(opened.close)
            self._source_catalogs[found.source] = opened
        return self._source_catalogs[found.source]

    def run_step(
        self, tables: Iterable[MigrationTable], step: str, action: Callable[[MigrationTable], MigrationTable]
    ) -> list[MigrationTable]:
        """Take one step with every table; one that gets stuck keeps its state and a note, and the rest goes on."""
        wanted = list(tables)
        results = []
        for done, table in enumerate(wanted, 1):
            results.append(self.attempt(table, step, action))
            self.progress(ProgressStep(step, done, len(wanted)))
        return results

    def attempt(
        self, table: MigrationTable, step: str, action: Callable[[MigrationTable], MigrationTable]
    ) -> MigrationTable:
        try:
            return action(table)
        except Exception as error:
            return self.mark_failed(table, step, error)

    def mark_failed(self, table: MigrationTable, step: str, error: Exception) -> MigrationTable:
        """Note why a step failed. The table stays in the state that it had, so a refused rollback leaves it watched."""
        known = self.state.find_table(table_title(table.found)) or table  # the action may have stored more by now
        problem = redact_text(error_text(error))
        # A table whose verification is not green any more must not pass for verified.
        state = "shadowed" if step == "verify" and known.state == "verified" else known.state
        failed = msgspec.structs.replace(known, state=state, problem=problem, failed_at=step)
        return self.state.save_table(failed, f"failed: {problem}")


def error_text(error: Exception) -> str:
    match error:
        case CatalogError():
            return error.message + (f"; {error.hint}" if error.hint else "")
        case CannotRun():
            return f"{error.problem}; {error.fix}"
        case StepBlocked() | UnreadableFile():
            return str(error)
        case _:
            return failure_reason(error)


@contextmanager
def translate_source_errors(source: MigrationSource) -> Iterator[None]:
    """What a source does instead of answering becomes one error that says where to look.

    Metastores, storage, Amazon's client and Spark each raise something else, and these have no base in common.
    """
    try:
        yield
    except (CannotRun, CatalogError, ServerUnreachable):  # they say it themselves
        raise
    except Exception as error:
        raise CannotRun(
            f"The source {source.name} cannot be read: {error_text(error)}",
            fix=f"Look at its address: {source.address}",
        ) from error


def current_source_name(table: MigrationTable) -> tuple[str, ...]:
    """What the table is called at the source while it is, or is not, frozen."""
    found = table.found
    return (*found.name[:-1], table.frozen.to) if table.frozen.how == "renamed" else found.name


def ensure_namespaces(client: Client, namespace: tuple[str, ...]) -> None:
    for size in range(1, len(namespace) + 1):
        try:
            client.create_namespace(namespace[:size], {})
        except AlreadyExists:
            continue
