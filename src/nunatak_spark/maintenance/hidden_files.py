"""Names below a table's folder that orphan removal does not look at: those that begin with an underscore or a dot.

Others keep such files beside a table's: `_delta_log`, `.hoodie`, `_checkpoint` and `_SUCCESS` are some. The exception
is Iceberg's own: the folder of a partition whose field has such a name, as in `_year=2020`.
"""

from collections.abc import Iterable
from urllib.parse import quote_plus

from nunatak.client import Json
from nunatak_spark.maintenance.reachable_files import path_of

HIDDEN = ("_", ".")


def visible_files(metadata: Json, paths: Iterable[str]) -> list[str]:
    """Of these paths those below the table's folder in which no name is hidden.

    Iceberg leaves hidden names out of its listing only if the store spells paths as the table's location is spelled,
    and `file:/x` is not `file:///x`.
    """
    own = path_of(metadata["location"])
    partitions = partition_prefixes(metadata)
    return [path for path in paths if _is_visible(path_of(path), own, partitions)]


def partition_prefixes(metadata: Json) -> tuple[str, ...]:
    """How the folders of partitions with hidden names begin, by any spec; Iceberg escapes names in paths."""
    names = {
        field["name"]
        for spec in metadata.get("partition-specs") or ()
        for field in spec["fields"]
        if field["name"].startswith(HIDDEN)
    }
    return tuple(sorted({f"{each}=" for name in names for each in (name, quote_plus(name))}))


def _is_visible(path: str, own: str, partitions: tuple[str, ...]) -> bool:
    if not path.startswith(f"{own}/"):
        return False
    *folders, name = path.removeprefix(f"{own}/").split("/")
    hidden = [folder for folder in folders if folder.startswith(HIDDEN) and not folder.startswith(partitions)]
    return not hidden and not name.startswith(HIDDEN)
