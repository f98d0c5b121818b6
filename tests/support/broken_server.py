"""Servers with one known fault each, for the canaries: a test that does not find the fault could not find a real one.

`running_server(data, broken="no-cas")` starts one; several names are joined by commas and applied in that order. A new
breakage is a function below with `@on_app` (it changes what was built) or `@before_start` (it changes the code before
anything is built); nothing in it may happen by chance alone.
"""

import asyncio
import contextlib
import dataclasses
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from nunatak import server
from nunatak.api.app import App
from nunatak.api.transport import http_server
from nunatak.catalog import commits, job_queue, jobs, tables
from nunatak.catalog.cache import Loaded
from nunatak.catalog.catalog import Caller, Catalog, WarehousePlace
from nunatak.catalog.pointers import find_pointer, key_of, load_pointer
from nunatak.cli.main import main
from nunatak.database import postgres, postgres_connections, sqlite, statements
from nunatak.database.records import Change, Key, Kind, MovePointer, SaveAnswer, StoredResponse, Write
from nunatak.database.store import KeyTaken
from nunatak.errors import CatalogError, CommitFailed
from nunatak.iceberg.identifiers import Identifier, Namespace
from nunatak.objectstore.store import ObjectStore
from tests.support import hostile_disk

LATE_SECONDS = 0.1  # how long a broken server puts off what had to be done at once: many requests long
SLOW_SECONDS = 0.5

BREAKAGES: dict[str, Callable[[], None]] = {}

Broken = Callable[[App], None]


def before_start(name: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def register(change: Callable[[], None]) -> Callable[[], None]:
        BREAKAGES[name] = change
        return change

    return register


def on_app(name: str) -> Callable[[Broken], Broken]:
    def register(change: Broken) -> Broken:
        def wrap() -> None:
            build = server.build_app

            async def build_broken(*arguments: Any, **options: Any) -> App:
                app = await build(*arguments, **options)
                change(app)
                return app

            server.build_app = build_broken

        BREAKAGES[name] = wrap
        return change

    return register


def replace(owner: Any, name: str, new: object) -> Any:
    """Put `new` in place of something that must be there; returns the old one."""
    old = getattr(owner, name)
    setattr(owner, name, new)
    return old


def leave_fast_lane() -> None:
    """Every load goes through the handler, where it can be broken."""
    replace(server, "_fast_path", lambda _: None)


# Commits


@on_app("no-cas")
def move_any_head(app: App) -> None:
    """The pointer moves wherever it stands, and nobody takes turns: the later of two commits overwrites the earlier."""
    store = app.catalog.store

    @asynccontextmanager
    async def at_once(_: Iterable[Key]) -> AsyncIterator[None]:
        yield

    async def apply_anyway(changes: Sequence[Change]) -> list[object]:
        return await apply([await forced(change) if isinstance(change, MovePointer) else change for change in changes])

    async def forced(change: MovePointer) -> MovePointer:
        head = await store.find_pointer(change.key, None)
        return change if head is None else msgspec.structs.replace(change, expected=head.metadata_location)

    replace(app.catalog.table_locks, "acquire", at_once)
    apply = replace(store, "apply", apply_anyway)


@on_app("answer-before-commit")
def answer_too_early(app: App) -> None:
    """A commit is answered while its change still waits to be written."""
    waiting: set[asyncio.Task[Any]] = set()

    async def apply_later(changes: Sequence[Change]) -> list[object]:
        if not any(isinstance(change, MovePointer) for change in changes):
            return await apply(changes)
        waiting.add(asyncio.create_task(late(changes)))
        return [None] * len(changes)

    async def late(changes: Sequence[Change]) -> None:
        await asyncio.sleep(LATE_SECONDS)
        await apply(changes)

    apply = replace(app.catalog.store, "apply", apply_later)


@on_app("no-idempotency")
def recognise_nothing(app: App) -> None:
    """A request that is sent again is taken for a new one; and answers come late, so that many get lost."""

    async def nothing(*_: object) -> None:
        return None

    async def apply_and_rest(changes: Sequence[Change]) -> list[object]:
        results = await apply([change for change in changes if not isinstance(change, SaveAnswer)])
        await asyncio.sleep(LATE_SECONDS)
        return results

    replace(app.catalog.store, "find_answer", nothing)
    replace(app.catalog.store, "find_commit", nothing)
    apply = replace(app.catalog.store, "apply", apply_and_rest)


@on_app("key-taken-ignored")
def carry_out_anyway(app: App) -> None:
    """A change whose key was taken meanwhile by another server is carried out all the same."""

    async def apply_anyway(changes: Sequence[Change]) -> list[object]:
        try:
            return await apply(changes)
        except KeyTaken:
            return await apply([change for change in changes if not isinstance(change, SaveAnswer)])

    apply = replace(app.catalog.store, "apply", apply_anyway)


@on_app("file-after-pointer")
def write_file_late(app: App) -> None:
    """The pointer moves first, and the file it names is written a moment later."""
    waiting: set[asyncio.Task[Any]] = set()

    async def write_later(location: str, data: bytes, pack: Callable[[bytes], Any]) -> Any:
        waiting.add(asyncio.create_task(late(location, data)))
        return pack(data)

    async def write_small_later(location: str, data: bytes) -> None:
        waiting.add(asyncio.create_task(late(location, data)))

    async def late(location: str, data: bytes) -> None:
        await asyncio.sleep(SLOW_SECONDS)
        await write(location, data, len)

    leave_fast_lane()
    app.catalog = dataclasses.replace(app.catalog, write_behind=None)  # or the first load would look for the file
    replace(tables, "check_file", lambda _: None)
    write = replace(app.catalog.objects, "write_metadata", write_later)
    replace(app.catalog.objects, "write_new", write_small_later)


@on_app("swallow-error-409")
def answer_200_for_a_refusal(app: App) -> None:
    """A commit that lost is answered with the table as it is."""

    async def always_done(
        catalog: Catalog,
        warehouse: WarehousePlace,
        caller: Caller,
        wanted: Sequence[Any],
        answer: StoredResponse | None = None,
    ) -> list[Loaded]:
        try:
            return await commit(catalog, warehouse, caller, wanted, answer)
        except CommitFailed:
            found = [await find_pointer(catalog, key_of(warehouse, each.identifier), "TABLE") for each in wanted]
            return [loaded for loaded in found if loaded is not None]

    commit = replace(commits, "commit_tables", always_done)


@on_app("torn-transactions")
def commit_one_after_the_other(app: App) -> None:
    """The tables of a transaction move one by one, with time for a crash in between."""

    async def one_by_one(
        catalog: Catalog,
        warehouse: WarehousePlace,
        caller: Caller,
        wanted: Sequence[Any],
        answer: StoredResponse | None = None,
    ) -> list[Loaded]:
        loaded = []
        for each in wanted:
            loaded += await commit(catalog, warehouse, msgspec.structs.replace(caller, key=None), [each], answer)
            await asyncio.sleep(LATE_SECONDS)
        return loaded

    commit = replace(commits, "commit_tables", one_by_one)


@on_app("audit-apart")
def audit_a_moment_later(app: App) -> None:
    """An audit row is written in a transaction of its own, behind that of its change."""
    waiting: set[asyncio.Task[Any]] = set()

    async def apply_apart(changes: Sequence[Change]) -> list[object]:
        rows = [change for change in changes if isinstance(change, Write) and change.statement == "add_audit"]
        results = await apply([change for change in changes if change not in rows])
        if rows:
            waiting.add(asyncio.create_task(late(rows)))
        return results

    async def late(rows: Sequence[Change]) -> None:
        await asyncio.sleep(LATE_SECONDS)
        await apply(rows)

    apply = replace(app.catalog.store, "apply", apply_apart)


# Reads


@on_app("stale-reads")
def show_what_was(app: App) -> None:
    """A load shows what another load saw a moment ago."""
    shown: dict[Identifier, tuple[float, Loaded]] = {}

    async def load_late(
        catalog: Catalog, warehouse: WarehousePlace, identifier: Identifier, kind: Kind, policy: int | None = None
    ) -> Loaded:
        until, loaded = shown.get(identifier, (0.0, None))
        if loaded is None or time.monotonic() > until:
            loaded = await load(catalog, warehouse, identifier, kind, policy)
            shown[identifier] = (time.monotonic() + LATE_SECONDS, loaded)
        return loaded

    leave_fast_lane()
    load = replace(tables, "load_pointer", load_late)


@on_app("paging-by-offset")
def count_instead_of_remember(app: App) -> None:
    """The next page starts after so many names, not after the last one: a drop in between moves the rest."""

    async def by_offset(
        catalog: Catalog, warehouse: WarehousePlace, namespace: Namespace, kind: Kind, after: str, limit: int
    ) -> tuple[str, str | None]:
        everything = f"[{(await list_entries(catalog, warehouse, namespace, kind, '', 100_000))[0]}]"
        names = msgspec.json.decode(everything)
        start = int(after or 0)
        page = b",".join(msgspec.json.encode(name) for name in names[start : start + limit]).decode()
        return page, str(start + limit) if len(names) > start + limit else None

    list_entries = replace(tables, "list_entries", by_offset)


# Lifecycle


@on_app("rename-in-two-steps")
def register_and_drop(app: App) -> None:
    """A rename registers the new name and drops the old one: for a moment there are two, and both may stay."""

    async def rename_slowly(
        catalog: Catalog, warehouse: WarehousePlace, caller: Caller, source: Identifier, to: Identifier, kind: Kind
    ) -> None:
        if source == to:
            return
        nobody = msgspec.structs.replace(caller, key=None)
        loaded = await load_pointer(catalog, warehouse, source, kind)
        await tables.register_table(catalog, warehouse, nobody, to, loaded.metadata_location, overwrite=False)
        await asyncio.sleep(LATE_SECONDS)
        await tables.drop_entry(catalog, warehouse, nobody, source, kind, purge=False)

    replace(tables, "rename_entry", rename_slowly)


@on_app("purge-by-prefix")
def purge_whatever_begins_alike(app: App) -> None:
    """A purge deletes every file whose path begins like the table's folder."""

    def delete_alike(warehouse: str, prefix: str) -> None:
        for path in Path(warehouse.removeprefix("file://")).rglob("*"):
            if path.is_file() and f"file://{path}".startswith(prefix):
                path.unlink()

    async def purge_prefix(_: Catalog, warehouse: WarehousePlace, payload: dict[str, Any], *__: object) -> list[Change]:
        await asyncio.to_thread(delete_alike, warehouse.location, payload["location"])
        return []

    replace(jobs, "_purge", purge_prefix)


@on_app("finish-before-purge")
def forget_the_job_first(app: App) -> None:
    """A purge is taken for done when it begins, so that a crash ends it for good."""

    async def run_forgotten(catalog: Catalog, job: job_queue.QueuedJob, lease: jobs.Lease) -> object:
        finished = job_queue.finish(job.job_id, catalog.server_id, "done", now_ms=catalog.now_ms())
        await catalog.store.apply([*finished, job_queue.forget_finished(job.job_id)])
        return await run(catalog, job, lease)

    run = replace(jobs, "_run", run_forgotten)


@on_app("slow-deletes")
def delete_slowly(app: App) -> None:
    """A purge takes so long that it can be killed midway."""

    async def delete_late(location: str) -> None:
        await asyncio.sleep(LATE_SECONDS)
        await delete(location)

    delete = replace(app.catalog.objects, "delete", delete_late)


# Processes


@before_start("no-lock")
def share_the_file() -> None:
    """A second server starts on the same file."""
    replace(sqlite, "_lock_file", lambda _: os.open(os.devnull, os.O_RDONLY))


@on_app("slow-to-commit")
def rest_before_the_swap(app: App) -> None:
    """Not wrong, only slow: time to be stopped between the file and the pointer, with what was read long ago."""

    async def apply_slowly(changes: Sequence[Change]) -> list[object]:
        if any(isinstance(change, MovePointer) for change in changes):
            await asyncio.sleep(SLOW_SECONDS)
        return await apply(changes)

    apply = replace(app.catalog.store, "apply", apply_slowly)


@on_app("ends-at-once")
def drop_what_was_begun(app: App) -> None:
    """SIGTERM ends the process whatever it is doing."""
    replace(http_server.HttpServer, "handle_exit", lambda *_: os.kill(os.getpid(), signal.SIGKILL))


# PostgreSQL


@before_start("asynchronous-commit")
def answer_before_the_disk() -> None:
    """The database answers a commit before it is on the disk."""

    async def open_hasty(connections: postgres_connections.PostgresConnections) -> postgres_connections.PostgresSession:
        session = await opened(connections)
        await session.script("SET synchronous_commit = off")
        return session

    opened = replace(postgres_connections.PostgresConnections, "open", open_hasty)


@before_start("no-resolution")
def take_lost_for_undone() -> None:
    """A commit whose connection was lost counts as undone and is done again; nobody asks what became of it."""

    async def undone(*_: object) -> frozenset[str]:
        return frozenset()  # none of them happened

    replace(postgres.PostgresStore, "_resolve", undone)


# Disks and clocks


@before_start("hostile-disk")
def suffer_from_the_disk() -> None:
    """Not a fault of the server: its files lie on a bad disk."""
    hostile_disk.install()


@before_start("write-errors-ignored")
def ignore_the_disk() -> None:
    """A file that could not be written is taken for written."""
    write = ObjectStore.write_new

    async def write_or_not(*arguments: Any) -> None:
        with contextlib.suppress(CatalogError):
            await write(*arguments)

    replace(ObjectStore, "write_new", write_or_not)


# Versions


@before_start("later-version")
def know_more_migrations() -> None:
    """Not a fault but a version to come, which has the migrations of another folder."""
    replace(statements, "MIGRATIONS", Path(os.environ["NUNATAK_TEST_MIGRATIONS"]))


if __name__ == "__main__":
    for name in sys.argv.pop(1).split(","):
        BREAKAGES[name]()
    main()
