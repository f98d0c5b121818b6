"""Manifest lists and manifests as writers leave them, small."""

from pathlib import Path
from typing import Any

import fastavro


def avro(file: Path, name: str, fields: list[dict[str, Any]], records: list[dict[str, Any]]) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as target:
        fastavro.writer(target, {"type": "record", "name": name, "fields": fields}, records)
    return f"file://{file}"


def field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind}


def a_manifest(folder: Path, name: str, files: list[tuple[str, int, int]]) -> dict[str, Any]:
    """The line of a manifest list, for a manifest of files given as day, bytes and status."""
    partition = {"type": "record", "name": "p", "fields": [field("day", ["null", "string"])]}
    entry = {
        "type": "record",
        "name": "f",
        "fields": [
            field("content", "int"),
            field("file_path", "string"),
            field("partition", partition),
            field("file_size_in_bytes", "long"),
        ],
    }
    records = [
        {
            "status": status,
            "data_file": {
                "content": 0,
                "file_path": f"{name}-{at}",
                "partition": {"day": day},
                "file_size_in_bytes": size,
            },
        }
        for at, (day, size, status) in enumerate(files)
    ]
    path = avro(folder / f"{name}.avro", "e", [field("status", "int"), field("data_file", entry)], records)
    live = sum(status != 2 for _, _, status in files)
    return {
        "manifest_path": path,
        "manifest_length": 1,
        "content": 0,
        "added_files_count": live,
        "existing_files_count": 0,
    }


LIST_FIELDS = [
    field("manifest_path", "string"),
    field("manifest_length", "long"),
    field("content", "int"),
    field("added_files_count", "int"),
    field("existing_files_count", "int"),
]


def manifest_list_of(folder: Path, name: str, paths: list[str], manifest: Path | None = None) -> str:
    """A manifest list with one manifest that names these data files, or with this one; returns where it is."""
    entry = {"type": "record", "name": "f", "fields": [field("content", "int"), field("file_path", "string")]}
    records = [{"status": 1, "data_file": {"content": 0, "file_path": path}} for path in paths]
    written = avro(folder / f"{name}-m0.avro", "e", [field("status", "int"), field("data_file", entry)], records)
    line = {
        "manifest_path": written if manifest is None else f"file://{manifest}",
        "manifest_length": 1,
        "content": 0,
        "added_files_count": len(paths),
        "existing_files_count": 0,
    }
    return avro(folder / f"{name}.avro", "m", LIST_FIELDS, [line])
