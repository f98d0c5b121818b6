"""Hidden files in a table's folder, which orphan removal skips: names that begin with an underscore or a dot.

Other tools keep such files beside a table's, for example `_delta_log`, `.hoodie`, `_checkpoint` and `_SUCCESS`. The
exception are partition folders of fields with such a name, as in `_year=2020`, which are Iceberg's own.
"""

from collections.abc import Iterable
from urllib.parse import quote_plus

from nunatak.client import Json
from nunatak_spark.maintenance.reachable_files import plain_path

HIDDEN = ("_", ".")


def visible_files(metadata: Json, paths: Iterable[str]) -> list[str]:
    """Returns the paths below the table's folder that contain no hidden name.

    Iceberg skips hidden names in its listing only if the store spells paths as the table's location does, and `file:/x`
    is not `file:///x`. So they are filtered here too.
    """
    own = plain_path(metadata["location"])
    partitions = partition_prefixes(metadata)
    return [path for path in paths if _is_visible(plain_path(path), own, partitions)]


def partition_prefixes(metadata: Json) -> tuple[str, ...]:
    """Returns the folder prefixes of partition fields with hidden names, of all specs.

    Iceberg escapes names in paths.
    """
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
