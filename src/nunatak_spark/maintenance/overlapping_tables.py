"""Whether anybody else keeps files in a table's folder: what the catalog says, and what the files themselves show."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nunatak.client import Json
from nunatak_spark.maintenance.job_context import Refused, Work
from nunatak_spark.maintenance.own_locations import OwnPlaces, securable
from nunatak_spark.maintenance.reachable_files import path_of, printed_name

MOST_NAMED = 5
METADATA_FILE = re.compile(r"(?:^|/)v?(\d+)[^/]*\.metadata\.json(?:\.gz)?$")
# What tables keep beside their data. Found elsewhere than in the table's own folder for it, there is another table.
OF_A_TABLE = re.compile(r"\.metadata\.json(\.gz)?$|/metadata/[^/]+\.(avro|stats|puffin)$|/version-hint\.text$")
DELETING = frozenset({"snapshot-expiry", "metadata-retention", "orphan-removal"})  # jobs that have files deleted


@dataclass(frozen=True)
class Neighbours:
    """What the server answers to the one question that every job asks before it begins.

    `names` are those of the `count` other tables and views that the caller may know of. `places` are the folders that
    are the table's own. `shadow` says that the table stands for one of another catalog, and since when.
    """

    location: str
    count: int
    names: tuple[str, ...]
    places: tuple[str, ...]
    shadow: Json | None

    def own_places(self, work: Work) -> OwnPlaces:
        return OwnPlaces(work, self.places, is_alone=not self.count)


def load_neighbours(work: Work) -> Neighbours:
    found = work.client.manage("GET", ("maintenance", "neighbours"), query={"securable": securable(work)})
    if "places" not in found:
        raise Refused("The catalog is older than this worker and does not say which places are the table's: update it")
    return Neighbours(
        location=found["location"],
        count=found["count"],
        names=tuple(found["neighbours"]),
        places=tuple(found["places"]),
        shadow=found.get("shadow"),
    )


def refuse_shadow(work: Work, neighbours: Neighbours) -> None:
    """Refused if the files are another catalog's still: none may go before the operator has retired the source."""
    shadow = neighbours.shadow
    if shadow is None:
        return
    name, source = printed_name(work), shadow.get("source", "another catalog")
    if shadow.get("state") != "cut-over":
        raise Refused(
            f"{name} is a shadow of {source}, whose files it shows: no job runs on it. It becomes a table of this "
            "catalog with `nunatak migrate cutover`."
        )
    if work.spec.type in DELETING:
        raise Refused(
            f"{name} was cut over from {source}, and somebody may go back to that: none of its files is deleted before "
            "`nunatak migrate retire`."
        )


def refuse_neighbours(work: Work, neighbours: Neighbours) -> None:
    """Refused if another table or view of the catalog lies in the folder, around it, or writes into it."""
    if not neighbours.count:
        return
    named = neighbours.names[:MOST_NAMED]
    others = neighbours.count - len(named)
    who = ", ".join(named) if named else "another table"
    if named and others:
        who += f" and {others} more"
    raise Refused(
        f"The folder of {printed_name(work)}, {neighbours.location}, is not its own: {who} lies or writes there, too. "
        "Files that one of them needs look like nobody's to the other, so nothing is deleted. Move one of them."
    )


def refuse_foreign_metadata(metadata: Mapping[str, Any], found: Iterable[str]) -> None:
    """Refused if a file that the table does not know shows that another table, or another catalog, is at work here."""
    own = path_of(metadata["location"])
    elsewhere = metadata.get("properties", {}).get("write.metadata.path")
    folders = {f"{own}/metadata", path_of(elsewhere) if elsewhere else f"{own}/metadata"}
    versions = [version_of(each["metadata-file"]) for each in metadata.get("metadata-log", [])]
    first = min((each for each in versions if each is not None), default=0)
    for path in map(path_of, found):
        if not OF_A_TABLE.search(path):
            continue
        if path.rpartition("/")[0] not in folders:
            raise Refused(
                f"{path} belongs to another table, which lies inside {own}. Nothing is deleted: register that table, "
                "or move it or what is left of it away."
            )
        version = version_of(path)
        if version is not None and version >= first:
            raise Refused(
                f"The table does not know {path}, which is not older than the metadata that it knows: another catalog "
                "may be writing to it. Nothing is deleted; `nunatak fsck` tells more."
            )


def version_of(path: str) -> int | None:
    """The number in a metadata file's name."""
    found = METADATA_FILE.search(path)
    return int(found[1]) if found else None
