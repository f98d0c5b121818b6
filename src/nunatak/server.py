"""Builds the application from settings and runs it; the only module that imports every part."""

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import socket
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from nunatak.access.bootstrap import look
from nunatak.access.setup import open_access
from nunatak.access.vault import open_vault
from nunatak.address_file import Address, publish_address
from nunatak.api.app import App
from nunatak.api.http import RequestHead
from nunatak.api.paging import Tokens
from nunatak.api.request_limits import InFlight, rates_of
from nunatak.api.router import Router
from nunatak.api.transport.connection import ArrivalLimits, gate_of
from nunatak.api.transport.fast_path import FastPath
from nunatak.api.transport.http_server import HttpServer, make_server
from nunatak.api.transport.listeners import close_listeners, open_listeners
from nunatak.api.transport.protocol import protocol_with
from nunatak.api.transport.tls import keep_certificate
from nunatak.api.transport.workers import Lifeline, Workers
from nunatak.catalog.cache import MetadataCache
from nunatak.catalog.catalog import Catalog, WarehousePlace
from nunatak.catalog.jobs import run_jobs
from nunatak.catalog.sweep import run_sweeps
from nunatak.catalog.unpublished_files import run_unpublished
from nunatak.catalog.warehouses import Warehouses, refresh_periodically
from nunatak.catalog.write_behind import WriteBehind, run_write_behind
from nunatak.checks import catalog_name, check, in_memory, on_mariadb, on_postgres, on_sqlite, read_places, sqlite_path
from nunatak.database import mariadb, mariadb_connections
from nunatak.database.mariadb import MariadbStore
from nunatak.database.postgres import PostgresStore, migrate_url, open_store
from nunatak.database.postgres_connections import PostgresNotInstalled
from nunatak.database.sqlite import CannotOpen, DatabaseInUse, SqliteStore, migrate_file
from nunatak.database.store import Store
from nunatak.errors import CatalogError
from nunatak.events.audit_buffer import AuditBuffer, run_audit
from nunatak.events.metrics import Metrics
from nunatak.events.outbox import OutboxLimits, deliver, release_spool, run_outbox
from nunatak.events.retention import run_retention
from nunatak.events.seals import run_seals
from nunatak.events.spool import Spool, run_spool
from nunatak.events.worker_pages import all_pages, offer_page, places_in
from nunatak.objectstore.local_storage import LocalStorage
from nunatak.objectstore.store import ObjectStore
from nunatak.objectstore.vending.cache import CredentialCache
from nunatak.settings import Settings, SettingsError

log = logging.getLogger(__name__)

DRAIN_SECONDS = 20  # requests in flight get this long to finish after SIGTERM
MAX_FILES = 65_536
SPARE_SECONDS = 10  # after DRAIN_SECONDS, for a worker to close its files and connections
VARIANTS = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))
UUIDS_AT_ONCE = 128  # 2 KiB of random bytes, for about as many commits as share one fsync


def run(settings: Settings, announce: Callable[[str], None]) -> None:
    """Serves until SIGTERM or Ctrl-C; calls `announce` with the address once the server accepts requests."""
    _log_at(settings.log_level)
    _allow_connections()
    with _with_data_folder(settings) as complete:
        _run(complete, announce)


@contextlib.contextmanager
def _with_data_folder(settings: Settings) -> Iterator[Settings]:
    """Gives an in-memory catalog a temporary data folder, removed on shutdown, unless one was configured."""
    if not in_memory(settings) or settings.origins["data"] != "default":
        yield settings
        return
    with tempfile.TemporaryDirectory(prefix="nunatak-memory-", ignore_cleanup_errors=True) as folder:
        yield replace(settings, data=Path(folder))


def _run(settings: Settings, announce: Callable[[str], None]) -> None:
    tls = check(settings)
    listeners = open_listeners(settings)
    host, port = listeners[0].getsockname()[:2]
    scheme = "http" if tls is None else "https"
    uri = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
    try:
        with _publish_addresses(settings, uri):
            if settings.workers == 1:
                uvloop.run(_serve(settings, tls, listeners[0], lambda: announce(uri)))
            else:
                _serve_by_workers(settings, tls, listeners, lambda: announce(uri))
    finally:
        close_listeners(listeners)


@contextlib.contextmanager
def _publish_addresses(settings: Settings, uri: str) -> Iterator[None]:
    """Publishes in the data folder that its server listens at `uri`, for commands on this machine."""
    make_folder(settings.data)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(publish_address(settings.data, Address(catalog_name(settings), uri)))
        except OSError as error:  # a read-only data folder: commands need NUNATAK_CREDENTIAL
            log.warning("the address is not written to %s: %s", settings.data, error.strerror)
        yield


def _log_at(level: str) -> None:
    """Sets the log level of our own loggers; libraries stay at warning or above: their debug lines may hold tokens."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s")
    own = logging.getLogger(__package__)
    own.setLevel(level.upper())
    logging.getLogger().setLevel(max(own.level, logging.WARNING))
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # uvicorn warns about every malformed request


def _allow_connections() -> None:
    """Raises the limit of open files up to the hard limit: one client address could reach the usual 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _serve_by_workers(
    settings: Settings, tls: ssl.SSLContext | None, listeners: list[socket.socket], announce: Callable[[], None]
) -> None:
    with tempfile.TemporaryDirectory(prefix="nunatak-workers-") as folder:
        places = places_in(Path(folder), settings.workers)

        def work(number: int, lifeline: Lifeline) -> None:
            close_listeners(other for other in listeners if other is not listeners[number])
            company = _Company(number, lifeline, places)
            uvloop.run(_serve(settings, tls, listeners[number], lifeline.ready, company))

        workers = Workers(work, settings.workers, DRAIN_SECONDS + SPARE_SECONDS)
        workers.run(all_ready=announce, stopping=lambda: close_listeners(listeners))


@dataclass(frozen=True)
class _Company:
    """A worker among several: its number, its pipe to the parent, and the paths where all workers offer metrics."""

    number: int
    lifeline: Lifeline
    places: list[Path]


async def _serve(
    settings: Settings,
    tls: ssl.SSLContext | None,
    listener: socket.socket,
    announce: Callable[[], None],
    company: _Company | None = None,
) -> None:
    app = await build_app(settings)
    try:
        await _refuse_to_open(app, settings)
    except BaseException:
        await close_app(app)
        raise
    protocol = protocol_with(_fast_path(app), ArrivalLimits(settings.receive_seconds), app, gate_of(settings, app))
    duties = [asyncio.create_task(duty) for duty in _duties(settings, app)]
    if tls is not None:
        duties.append(asyncio.create_task(keep_certificate(tls, settings)))
    server = make_server(protocol, tls, announce, drain_seconds=DRAIN_SECONDS)
    _tune_collector()
    try:
        async with _in(company, app, server):
            await server.serve(sockets=[listener])
    finally:
        for duty in duties:
            duty.cancel()
        await asyncio.gather(*duties, return_exceptions=True)
        await close_app(app)


async def _refuse_to_open(app: App, settings: Settings) -> None:
    """Raises SettingsError if `auth` is none for a catalog that has an administrator, unless `allow_open` is set."""
    if settings.auth != ("none",) or not (await look(app.catalog.store)).administered:
        return
    if not settings.allow_open:
        raise SettingsError(
            "the catalog has an administrator, but auth is none: every caller would have all privileges. "
            "Set NUNATAK_AUTH=embedded (or oidc, proxy, certificate); to open it on purpose, NUNATAK_ALLOW_OPEN=true"
        )
    log.warning("auth is none: every caller has all privileges, regardless of grants (allow_open)")


def _tune_collector() -> None:
    """Tunes the garbage collector: freezes the objects that live as long as the server, and collects less often.

    A commit makes about a hundred objects without cycles; collecting took a twelfth of its time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _duties(settings: Settings, app: App) -> Iterator[Coroutine[Any, Any, None]]:
    """Yields the background tasks, which run until shutdown."""
    catalog = app.catalog
    yield run_jobs(catalog)
    yield run_unpublished(catalog.unpublished, catalog.store, catalog.job_added.set)
    yield run_seals(catalog.store, catalog.now_ms)
    if app.audit is not None:
        yield run_audit(app.audit, catalog.store)
    if settings.audit_retention_days:
        yield run_retention(catalog.store, catalog.now_ms, settings.audit_retention_days, app.router.reads)
    limits = OutboxLimits(settings.outbox_days, settings.outbox_events)
    yield run_outbox(catalog.store, catalog.spool, catalog.server_id, catalog.now_ms, limits)
    if catalog.spool is not None:
        yield run_spool(catalog.spool)
    if catalog.write_behind is not None:
        yield run_write_behind(catalog.write_behind)
    if not on_sqlite(settings):  # no other server adds warehouses to a SQLite database
        yield refresh_periodically(catalog.warehouses)
    if settings.sweep_age_seconds:
        yield run_sweeps(catalog, settings.sweep_seconds, settings.sweep_age_seconds, settings.object_sweep_seconds)


@contextlib.asynccontextmanager
async def _in(company: _Company | None, app: App, server: HttpServer) -> AsyncIterator[None]:
    """Shares metrics with the other workers, if any, and stops the server when the parent process has died."""
    if company is None:
        yield
        return
    loop = asyncio.get_running_loop()

    def orphaned() -> None:
        loop.remove_reader(company.lifeline.fileno())
        server.handle_exit(signal.SIGTERM, None)

    loop.add_reader(company.lifeline.fileno(), orphaned)
    async with await offer_page(company.places[company.number], app.metrics.page):
        app.metrics_page = partial(all_pages, company.places)
        yield
    loop.remove_reader(company.lifeline.fileno())


def _fast_path(app: App) -> FastPath | None:
    """Returns the fast path for loads; None unless the database is read synchronously (SQLite)."""
    store = app.catalog.store
    return FastPath(app, store) if isinstance(store, SqliteStore) else None


async def build_app(settings: Settings, *, exclusive: bool = True) -> App:
    """Builds the application without a listener; close it with `close_app`. SQLite is locked if `exclusive`."""
    places, roots, spool_folder = read_places(settings)
    objects = open_objects(settings, places)
    store = SqliteStore(None) if in_memory(settings) else await _open_database(settings, exclusive=exclusive)
    vault = open_vault(settings)
    new_uuid = uuid_maker()
    server_id = new_uuid()
    catalog = Catalog(
        store=store,
        objects=objects,
        warehouses=Warehouses(
            places,
            store,
            objects,
            roots,
            settings.plain_locations,
            vault,
            private_endpoints=settings.private_endpoints,
        ),
        default_warehouse=settings.default_warehouse,
        now_ms=_now_ms,
        new_uuid=new_uuid,
        cache=MetadataCache(settings.cache_bytes),
        server_id=server_id,
        credentials=CredentialCache(),
        namespace_separator=settings.namespace_separator,
        idempotency_seconds=settings.idempotency_seconds,
        maintenance_lease_seconds=settings.maintenance_lease_seconds,
        client_defaults=dict(settings.config_defaults),
        client_overrides=dict(settings.config_overrides),
        hints_show_names=settings.auth == ("none",),
        spool=Spool(spool_folder, server_id, _now_ms, settings.spool_bytes) if exclusive and spool_folder else None,
        write_behind=WriteBehind(store) if exclusive and on_sqlite(settings) else None,
    )
    await catalog.warehouses.refresh()
    metrics = Metrics(
        lambda: store.counts,
        lambda: objects.counts,
        lambda: catalog.cache.bytes,
        lambda: objects.written_bytes,
        lambda: app.audit.dropped if app.audit is not None else 0,
        lambda: catalog.spool.dropped if catalog.spool is not None else 0,
        catalog.credentials.counts,
    )
    app = App(
        catalog,
        Tokens(b""),
        metrics,
        settings.max_body_bytes,
        router=Router(base_paths=settings.base_paths),
        busy=InFlight(settings.max_in_flight),
        distinct_errors=settings.error_types == "distinct",
        vault=vault,
    )
    try:
        await _secure(app, settings)
    except BaseException:
        await close_app(app)
        raise
    return app


def open_objects(settings: Settings, places: Mapping[str, WarehousePlace]) -> ObjectStore:
    """Opens the storages of the configured warehouses; raises SettingsError if a library is not installed."""
    objects = ObjectStore(LocalStorage(linux_syscalls=settings.linux_syscalls))
    for each in places.values():
        try:
            objects.serve(each.profile, each.secret, each.allowed)
        except CatalogError as error:
            raise SettingsError(f"warehouse {each.name}: {error.message}. {error.hint or ''}".rstrip(" .")) from error
    return objects


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


async def _secure(app: App, settings: Settings) -> None:
    """Adds authentication, authorization, rate limits and audit to the app; with `auth` none only page tokens."""
    catalog, store = app.catalog, app.catalog.store
    assert app.vault is not None
    if settings.auth == ("none",):
        app.tokens = Tokens(await store.secret("page-token"), settings.page_size)
        return
    await app.vault.unlock(store)
    app.tokens = Tokens(await app.vault.secret(store, "page-token"), settings.page_size)
    app.access_setup = await open_access(settings, store, app.vault, catalog.now_ms)
    app.rates = rates_of(settings, time.monotonic, catalog.now_ms)
    app.audit = AuditBuffer(catalog.now_ms, spool=catalog.spool)
    app.audits_reads = settings.audit_reads


@contextlib.asynccontextmanager
async def open_database_read_only(settings: Settings, *, exclusive: bool) -> AsyncIterator[Store]:
    """Opens only the database, for a command; beside a running server SQLite needs `exclusive=False`, to read."""
    store = await _open_database(settings, exclusive=exclusive)
    try:
        yield store
    finally:
        await store.close()


async def _open_database(settings: Settings, *, exclusive: bool) -> SqliteStore | PostgresStore | MariadbStore:
    if on_mariadb(settings):
        try:
            return await mariadb.open_store(settings.database_url, pool_size=settings.database_connections)
        except CatalogError as error:
            raise SettingsError(f"database_url cannot be used: {error}") from error
    if on_postgres(settings):
        try:
            return await open_store(settings.database_url, pool_size=settings.database_connections)
        except (PostgresNotInstalled, CatalogError) as error:
            raise SettingsError(f"database_url cannot be used: {error}") from error
    try:
        return SqliteStore(database_path(settings), exclusive=exclusive)
    except DatabaseInUse as error:
        raise SettingsError(f"{error}; stop it, or choose another data folder") from error
    except CannotOpen as error:
        raise SettingsError(str(error)) from error


def uuid_maker() -> Callable[[], str]:
    """Returns a function that makes random UUIDs as text, without a UUID object: every commit makes two.

    They come from os.urandom, as they must not be predictable: they name files, and a file whose name is known may be
    readable. Many are drawn at once, since each system call releases the GIL. Those drawn before a fork are discarded:
    all workers would use the same.
    """
    waiting: list[str] = []
    owner = os.getpid()

    def new_uuid() -> str:
        nonlocal waiting, owner
        if owner != os.getpid():
            waiting, owner = [], os.getpid()
        try:
            digits = waiting.pop()  # atomic: no two threads get the same
        except IndexError:
            drawn = os.urandom(UUIDS_AT_ONCE * 16).hex()
            fresh = [drawn[start : start + 32] for start in range(0, len(drawn), 32)]
            digits, waiting = fresh.pop(), fresh
        # RFC 9562, version 4: six of the bits are fixed.
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{VARIANTS[digits[16]]}{digits[17:20]}-{digits[20:]}"

    return new_uuid


async def close_app(app: App) -> None:
    if app.audit is not None:
        await app.audit.flush(app.catalog.store, everything=True)
    if app.catalog.spool is not None:
        await _deliver_last(app.catalog, app.catalog.spool)
        await app.catalog.spool.flush(finish=True)
    if app.access_setup is not None:
        await app.access_setup.close()
    if app.catalog.write_behind is not None:
        with contextlib.suppress(CatalogError):  # metadata that is not stored is read from its file later
            await app.catalog.write_behind.store(everything=True)
    with contextlib.suppress(CatalogError):
        await app.catalog.unpublished.store(app.catalog.store)
    await app.catalog.store.close()
    await app.catalog.objects.close()


async def _deliver_last(catalog: Catalog, spool: Spool) -> None:
    """Hands the last events to the spool and lets another server continue; what fails stays in the outbox."""
    try:
        await deliver(catalog.store, spool, catalog.server_id, catalog.now_ms)
        await release_spool(catalog.store, catalog.server_id)
    except CatalogError:
        log.warning("the last events are left in the outbox", exc_info=True)


def database_path(settings: Settings) -> Path:
    """Returns the path of the SQLite file; creates its folder."""
    path = sqlite_path(settings)
    make_folder(path.parent)
    return path


def make_folder(folder: Path) -> None:
    """Creates a missing folder with mode 0700 and a .gitignore; raises SettingsError.

    The data folder holds the administrator's secret and the encryption keys, and often lies in a git repository.
    """
    if folder.is_dir():
        return
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        ignored = folder / ".gitignore"
        ignored.touch(mode=0o600)
        ignored.write_text("*\n")
    except OSError as error:
        raise SettingsError(f"the folder {folder} cannot be used: {error.strerror}") from error


def migrate(settings: Settings) -> list[str]:
    """Migrates the database to this version's schema; returns the names of the migrations applied."""
    try:
        if on_mariadb(settings):
            return asyncio.run(mariadb.migrate_url(settings.database_url))
        if on_postgres(settings):
            return asyncio.run(migrate_url(settings.database_url))
        return migrate_file(database_path(settings))
    except (PostgresNotInstalled, mariadb_connections.MariadbNotInstalled, CannotOpen) as error:
        raise SettingsError(f"the database cannot be migrated: {error}") from error


def answer(
    settings: Settings, method: str, path: str, headers: Mapping[str, str], body: bytes
) -> tuple[int, dict[str, str], bytes]:
    """Answers one request without a socket; beside a running server on SQLite only GET and HEAD work."""

    async def once() -> tuple[int, dict[str, str], bytes]:
        app = await build_app(settings, exclusive=method not in ("GET", "HEAD"))
        try:
            raw_path, _, query = path.partition("?")
            encoded = {name.lower().encode("latin-1"): value.encode("latin-1") for name, value in headers.items()}
            response = await app.respond(RequestHead(method, raw_path.encode(), query.encode(), encoded), body)
            shown = {name.decode("latin-1"): value.decode("latin-1") for name, value in response.headers}
            return response.status, shown, response.body
        finally:
            await close_app(app)

    return asyncio.run(once())
