"""`nunatak backup` and `nunatak restore`: copy the catalog's database to a file, and back."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape

from nunatak import checks, server
from nunatak.catalog.write_behind import content_reader
from nunatak.cli.main import CommandRefused
from nunatak.cli.options import setting_options
from nunatak.cli.output import echo, print_facts, printable
from nunatak.database.backup import Database, Progress, back_up
from nunatak.database.backup import restore as put_back
from nunatak.database.backup_manifest import BackupManifest, manifest_path
from nunatak.settings import Settings

AFTERWARDS = """\
Metadata files written after the backup remain in the warehouse without a pointer. Files
deleted since then may be missing: `nunatak fsck --repair` finds them and rewrites metadata files from the database."""

FILE = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))


@click.command()
@FILE
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@setting_options("data", "database_url")
def backup(settings: Settings, file: Path, force: bool) -> None:
    """Copy the catalog's database into FILE while the server runs.

    FILE.manifest.json describes the content; keep both files. Files of tables are not copied.
    """
    database = _database(settings, checks.sqlite_path)
    objects = server.open_objects(settings, checks.read_places(settings)[0])
    with content_reader(objects) as read_compressed, _progress("backing up") as progress:
        manifest = back_up(database, file, datetime.now(UTC), progress, read_compressed, force=force)
    print_facts({"backup": file, "manifest": manifest_path(file), **_facts(manifest)})


@click.command()
@FILE
@click.option("--force", is_flag=True, help="Replace the existing database, and rename it instead of deleting it.")
@setting_options("data", "database_url")
def restore(settings: Settings, file: Path, force: bool) -> None:
    """Restore the catalog's database from a backup while no server runs."""
    database = _database(settings, server.database_path)
    with _progress("restoring") as progress:
        restored = put_back(file, database, datetime.now(UTC), progress, force=force)
    print_facts({"restored": file, **_facts(restored.manifest)})
    for name in restored.applied:
        echo(f"applied {name}")
    if restored.aside is not None:
        echo(f"the previous database was renamed to {restored.aside}")
    echo(AFTERWARDS)


@contextmanager
def _progress(what: str) -> Iterator[Progress]:
    """Shows progress as one changing line on a terminal, and nothing elsewhere."""
    with Console(stderr=True).status(what) as status:
        yield lambda text: status.update(escape(printable(f"{what}: {text}")))


def _database(settings: Settings, sqlite: Callable[[Settings], Path]) -> Database:
    if checks.on_mariadb(settings):
        raise CommandRefused(
            "nunatak backup does not support MariaDB",
            hint="Use mariadb-dump --single-transaction; see docs/how-to/back-up-and-restore.md.",
        )
    return settings.database_url if checks.on_postgres(settings) else sqlite(settings)


def _facts(manifest: BackupManifest) -> dict[str, object]:
    facts = manifest.facts
    return {
        "made at": manifest.made_at,
        "by": f"Nunatak {manifest.nunatak} on {facts.software}",
        "schema": facts.schema,
        "tables": facts.tables,
        "views": facts.views,
        "commits": facts.commits,
        "bytes": manifest.size_bytes,
        "sha256": manifest.sha256,
    }
