"""The context of a migration command: state, source catalogs, target client, Spark on demand, and progress."""

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

NOT_CARRIED = frozenset({"location"})  # namespace properties; the target decides where new tables lie
MOVED = "__moved"  # suffix of a frozen table's name at the source


class StepBlocked(Exception):
    """This table cannot continue, others can. The text says why, and what to do."""


@dataclass
class MigrationRun:
    """One command. `connect` returns a new client of the target; source catalogs are opened once, closed at the end.

    While it runs, the Spark session has the settings of `reader_options`.
    """

    state: MigrationState
    connect: Callable[[], AbstractContextManager[Client]]
    spark: StartSpark
    catalog: str
    environment: Mapping[str, str]
    progress: Progress = no_progress
    source_lock: threading.Lock = field(default_factory=threading.Lock)  # source clients are not thread-safe
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
        """The client of the target for the main thread; open until the end of the run."""
        if self._client is None:
            self._client = self._open.enter_context(self.connect())
        return self._client

    def namespace_properties(self, found: InventoryTable, namespace: Levels) -> dict[str, str]:
        """Returns the properties of a source namespace that the target accepts; each namespace is read once."""
        key = (found.source, namespace)
        if key not in self._namespaces:
            properties = self.source_catalog(found).namespace_properties(namespace)
            self._namespaces[key] = {name: value for name, value in properties.items() if name not in NOT_CARRIED}
        return self._namespaces[key]

    def require_shadow_support(self) -> None:
        """Checks once that the target supports shadows; raises CannotRun."""
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
        """Runs a step for every table; a failed table keeps its state and gets a note, the others go on."""
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
        """Records why a step failed. The table keeps its state, so that a refused rollback leaves it cut over."""
        known = (
            self.state.find_table(table_title(table.found)) or table
        )  # the action may have saved the table meanwhile
        problem = redact_text(error_text(error))
        # A failed verification must not leave the state `verified`.
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
    """Turns any error of a source into CannotRun with the source's address.

    Metastores, storage, AWS clients and Spark raise different errors without a common base class.
    """
    try:
        yield
    except (CannotRun, CatalogError, ServerUnreachable):  # their messages are clear already
        raise
    except Exception as error:
        raise CannotRun(
            f"The source {source.name} cannot be read: {error_text(error)}",
            fix=f"Look at its address: {source.address}",
        ) from error


def current_source_name(table: MigrationTable) -> tuple[str, ...]:
    """Returns the table's current name at the source, which differs while it is frozen by renaming."""
    found = table.found
    return (*found.name[:-1], table.frozen.to) if table.frozen.how == "renamed" else found.name


def ensure_namespaces(client: Client, namespace: tuple[str, ...]) -> None:
    for size in range(1, len(namespace) + 1):
        try:
            client.create_namespace(namespace[:size], {})
        except AlreadyExists:
            continue
