"""Reads the file paths in manifest lists and manifests, to find the files that a snapshot references."""

from collections.abc import Iterator

from nunatak.objectstore.avro import Fields, Record, read_records

# Spec, manifest list and manifest entry; v1 writers called the counts `…_data_files_count`.
LIST_FIELDS: Fields = dict.fromkeys(
    (
        "manifest_path",
        "manifest_length",
        "content",
        "added_files_count",
        "existing_files_count",
        "added_data_files_count",
        "existing_data_files_count",
    )
)
ENTRY_FIELDS: Fields = {
    "status": None,
    "data_file": dict.fromkeys(("content", "file_path", "file_size_in_bytes", "partition")),
}


def manifest_paths(manifest_list: bytes) -> Iterator[str]:
    """Yields the paths of the manifests in a manifest list, of data and delete manifests."""
    for record in read_manifest_list(manifest_list):
        path = record.get("manifest_path")
        if isinstance(path, str):
            yield path


def file_paths(manifest: bytes) -> Iterator[str]:
    """Yields the paths of the data and delete files in a manifest, also of deleted entries: all were the table's."""
    for record in entries(manifest):
        entry = record.get("data_file")
        if isinstance(entry, dict) and isinstance(entry.get("file_path"), str):
            yield entry["file_path"]


def read_manifest_list(manifest_list: bytes) -> Iterator[Record]:
    if manifest_list:
        yield from read_records(manifest_list, LIST_FIELDS)


def entries(manifest: bytes) -> Iterator[Record]:
    if manifest:
        yield from read_records(manifest, ENTRY_FIELDS)
