"""The schema of every version on MariaDB: what was released has not changed, and each is brought to the newest."""

from pathlib import Path
from typing import Any

import pytest

from nunatak.database import statements
from nunatak.database.mariadb import migrate_url, open_store
from nunatak.database.statements import read_migrations
from tests.backends.builders import create_namespace, insert, key, move, stored
from tests.backends.conftest import Run
from tests.support.mariadb import MariadbServer
from tests.support.schemas import mariadb_schema, migrations_up_to, script_path

NUMBERS = [number for number, _, _ in read_migrations("mariadb")]
NAMES = [name for _, name, _ in read_migrations("mariadb")]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_migration_that_was_released_has_not_changed(
    mariadb: MariadbServer, number: int, tmp_path: Path, run: Run[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = script_path("mariadb", number)
    assert path.exists(), "a migration was added: python -m tests.support.schemas"
    kept, made = mariadb.new_database(), mariadb.new_database()
    mariadb.execute(path.read_text(), url=kept)
    monkeypatch.setattr(statements, "MIGRATIONS", migrations_up_to(number, tmp_path / "migrations"))
    run(migrate_url(made))

    assert mariadb_schema(made) == mariadb_schema(kept)


@pytest.mark.parametrize("number", NUMBERS)
def test_every_schema_is_brought_to_the_newest_and_keeps_its_rows(
    mariadb: MariadbServer, number: int, run: Run[Any]
) -> None:
    url, fresh = mariadb.new_database(), mariadb.new_database()
    mariadb.execute(script_path("mariadb", number).read_text(), url=url)
    mariadb.execute("INSERT INTO iceberg_tables VALUES ('default', 'ns', 'old', 'file:///old', NULL, NULL)", url=url)
    mariadb.execute("INSERT INTO nunatak_jobs (kind, payload) VALUES ('delete-files', '{}')", url=url)

    assert run(migrate_url(url)) == NAMES[number:]

    run(migrate_url(fresh))
    assert mariadb_schema(url) == mariadb_schema(fresh)
    store = run(open_store(url))
    assert run(store.find_pointer(key("old"), None)).metadata_location == "file:///old"
    assert run(store.next_job_time()) == 0
    run(store.apply([create_namespace("new"), insert("t", "new")]))
    run(store.apply([move("t", insert("t", "new").new, stored("v2"), "new")]))
    run(store.close())
