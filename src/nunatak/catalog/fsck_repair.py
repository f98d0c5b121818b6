"""The repairs of `fsck --repair`: only those that lose no data, and each only if the finding still holds."""

from collections.abc import Awaitable, Callable

import zstandard

from nunatak.catalog import sweep
from nunatak.catalog.catalog import Caller, Catalog
from nunatak.catalog.fsck import Finding, decode_metadata, reason_unreadable
from nunatak.catalog.history import file_name
from nunatak.catalog.pointers import make_stored
from nunatak.catalog.write import entry
from nunatak.database.records import AdoptPointer, ForgetAnswers, ForgetPointer, Key, UpdateNamespace
from nunatak.errors import CatalogError, NotFound
from nunatak.iceberg.identifiers import from_jdbc, print_namespace

CALLER = Caller("fsck")


async def repair(catalog: Catalog, finding: Finding, age_ms: int) -> str:
    """Repair the finding and return a sentence that says what was done; raises CatalogError if it fails."""
    return await _REPAIRS[finding.kind](catalog, finding.key or Key("", "", ""), age_ms)


async def _rewrite_file(catalog: Catalog, key: Key, age_ms: int) -> str:
    """Write the metadata file from the stored content; a torn file is renamed first, a readable one never touched."""
    pointer = await catalog.store.find_pointer(key, None)
    if pointer is None or pointer.content is None:
        return "the table has changed; nothing to do"
    data = zstandard.decompress(pointer.content)
    damaged_name = f"{file_name(pointer.metadata_location)}.torn-{catalog.now_ms()}"
    try:
        found = await catalog.objects.read_metadata(pointer.metadata_location)
        if reason_unreadable(found, pointer.kind) is None:
            return "the file is readable; not changed"
        await catalog.objects.rename_file(pointer.metadata_location, damaged_name)
        done = f"renamed the damaged file to {damaged_name} and wrote it again"
    except NotFound:
        done = "wrote the file again from the stored bytes"
    except CatalogError:  # the file cannot even be decompressed
        await catalog.objects.rename_file(pointer.metadata_location, damaged_name)
        done = f"renamed the damaged file to {damaged_name} and wrote it again"
    await catalog.objects.write_metadata(pointer.metadata_location, data, lambda _: None)
    return done


async def _store_file(catalog: Catalog, key: Key, age_ms: int) -> str:
    """Store the content of the file, as a load does after another client moved the pointer."""
    pointer = await catalog.store.find_pointer(key, None)
    if pointer is None:
        return "the table was dropped meanwhile"
    data = await catalog.objects.read_metadata(pointer.metadata_location)
    stored = await make_stored(pointer.metadata_location, decode_metadata(data, pointer.kind), data)
    await catalog.store.apply([AdoptPointer(key, stored, entry(catalog, CALLER, "external"))])
    return f"stored the metadata of {pointer.metadata_location}"


async def _delete_row(catalog: Catalog, key: Key, age_ms: int) -> str:
    await catalog.store.apply([ForgetPointer(key)])
    return "deleted the stored row"


async def _add_namespace_row(catalog: Catalog, key: Key, age_ms: int) -> str:
    name = print_namespace(from_jdbc(key.namespace))
    await catalog.store.apply([UpdateNamespace(key.catalog, key.namespace, {}, (), name)])
    return f"added the row of the namespace {name}"


async def _delete_orphans(catalog: Catalog, key: Key, age_ms: int) -> str:
    deleted = await sweep.sweep_table(catalog, key, age_ms)
    return f"deleted {len(deleted)} metadata files" if deleted else "already deleted with the table's other files"


async def _delete_expired(catalog: Catalog, key: Key, age_ms: int) -> str:
    await catalog.store.apply([ForgetAnswers(catalog.now_ms())])
    return "deleted the expired responses"


_REPAIRS: dict[str, Callable[[Catalog, Key, int], Awaitable[str]]] = {
    "lost-file": _rewrite_file,
    "torn-file": _rewrite_file,
    "bad-stored-bytes": _store_file,
    "wrong-record": _store_file,
    "unknown-pointer": _store_file,
    "stale-record": _delete_row,
    "unmarked-namespace": _add_namespace_row,
    "orphan": _delete_orphans,
    "expired-answers": _delete_expired,
}
