"""How names become text of the query that a source's database is asked."""

import sqlite3
from contextlib import closing

import pytest

from nunatak_spark.migration.sources.jdbc import database_literal

HOSTILE = ["plain", "it's", "x\\' OR 1=1 -- ", "\\", "''", "a\\\\'b", "${env:PATH}", "☃", "a;b", "/* */"]


@pytest.mark.parametrize("text", HOSTILE)
def test_sqlite_reads_a_name_back(text: str) -> None:
    with closing(sqlite3.connect(":memory:")) as database:
        (found,) = database.execute(f"SELECT {database_literal('sqlite', text)}").fetchone()

    assert found == text


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("kind", ["mysql", "mariadb", "postgresql"])
def test_no_backslash_hides_the_quote_that_ends_a_name(kind: str, text: str) -> None:
    inside = database_literal(kind, text).removeprefix("E")[1:-1]

    assert inside.replace("\\\\", "").replace("''", "").count("'") == 0
    assert "\\" not in inside.replace("\\\\", "")
    assert inside.replace("\\\\", "\\").replace("''", "'") == text
