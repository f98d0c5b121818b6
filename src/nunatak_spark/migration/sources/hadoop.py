"""A Hadoop catalog: folders of a file system. A table is identified by its folder and cannot be renamed."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from nunatak_spark.errors import CannotRun
from nunatak_spark.migration.model import InventoryTable, MigrationSource, sql_name
from nunatak_spark.migration.source_files import MetadataDocument, local_path
from nunatak_spark.migration.sources.source_catalog import SparkSourceCatalog, parse_name, walk_namespaces

# An unsupported format version: readers get an error, and no commit can follow.
BLOCKED = {"format-version": 99, "blocked-by": "nunatak migrate", "note": "The table has moved to another catalog."}


def hadoop_source(name: str, path: str, more: Mapping[str, str]) -> MigrationSource:
    warehouse = f"file:{path}" if path.startswith("/") else path
    return MigrationSource(
        kind="hadoop", name=name, address=path, properties={"type": "hadoop", "warehouse": warehouse, **more}
    )


class HadoopSourceCatalog(SparkSourceCatalog):
    def list_tables(self) -> Iterator[tuple[InventoryTable, MetadataDocument | None]]:
        session, catalog = self.session(), self.source.name
        for namespace in walk_namespaces(session, catalog):
            for row in session.sql(f"SHOW TABLES IN {sql_name(catalog, namespace)}").collect():
                name = (*namespace, *parse_name(row["tableName"])[-1:])
                found = InventoryTable(source=catalog, name=name, kind="iceberg")
                yield (
                    InventoryTable(source=catalog, name=name, kind="iceberg", pointer=self.find_pointer(found, name)),
                    None,
                )

    def freeze_method(self, found: InventoryTable) -> tuple[str, str]:
        if local_path(found.pointer) is None:
            return "", "the folder is not on this machine: stop the writers yourself"
        return "blocked", "the next version of its metadata is taken by a file that no engine reads; see its name"

    def rename(self, found: InventoryTable, old: tuple[str, ...], new: tuple[str, ...]) -> None:
        raise NotImplementedError("a Hadoop catalog cannot rename tables")

    def block(self, found: InventoryTable, pointer: str) -> bool:
        """Creates the metadata file of the next version: like two commits, only one of us and a writer can
        create it.
        """
        file = _next_version(pointer)
        try:
            with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "w") as out:
                json.dump(BLOCKED, out)
                out.flush()
                os.fsync(out.fileno())
        except FileExistsError:
            return _is_ours(file)
        return True

    def is_blocked(self, found: InventoryTable, pointer: str) -> bool:
        return _is_ours(_next_version(pointer))

    def unblock(self, found: InventoryTable, pointer: str) -> None:
        file = _next_version(pointer)
        if _is_ours(file):
            file.unlink()


def _next_version(pointer: str) -> Path:
    path = local_path(pointer)
    found = None if path is None else re.fullmatch(r"v(\d+)((?:\.gz)?\.metadata\.json(?:\.gz)?)", path.name)
    if path is None or found is None:
        raise CannotRun(f"{pointer} is not a version of a Hadoop table", fix="Use --no-freeze, and stop the writers.")
    return path.with_name(f"v{int(found.group(1)) + 1}{found.group(2)}")


def _is_ours(file: Path) -> bool:
    try:
        return bool(json.loads(file.read_bytes()) == BLOCKED)
    except (OSError, ValueError):
        return False
