"""What one database server has and the other has not; what both promise is in `test_database_servers.py`.

PostgreSQL: numbered parameters, migrations in a transaction, defaults of a database that override ours. MariaDB: SQL
texts with literals in them, packets of a limited size, migrations that are resumed, global settings under which commits
may be lost, addresses with TLS options.
"""

import asyncio
import contextlib
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import asyncpg
import pymysql
import pytest

from nunatak.database import mariadb_connections
from nunatak.database.mariadb import MariadbStore
from nunatak.database.mariadb import migrate_url as migrate_mariadb
from nunatak.database.mariadb import open_store as open_mariadb
from nunatak.database.mariadb_connections import BYTE_ORDER, MariadbSession, Unsuitable, read_url
from nunatak.database.migration_runner import MigrationInterrupted
from nunatak.database.postgres import open_store as open_postgres
from nunatak.database.records import AddJob
from nunatak.database.statements import in_named_style, number_parameters, read_migrations, read_statements
from nunatak.errors import BadRequest, InternalError, ServiceUnavailable
from tests.backends.builders import CATALOG, create_namespace, insert, key, move, stored
from tests.backends.conftest import Run
from tests.backends.test_database_servers import JDBC_V1, pointer, row_lock
from tests.support.database_servers import MariadbDatabase
from tests.support.mariadb import PASSWORD, USER, MariadbServer, connect, running_mariadb
from tests.support.postgres import execute

# PostgreSQL: parameters are numbered and typed by the server


def test_every_statement_can_be_prepared_on_postgres(database: str, run: Run[Any]) -> None:
    run(run(open_postgres(database)).close())

    async def prepare() -> list[str]:
        connection = await asyncpg.connect(database)
        refused = []
        for name, sql in read_statements("postgres").items():
            try:
                await connection.prepare(number_parameters(sql)[0])
            except asyncpg.PostgresError as error:
                refused.append(f"{name}: {error}")
        await connection.close()
        return refused

    assert run(prepare()) == []


def test_names_of_parameters_become_numbers_and_casts_stay() -> None:
    assert number_parameters("SELECT :a::text, :b, ':' || :a WHERE x = :b::int[]") == (
        "SELECT $1::text, $2, ':' || $1 WHERE x = $2::int[]",
        ("a", "b"),
    )


def test_a_character_that_postgres_cannot_store_is_refused(database: str, run: Run[Any]) -> None:
    store = run(open_postgres(database))

    with pytest.raises(BadRequest, match="cannot keep"):
        run(store.apply([create_namespace("p", nul="\0")]))
    assert not run(store.namespace_exists(CATALOG, "p"))
    with pytest.raises(BadRequest, match="cannot keep"):
        run(store.find_kind(key("\0")))
    run(store.close())


def test_a_migration_that_fails_leaves_the_database_as_it_was_and_no_lock(database: str, run: Run[Any]) -> None:
    run(execute(database, "CREATE TABLE nunatak_heads (in_the_way TEXT)"))

    with pytest.raises(InternalError, match="nunatak_heads"):
        run(open_postgres(database))

    tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    assert run(execute(database, tables)) == [("nunatak_heads",)]
    assert run(execute(database, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")) == [(0,)]
    run(execute(database, "DROP TABLE nunatak_heads"))
    run(run(open_postgres(database)).close())


@pytest.mark.parametrize(
    ("setting", "theirs", "ours"),
    [
        ("default_transaction_isolation", "serializable", "read committed"),
        ("synchronous_commit", "off", "on"),
        ("tcp_keepalives_idle", "7200", "60"),
    ],
)
def test_what_correctness_rests_on_is_set_whatever_the_default_of_the_postgres_database(
    database: str, run: Run[Any], setting: str, theirs: str, ours: str
) -> None:
    name = database.rpartition("/")[2].partition("?")[0]
    run(execute(database, f"ALTER DATABASE {name} SET {setting} = '{theirs}'"))
    store = run(open_postgres(database))

    async def found() -> object:
        session = await store._connections.take()
        try:
            return await session.connection.fetchval(f"SHOW {setting}")
        finally:
            store._connections.give_back(session)

    assert run(found()) == ours
    run(store.close())


# MariaDB: statements are texts with literals in them


@pytest.fixture
def store(mariadb_database: str, run: Run[Any]) -> Iterator[MariadbStore]:
    opened = run(open_mariadb(mariadb_database))
    yield opened
    run(opened.close())


@pytest.fixture
def full(store: MariadbStore, run: Run[Any]) -> MariadbStore:
    """Namespace `ns` with the table `t`."""
    run(store.apply([create_namespace(), insert("t")]))
    return store


NOT_FOR_MARIADB = {"count_catalog"}  # no backup


def test_every_statement_that_is_used_can_be_prepared(
    store: MariadbStore, mariadb: MariadbServer, mariadb_database: str
) -> None:
    refused = {}
    for name, sql in read_statements("mariadb").items():
        if not sql:
            continue
        text = re.sub(r":\w+", "?", re.sub(r"IN :\w+", "IN (?)", sql.rstrip(";"))).replace("'", "''")
        mode = f"SET sql_mode = '{mariadb_connections.SQL_MODE}'"
        try:
            mariadb.execute(f"{mode}; PREPARE it FROM '{text}'", url=mariadb_database)
        except pymysql.MySQLError as error:
            refused[name] = str(error)

    assert set(refused) == NOT_FOR_MARIADB, refused


def test_names_of_parameters_become_the_drivers_and_percents_stay() -> None:
    assert in_named_style("SELECT :a, 5 % :b, @x := :a WHERE c = 'd:e';") == (
        "SELECT %(a)s, 5 %% %(b)s, @x := %(a)s WHERE c = 'd:e'",
        ("a", "b"),
    )


HOSTILE_TEXTS = (
    "'; DROP TABLE iceberg_tables; -- ",
    "\\'; DROP TABLE iceberg_tables; -- ",
    'a"b`c\\',
    "x\x1ay",
    "日本'\\語;",
)


def test_a_second_statement_is_refused(full: MariadbStore, run: Run[Any]) -> None:
    def twice(session: MariadbSession) -> object:
        return session.statement("SELECT 1; SELECT 2")

    def after_a_batch(session: MariadbSession) -> object:
        session.batch([("begin_transaction", {}), ("commit_transaction", {})])
        return session.statement("SELECT 1; SELECT 2")

    def after_a_batch_that_failed(session: MariadbSession) -> object:
        with pytest.raises(pymysql.Error):
            session.script("SELECT 1; SELECT nothing; SELECT 3")
        return session.statement("SELECT 1; SELECT 2")

    for attempt in (twice, after_a_batch, after_a_batch_that_failed):
        with pytest.raises(pymysql.err.ProgrammingError, match="syntax"):
            run(full._connections.call(attempt))


def test_a_session_is_of_use_after_a_batch_that_failed(full: MariadbStore, run: Run[Any]) -> None:
    def failed_and_asked(session: MariadbSession) -> object:
        with pytest.raises(pymysql.Error):
            session.script("SELECT 1; SELECT nothing; SELECT 3")
        return session.statement("SELECT 4").rows

    assert run(full._connections.call(failed_and_asked)) == ((4,),)


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_a_text_that_could_end_a_literal_is_sent_as_digits(full: MariadbStore, run: Run[Any], text: str) -> None:
    def sent(session: MariadbSession) -> bytes:
        return session._text("save_secret", {"name": text, "value": b"x"})

    statement = run(full._connections.call(sent))
    assert text.encode().hex().encode() in statement
    assert statement.count(b"'") == 4, "no literal has a quote inside it"

    run(full.apply([create_namespace(text, key=text)]))
    assert run(full.find_namespace(CATALOG, text)) == {"key": text}
    assert run(full.list_namespaces(CATALOG, "", "", 100))[0].count(text) == 1
    assert run(full.find_kind(key("t"))) == "TABLE", "it is still there"


def test_bytes_that_do_not_fit_into_a_packet_are_left_to_the_file(
    mariadb_database: str, mariadb: MariadbServer, run: Run[Any]
) -> None:
    mariadb.execute("SET GLOBAL max_allowed_packet = 1048576")
    try:
        store = run(open_mariadb(mariadb_database))
        run(store.apply([create_namespace(), insert("t")]))
        fits, does_not = stored("v2", content=b"x" * 400_000), stored("v3", content=b"x" * 600_000)
        run(store.apply([move("t", insert("t").new, fits)]))
        assert run(store.find_pointer(key("t"), None)).content == fits.content
        run(store.apply([move("t", fits, does_not)]))
        assert run(store.find_pointer(key("t"), None)).content is None
        many = {f"p{number}": "x" * 999 for number in range(2000)}
        run(store.apply([create_namespace("many", **many)]))  # in several packets
        assert run(store.find_namespace(CATALOG, "many")) == many
        with pytest.raises(BadRequest, match="max_allowed_packet"):
            run(store.apply([AddJob("delete-files", b"x" * 600_000)]))
        run(store.close())
    finally:
        mariadb.execute("SET GLOBAL max_allowed_packet = DEFAULT")


def test_a_name_with_a_nul_is_a_name_of_its_own(full: MariadbStore, run: Run[Any]) -> None:
    run(full.apply([insert("t\0")]))

    assert run(pointer(full, "t\0")) == insert("t\0").new.metadata_location
    assert run(pointer(full)) == insert("t").new.metadata_location


def test_children_of_a_namespace_with_many_descendants_take_few_round_trips(
    mariadb: MariadbServer, run: Run[Any]
) -> None:
    """The optimizer skips through the index, page by page; PostgreSQL does so in one recursive statement."""
    db = MariadbDatabase(mariadb)
    run(db.migrate())
    rows = ",".join(f"('default', 'big.n{number}', 'exists', 'true')" for number in range(5000))
    run(db.execute(f"INSERT INTO iceberg_namespace_properties VALUES {rows}"))

    async def count() -> tuple[Any, int]:
        async with db.proxy() as proxy:
            store = await db.through(proxy)
            await store.find_kind(key("t"))
            before = proxy.round_trips
            children = await store.list_namespaces(CATALOG, "", "", 100)
            trips = proxy.round_trips - before
            await store.close()
            return children, trips

    assert run(count()) == ((["big"], None), 2)


# MariaDB: a definition is committed at once, so an interrupted migration is resumed


def test_a_migration_that_was_interrupted_anywhere_is_carried_on(mariadb: MariadbServer, run: Run[Any]) -> None:
    """Definitions cannot be undone here; so every one of them may be run again."""
    steps = [step for _, _, sql in read_migrations("mariadb") for step in sql.split(";\n") if step.strip()]
    for count in range(len(steps)):
        database = mariadb.new_database()
        if count:
            mariadb.execute(";\n".join(steps[:count]), url=database)
        store = run(open_mariadb(database))
        run(store.apply([create_namespace(), insert("t")]))
        assert run(pointer(store)) == insert("t").new.metadata_location
        run(store.close())


def test_a_migration_that_is_not_allowed_says_so_and_keeps_no_lock(mariadb: MariadbServer, run: Run[Any]) -> None:
    database = mariadb.url("else_where")
    mariadb.execute(f"CREATE DATABASE else_where; GRANT SELECT, CREATE, INSERT ON else_where.* TO {USER}@localhost")

    with pytest.raises(MigrationInterrupted, match=r"0001_catalog could not be finished.*ALTER"):
        run(open_mariadb(database))

    mariadb.execute(f"GRANT ALL ON else_where.* TO {USER}@localhost")
    run(run(open_mariadb(database)).close())


def test_a_migration_gives_way_to_whoever_holds_a_table_and_comes_again(
    mariadb: MariadbServer, mariadb_database: str, run: Run[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mariadb_connections, "LOCK_SECONDS", 1)
    monkeypatch.setattr("nunatak.database.migration_runner.PAUSE_SECONDS", 0.1)
    mariadb.execute(JDBC_V1, url=mariadb_database)

    async def meet() -> list[str]:
        with contextlib.closing(connect(mariadb_database, autocommit=False)) as theirs:
            theirs.cursor().execute("SELECT * FROM iceberg_tables")  # and their transaction is not over
            ours = asyncio.create_task(migrate_mariadb(mariadb_database))
            await asyncio.wait([ours], timeout=1.5)
            assert not ours.done()
        return await ours

    assert run(meet()) == [name for _, name, _ in read_migrations("mariadb")]


# MariaDB: locks with a short timeout, and settings of the whole server


def test_a_commit_that_waits_too_long_for_a_lock_is_tried_again_and_then_refused(
    mariadb_database: str, mariadb: MariadbServer, run: Run[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mariadb_connections, "LOCK_SECONDS", 1)
    store = run(open_mariadb(mariadb_database))
    run(store.apply([create_namespace(), insert("t")]))
    change = move("t", insert("t").new, stored("v2"))

    async def meet(release_seconds: float) -> Any:
        with contextlib.closing(connect(mariadb_database, autocommit=False)) as theirs:
            theirs.cursor().execute(row_lock("t"))
            ours = asyncio.create_task(store.apply([change]))
            await asyncio.wait([ours], timeout=release_seconds)
            theirs.rollback()
        return (await asyncio.gather(ours, return_exceptions=True))[0]

    monkeypatch.setattr("nunatak.database.server_store.TRIES", 1)
    assert isinstance(run(meet(30)), ServiceUnavailable)
    assert run(pointer(store)) == insert("t").new.metadata_location
    monkeypatch.setattr("nunatak.database.server_store.TRIES", 10)
    assert run(meet(1.5)) == [None]
    assert run(pointer(store)) == stored("v2").metadata_location
    run(store.close())


@pytest.mark.parametrize(
    ("variable", "theirs", "ours"),
    [
        ("tx_isolation", "SERIALIZABLE", "READ-COMMITTED"),
        ("sql_mode", "NO_BACKSLASH_ESCAPES", mariadb_connections.SQL_MODE),
        ("autocommit", "0", 1),
        ("collation_connection", "utf8mb4_general_ci", BYTE_ORDER["MariaDB"]),
    ],
)
def test_what_correctness_rests_on_is_set_whatever_the_default(
    mariadb_database: str, mariadb: MariadbServer, run: Run[Any], variable: str, theirs: str, ours: object
) -> None:
    before = mariadb.execute(f"SELECT @@global.{variable}")[0][0]
    mariadb.execute(f"SET GLOBAL {variable} = %s", int(theirs) if theirs.isdigit() else theirs)
    try:
        store = run(open_mariadb(mariadb_database))

        found = run(store._connections.call(lambda session: session.statement(f"SELECT @@{variable}").rows[0][0]))

        if variable == "sql_mode":
            assert set(found.split(",")) == set(str(ours).split(","))
        else:
            assert found == ours
        run(store.apply([create_namespace("it's\\")]))
        run(store.close())
    finally:
        mariadb.execute(f"SET GLOBAL {variable} = %s", before)


def test_a_server_that_may_forget_commits_is_refused(
    mariadb_database: str, mariadb: MariadbServer, run: Run[Any]
) -> None:
    mariadb.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 2")
    try:
        with pytest.raises(Unsuitable, match="innodb_flush_log_at_trx_commit is 2, set it to 1"):
            run(open_mariadb(mariadb_database))
    finally:
        mariadb.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 1")


@pytest.fixture(scope="module")
def strict_server(mariadb: MariadbServer) -> Iterator[tuple[MariadbServer, Path]]:
    """A server with a binary log and a certificate for 127.0.0.1; and the certificate."""
    with tempfile.TemporaryDirectory(prefix="nunatak-certificate-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # the server has a user of its own
        certificate, private = folder / "certificate.pem", folder / "private.pem"
        request = [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=nunatak test",
        ]
        request += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(private), "-out", str(certificate)]
        subprocess.run(request, check=True, capture_output=True)
        private.chmod(0o644)
        with running_mariadb("log-bin=log", "sync-binlog=1", f"ssl-cert={certificate}", f"ssl-key={private}") as server:
            yield server, certificate


@pytest.mark.parametrize(
    ("variable", "wrong", "right"), [("sync_binlog", 0, 1), ("binlog_format", "STATEMENT", "MIXED")]
)
def test_a_binary_log_that_could_not_bring_back_a_commit_is_refused(
    strict_server: tuple[MariadbServer, Path], run: Run[Any], variable: str, wrong: object, right: object
) -> None:
    server, _ = strict_server
    database = server.new_database()
    server.execute(f"SET GLOBAL {variable} = %s", wrong)
    try:
        with pytest.raises(Unsuitable, match=f"set (it to|{variable})"):
            run(open_mariadb(database))
    finally:
        server.execute(f"SET GLOBAL {variable} = %s", right)
    store = run(open_mariadb(database))
    run(store.apply([create_namespace(), insert("t")]))
    run(store.apply([move("t", insert("t").new, stored("v2"))]))
    run(store.close())


# MariaDB: addresses


@pytest.mark.parametrize("part", ["wrong-password", "no-database"])
def test_an_address_that_leads_nowhere_is_said_to_be_wrong(
    mariadb_database: str, run: Run[Any], part: str, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = (
        mariadb_database.replace(quote(PASSWORD, safe=""), "secret")
        if part == "wrong-password"
        else f"{mariadb_database}0"
    )

    with pytest.raises(Unsuitable, match="MariaDB refused the connection") as raised:
        run(open_mariadb(wrong))
    assert PASSWORD not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("mariadb://user@host", "must name a user and a database"),
        ("mariadb://host/name", "must name a user and a database"),
        ("mariadb://user@host/name?sslca=x", "not known: sslca"),
        ("mariadb://user@host/name?ssl=maybe", "ssl=maybe"),
        ("mariadb://user@host/name?ssl_ca=/nowhere", "cannot be read"),
    ],
)
def test_an_address_that_is_wrong_is_refused(url: str, problem: str) -> None:
    with pytest.raises(Unsuitable, match=problem):
        read_url(url)


def test_another_machine_must_prove_who_it_is_unless_told_otherwise() -> None:
    for host in ("127.0.0.1", "127.0.0.2", "[::1]", "localhost"):
        assert read_url(f"mysql://user@{host}/name")["ssl_disabled"]
    assert read_url("mysql://user@host/name?unix_socket=/run/socket")["ssl_disabled"]
    assert read_url("mysql://user@host/name?ssl=off")["ssl_disabled"]
    assert read_url("mysql://user@host/name")["ssl"].check_hostname
    assert not read_url("mysql://user@host/name?ssl=required")["ssl"].check_hostname


def test_a_certificate_is_verified_when_asked_for(strict_server: tuple[MariadbServer, Path], run: Run[Any]) -> None:
    server, certificate = strict_server
    database = server.new_database()

    for option in (f"ssl=verify&ssl_ca={certificate}", "ssl=required"):
        store = run(open_mariadb(f"{database}?{option}"))
        cipher = "SHOW SESSION STATUS LIKE 'Ssl_cipher'"
        assert run(store._connections.call(lambda session: session.statement(cipher).rows[0][1]))  # noqa: B023
        run(store.close())
    for url in (
        f"{database}?ssl=verify",
        f"{database.replace('127.0.0.1', 'localhost')}?ssl=verify&ssl_ca={certificate}",
    ):
        with pytest.raises(ServiceUnavailable, match=r"Cannot connect to MariaDB.*certificate"):
            run(open_mariadb(url))
