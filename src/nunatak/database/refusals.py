"""The errors with which changes are refused; messages follow Iceberg's reference implementation where it has one."""

from collections.abc import Collection

from nunatak.database.records import Kind, RenamePointer, UpdateNamespace
from nunatak.database.store import KeyTaken, PointerMoved
from nunatak.errors import (
    AlreadyExists,
    BadRequest,
    NamespaceNotEmpty,
    NoSuchNamespace,
    NoSuchTable,
    NoSuchView,
    ShadowTable,
)


def no_such_entry(kind: Kind, printed: str) -> NoSuchTable | NoSuchView:
    if kind == "VIEW":
        return NoSuchView(f"View does not exist: {printed}")
    return NoSuchTable(f"Table does not exist: {printed}")


def no_such_namespace(printed: str) -> NoSuchNamespace:
    return NoSuchNamespace(f"Namespace does not exist: {printed}")


def refuse_other_removals(change: UpdateNamespace, present: Collection[str]) -> None:
    """Raises PointerMoved if the removals reported to the client no longer match the properties that are present."""
    if change.removed is not None and change.removed != tuple(key for key in change.removals if key in present):
        raise PointerMoved(f"The properties of {change.printed} changed meanwhile")


def pointer_moved(printed: str) -> PointerMoved:
    return PointerMoved(f"Cannot commit {printed}: another writer changed it meanwhile")


def shadow_table(printed: str, source: str) -> ShadowTable:
    return ShadowTable(
        f"{printed} is a shadow of {source}: its files belong to that catalog, and nothing is written to it here",
        hint="It becomes writable with `nunatak migrate cutover`.",
    )


def key_taken() -> KeyTaken:
    return KeyTaken("Another request with this Idempotency-Key is still running")


def already_exists(wanted: Kind, found: str | None, printed: str) -> AlreadyExists:
    """Returns the reference's error for a name that is taken by a table or view."""
    what = "View" if found == "VIEW" else "Table"
    if wanted == (found or "TABLE"):
        return AlreadyExists(f"{what} already exists: {printed}")
    return AlreadyExists(f"{what} with same name already exists: {printed}")


def rename_taken(change: RenamePointer, found: str | None) -> AlreadyExists:
    if change.kind == "TABLE" and found != "VIEW":
        return AlreadyExists(f"Table already exists: {change.printed_to}")
    what = "View" if found == "VIEW" else "Table"
    return AlreadyExists(f"Cannot rename {change.printed} to {change.printed_to}. {what} already exists")


def namespace_already_exists(printed: str) -> AlreadyExists:
    return AlreadyExists(f"Namespace already exists: {printed}")


def overlap(location: str) -> BadRequest:
    return BadRequest(
        f"Location {location} overlaps that of another table or view",
        hint="Leave the location out to get a new folder, or choose one outside the others.",
    )


def files_are_purged(printed: str) -> BadRequest:
    return BadRequest(f"The files of {printed} are being purged: it cannot be registered any more")


def holds_entries(printed: str, kind: str, count: int) -> NamespaceNotEmpty:
    what = "view(s)" if kind == "VIEW" else "table(s)"
    return NamespaceNotEmpty(f"Namespace {printed} is not empty. Contains {count} {what}.")


def holds_children(printed: str, count: int) -> NamespaceNotEmpty:
    return NamespaceNotEmpty(f"Namespace {printed} is not empty. Contains {count} child namespace(s).")
