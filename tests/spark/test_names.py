"""Names and values of users are text to Spark and nothing else: no variable, no statement, no end of a string."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, get_args

import pytest

import nunatak_spark
from nunatak.client import Client
from nunatak.maintenance.job_spec import JobSpec, JobType
from nunatak_spark import system_tables
from nunatak_spark.errors import CannotRun
from nunatak_spark.fingerprint import fingerprint
from nunatak_spark.jobs import find_job, parse_spec, run
from nunatak_spark.maintenance.dispatch import maintain
from nunatak_spark.maintenance.job_context import JobContext
from nunatak_spark.sql_text import (
    REQUIRED_SETTINGS,
    SUBSTITUTE,
    literal,
    protect_sql_text,
    quote_identifier,
    quote_name,
)
from tests.support.catalogs.process import RunningServer
from tests.support.spark import Installation, Sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECRET = "nunatak-secret-that-nobody-may-see"
HOSTILE = (
    "t${env:NUNATAK_TEST_SECRET}",
    "${system:user.home}",
    "${spark.app.id}${spark:spark.app.id}${hivevar:x}${hiveconf:x}${x}",
    "a`b``c",
    "it's ''quoted''",
    'the "other" quotes',
    "back\\slash \\' \\u0041 \\x41 \\101 \\% \\_ \\n",
    "line\nbreak\r\n\t",
    "snow ☃ 😀 \u2028 é e\u0301",
    "-- a comment",
    "/* a comment */ /*+ HINT */",
    "a; DROP TABLE b",
    "%s {0} {name} :name ? $1 @x",
    " leading and trailing ",
    "${",
    "${${env:NUNATAK_TEST_SECRET}}",
    "x\\",
)
JOB_TYPES: tuple[JobType, ...] = get_args(JobType)


@pytest.fixture(autouse=True)
def secret(spark: "SparkSession") -> Iterator[None]:
    """A variable of the JVM that a name may ask for; the environment of a running JVM cannot be added to."""
    jvm: Any = spark._jvm
    jvm.java.lang.System.setProperty("nunatak.test.secret", SECRET)
    yield
    jvm.java.lang.System.clearProperty("nunatak.test.secret")


@pytest.mark.parametrize("text", [*HOSTILE, "${system:nunatak.test.secret}"])
def test_a_value_and_a_name_come_back_as_they_were_given(spark: "SparkSession", text: str) -> None:
    protect_sql_text(spark)

    (row,) = spark.sql(
        f"SELECT {literal(text)} AS {quote_identifier(text)}, {literal(text)} = {literal(text)} AS same"
    ).collect()

    assert row.asDict() == {text: text, "same": True}


def test_a_session_of_somebody_else_is_prepared_wherever_it_enters(spark: "SparkSession", sql: Sql) -> None:
    sql("CREATE TABLE t (id BIGINT) USING iceberg")
    job = find_job("fingerprint")
    spec = parse_spec(job, b'{"table": "lake.%s.t"}' % sql.namespace.encode())
    others = [spark.newSession() for _ in range(2)]
    for other in others:
        other.conf.set(SUBSTITUTE, "true")
        other.conf.set("spark.sql.parser.escapedStringLiterals", "true")

    run(job, others[0], spec)
    nunatak_spark.add_catalog(others[1], nunatak_spark.CatalogConfig(str(spark.conf.get("spark.sql.catalog.lake.uri"))))

    for other in others:
        assert {key: other.conf.get(key) for key in REQUIRED_SETTINGS} == REQUIRED_SETTINGS
        assert other.sql("SELECT '${system:nunatak.test.secret}'").collect()[0][0] == "${system:nunatak.test.secret}"


def test_a_session_that_we_make_begins_every_further_session_of_its_application_right(
    spark: "SparkSession", installation: Installation
) -> None:
    """What an application is begun with is what each of its sessions begins with."""
    builder = nunatak_spark.configure(type(spark).Builder(), catalog="further", jars=installation.jars)
    assert {key: builder._options[key] for key in REQUIRED_SETTINGS} == REQUIRED_SETTINGS

    begun_with = spark.sparkContext.getConf().get(SUBSTITUTE, "true")  # another test's application may not be ours
    assert spark.newSession().conf.get(SUBSTITUTE) == begun_with


def test_a_session_that_replaces_variables_in_spite_of_its_settings_is_refused(spark: "SparkSession") -> None:
    class Stubborn:
        """As a server behind Spark Connect whose administrator decides about the setting."""

        conf = spark.newSession().conf

        def sql(self, statement: str) -> Any:
            other = spark.newSession()
            other.conf.set(SUBSTITUTE, "true")
            return other.sql(statement)

    with pytest.raises(CannotRun, match="changes the text"):
        protect_sql_text(Stubborn())  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", JOB_TYPES)
def test_no_job_tells_what_a_name_asks_for(
    spark: "SparkSession", sql: Sql, shared_server: RunningServer, kind: JobType
) -> None:
    """The table, its namespace, its columns and a value of a partition are hostile, in a session that was so, too."""
    with Client(shared_server.uri) as client:
        work = hostile_work(spark, client, sql.namespace, kind)
        before = fingerprint(spark, quote_name(("lake", *work.spec.namespace, work.spec.table)))

        spark.conf.set(SUBSTITUTE, "true")
        outcome = maintain(work)

        assert outcome.ok, outcome
        assert SECRET not in str(outcome)
        assert spark.conf.get(SUBSTITUTE) == "false"
        if kind != "row-retention":
            after = fingerprint(spark, quote_name(("lake", *work.spec.namespace, work.spec.table)))
            assert after == before


def hostile_work(spark: "SparkSession", client: Client, prefix: str, kind: JobType) -> JobContext:
    """Six small files, so that each job finds something to do."""
    protect_sql_text(spark)
    table = f"{kind} `'\"\\ ${{system:nunatak.test.secret}} -- /* ☃"
    namespace = f"{prefix} ${{system:nunatak.test.secret}} '`"
    column = "c`'\"\\ ${system:nunatak.test.secret} -- ☃"
    name = quote_name(("lake", namespace, table))
    spark.sql(f"CREATE NAMESPACE {quote_name(('lake', namespace))}")
    spark.sql(
        f"CREATE TABLE {name} (id BIGINT, {quote_identifier(column)} STRING, at TIMESTAMP) USING iceberg "
        f"PARTITIONED BY ({quote_identifier(column)}) TBLPROPERTIES ('write.delete.mode'='merge-on-read', "
        f"'remark' = {literal('${system:nunatak.test.secret}')})"
    )
    value = literal("v'`\"\\ ${system:nunatak.test.secret} -- /* ☃")
    for number in range(6):
        spark.sql(f"INSERT INTO {name} SELECT id, {value}, TIMESTAMP '2020-01-01' FROM range({number}, {number + 3})")
    spark.sql(f"DELETE FROM {name} WHERE id = 2")
    options: dict[str, Any] = {
        "verify": "full",
        "max-snapshot-age-seconds": 0,
        "max-age-seconds": 60,
        "column": "at",
        "older-than-seconds": 60 * 86_400,
    }
    if kind == "data-compaction":
        options |= {"strategy": "sort", "columns": [column]}
    if kind == "statistics":  # Iceberg itself cannot count the values of a column with a backtick
        options |= {"columns": ["at"]}
    spec = JobSpec(
        type=kind,
        warehouse="default",
        namespace=[namespace],
        table=table,
        table_uuid=client.load_table((namespace, table))["metadata"]["table-uuid"],
        options=options,
    )
    return JobContext(spark, client, "lake", spec, f"hostile-{kind}-{os.getpid()}")


def test_views_and_comments_are_text(spark: "SparkSession", sql: Sql) -> None:
    """A view's text is read again whenever somebody asks it."""
    protect_sql_text(spark)
    text = literal("${system:nunatak.test.secret}")
    name = quote_name(("lake", sql.namespace, "a view ${system:nunatak.test.secret}"))

    spark.sql(f"CREATE VIEW {name} COMMENT {text} AS SELECT {text} AS it")
    made = system_tables.ensure_system_table(
        spark, "lake", f"names_{sql.namespace}", "id BIGINT", comment="${env:PATH} it's \\"
    )

    assert sql.spark.sql(f"SELECT it FROM {name}").collect()[0][0] == "${system:nunatak.test.secret}"
    told = {row[0]: row[1] for row in spark.sql(f"DESCRIBE TABLE EXTENDED {made}").collect()}
    assert told["Comment"] == "${env:PATH} it's \\"
