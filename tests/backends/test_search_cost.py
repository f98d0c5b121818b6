"""A piece of a search reads as many rows as it looks at, wherever it starts: no database scans the others."""

import json
from typing import Any

import asyncpg
import pymysql
import pymysql.cursors

from nunatak.database import mariadb as mariadb_driver
from nunatak.database.bindings import search_values
from nunatak.database.mariadb_connections import read_url
from nunatak.database.postgres import open_store
from nunatak.database.statements import in_named_style, number_parameters, read_statements
from tests.backends.conftest import Run

MANY, NAMES_PER_QUERY = 3000, 10
SLACK = 3  # the first row behind the piece, and how databases find the place to start at
VALUES = search_values("default", "nothing", None, ("ns", "t002000"), NAMES_PER_QUERY)


def rows_of_many() -> list[tuple[str, str, str, str]]:
    return [("default", "ns", f"t{number:06}", "file:///x") for number in range(MANY)]


def test_postgres_reads_no_more_rows_than_a_search_looks_at(database: str, run: Run[Any]) -> None:
    async def read() -> float:
        await (await open_store(database)).close()
        connection = await asyncpg.connect(database)
        insert = (
            "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location) "
            "VALUES ($1, $2, $3, $4)"
        )
        await connection.executemany(insert, rows_of_many())
        await connection.execute("ANALYZE iceberg_tables")
        sql, names = number_parameters(read_statements("postgres")["search_names"])
        plan = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", *[VALUES[name] for name in names])
        await connection.close()
        return most_rows(json.loads(plan)[0]["Plan"])

    assert NAMES_PER_QUERY <= run(read()) <= NAMES_PER_QUERY + SLACK


def most_rows(plan: dict[str, Any]) -> float:
    """The most rows that a step of the plan came upon."""
    seen = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0) + plan.get("Rows Removed by Index Recheck", 0)
    return max([seen, *(most_rows(inner) for inner in plan.get("Plans", []))])


def test_mariadb_reads_no_more_rows_than_a_search_looks_at(mariadb_database: str, run: Run[Any]) -> None:
    async def migrated() -> None:
        await (await mariadb_driver.open_store(mariadb_database)).close()

    run(migrated())
    with pymysql.connect(**read_url(mariadb_database), autocommit=True) as connection, connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location) "
            "VALUES (%s, %s, %s, %s)",
            rows_of_many(),
        )
        cursor.execute("ANALYZE TABLE iceberg_tables")
        sql, _ = in_named_style(read_statements("mariadb")["search_names"])
        before = rows_read(cursor)
        cursor.execute(sql, VALUES)
        cursor.fetchall()
        read = rows_read(cursor) - before

    assert NAMES_PER_QUERY <= read <= 2 * (NAMES_PER_QUERY + SLACK)


def rows_read(cursor: pymysql.cursors.Cursor) -> int:
    """By an index, in this session."""
    cursor.execute("SHOW SESSION STATUS WHERE variable_name IN ('Handler_read_next', 'Handler_read_key')")
    return sum(int(value) for _, value in cursor.fetchall())
