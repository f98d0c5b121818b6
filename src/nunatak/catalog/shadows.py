"""Shadows: tables whose files still belong to another catalog, because a migration registered that catalog's metadata.

The flag is stored by warehouse and table UUID. In state `shadow` a table accepts no commit; the statement that moves
the pointer refuses it (`database/queries/*_commit.sql`). In state `cut-over` it is written here, but earlier files are
not deleted until an operator retires the source.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from nunatak.catalog.cache import Loaded
from nunatak.database import refusals
from nunatak.database.records import Change, Key, Write
from nunatak.database.store import Store
from nunatak.errors import BadRequest, Conflict
from nunatak.iceberg.shapes import Long

MAX_SOURCE_LENGTH = 500  # characters

State = Literal["shadow", "cut-over"]

# Jobs that delete files; all others only write.
DELETING_JOBS = frozenset({"snapshot-expiry", "metadata-retention", "orphan-removal"})


class Shadow(msgspec.Struct, frozen=True, rename="kebab"):
    """A table whose files still belong to another catalog, from which it is being migrated."""

    source: Annotated[str, msgspec.Meta(description="The table's name in the source catalog, for display.")]
    state: State
    since_ms: Long

    def refusal_of(self, job_type: str) -> str | None:
        """Returns why a job of this type must not run, or None if it may."""
        if self.state == "shadow":
            return (
                f"it is a shadow of {self.source}, which owns its files; no job runs on it before "
                "`nunatak migrate cutover`"
            )
        if job_type in DELETING_JOBS:
            return (
                f"it was cut over from {self.source}, which may still need the files; none is deleted before "
                "`nunatak migrate retire`"
            )
        return None


def check_source(text: str) -> str:
    if not 1 <= len(text) <= MAX_SOURCE_LENGTH or not text.isprintable():
        raise BadRequest(f"Invalid source of a shadow: use 1 to {MAX_SOURCE_LENGTH} printable characters")
    return text


class NamedShadow(msgspec.Struct, frozen=True):
    key: Key
    table_uuid: str
    shadow: Shadow


async def find_shadow(store: Store, catalog_name: str, table_uuid: str | None) -> Shadow | None:
    rows = await store.rows("find_shadow", {"catalog": catalog_name, "uuid": table_uuid or ""})
    return _shadow(rows[0]) if rows else None


async def list_shadows(store: Store, catalog_name: str) -> list[NamedShadow]:
    """Returns the shadows of a warehouse, one for each table name."""
    rows = await store.rows("list_shadows", {"catalog": catalog_name})
    return [NamedShadow(Key(catalog_name, row[0], row[1]), row[2], _shadow(row[3:])) for row in rows]


def _shadow(row: Sequence[Any]) -> Shadow:
    return Shadow(row[0], row[1], row[2])


def set_shadow(catalog_name: str, table_uuid: str, shadow: Shadow) -> Write:
    """Sets or changes the flag; `since_ms` of an existing flag stays."""
    values = {"source": shadow.source, "state": shadow.state, "since_ms": shadow.since_ms}
    return Write("set_shadow", {**_key_values(catalog_name, table_uuid), **values})


def drop_shadow(catalog_name: str, table_uuid: str) -> Write:
    return Write("drop_shadow", _key_values(catalog_name, table_uuid))


def forget_shadow(catalog_name: str, table_uuid: str) -> Write:
    """Removes the flag if the table has no name any more."""
    return Write("forget_shadow", _key_values(catalog_name, table_uuid))


async def register_changes(
    store: Store, key: Key, before: Loaded | None, table_uuid: str, shadow: Shadow | None
) -> tuple[list[Change], list[Change]]:
    """Returns the flag changes to apply before and after a register sets the pointer, in its transaction.

    With `shadow` the register creates or refreshes a shadow. Without it a register over a shadow is refused like a
    commit.
    """
    old_uuid = before.table().table_uuid if before is not None else None
    found = await find_shadow(store, key.catalog, old_uuid)
    if shadow is None and found is not None and found.state == "shadow":
        raise refusals.shadow_table(key.name, found.source)
    if shadow is not None:
        await _refuse_other_table(store, key, table_uuid, found)
    first: list[Change] = [forget_shadow(key.catalog, table_uuid)] if old_uuid != table_uuid else []
    then: list[Change] = []
    if shadow is not None:
        # Moving the pointer is refused in state `shadow`; no other transaction sees the suspension.
        suspended = [each for each in dict.fromkeys((old_uuid, table_uuid)) if each is not None]
        first += [Write("suspend_shadow", _key_values(key.catalog, each)) for each in suspended]
        then.append(set_shadow(key.catalog, table_uuid, shadow))
    if old_uuid is not None and old_uuid != table_uuid:
        then.append(forget_shadow(key.catalog, old_uuid))
    return first, then


async def _refuse_other_table(store: Store, key: Key, table_uuid: str, found: Shadow | None) -> None:
    """Raises Conflict unless the table came here only by a migration: others must not become shadows."""
    if found is not None and found.state == "cut-over":
        raise Conflict(
            f"{key.name} was cut over from {found.source}: a refresh would lose the commits made here since",
            hint="Drop the table first to register it anyway.",
        )
    names = [Key(*row) for row in await store.rows("names_of_uuid", {"uuid": table_uuid})]
    twins = [each for each in names if each.catalog == key.catalog and each != key]
    if twins and await find_shadow(store, key.catalog, table_uuid) is None:
        raise Conflict(
            f"{key.name} cannot become a shadow: the warehouse {key.catalog} has the same table under another name",
            hint="Register it in another warehouse, or without `shadow-of`.",
        )


def _key_values(catalog_name: str, table_uuid: str) -> dict[str, object]:
    return {"catalog": catalog_name, "uuid": table_uuid}
