"""Spark, which is Java's client, against a server that asks who you are: logins, tokens that end, rights."""

import itertools
import os
import signal
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.catalogs.principals import Login
from tests.support.catalogs.process import RunningServer, running_server
from tests.support.spark import Sql, configure, rest_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NUMBERS = itertools.count(1)
TOKEN_SECONDS = 8  # Java gets another token when a tenth of the life is left, which a slow machine must be able to use
WAIT_SECONDS = 30  # for what Java does in the background; a bound against hanging, not a promise of speed


def a_name(what: str) -> str:
    return f"{what}_{os.getpid()}_{next(NUMBERS)}"


def log_in(spark: "SparkSession", server: RunningServer, namespace: str, **options: str) -> Sql:
    """A catalog of its own in the session; `here.` is `namespace` in it."""
    name = a_name("login")
    configure(spark, rest_catalog(name, server.uri, cache_enabled="false", **options))
    return Sql(spark, name, namespace)


def create_cities(sql: Sql) -> None:
    sql(f"CREATE NAMESPACE {sql.catalog}.{sql.namespace}")
    sql("CREATE TABLE here.cities (id BIGINT, city STRING) USING iceberg")
    sql("INSERT INTO here.cities VALUES (1, 'Oslo'), (2, 'Bergen')")


def cities(sql: Sql) -> list[str]:
    return [row.city for row in sql("SELECT city FROM here.cities ORDER BY id")]


@pytest.fixture
def writer(secured: RunningServer) -> Login:
    return secured.principal(a_name("writer"), warehouse="WRITE")


@pytest.fixture
def sql(spark: "SparkSession", secured: RunningServer, writer: Login) -> Sql:
    """By the writer, who owns the namespace and the table `cities` in it."""
    opened = log_in(spark, secured, a_name("spark"), credential=writer.credential)
    create_cities(opened)
    return opened


# Logging in


def walk_through(sql: Sql) -> None:
    create_cities(sql)
    sql("DELETE FROM here.cities WHERE id = 1")
    sql("ALTER TABLE here.cities ADD COLUMN height DOUBLE")
    sql("UPDATE here.cities SET height = 1.5")
    sql(f"ALTER TABLE here.cities RENAME TO {sql.namespace}.towns")

    assert sql("SELECT * FROM here.towns") == [(2, "Bergen", 1.5)]
    sql("DROP TABLE here.towns")
    sql(f"DROP NAMESPACE {sql.catalog}.{sql.namespace}")


def test_a_credential_lets_spark_work(spark: "SparkSession", secured: RunningServer, writer: Login) -> None:
    """The wiring of seed 003, with its scope. MISSION: 003-60"""
    options = {"credential": writer.credential, "scope": "catalog", "oauth2_server_uri": secured.token_uri}
    walk_through(log_in(spark, secured, a_name("spark"), token_refresh_enabled="true", **options))


def test_a_token_lets_spark_work(spark: "SparkSession", secured: RunningServer, writer: Login) -> None:
    walk_through(log_in(spark, secured, a_name("spark"), token=secured.token(writer)))


def test_an_api_key_lets_spark_work(spark: "SparkSession", secured: RunningServer, writer: Login) -> None:
    walk_through(log_in(spark, secured, a_name("spark"), token=writer.api_key))


def test_a_wrong_secret_is_refused_by_its_reason(spark: "SparkSession", secured: RunningServer, writer: Login) -> None:
    sql = log_in(spark, secured, a_name("spark"), credential=f"{writer.client[0]}:guessed")

    with pytest.raises(Exception, match="Unknown client or wrong secret"):
        sql(f"SHOW NAMESPACES IN {sql.catalog}")


def test_nobody_is_let_in_without_credentials(spark: "SparkSession", secured: RunningServer) -> None:
    sql = log_in(spark, secured, a_name("spark"))

    with pytest.raises(Exception, match="No credentials were sent"):
        sql(f"SHOW NAMESPACES IN {sql.catalog}")


# Tokens that end


@pytest.fixture(scope="module")
def hurried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    data = tmp_path_factory.mktemp("hurried") / "nunatak-data"
    with running_server(data, environment={"NUNATAK_TOKEN_SECONDS": str(TOKEN_SECONDS)}, auth=True) as server:
        yield server


def test_work_goes_on_after_the_first_token_has_ended(spark: "SparkSession", hurried: RunningServer) -> None:
    """By client and secret, and by a bare token: both are exchanged for a new one in time, so nobody is refused."""
    writer = hurried.principal(a_name("writer"), warehouse="WRITE")
    by_credential = log_in(spark, hurried, a_name("spark"), credential=writer.credential)
    create_cities(by_credential)
    by_token = log_in(spark, hurried, a_name("spark"), token=hurried.token(writer))
    create_cities(by_token)
    issued, turned_away = hurried.tokens_issued(), hurried.turned_away()

    time.sleep(TOKEN_SECONDS)
    for sql in (by_credential, by_token):
        sql("INSERT INTO here.cities VALUES (3, 'Bodø')")
    time.sleep(TOKEN_SECONDS)
    for sql in (by_credential, by_token):
        sql("DELETE FROM here.cities WHERE id = 1")
        assert cities(sql) == ["Bergen", "Bodø"]

    assert hurried.tokens_issued() - issued >= 4
    assert hurried.turned_away() == turned_away


def insert_when_renewed(sql: Sql) -> None:
    """Java takes no notice of a refusal: until its timer has renewed the token, statements are refused."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            sql("INSERT INTO here.cities VALUES (3, 'Bodø')")
        except Exception as error:
            if "NotAuthorizedException" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


def test_work_goes_on_after_the_machine_has_slept(spark: "SparkSession", hurried: RunningServer) -> None:
    """The token ended while nobody could renew it: Java sends it with its secret and gets another one for both."""
    writer = hurried.principal(a_name("writer"), warehouse="WRITE")
    sql = log_in(spark, hurried, a_name("spark"), credential=writer.credential)
    create_cities(sql)
    gateway: Any = spark.sparkContext._gateway
    java = gateway.proc.pid

    os.kill(java, signal.SIGSTOP)
    try:
        time.sleep(TOKEN_SECONDS + 1.2)  # lives are counted from the next whole second
    finally:
        os.kill(java, signal.SIGCONT)
    insert_when_renewed(sql)

    assert cities(sql) == ["Oslo", "Bergen", "Bodø"]


# What each may do


def test_a_reader_reads_and_is_refused_everything_else(spark: "SparkSession", secured: RunningServer, sql: Sql) -> None:
    """Spark shows our message with the privilege that is missing. MISSION: 000-78"""
    reader = secured.principal(a_name("reader"), **{sql.namespace: "READ"})
    mine = log_in(spark, secured, sql.namespace, credential=reader.credential)
    assert cities(mine) == ["Oslo", "Bergen"]
    sql("CREATE VIEW here.all_cities AS SELECT * FROM here.cities")

    for privilege, statement in (
        ("TABLE_WRITE", "INSERT INTO here.cities VALUES (3, 'Bodø')"),
        ("TABLE_WRITE", "DELETE FROM here.cities WHERE id = 1"),
        ("TABLE_WRITE", "ALTER TABLE here.cities ADD COLUMN height DOUBLE"),
        ("TABLE_ALTER", f"ALTER TABLE here.cities RENAME TO {sql.namespace}.towns"),
        ("TABLE_CREATE", "CREATE TABLE here.own (id BIGINT) USING iceberg"),
        ("TABLE_CREATE", "CREATE TABLE here.own USING iceberg AS SELECT 1 AS id"),
        ("TABLE_WRITE", "CREATE OR REPLACE TABLE here.cities USING iceberg AS SELECT 1 AS id"),
        ("TABLE_CREATE", "CREATE VIEW here.own AS SELECT 1 AS id"),
        ("TABLE_WRITE", "CREATE OR REPLACE VIEW here.all_cities AS SELECT 1 AS id"),
        ("TABLE_DROP", "DROP VIEW here.all_cities"),
        ("TABLE_DROP", "DROP TABLE here.cities"),
        ("NS_CREATE", f"CREATE NAMESPACE {mine.catalog}.{a_name('own')}"),
        ("NS_DROP", f"DROP NAMESPACE {mine.catalog}.{sql.namespace}"),
    ):
        with pytest.raises(Exception, match=f"{reader.name} lacks {privilege}"):
            mine(statement)

    assert cities(sql) == ["Oslo", "Bergen"]


def test_whoever_was_granted_nothing_finds_nothing(spark: "SparkSession", secured: RunningServer, sql: Sql) -> None:
    """Neither tables nor namespaces are shown."""
    stranger = secured.principal(a_name("stranger"))
    mine = log_in(spark, secured, sql.namespace, credential=stranger.credential)

    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        cities(mine)


def test_lists_hold_only_what_the_caller_sees(spark: "SparkSession", secured: RunningServer, sql: Sql) -> None:
    sql("CREATE TABLE here.hidden (id BIGINT) USING iceberg")
    sql(f"CREATE NAMESPACE {sql.catalog}.{a_name('elsewhere')}")
    guest = secured.principal(a_name("guest"))
    secured.grant_on(guest.name, f"table:default/{sql.namespace}/cities", "READ")
    mine = log_in(spark, secured, sql.namespace, credential=guest.credential)

    assert [row.namespace for row in mine(f"SHOW NAMESPACES IN {mine.catalog}")] == [sql.namespace]
    assert [row.tableName for row in mine(f"SHOW TABLES IN {mine.catalog}.{sql.namespace}")] == ["cities"]
    assert cities(mine) == ["Oslo", "Bergen"]
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        mine("SELECT * FROM here.hidden")


def test_the_creator_may_drop_a_table_and_another_writer_may_not(
    spark: "SparkSession", secured: RunningServer, sql: Sql
) -> None:
    other = secured.principal(a_name("writer"), warehouse="WRITE")
    theirs = log_in(spark, secured, sql.namespace, credential=other.credential)
    theirs("INSERT INTO here.cities VALUES (3, 'Bodø')")
    for statement in ("DROP TABLE here.cities", "DROP TABLE here.cities PURGE"):
        with pytest.raises(Exception, match="lacks TABLE_DROP"):
            theirs(statement)

    assert cities(sql) == ["Oslo", "Bergen", "Bodø"]
    sql("DROP TABLE here.cities")
    assert sql(f"SHOW TABLES IN {sql.catalog}.{sql.namespace}") == []


def test_a_writer_makes_and_replaces_tables_from_queries(sql: Sql) -> None:
    """The location comes from the server, though the commit names it: no right to choose one is needed."""
    sql("CREATE TABLE here.copied USING iceberg PARTITIONED BY (city) AS SELECT * FROM here.cities")
    sql("CREATE OR REPLACE TABLE here.copied USING iceberg AS SELECT id FROM here.cities WHERE id > 1")
    sql("REPLACE TABLE here.copied USING iceberg TBLPROPERTIES ('team' = 'ops') AS SELECT 7 AS id")
    sql("CREATE OR REPLACE TABLE here.fresh USING iceberg AS SELECT * FROM here.cities")

    assert sql("SELECT id FROM here.copied") == [(7,)]
    assert sql.value("SELECT count(*) FROM here.fresh") == 2


def test_another_writer_may_replace_a_table_but_not_place_it(
    spark: "SparkSession", secured: RunningServer, sql: Sql
) -> None:
    other = secured.principal(a_name("writer"), warehouse="WRITE")
    theirs = log_in(spark, secured, sql.namespace, credential=other.credential)
    elsewhere = f"{sql.location('here.cities').as_uri()}-elsewhere"

    with pytest.raises(Exception, match="lacks LOCATION_CHOOSE"):
        theirs(f"CREATE OR REPLACE TABLE here.cities USING iceberg LOCATION '{elsewhere}' AS SELECT 1 AS id")
    with pytest.raises(Exception, match="lacks LOCATION_CHOOSE"):
        theirs(f"CREATE TABLE here.placed (id BIGINT) USING iceberg LOCATION '{elsewhere}'")
    theirs("CREATE OR REPLACE TABLE here.cities USING iceberg AS SELECT 1 AS id, 'Bodø' AS city")

    assert cities(sql) == ["Bodø"]


def test_views_are_made_replaced_renamed_and_dropped(spark: "SparkSession", secured: RunningServer, sql: Sql) -> None:
    """MISSION: 000-07"""
    sql("CREATE VIEW here.northern AS SELECT city FROM here.cities WHERE id > 1")
    sql("CREATE OR REPLACE VIEW here.northern AS SELECT city FROM here.cities WHERE id = 1")
    sql("ALTER VIEW here.northern SET TBLPROPERTIES ('team' = 'ops')")
    sql("ALTER VIEW here.northern RENAME TO here.southern")
    assert sql("SELECT * FROM here.southern") == [("Oslo",)]

    guest = secured.principal(a_name("guest"))
    secured.grant_on(guest.name, f"table:default/{sql.namespace}/cities", "READ")
    mine = log_in(spark, secured, sql.namespace, credential=guest.credential)
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        mine("SELECT * FROM here.southern")

    sql("DROP VIEW here.southern")
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        sql("SELECT * FROM here.southern")
