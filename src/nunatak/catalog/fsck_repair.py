"""The repairs of `fsck --repair`: only those that lose no data, and each only if the finding still holds."""

from collections.abc import Awaitable, Callable

import zstandard

from nunatak.catalog import sweep
from nunatak.catalog.catalog import Caller, Catalog
from nunatak.catalog.fsck import Finding, decode_metadata, why_unreadable
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


async def _write_again(catalog: Catalog, key: Key, age_ms: int) -> str:
    """Write the metadata file from the stored content; a torn file is renamed first, a readable one never touched."""
    pointer = await catalog.store.find_pointer(key, None)
    if pointer is None or pointer.content is None:
        return "the table moved on; nothing to do"
    data = zstandard.decompress(pointer.content)
    aside = f"{file_name(pointer.metadata_location)}.torn-{catalog.now_ms()}"
    try:
        found = await catalog.objects.read_metadata(pointer.metadata_location)
        if why_unreadable(found, pointer.kind) is None:
            return "the file can be read; left alone"
        await catalog.objects.rename_file(pointer.metadata_location, aside)
        done = f"set the torn file aside as {aside} and wrote it again"
    except NotFound:
        done = "wrote the file again from the stored bytes"
    except CatalogError:  # the file cannot even be decompressed
        await catalog.objects.rename_file(pointer.metadata_location, aside)
        done = f"set the torn file aside as {aside} and wrote it again"
    await catalog.objects.write_metadata(pointer.metadata_location, data, lambda _: None)
    return done


async def _store_again(catalog: Catalog, key: Key, age_ms: int) -> str:
    """Store the content of the file, as a load does after another client moved the pointer."""
    pointer = await catalog.store.find_pointer(key, None)
    if pointer is None:
        return "it was dropped meanwhile"
    data = await catalog.objects.read_metadata(pointer.metadata_location)
    stored = await make_stored(pointer.metadata_location, decode_metadata(data, pointer.kind), data)
    await catalog.store.apply([AdoptPointer(key, stored, entry(catalog, CALLER, "external"))])
    return f"stored what {pointer.metadata_location} says"


async def _forget(catalog: Catalog, key: Key, age_ms: int) -> str:
    await catalog.store.apply([ForgetPointer(key)])
    return "forgot what was stored"


async def _mark_namespace(catalog: Catalog, key: Key, age_ms: int) -> str:
    name = print_namespace(from_jdbc(key.namespace))
    await catalog.store.apply([UpdateNamespace(key.catalog, key.namespace, {}, (), name)])
    return f"gave the namespace {name} a row of its own"


async def _delete_orphans(catalog: Catalog, key: Key, age_ms: int) -> str:
    deleted = await sweep.sweep_table(catalog, key, age_ms)
    return f"deleted {len(deleted)} metadata files" if deleted else "deleted with the others of the table"


async def _forget_answers(catalog: Catalog, key: Key, age_ms: int) -> str:
    await catalog.store.apply([ForgetAnswers(catalog.now_ms())])
    return "forgot the expired answers"


_REPAIRS: dict[str, Callable[[Catalog, Key, int], Awaitable[str]]] = {
    "lost-file": _write_again,
    "torn-file": _write_again,
    "bad-stored-bytes": _store_again,
    "wrong-record": _store_again,
    "unknown-pointer": _store_again,
    "stale-record": _forget,
    "unmarked-namespace": _mark_namespace,
    "orphan": _delete_orphans,
    "expired-answers": _forget_answers,
}
