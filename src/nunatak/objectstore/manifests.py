"""Which files a snapshot reaches: manifest lists and manifests, read for the paths in them and nothing else."""

import io
from collections.abc import Iterator

import fastavro

from nunatak.errors import InvalidMetadata


def manifest_paths(manifest_list: bytes) -> Iterator[str]:
    """The manifests a manifest list names, data and delete manifests alike."""
    for record in records(manifest_list):
        path = record.get("manifest_path")
        if isinstance(path, str):
            yield path


def file_paths(manifest: bytes) -> Iterator[str]:
    """The data and delete files a manifest names, live and deleted ones alike: all of them were the table's."""
    for record in records(manifest):
        entry = record.get("data_file")
        if isinstance(entry, dict) and isinstance(entry.get("file_path"), str):
            yield entry["file_path"]


def records(data: bytes) -> Iterator[dict[str, object]]:
    if not data:
        return
    try:
        for record in fastavro.reader(io.BytesIO(data)):
            if isinstance(record, dict):
                yield record
    except (ValueError, EOFError, KeyError, IndexError, TypeError, StopIteration) as error:
        raise InvalidMetadata(f"Not a readable Avro file: {error}") from error
