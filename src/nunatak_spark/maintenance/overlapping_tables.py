"""Checks whether other tables keep files in a table's folder: by the catalog's answer and by the files themselves."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nunatak.client import Json
from nunatak_spark.maintenance.job_context import JobContext, JobRefused
from nunatak_spark.maintenance.own_locations import OwnLocations, table_securable
from nunatak_spark.maintenance.reachable_files import display_name, plain_path

MAX_NAMES = 5
METADATA_FILE = re.compile(r"(?:^|/)v?(\d+)[^/]*\.metadata\.json(?:\.gz)?$")
# Metadata files of a table. Outside of the table's own metadata folder they belong to another table.
OF_A_TABLE = re.compile(r"\.metadata\.json(\.gz)?$|/metadata/[^/]+\.(avro|stats|puffin)$|/version-hint\.text$")
DELETING_JOBS = frozenset({"snapshot-expiry", "metadata-retention", "orphan-removal"})  # jobs that delete files


@dataclass(frozen=True)
class OverlappingTables:
    """The server's answer about a table's locations, which every job asks for first.

    `names` are those of the `count` other tables and views in the folder that the caller may see. `locations` are the
    folders that belong to the table. `shadow` is set if the table is a shadow of a table in another catalog.
    """

    location: str
    count: int
    names: tuple[str, ...]
    locations: tuple[str, ...]
    shadow: Json | None

    def own_locations(self, context: JobContext) -> OwnLocations:
        return OwnLocations(context, self.locations, is_alone=not self.count)


def load_overlapping_tables(context: JobContext) -> OverlappingTables:
    found = context.client.manage("GET", ("maintenance", "neighbours"), query={"securable": table_securable(context)})
    if "places" not in found:
        raise JobRefused(
            "The catalog is older than this worker and does not say which places are the table's: update it"
        )
    return OverlappingTables(
        location=found["location"],
        count=found["count"],
        names=tuple(found["neighbours"]),
        locations=tuple(found["places"]),
        shadow=found.get("shadow"),
    )


def refuse_shadow(context: JobContext, neighbours: OverlappingTables) -> None:
    """Raises JobRefused if the files still belong to another catalog: none may be deleted before the source
    is retired.
    """
    shadow = neighbours.shadow
    if shadow is None:
        return
    name, source = display_name(context), shadow.get("source", "another catalog")
    if shadow.get("state") != "cut-over":
        raise JobRefused(
            f"{name} is a shadow of {source}, whose files it shows: no job runs on it. It becomes a table of this "
            "catalog with `nunatak migrate cutover`."
        )
    if context.spec.type in DELETING_JOBS:
        raise JobRefused(
            f"{name} was cut over from {source}, and a rollback is still possible: none of its files is deleted before "
            "`nunatak migrate retire`."
        )


def refuse_overlapping_tables(context: JobContext, neighbours: OverlappingTables) -> None:
    """Raises JobRefused if another table or view lies in the folder, contains it, or writes into it."""
    if not neighbours.count:
        return
    named = neighbours.names[:MAX_NAMES]
    others = neighbours.count - len(named)
    who = ", ".join(named) if named else "another table"
    if named and others:
        who += f" and {others} more"
    raise JobRefused(
        f"The folder of {display_name(context)}, {neighbours.location}, is shared: {who} has files there too. "
        "A file of one table looks like an orphan to the other, so nothing is deleted. Move one of them."
    )


def refuse_foreign_metadata(metadata: Mapping[str, Any], found: Iterable[str]) -> None:
    """Raises JobRefused if an unreferenced metadata file shows that another table or catalog writes here."""
    own = plain_path(metadata["location"])
    elsewhere = metadata.get("properties", {}).get("write.metadata.path")
    folders = {f"{own}/metadata", plain_path(elsewhere) if elsewhere else f"{own}/metadata"}
    versions = [metadata_version(each["metadata-file"]) for each in metadata.get("metadata-log", [])]
    first = min((each for each in versions if each is not None), default=0)
    for path in map(plain_path, found):
        if not OF_A_TABLE.search(path):
            continue
        if path.rpartition("/")[0] not in folders:
            raise JobRefused(
                f"{path} belongs to another table, which lies inside {own}. Nothing is deleted: register that table, "
                "or move it or what is left of it away."
            )
        version = metadata_version(path)
        if version is not None and version >= first:
            raise JobRefused(
                f"The table does not know {path}, which is not older than the metadata that it knows: another catalog "
                "may be writing to it. Nothing is deleted; `nunatak fsck` prints details."
            )


def metadata_version(path: str) -> int | None:
    """Returns the version number in a metadata file's name."""
    found = METADATA_FILE.search(path)
    return int(found[1]) if found else None
