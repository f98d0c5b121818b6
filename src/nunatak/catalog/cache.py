"""Cache of recently used metadata by table; a metadata file never changes, so an entry is valid for its location."""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Self

import msgspec

from nunatak.database.records import Key
from nunatak.iceberg import table_metadata, view_metadata
from nunatak.iceberg.conventions import STEERING_PROPERTIES
from nunatak.iceberg.table_metadata import TableMetadata
from nunatak.iceberg.view_metadata import ViewMetadata

PARSED_WEIGHT = 8  # Python objects take about eight times the bytes of the JSON they came from
NO_CONFIG = b',"config":{}}'  # the end of a response without members that depend on the caller


class StorageFacts(msgspec.Struct, frozen=True, rename="kebab"):
    """The part of table metadata that decides which files belong to the table."""

    location: str
    table_uuid: str = ""
    properties: dict[str, str] = {}  # only those that set where clients write


def storage_facts(metadata: StorageFacts | TableMetadata) -> StorageFacts:
    """Returns the facts without any other property."""
    steering = {name: metadata.properties[name] for name in STEERING_PROPERTIES if name in metadata.properties}
    return StorageFacts(metadata.location, metadata.table_uuid, steering)


def decode_storage_facts(metadata: bytes | memoryview) -> StorageFacts:
    """Reads the facts from the JSON of table metadata; the rest is only skipped."""
    return storage_facts(msgspec.json.decode(metadata, type=StorageFacts))


class Loaded:
    """The metadata of one location with the HTTP responses made from it; parsed only when a commit needs it."""

    __slots__ = (
        "_end",
        "_settled",
        "_start",
        "answer",
        "etag",
        "http_head",
        "metadata_location",
        "packed",
        "parsed",
        "path",
        "refs_answer",
        "refs_etag",
        "storage_facts",
    )

    def __init__(self, metadata_location: str, pieces: Sequence[bytes | memoryview], path: str | None) -> None:
        """The concatenated pieces are the JSON of the metadata."""
        prefix = b'{"metadata-location":' + msgspec.json.encode(metadata_location) + b',"metadata":'
        self.metadata_location = metadata_location
        self.answer = b"".join((prefix, *pieces, NO_CONFIG))
        self._start, self._end = len(prefix), len(self.answer) - len(NO_CONFIG)
        self._settled = slice(0)  # position of the settled piece in `answer`; empty if not made by `of_table`
        self.path = path
        self.parsed: TableMetadata | ViewMetadata | None = None
        self.packed: dict[str, bytes] = {}
        self.refs_answer: bytes | None = None
        # A metadata file never changes: a hash of its location is a valid ETag, cheaper than one of the content.
        digest = hashlib.blake2b(metadata_location.encode(), digest_size=12).hexdigest()
        self.etag = f'"{digest}"'
        self.http_head: bytes | None = None
        self.refs_etag = f'"{digest}-refs"'
        self.storage_facts: StorageFacts | None = None

    @classmethod
    def of_table(
        cls, metadata_location: str, metadata: TableMetadata, path: str | None, before: "Loaded | None"
    ) -> Self:
        """Makes a version that has no file yet; copies the unchanged JSON from `before` instead of encoding it."""
        pieces = table_metadata.pieces(metadata, before.settled_for(metadata) if before is not None else None)
        made = cls(metadata_location, pieces, path)
        start = made._start + len(pieces[0])
        made._settled = slice(start, start + len(pieces[table_metadata.SETTLED]))
        made.parsed = metadata
        return made

    def settled_for(self, metadata: TableMetadata) -> memoryview | None:
        """Returns the encoded settled piece if `metadata` has the same, else None."""
        parsed = self.parsed
        if not self._settled.stop or not isinstance(parsed, TableMetadata):
            return None
        return memoryview(self.answer)[self._settled] if table_metadata.shares_settled(parsed, metadata) else None

    @property
    def data(self) -> memoryview:
        return memoryview(self.answer)[self._start : self._end]

    def table(self) -> TableMetadata:
        if self.parsed is None:
            self.parsed = table_metadata.decode(self.data)
        assert isinstance(self.parsed, TableMetadata)
        return self.parsed

    def find_storage_facts(self) -> StorageFacts:
        """Returns the places of a table, read once for each metadata file; parses nothing else of it."""
        if self.storage_facts is None:
            if isinstance(self.parsed, TableMetadata):
                self.storage_facts = storage_facts(self.parsed)
            else:
                self.storage_facts = decode_storage_facts(self.data)
        return self.storage_facts

    def view(self) -> ViewMetadata:
        if self.parsed is None:
            self.parsed = view_metadata.decode(self.data)
        assert isinstance(self.parsed, ViewMetadata)
        return self.parsed

    def with_refs_only(self) -> bytes:
        """Returns the response for `snapshots=refs`, encoded once."""
        # Encoded on request only: few clients ask for refs, and it costs as much as encoding the whole metadata.
        if self.refs_answer is None:
            small = table_metadata.encode(table_metadata.only_referenced_snapshots(self.table()))
            self.refs_answer = b"".join((self.answer[: self._start], small, NO_CONFIG))
        return self.refs_answer

    def weight(self) -> int:
        size = len(self.answer)
        # Compressed forms are added later without a new count: a quarter of the size covers both of them.
        extra = size // 4 + len(self.refs_answer or b"")
        return size + extra + (_weight_of(self.parsed, size) if self.parsed is not None else 0)


def _weight_of(parsed: TableMetadata | ViewMetadata, size: int) -> int:
    if isinstance(parsed, ViewMetadata):
        return PARSED_WEIGHT * size
    # These lists stay encoded in memory, so PARSED_WEIGHT would count them several times over.
    long = (parsed.snapshots, parsed.snapshot_log, parsed.metadata_log)
    written = sum([entries.size_bytes for entries in long])
    return PARSED_WEIGHT * (size - written) + sum([entries.memory_bytes for entries in long])


class MetadataCache:
    """LRU cache of metadata by table, limited in bytes."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._entries: OrderedDict[Key, tuple[Loaded, int]] = OrderedDict()
        self.bytes = 0

    def find(self, key: Key) -> Loaded | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def known_uuid(self, key: Key) -> str | None:
        """Returns the UUID of the table or view, or None if its metadata is not cached or not parsed."""
        entry = self._entries.get(key)
        parsed = entry[0].parsed if entry is not None else None
        if parsed is None:
            return None
        return parsed.table_uuid if isinstance(parsed, TableMetadata) else parsed.view_uuid

    def keep(self, key: Key, loaded: Loaded) -> None:
        """Adds or replaces an entry; call it again to update the weight after something was added to `loaded`."""
        old = self._entries.pop(key, None)
        if old is not None:
            self.bytes -= old[1]
        weight = loaded.weight()
        if weight > self._limit:  # it would evict all other entries, and then itself
            return
        self._entries[key] = (loaded, weight)
        self.bytes += weight
        while self.bytes > self._limit:
            _, (_, dropped) = self._entries.popitem(last=False)
            self.bytes -= dropped

    def forget(self, key: Key) -> None:
        old = self._entries.pop(key, None)
        if old is not None:
            self.bytes -= old[1]
