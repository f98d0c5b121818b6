"""The manifest beside a backup: its database, what it holds, and the checksum that a restore verifies."""

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import msgspec

from nunatak.database.ddl import Dialect
from nunatak.errors import BadRequest

FORMAT = 1
SUFFIX = ".manifest.json"


class BackupRefused(BadRequest):
    """A backup or restore was not done; existing files and tables are unchanged."""


@dataclass(frozen=True)
class BackupFacts:
    """What a database holds, counted in one snapshot."""

    database: Dialect
    software: str
    place: str  # the PostgreSQL schema of the tables, or SQLite's `main`
    schema: int  # the number of the last migration
    tables: int
    views: int
    commits: int

    def counted(self) -> tuple[int, int, int, int]:
        return self.schema, self.tables, self.views, self.commits


@dataclass(frozen=True)
class BackupManifest:
    format: int
    nunatak: str
    made_at: str
    size_bytes: int
    sha256: str
    facts: BackupFacts


def manifest_path(file: Path) -> Path:
    return file.with_name(file.name + SUFFIX)


def read_manifest(file: Path) -> BackupManifest:
    """Reads the manifest of the backup `file`; raises BackupRefused if it is missing or of another format."""
    path = manifest_path(file)
    if not file.is_file():
        raise BackupRefused(f"There is no backup {file}")
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=BackupManifest)
    except FileNotFoundError as error:
        raise BackupRefused(
            f"{path} is missing: the backup was not finished, or only one of its two files was copied"
        ) from error
    except msgspec.MsgspecError as error:
        raise BackupRefused(f"{path} is not the manifest of a backup: {error}") from error
    if manifest.format != FORMAT:
        raise BackupRefused(
            f"{file} is a backup of format {manifest.format}, which this version does not know",
            hint=f"Restore it with Nunatak {manifest.nunatak} or newer.",
        )
    return manifest


def write_manifest(file: Path, manifest: BackupManifest) -> None:
    data = msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"
    path = manifest_path(file)
    incoming = new_file_beside(path)
    try:
        incoming.write_bytes(data)
        sync(incoming)
        incoming.replace(path)
    finally:
        incoming.unlink(missing_ok=True)
    sync(path.parent)


def checksum(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def check(copy: Path, manifest: BackupManifest, file: Path) -> None:
    """Checks size and checksum of the copy, which may be the file itself; raises BackupRefused."""
    if copy.stat().st_size != manifest.size_bytes or checksum(copy) != manifest.sha256:
        raise BackupRefused(f"{file} is damaged: it is not what its manifest says", hint="Take another copy of it.")


def new_file_beside(path: Path) -> Path:
    """Creates an empty file in the same folder, readable by its owner only: a database holds secrets."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".incoming", dir=path.parent)
    except OSError as error:
        raise BackupRefused(f"Nothing can be written into {path.parent}: {error.strerror}") from error
    os.close(descriptor)
    return Path(name)


def sync(path: Path) -> None:
    """Fsyncs a file or folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
