"""Backs up a SQLite catalog while a server commits, and restores it while none runs."""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import apsw

from nunatak.database.backup_manifest import BackupFacts, BackupManifest, BackupRefused, check, new_file_beside, sync
from nunatak.database.sqlite import DatabaseInUse, migrate, server_lock
from nunatak.database.statements import read_statements

STEP_PAGES = 2000  # about 8 MB between two progress updates
BUSY_MS = 10_000
LOGS = ("-wal", "-shm")  # a WAL left beside a replaced file would be applied to the new one

Progress = Callable[[str], None]
BytesOf = Callable[[str, str], bytes | None]  # from metadata location and table uuid to the bytes to store


def copy(source: Path, target: Path, progress: Progress, bytes_of: BytesOf) -> BackupFacts:
    """Copies a consistent snapshot of the database into the empty file `target` while others may write.

    Metadata bytes that a running server has not stored yet (write-behind) come from `bytes_of`, if available.
    """
    if not source.is_file():
        raise BackupRefused(f"There is no catalog at {source}")
    try:
        with _open_database(source, apsw.SQLITE_OPEN_READWRITE) as reader, _open_database(target) as writer:
            # One read transaction for all steps: otherwise each commit would restart the copy. It does not block
            # writers; only the WAL grows until it ends.
            reader.execute("BEGIN").fetchall()
            reader.execute("SELECT count(*) FROM sqlite_master").fetchall()
            writer.execute("PRAGMA synchronous=OFF").fetchall()  # the file is synced once, at the end
            with writer.backup("main", reader, "main") as copying:
                while not copying.done:
                    copying.step(STEP_PAGES)
                    progress(f"copied {copying.page_count - copying.remaining:,} of {copying.page_count:,} pages")
            reader.execute("ROLLBACK").fetchall()
            _complete(writer, bytes_of)
            writer.execute("PRAGMA journal_mode=DELETE").fetchall()  # no WAL: the backup is one file
        progress("checking the copy")
        return inspect(target)
    except apsw.Error as error:
        raise BackupRefused(f"{source} could not be copied: {error}") from error


def _complete(copied: apsw.Connection, bytes_of: BytesOf) -> None:
    statements = read_statements()
    rows: list[tuple[Any, ...]] = copied.execute(statements["tables_without_bytes"]).fetchall()
    for catalog, namespace, name, location, uuid in rows:
        content = bytes_of(location, uuid)
        if content is not None:
            values = {"catalog": catalog, "namespace": namespace, "name": name, "new": location, "content": content}
            copied.execute(statements["store_content"], values).fetchall()


def inspect(file: Path) -> BackupFacts:
    """Returns what a database that is not in use holds; raises BackupRefused if its integrity check fails."""
    with _open_database(file, apsw.SQLITE_OPEN_READONLY) as connection:
        problems = [row[0] for row in connection.execute("PRAGMA integrity_check(10)")]
        if problems != ["ok"]:
            raise BackupRefused(f"{file} is not whole: {'; '.join(problems)}")
        counts = connection.execute(read_statements()["count_catalog"]).fetchall()[0]
    return BackupFacts("sqlite", f"SQLite {apsw.sqlite_lib_version()}", "main", *(int(count or 0) for count in counts))


def restore_file(
    file: Path, manifest: BackupManifest, target: Path, now: datetime, progress: Progress, *, force: bool
) -> tuple[list[str], str | None]:
    """Restores the backup to `target`; returns the migrations applied, and the path that a previous catalog was moved
    to, if any."""
    try:
        with server_lock(target):
            if target.exists() and target.stat().st_size > 0 and not force:
                raise BackupRefused(
                    f"There is a catalog at {target} already",
                    hint="Restore into another data folder, or use --force: it keeps that one beside.",
                )
            incoming = new_file_beside(target)
            try:
                applied = _prepare(file, manifest, incoming, progress)
                aside = _keep_old_file(target, now)
                incoming.replace(target)
                sync(target.parent)
            finally:
                incoming.unlink(missing_ok=True)
            return applied, aside
    except DatabaseInUse as error:
        raise BackupRefused(str(error), hint="Stop the server first.") from error
    except (OSError, apsw.Error) as error:
        raise BackupRefused(f"{file} could not be restored to {target}: {error}") from error


def _prepare(file: Path, manifest: BackupManifest, incoming: Path, progress: Progress) -> list[str]:
    """Copies, checks and migrates the backup in a temporary file: the target changes only when all has succeeded."""
    progress("copying")
    shutil.copyfile(file, incoming)
    check(incoming, manifest, file)
    progress("checking")
    found = inspect(incoming)
    if found.counted() != manifest.facts.counted():
        raise BackupRefused(f"{file} does not hold what its manifest says: {found} instead of {manifest.facts}")
    progress("migrating")
    with _open_database(incoming) as connection:
        applied = migrate(connection)
    sync(incoming)
    return applied


def _keep_old_file(target: Path, now: datetime) -> str | None:
    """Gives the file at `target` a second name and moves its WAL there."""
    aside = None
    if target.exists() and target.stat().st_size > 0:
        with contextlib.suppress(apsw.Error), _open_database(target, apsw.SQLITE_OPEN_READWRITE) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()  # folds the WAL into the file, if readable
        aside = target.with_name(f"{target.name}.replaced-{now:%Y%m%dT%H%M%S}")
        os.link(target, aside)
    for log in LOGS:
        left = target.with_name(target.name + log)
        if left.exists():
            left.replace((aside or target.with_name(f"{target.name}.stale")).as_posix() + log)
    return None if aside is None else str(aside)


@contextlib.contextmanager
def _open_database(
    path: Path, flags: int = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
) -> Iterator[apsw.Connection]:
    connection = apsw.Connection(str(path), flags=flags)
    connection.set_busy_timeout(BUSY_MS)
    try:
        yield connection
    finally:
        connection.close()
