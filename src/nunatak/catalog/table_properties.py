"""Properties the catalog keeps about a table apart from its metadata file: the rows of iceberg_table_properties.

They stand under the table's name and go with it when it is renamed or dropped here. Another client of the database that
drops a table leaves them behind; so a row of ours says of which table they are, and those of another are not shown.
"""

from collections.abc import Mapping, Sequence

from nunatak.catalog.size_limits import MAX_PROPERTIES, check_properties
from nunatak.database.bindings import key_values
from nunatak.database.records import Key, Write
from nunatak.database.store import Store
from nunatak.errors import BadRequest, Unprocessable

OWNER = "nunatak.table-uuid"  # the row that says of which table the others are
LONGEST_KEY, LONGEST_VALUE = 255, 1000  # characters, the widths of the columns


async def load_table_properties(store: Store, key: Key, table_uuid: str) -> dict[str, str]:
    properties = await _rows(store, key)
    owner = properties.pop(OWNER, table_uuid)  # another client may have written them without a word about the table
    return properties if owner == table_uuid else {}


async def update_table_properties(
    store: Store, key: Key, table_uuid: str, updates: Mapping[str, str], removals: Sequence[str]
) -> list[Write]:
    """The changes that set and remove properties; BadRequest for what the columns or a reader could not hold."""
    _check(updates, removals)
    present = await load_table_properties(store, key, table_uuid)
    if len({*present, *updates} - set(removals)) > MAX_PROPERTIES:
        raise BadRequest(f"Too many properties: a table has at most {MAX_PROPERTIES} of them in the catalog")
    stale = [] if present else [forget_table_properties(key)]
    forgotten = [Write("forget_table_property", {**key_values(key), "key": each}) for each in dict.fromkeys(removals)]
    written = {**updates, OWNER: table_uuid} if updates else {}
    return [*stale, *forgotten, *(_save_property(key, name, value) for name, value in written.items())]


def forget_table_properties(key: Key) -> Write:
    return Write("forget_table_properties", key_values(key))


def _save_property(key: Key, name: str, value: str) -> Write:
    return Write("save_table_property", {**key_values(key), "key": name, "value": value})


async def _rows(store: Store, key: Key) -> dict[str, str]:
    return {row[0]: row[1] or "" for row in await store.rows("table_properties", key_values(key))}


def _check(updates: Mapping[str, str], removals: Sequence[str]) -> None:
    check_properties(updates)
    both = sorted(set(updates) & set(removals))
    if both:
        raise Unprocessable(f"A property cannot be set and removed at once: {', '.join(both)}")
    if OWNER in updates or OWNER in removals:
        raise BadRequest(f"{OWNER} is kept by the catalog itself")
    for name, value in updates.items():
        if len(name) > LONGEST_KEY or len(value) > LONGEST_VALUE or "\0" in name + value:
            raise BadRequest(
                f"Invalid property {name[:64]!r}: a key has at most {LONGEST_KEY} characters, a value {LONGEST_VALUE}"
            )
