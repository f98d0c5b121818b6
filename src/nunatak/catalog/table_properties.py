"""Properties of a table that the catalog stores outside its metadata file: the rows of iceberg_table_properties.

They are stored by table name, and are renamed and dropped with the table. Another client of the database that drops a
table leaves them behind; so an additional row holds the table's UUID, and properties of another table are ignored.
"""

from collections.abc import Mapping, Sequence

from nunatak.catalog.size_limits import MAX_PROPERTIES, check_properties
from nunatak.database.bindings import key_values
from nunatak.database.records import Key, Write
from nunatak.database.store import Store
from nunatak.errors import BadRequest, Unprocessable

OWNER = "nunatak.table-uuid"  # the row with the UUID of the table that the others belong to
MAX_KEY_LENGTH, MAX_VALUE_LENGTH = 255, 1000  # characters, the widths of the columns


async def load_table_properties(store: Store, key: Key, table_uuid: str) -> dict[str, str]:
    properties = await _rows(store, key)
    owner = properties.pop(OWNER, table_uuid)  # another client may have written properties without the owner row
    return properties if owner == table_uuid else {}


async def update_table_properties(
    store: Store, key: Key, table_uuid: str, updates: Mapping[str, str], removals: Sequence[str]
) -> list[Write]:
    """Returns the changes that set and remove properties; raises BadRequest, or Unprocessable for a key in both."""
    _check(updates, removals)
    present = await load_table_properties(store, key, table_uuid)
    if len({*present, *updates} - set(removals)) > MAX_PROPERTIES:
        raise BadRequest(f"Too many properties: a table has at most {MAX_PROPERTIES} of them in the catalog")
    # Without properties of this table, other rows under its name belong to an earlier table.
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
        raise BadRequest(f"{OWNER} is reserved for the catalog")
    for name, value in updates.items():
        if len(name) > MAX_KEY_LENGTH or len(value) > MAX_VALUE_LENGTH or "\0" in name + value:
            raise BadRequest(
                f"Invalid property {name[:64]!r}: a key has at most {MAX_KEY_LENGTH} characters, "
                f"a value at most {MAX_VALUE_LENGTH}"
            )
