"""Which files a snapshot reaches: manifest lists and manifests, read for the paths in them and nothing else."""

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
    """The manifests a manifest list names, data and delete manifests alike."""
    for record in read_manifest_list(manifest_list):
        path = record.get("manifest_path")
        if isinstance(path, str):
            yield path


def file_paths(manifest: bytes) -> Iterator[str]:
    """The data and delete files a manifest names, live and deleted ones alike: all of them were the table's."""
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
