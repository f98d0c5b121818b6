"""Whether anybody else keeps files in a table's folder: what the catalog says, and what the files themselves show."""

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from nunatak_spark.maintenance.reachable import path_of, printed_name
from nunatak_spark.maintenance.work import Refused, Work

MOST_NAMED = 5
METADATA_FILE = re.compile(r"(?:^|/)v?(\d+)[^/]*\.metadata\.json(?:\.gz)?$")
# What tables keep beside their data. Found elsewhere than in the table's own folder for it, there is another table.
OF_A_TABLE = re.compile(r"\.metadata\.json(\.gz)?$|/metadata/[^/]+\.(avro|stats|puffin)$|/version-hint\.text$")


def refuse_neighbours(work: Work) -> None:
    """Refused if another table or view of the catalog lies in the folder, around it, or writes into it."""
    spec = work.spec
    parts = "/".join(quote(each, safe="") for each in (spec.warehouse, *spec.namespace, spec.table))
    found = work.client.manage("GET", ("maintenance", "neighbours"), query={"securable": f"table:{parts}"})
    if not found["count"]:
        return
    named = found["neighbours"][:MOST_NAMED]
    others = found["count"] - len(named)
    who = ", ".join(named) if named else "another table"
    if named and others:
        who += f" and {others} more"
    raise Refused(
        f"The folder of {printed_name(work)}, {found['location']}, is not its own: {who} lies or writes there, too. "
        "Files that one of them needs look like orphans of the other, so nothing is deleted. Move one of them."
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
