"""Lists of metadata while a commit changes them: items are found by key, so that many changes stay cheap."""

from collections.abc import Callable, Collection, Hashable, Iterable
from hashlib import blake2b
from typing import Any

import msgspec

from nunatak.errors import IllegalArgument
from nunatak.iceberg.shapes import Json

MAX_DEFINITIONS = 100_000  # schemas, partition specs or sort orders of one table: far more than its file can hold

_encoder = msgspec.json.Encoder(order="sorted")  # the order of fields does not count in comparisons


class Digested(tuple[Json, ...]):
    """A finished list with the digests of its items by id, so that the next commit does not compute them again."""

    digests: dict[int, bytes]

    @classmethod
    def of(cls, items: Iterable[Json], digests: dict[int, bytes] | None = None) -> "Digested":
        made = cls(items)
        made.digests = {} if digests is None else digests
        return made


def digest(content: object) -> bytes:
    """Return a digest that is equal for equal JSON only."""
    return blake2b(_encoder.encode(content), digest_size=20).digest()


class Definitions:
    """The schemas, partition specs or sort orders of a table or view, in order, found by id and by content."""

    __slots__ = ("_base", "_by_digest", "_changed", "_digest_of", "_digests", "_highest_id", "_items", "_what")

    def __init__(
        self, what: str, base: tuple[Json, ...], id_of: Callable[[Json], int], digest_of: Callable[[Json], bytes]
    ) -> None:
        """`digest_of` decides what counts when two items are compared."""
        self._what = what
        self._base = base
        self._items = {id_of(item): item for item in base}
        self._digest_of = digest_of
        self._digests: dict[int, bytes] = getattr(base, "digests", {})  # shared with the base until something changes
        self._by_digest: dict[bytes, dict[int, None]] | None = None
        self._highest_id: int | None = None
        self._changed = False

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, item_id: int) -> bool:
        return item_id in self._items

    def __getitem__(self, item_id: int) -> Json:
        return self._items[item_id]

    def values(self) -> Iterable[Json]:
        return self._items.values()

    def find_equal(self, wanted: bytes) -> int | None:
        """Return the id of the first item with this digest, or None."""
        found = self._all_by_digest().get(wanted)
        return next(iter(found)) if found else None

    def next_id(self, lowest: int) -> int:
        """Return an id above all existing ones, and at least `lowest`."""
        if self._highest_id is None:
            self._highest_id = max(self._items, default=-1)
        return max(lowest, self._highest_id + 1)

    def add(self, item_id: int, item: Json, item_digest: bytes) -> None:
        if len(self._items) >= MAX_DEFINITIONS:
            raise IllegalArgument(
                f"Cannot add a {self._what}: there are {len(self._items)}, at most {MAX_DEFINITIONS} are allowed",
                hint=f"Remove each {self._what} that no snapshot needs any more.",
            )
        by_digest = self._all_by_digest()
        self._change()
        self._items[item_id] = item
        self._digests[item_id] = item_digest
        by_digest.setdefault(item_digest, {})[item_id] = None
        self._highest_id = max(item_id, self.next_id(0) - 1)

    def remove(self, ids: Iterable[int]) -> None:
        for item_id in ids:
            if item_id not in self._items:
                continue
            self._change()
            del self._items[item_id]
            item_digest = self._digests.pop(item_id, None)
            if self._by_digest is not None and item_digest is not None:
                self._by_digest[item_digest].pop(item_id, None)
            self._highest_id = None

    def finished(self) -> tuple[Json, ...]:
        """Return all items; the original list itself if nothing changed."""
        return Digested.of(self._items.values(), self._digests) if self._changed else self._base

    def _change(self) -> None:
        if not self._changed:
            self._changed = True
            self._digests = dict(self._digests)  # the base keeps its own

    def _all_by_digest(self) -> dict[bytes, dict[int, None]]:
        if self._by_digest is None:
            self._by_digest = {}
            for item_id, item in self._items.items():
                known = self._digests.get(item_id)
                if known is None:
                    known = self._digests[item_id] = self._digest_of(item)
                self._by_digest.setdefault(known, {})[item_id] = None
        return self._by_digest


class Keyed:
    """Objects with a key, such as the statistics files of snapshots. A new object takes the position of the old one."""

    __slots__ = ("_base", "_changed", "_counts", "_field", "_items")

    def __init__(self, base: tuple[Json, ...], field: str) -> None:
        """`field` holds the key. Objects of a file may share a key: they all stay until the key is set or removed."""
        self._base = base
        self._field = field
        self._counts: dict[Hashable, int] = {}
        self._items: dict[tuple[Hashable, int], Json] = {}
        self._changed = False
        for item in base:
            self._append(item)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._counts

    def put(self, item: Json) -> None:
        key = item[self._field]
        self._changed = True
        if key not in self._counts:
            self._append(item)
            return
        for number in range(1, self._counts[key]):
            del self._items[key, number]
        self._counts[key] = 1
        self._items[key, 0] = item

    def remove(self, keys: Collection[Any]) -> None:
        for key in keys:
            for number in range(self._counts.pop(key, 0)):
                self._changed = True
                del self._items[key, number]

    def finished(self) -> tuple[Json, ...]:
        return tuple(self._items.values()) if self._changed else self._base

    def _append(self, item: Json) -> None:
        key = item[self._field]
        number = self._counts.get(key, 0)
        self._counts[key] = number + 1
        self._items[key, number] = item
