"""PostgreSQL and MariaDB under one interface, for tests of what a store promises on every database server."""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from types import ModuleType
from typing import Any
from urllib.parse import quote, urlsplit

import asyncpg

from nunatak.database import mariadb as mariadb_driver
from nunatak.database import mariadb_connections, postgres_connections
from nunatak.database import postgres as postgres_driver
from nunatak.database.ddl import Dialect
from tests.support import mariadb, postgres
from tests.support.mariadb import MariadbServer
from tests.support.mariadb_proxy import ends_with, holds, mariadb_proxy
from tests.support.postgres import PostgresServer
from tests.support.postgres_proxy import is_bind, is_query, postgres_proxy

LOOKS = 200
LOOK_SECONDS = 0.15  # MariaDB makes its list of transactions anew only if nobody looked for a tenth


class ForeignClient(ABC):
    """A client of the same tables that knows nothing of our locks, in a transaction of its own."""

    @abstractmethod
    async def execute(self, sql: str) -> None: ...

    @abstractmethod
    async def commit(self) -> None: ...

    @abstractmethod
    async def rollback(self) -> None: ...


class TestDatabase(ABC):
    """An empty database on a running server."""

    __test__ = False
    dialect: Dialect
    connections: ModuleType  # the module whose limits a test may change
    commit: Any  # matches the COMMIT of a transaction, for the proxy
    plain_commit: Any  # matches the request that moves one pointer
    insert: Any  # matches a request before the COMMIT of a create
    placeholder: str
    unreachable: str
    defaults: tuple[str, ...]  # SQL that gives a database other defaults, before it has tables
    waiting: str
    deadlocks: str
    url: str
    port: int

    @abstractmethod
    def another(self) -> "TestDatabase":
        """A further empty database on the same server."""

    @abstractmethod
    async def open(self, url: str | None = None, **options: Any) -> Any: ...

    @abstractmethod
    async def migrate(self) -> list[str]: ...

    @abstractmethod
    async def execute(self, sql: str, *values: object) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def proxy(self) -> AbstractAsyncContextManager[Any]: ...

    @abstractmethod
    async def through(self, proxy: Any) -> Any:
        """A store whose connections lead through the proxy."""

    @abstractmethod
    def foreign(self, **settings: str) -> AbstractAsyncContextManager[ForeignClient]: ...

    @abstractmethod
    def table_lock(self, table: str) -> AbstractAsyncContextManager[None]:
        """Lets others read the table, and makes them wait to write."""

    @abstractmethod
    async def sessions(self) -> list[int]:
        """The connections of our stores to this database."""

    @abstractmethod
    async def end(self, session: int) -> None: ...

    @abstractmethod
    def crash(self) -> None: ...

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def busy_connection(self, store: Any) -> AbstractAsyncContextManager[None]:
        """Keeps one connection of the store's pool in use."""

    @contextlib.contextmanager
    def read_only(self) -> Iterator[None]:
        raise NotImplementedError
        yield

    async def await_waiting(self, count: int = 1) -> None:
        for _ in range(LOOKS):
            if (await self.execute(self.waiting))[0][0] >= count:
                return
            await asyncio.sleep(LOOK_SECONDS)
        raise AssertionError(f"fewer than {count} waited")

    @property
    def name(self) -> str:
        return urlsplit(self.url).path[1:]


class PostgresClient(ForeignClient):
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def execute(self, sql: str) -> None:
        await self._connection.execute(sql)

    async def commit(self) -> None:
        await self._connection.execute("COMMIT")

    async def rollback(self) -> None:
        await self._connection.execute("ROLLBACK")


class PostgresDatabase(TestDatabase):
    dialect = "postgres"
    connections = postgres_connections
    commit = staticmethod(is_query("COMMIT"))
    plain_commit = insert = staticmethod(is_bind)
    placeholder = "$1"
    unreachable = "postgresql://nobody@127.0.0.1:1/nothing"
    defaults = ("",)
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self.url, self.port = server.new_database(), server.port

    def another(self) -> TestDatabase:
        return PostgresDatabase(self._server)

    async def open(self, url: str | None = None, **options: Any) -> Any:
        return await postgres_driver.open_store(url or self.url, **options)

    async def migrate(self) -> list[str]:
        return await postgres_driver.migrate_url(self.url)

    async def execute(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        return await postgres.execute(self.url, sql, *values)

    def proxy(self) -> AbstractAsyncContextManager[Any]:
        return postgres_proxy(self.port)

    async def through(self, proxy: Any) -> Any:
        url = f"postgresql://postgres@127.0.0.1:{proxy.port}/{self.name}?sslmode=disable"
        return await self.open(url, pool_size=2)

    @contextlib.asynccontextmanager
    async def foreign(self, **settings: str) -> AsyncIterator[ForeignClient]:
        connection = await asyncpg.connect(self.url, server_settings=settings)
        try:
            await connection.execute("BEGIN")
            yield PostgresClient(connection)
        finally:
            await connection.close()

    @contextlib.asynccontextmanager
    async def table_lock(self, table: str) -> AsyncIterator[None]:
        async with self.foreign() as client:
            await client.execute(f"LOCK TABLE {table} IN SHARE MODE")
            yield

    async def sessions(self) -> list[int]:
        of = "SELECT pid FROM pg_stat_activity WHERE application_name = 'nunatak' AND datname = current_database()"
        return [row[0] for row in await self.execute(of)]

    async def end(self, session: int) -> None:
        await self.execute(f"SELECT pg_terminate_backend({session})")

    def crash(self) -> None:
        self._server.stop_at_once()

    def start(self) -> None:
        self._server.start()

    @contextlib.asynccontextmanager
    async def busy_connection(self, store: Any) -> AsyncIterator[None]:
        session = await store._connections.take()
        try:
            yield
        finally:
            store._connections.give_back(session)

    @contextlib.contextmanager
    def read_only(self) -> Iterator[None]:
        change = f"ALTER DATABASE {self.name} SET default_transaction_read_only"
        end = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{self.name}'"
        elsewhere = self._server.url()
        asyncio.run(postgres.execute(elsewhere, f"{change} = on"))
        asyncio.run(postgres.execute(elsewhere, end))
        try:
            yield
        finally:
            asyncio.run(postgres.execute(elsewhere, f"{change} = off"))
            asyncio.run(postgres.execute(elsewhere, end))


class MariadbClient(ForeignClient):
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def execute(self, sql: str) -> None:
        await asyncio.to_thread(self._connection.cursor().execute, sql)

    async def commit(self) -> None:
        self._connection.commit()

    async def rollback(self) -> None:
        self._connection.rollback()


class MariadbDatabase(TestDatabase):
    dialect = "mariadb"
    connections = mariadb_connections
    commit = plain_commit = staticmethod(ends_with("COMMIT"))
    insert = staticmethod(holds("INSERT INTO iceberg_tables"))
    placeholder = "%s"
    unreachable = "mariadb://nobody@127.0.0.1:1/nothing"
    defaults = tuple(
        f"ALTER DATABASE {{name}} CHARACTER SET {collation.partition('_')[0]} COLLATE {collation};"
        f" SET default_storage_engine = {engine};"
        for collation, engine in (
            ("utf8mb4_general_ci", "InnoDB"),
            ("latin1_swedish_ci", "InnoDB"),
            ("latin1_swedish_ci", "Aria"),
        )
    )
    waiting = (
        "SELECT (SELECT count(*) FROM information_schema.processlist WHERE state LIKE 'Waiting for table%')"
        " + (SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT')"
    )
    deadlocks = "SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'"

    def __init__(self, server: MariadbServer) -> None:
        self._server = server
        self.url, self.port = server.new_database(), server.port

    def another(self) -> TestDatabase:
        return MariadbDatabase(self._server)

    async def open(self, url: str | None = None, **options: Any) -> Any:
        return await mariadb_driver.open_store(url or self.url, **options)

    async def migrate(self) -> list[str]:
        return await mariadb_driver.migrate_url(self.url)

    async def execute(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        return await asyncio.to_thread(mariadb.execute, self.url, sql, *values)

    def proxy(self) -> AbstractAsyncContextManager[Any]:
        return mariadb_proxy(self.port)

    async def through(self, proxy: Any) -> Any:
        user = f"{mariadb.USER}:{quote(mariadb.PASSWORD, safe='')}"
        return await self.open(f"mariadb://{user}@127.0.0.1:{proxy.port}/{self.name}", pool_size=2)

    @contextlib.asynccontextmanager
    async def foreign(self, **settings: str) -> AsyncIterator[ForeignClient]:
        with contextlib.closing(mariadb.connect(self.url, autocommit=False)) as connection:
            yield MariadbClient(connection)

    @contextlib.asynccontextmanager
    async def table_lock(self, table: str) -> AsyncIterator[None]:
        with contextlib.closing(mariadb.connect(self.url)) as holder:
            holder.query(f"LOCK TABLES {table} READ")
            yield
            holder.query("UNLOCK TABLES")

    async def sessions(self) -> list[int]:
        of = "SELECT id FROM information_schema.processlist WHERE user = %s AND db = %s"
        return [row[0] for row in await self.execute(of, mariadb.USER, self.name)]

    async def end(self, session: int) -> None:
        await self.execute(f"KILL {session}")

    def crash(self) -> None:
        self._server.kill()

    def start(self) -> None:
        self._server.start()

    @contextlib.asynccontextmanager
    async def busy_connection(self, store: Any) -> AsyncIterator[None]:
        let_go = asyncio.Event()
        loop = asyncio.get_running_loop()

        def hold(_: object) -> None:
            asyncio.run_coroutine_threadsafe(let_go.wait(), loop).result(60)

        busy = asyncio.create_task(store._connections.call(hold))
        await asyncio.sleep(0.05)
        try:
            yield
        finally:
            let_go.set()
            await busy

    @contextlib.contextmanager
    def read_only(self) -> Iterator[None]:
        self._server.execute("SET GLOBAL read_only = 1")
        try:
            yield
        finally:
            self._server.execute("SET GLOBAL read_only = 0")
