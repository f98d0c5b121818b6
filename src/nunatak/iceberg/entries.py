"""A long array inside metadata, as a value: each entry is kept as the JSON it is written in.

A table's snapshots and logs are most of its metadata, and a commit looks at none of them but the last. Kept as bytes
they need a fraction of the memory, appending costs nothing per entry already there, and writing is copying.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Self, overload

import msgspec

from nunatak.iceberg.shapes import Json

_encoder = msgspec.json.Encoder()
_entry_decoder = msgspec.json.Decoder(Json)
_array_decoder = msgspec.json.Decoder(list[Json])
_split_decoder = msgspec.json.Decoder(list[msgspec.Raw] | None)


class Entries(Sequence[Json]):
    """Never changes. Whoever looks at an entry gets a dict of its own; what was written alike is equal."""

    __slots__ = ("size_bytes", "written")

    def __init__(self, written: tuple[bytes, ...] = (), size_bytes: int | None = None) -> None:
        """`size_bytes` is that of all entries together, if it is known."""
        self.written = written
        self.size_bytes = sum(map(len, written)) if size_bytes is None else size_bytes

    @classmethod
    def of(cls, entries: Iterable[Json]) -> Self:
        return cls(tuple(map(_encoder.encode, entries)))

    @classmethod
    def split(cls, array: msgspec.Raw | None) -> Self:
        """From the array as a file holds it, absent or null if it has none; its entries are not checked."""
        return cls(tuple(map(bytes, _split_decoder.decode(array) or ()))) if array is not None else cls()

    def with_last(self, added: Json) -> Self:
        last = _encoder.encode(added)
        return type(self)(self.written + (last,), self.size_bytes + len(last))  # noqa: RUF005 - half as fast unpacked

    def without_first(self, count: int) -> Self:
        """Those behind the first `count`; itself if these are none."""
        if count <= 0:
            return self
        gone = sum(map(len, self.written[:count]))
        return type(self)(self.written[count:], self.size_bytes - gone)

    def array(self) -> bytes:
        """All of it as JSON."""
        return b"".join((b"[", b",".join(self.written), b"]"))

    def pieces(self, before: bytes, after: bytes) -> list[bytes]:
        """What makes all of it if commas are put between, with something before the first entry and after the last."""
        written = self.written
        if len(written) < 2:
            return [b"".join((before, *written, after))]
        return [before + written[0], *written[1:-1], written[-1] + after]

    def __len__(self) -> int:
        return len(self.written)

    @overload
    def __getitem__(self, index: int) -> Json: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Json | Self:
        if isinstance(index, slice):
            return type(self)(self.written[index])
        return _entry_decoder.decode(self.written[index])

    def __iter__(self) -> Iterator[Json]:
        return iter(_array_decoder.decode(self.array()))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Entries):
            return self.written == other.written or list(self) == list(other)
        return isinstance(other, tuple | list) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(len(self.written))  # those that are written otherwise may be equal

    def __repr__(self) -> str:
        return f"{type(self).__name__}.of({list(self)!r})"
