"""The schema of every version as a script that makes it, kept so that an upgrade from each can be tested for ever.

`python -m tests.support.schemas` writes those that are missing, after a migration was added. One that is there belongs
to a version that somebody may run: it is never written anew, and its migration never changed.
"""

import asyncio
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from nunatak.database import statements
from nunatak.database.ddl import Dialect
from nunatak.database.mariadb import migrate_url as migrate_mariadb
from nunatak.database.postgres import migrate_url
from nunatak.database.sqlite import migrate_file
from nunatak.database.statements import read_migrations
from tests.support import mariadb
from tests.support.homes import Home, Homes
from tests.support.postgres import find_binaries, running_postgres

FOLDER = Path(__file__).parents[1] / "faults" / "schemas"
KINDS: tuple[Dialect, ...] = ("sqlite", "postgres")
ROWS = FOLDER / "rows.sql"
NOISE = ("--", "SET ", "SELECT pg_catalog.", "\\")  # of pg_dump: comments and settings of its session


def script_path(kind: Dialect, number: int) -> Path:
    return FOLDER / kind / f"{number:04}.sql"


def migrations_up_to(number: int, folder: Path, *more: tuple[str, str]) -> Path:
    """A folder with the migrations of that version, and with others as file name and SQL."""
    packaged = Path(str(statements.MIGRATIONS))
    folder.mkdir(parents=True, exist_ok=True)
    for each, name, _ in read_migrations():
        if each <= number:
            shutil.copyfile(packaged / f"{name}.sql", folder / f"{name}.sql")
    for name, sql in more:
        (folder / name).write_text(sql)
    return folder


def migrate(home: Home) -> list[str]:
    """In this process, by the migrations that it knows."""
    if isinstance(home.database, Path):
        return migrate_file(home.database)
    return asyncio.run(migrate_url(home.database))


def script_of(home: Home) -> str:
    """What makes this database's tables anew, and says which migrations they have."""
    if home.url is None:
        found = home.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid")
        made = "".join(f"{sql};\n" for (sql,) in found)
    else:
        binaries = find_binaries()
        assert binaries is not None
        dump: list[str | Path] = [binaries / "pg_dump", "--schema-only", "--no-owner", "--no-privileges", home.url]
        written = subprocess.run(dump, check=True, capture_output=True, text=True).stdout
        made = "".join(f"{line}\n" for line in written.splitlines() if line and not line.startswith(NOISE))
    applied = home.execute("SELECT number, name FROM nunatak_migrations ORDER BY number")
    return made + "".join(f"INSERT INTO nunatak_migrations VALUES ({number}, '{name}');\n" for number, name in applied)


def mariadb_script(url: str) -> str:
    """As `script_of`, of a database of MariaDB."""
    tables = sorted(name for (name,) in mariadb.execute(url, "SHOW TABLES"))
    made = [mariadb.execute(url, f"SHOW CREATE TABLE {table}")[0][1] for table in tables]
    applied = mariadb.execute(url, "SELECT number, name FROM nunatak_migrations ORDER BY number")
    noted = [f"INSERT INTO nunatak_migrations VALUES ({number}, '{name}')" for number, name in applied]
    return "".join(f"{re.sub(r' AUTO_INCREMENT=[0-9]+', '', each)};\n" for each in [*made, *noted])


def mariadb_schema(url: str) -> list[tuple[Any, ...]]:
    """As `Home.schema`, of a database of MariaDB: its columns and its indexes."""
    columns = (
        "SELECT table_name, column_name, column_type, is_nullable, column_default, collation_name, extra"
        " FROM information_schema.columns WHERE table_schema = database() ORDER BY 1, 2"
    )
    indexes = (
        "SELECT table_name, index_name, non_unique, seq_in_index, column_name, sub_part"
        " FROM information_schema.statistics WHERE table_schema = database() ORDER BY 1, 2, 4"
    )
    return mariadb.execute(url, columns) + mariadb.execute(url, indexes)


def write_missing_of_mariadb(folder: Path) -> None:
    packaged = statements.MIGRATIONS
    with mariadb.running_mariadb() as server:
        for number, _, _ in read_migrations("mariadb"):
            target = script_path("mariadb", number)
            if target.exists():
                continue
            url = server.new_database()
            statements.MIGRATIONS = migrations_up_to(number, folder / f"migrations-mariadb-{number}")
            asyncio.run(migrate_mariadb(url))
            statements.MIGRATIONS = packaged
            target.write_text(mariadb_script(url))
            print(f"wrote {target}")


def write_missing() -> None:
    packaged = statements.MIGRATIONS
    with running_postgres("fsync=off") as server, tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            homes = Homes(kind, Path(folder), server if kind == "postgres" else None)
            for number, name, _ in read_migrations(kind):
                target = script_path(kind, number)
                if target.exists():
                    continue
                home = homes.new(f"{kind}-{name}")
                statements.MIGRATIONS = migrations_up_to(number, Path(folder) / f"migrations-{kind}-{number}")
                migrate(home)
                statements.MIGRATIONS = packaged
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(script_of(home))
                print(f"wrote {target}")


if __name__ == "__main__":
    write_missing()
    with tempfile.TemporaryDirectory() as made:
        write_missing_of_mariadb(Path(made))
