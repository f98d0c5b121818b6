"""Reads the number, size and partition of a table's live files from manifest lists and manifests."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from nunatak.objectstore.manifests import entries, read_manifest_list

DELETED = 2  # Spec, manifest entry status: 0 existing, 1 added, 2 deleted
DATA = 0  # Spec, content: of a manifest 0 data and 1 deletes, of a file 0 data


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """An entry of a manifest list."""

    path: str
    length: int
    holds_deletes: bool
    live_files: int


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A live data file; `partition` is a readable text, equal for files of the same partition."""

    size_bytes: int
    partition: str


def manifests_of(manifest_list: bytes) -> Iterator[ManifestFile]:
    """Yields each manifest once: a repeated entry would make its manifest be read and counted repeatedly."""
    seen: set[str] = set()
    for record in read_manifest_list(manifest_list):
        path = record.get("manifest_path")
        if isinstance(path, str) and path not in seen:
            seen.add(path)
            live = _count(record, "added_files_count") + _count(record, "existing_files_count")
            yield ManifestFile(path, _number(record.get("manifest_length")), bool(_number(record.get("content"))), live)


def live_data_files(manifest: bytes) -> Iterator[LiveFile]:
    """Yields the live data files of a manifest."""
    for record in entries(manifest):
        entry = record.get("data_file")
        if record.get("status") == DELETED or not isinstance(entry, dict) or _number(entry.get("content")) != DATA:
            continue
        yield LiveFile(_number(entry.get("file_size_in_bytes")), _partition(entry.get("partition")))


def _partition(values: Any) -> str:
    if not isinstance(values, dict):
        return ""
    return "/".join(f"{name}={value}" for name, value in values.items())


def _count(record: dict[str, object], name: str) -> int:
    """Returns a count of files, also under its v1 name. Spec: v1 writers called it `…_data_files_count`."""
    value = record.get(name)
    return _number(record.get(name.replace("_files_", "_data_files_")) if value is None else value)


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
