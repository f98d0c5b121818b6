"""Backup and restore for SQLite and PostgreSQL: the backup file, its manifest, and the checks before either."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from nunatak import __version__
from nunatak.database import postgres_backup, sqlite_backup
from nunatak.database.backup_manifest import (
    FORMAT,
    BackupManifest,
    BackupRefused,
    checksum,
    manifest_path,
    new_file_beside,
    read_manifest,
    sync,
    write_manifest,
)
from nunatak.database.ddl import Dialect
from nunatak.database.migration_runner import newest_schema
from nunatak.database.sqlite_backup import BytesOf

TITLES: dict[Dialect, str] = {"sqlite": "SQLite", "postgres": "PostgreSQL", "mariadb": "MariaDB"}

Database = Path | str  # a SQLite file, or the URL of a PostgreSQL database
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Restored:
    """The outcome of a restore: `applied` migrations, and `aside`, where a previous catalog was moved to."""

    manifest: BackupManifest
    applied: list[str]
    aside: str | None


def back_up(
    database: Database, file: Path, now: datetime, progress: Progress, bytes_of: BytesOf, *, force: bool
) -> BackupManifest:
    """Writes a consistent backup of the database and its manifest; servers may go on committing."""
    if file.exists() and not force:
        raise BackupRefused(f"{file} is there already", hint="Choose another name, or replace it with --force.")
    incoming = new_file_beside(file)
    try:
        if isinstance(database, Path):
            facts = sqlite_backup.copy(database, incoming, progress, bytes_of)
        else:
            facts = asyncio.run(postgres_backup.dump(database, incoming, progress))
        sync(incoming)
        made_at = now.isoformat(timespec="seconds")
        manifest = BackupManifest(FORMAT, __version__, made_at, incoming.stat().st_size, checksum(incoming), facts)
        _put_in_place(incoming, file, force=force)
    finally:
        incoming.unlink(missing_ok=True)
    write_manifest(file, manifest)  # last: a backup without a manifest was not finished
    return manifest


def _put_in_place(incoming: Path, file: Path, *, force: bool) -> None:
    if force:
        manifest_path(file).unlink(missing_ok=True)  # the old manifest does not describe the new file
        incoming.replace(file)
        return
    try:
        os.link(incoming, file)  # unlike a rename, fails if the file exists by now
    except OSError as error:
        raise BackupRefused(f"{file} could not be written: {error.strerror}") from error


def restore(file: Path, database: Database, now: datetime, progress: Progress, *, force: bool) -> Restored:
    """Restores a backup and migrates it to this version's schema; raises BackupRefused."""
    manifest = read_manifest(file)
    wanted: Dialect = "sqlite" if isinstance(database, Path) else "postgres"
    if manifest.facts.database != wanted:
        raise BackupRefused(
            f"{file} is a backup of {TITLES[manifest.facts.database]}, and the settings name {TITLES[wanted]}",
            hint="Name a database of the same kind with --database-url, or --data for SQLite.",
        )
    if manifest.facts.schema > newest_schema(wanted):
        raise BackupRefused(
            f"{file} was made by a later version: it has schema {manifest.facts.schema}, this version knows up to "
            f"{newest_schema(wanted)}",
            hint=f"Restore it with Nunatak {manifest.nunatak} or newer.",
        )
    if isinstance(database, Path):
        applied, aside = sqlite_backup.restore_file(file, manifest, database, now, progress, force=force)
    else:
        applied, aside = asyncio.run(postgres_backup.restore_dump(file, manifest, database, now, progress, force=force))
    return Restored(manifest, applied, aside)
