"""Manifests and snapshots as a hostile client writes them: in its own folder, with paths of somebody else's files."""

import io
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import fastavro

from nunatak.client import Client, Json, Levels
from tests.support.spark import local_path

Change = Callable[[dict[str, Any]], None]


def forge_avro(source: Path, target: Path, change: Change) -> None:
    """Write the records of an Avro file anew, each changed, with the same schema and properties."""
    with source.open("rb") as file:
        reader: Any = fastavro.reader(file)
        records: list[dict[str, Any]] = list(reader)
        schema, properties = reader.writer_schema, reader.metadata
    for record in records:
        change(record)
    kept = {key: value for key, value in properties.items() if not key.startswith("avro.")}
    buffer = io.BytesIO()
    fastavro.writer(buffer, schema, records, codec="deflate", metadata=kept)
    target.write_bytes(buffer.getvalue())


def avro_records(path: Path) -> list[dict[str, Any]]:
    with path.open("rb") as file:
        return [dict(record) for record in fastavro.reader(file) if isinstance(record, Mapping)]


class Forger:
    """A client of one table that writes into the table's own folder what it likes."""

    def __init__(self, client: Client, name: Levels) -> None:
        self._client, self._name = client, name

    @property
    def metadata(self) -> Json:
        found: Json = self._client.load_table(self._name)["metadata"]
        return found

    @property
    def folder(self) -> Path:
        return local_path(self.metadata["location"]) / "metadata"

    def current(self) -> Json:
        metadata = self.metadata
        found: Json = next(
            each for each in metadata["snapshots"] if each["snapshot-id"] == metadata["current-snapshot-id"]
        )
        return found

    def manifests(self) -> list[Path]:
        """Those of the current snapshot."""
        return [local_path(each["manifest_path"]) for each in avro_records(local_path(self.current()["manifest-list"]))]

    def forged_manifest(self, data_path: str, *, content: int | None = None) -> Path:
        """A copy of the first manifest whose entries name this file instead of their own."""
        target = self.folder / f"{uuid4()}-m0.avro"

        def change(entry: dict[str, Any]) -> None:
            entry["data_file"]["file_path"] = data_path
            if content is not None:
                entry["data_file"]["content"] = content

        forge_avro(self.manifests()[0], target, change)
        return target

    def forged_list(self, manifest_path: str, length: int) -> str:
        """A manifest list in the own folder with that manifest as its only one."""
        target = self.folder / f"snap-{uuid4()}.avro"

        def change(entry: dict[str, Any]) -> None:
            entry["manifest_path"] = manifest_path
            entry["manifest_length"] = length

        forge_avro(local_path(self.current()["manifest-list"]), target, change)
        return f"file://{target}"

    def commit_snapshot(self, manifest_list: str, *, is_current: bool = True) -> int:
        """Add a snapshot with that manifest list, on the main branch or on none."""
        metadata, parent = self.metadata, self.current()
        snapshot_id = time.time_ns() % 2**62
        snapshot = {
            "snapshot-id": snapshot_id,
            "parent-snapshot-id": parent["snapshot-id"],
            "sequence-number": metadata["last-sequence-number"] + 1,
            "timestamp-ms": max(time.time_ns() // 1_000_000, metadata["last-updated-ms"]),
            "manifest-list": manifest_list,
            "summary": {**parent["summary"], "operation": "append"},
            "schema-id": metadata["current-schema-id"],
        }
        updates: list[Json] = [{"action": "add-snapshot", "snapshot": snapshot}]
        if is_current:
            ref = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot_id}
            updates.append(ref)
        self._client.commit_table(self._name, [], updates)
        return snapshot_id

    def forge_data(self, path: str, *, content: int | None = None, is_current: bool = True) -> int:
        """A snapshot in the own folder whose only data or delete file is somebody else's."""
        manifest = self.forged_manifest(path, content=content)
        listed = self.forged_list(f"file://{manifest}", manifest.stat().st_size)
        return self.commit_snapshot(listed, is_current=is_current)

    def forge_all_of(self, victim: "Forger") -> int:
        """A snapshot in the own folder with copies of all manifests of another table: it reads as that table does."""
        copies = {}
        for manifest in victim.manifests():
            copy = self.folder / f"{uuid4()}-m0.avro"
            copy.write_bytes(manifest.read_bytes())
            copies[manifest] = copy
        target = self.folder / f"snap-{uuid4()}.avro"

        def change(entry: dict[str, Any]) -> None:
            entry["manifest_path"] = f"file://{copies[local_path(entry['manifest_path'])]}"

        forge_avro(local_path(victim.current()["manifest-list"]), target, change)
        return self.commit_snapshot(f"file://{target}")
