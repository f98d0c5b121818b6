"""What a migration becomes on each database."""

import pytest

from nunatak.database.ddl import DIALECTS, Dialect, in_dialect
from nunatak.database.statements import read_migrations

SOURCE = """-- What it is.
{create_table} things (
  thing_id {identity},
  name {key 130} NOT NULL,
  content {longbytes}
){options};

-- only: postgres
SELECT 1;

-- only: sqlite mariadb
SELECT 2;
"""


def test_a_placeholder_is_a_word_of_the_dialect() -> None:
    assert "CREATE TABLE things (\n  thing_id INTEGER PRIMARY KEY,\n  name TEXT NOT NULL," in in_dialect(
        SOURCE, "sqlite"
    )
    assert 'name TEXT COLLATE "C" NOT NULL,\n  content BYTEA\n);' in in_dialect(SOURCE, "postgres")
    assert "CREATE TABLE IF NOT EXISTS things" in in_dialect(SOURCE, "mariadb")
    assert "name VARCHAR(130) NOT NULL,\n  content LONGBLOB\n) ENGINE = InnoDB" in in_dialect(SOURCE, "mariadb")


@pytest.mark.parametrize(("dialect", "selected"), [("sqlite", 2), ("postgres", 1), ("mariadb", 2)])
def test_a_paragraph_for_one_database_is_left_out_on_the_others(dialect: Dialect, selected: int) -> None:
    assert in_dialect(SOURCE, dialect).count("SELECT") == 1
    assert f"SELECT {selected};" in in_dialect(SOURCE, dialect)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_migration_for_another_database_is_empty(dialect: Dialect) -> None:
    assert in_dialect("-- What it is.\n\n-- only: nobody\nSELECT 1;\n", dialect) == ""


@pytest.mark.parametrize("wrong", ["{key}", "{unheard_of 5}"])
def test_a_placeholder_that_is_wrong_is_refused(wrong: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        in_dialect(f"CREATE TABLE t (a {wrong});", "mariadb")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_placeholder_is_left_in_a_migration(dialect: Dialect) -> None:
    assert all("{" not in sql for _, _, sql in read_migrations(dialect))
