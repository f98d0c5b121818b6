"""The schema of every version as a script that makes it, kept so that an upgrade from each can be tested for ever.

`python -m tests.support.schemas` writes those that are missing, after a migration was added. One that is there belongs
to a version that somebody may run: it is never written anew, and its migration never changed.
"""

import asyncio
import shutil
import subprocess
import tempfile
from pathlib import Path

from nunatak.database import statements
from nunatak.database.postgres import migrate_url
from nunatak.database.sqlite import migrate_file
from nunatak.database.statements import Dialect, read_migrations
from tests.support.homes import Home, Homes
from tests.support.postgres import find_binaries, running_postgres

FOLDER = Path(__file__).parents[1] / "faults" / "schemas"
KINDS: tuple[Dialect, ...] = ("sqlite", "postgres")
ROWS = FOLDER / "rows.sql"
NOISE = ("--", "SET ", "SELECT pg_catalog.", "\\")  # of pg_dump: comments and settings of its session


def script_path(kind: Dialect, number: int) -> Path:
    return FOLDER / kind / f"{number:04}.sql"


def migrations_up_to(number: int, folder: Path, *more: tuple[str, str, str]) -> Path:
    """A folder with the migrations of that version, and with others as kind, file name and SQL."""
    packaged = Path(str(statements.MIGRATIONS))
    for kind in KINDS:
        place = "" if kind == "sqlite" else kind
        (folder / place).mkdir(parents=True, exist_ok=True)
        for each, name, _ in read_migrations(kind):
            if each <= number:
                shutil.copyfile(packaged / place / f"{name}.sql", folder / place / f"{name}.sql")
        for wanted, name, sql in more:
            if wanted == kind:
                (folder / place / name).write_text(sql)
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
        dump = [binaries / "pg_dump", "--schema-only", "--no-owner", "--no-privileges", home.url]
        written = subprocess.run(dump, check=True, capture_output=True, text=True).stdout
        made = "".join(f"{line}\n" for line in written.splitlines() if line and not line.startswith(NOISE))
    applied = home.execute("SELECT number, name FROM nunatak_migrations ORDER BY number")
    return made + "".join(f"INSERT INTO nunatak_migrations VALUES ({number}, '{name}');\n" for number, name in applied)


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
