"""A long array inside metadata, as a value: its entries are kept as the JSON they are written in.

A table's snapshots and logs are most of its metadata, and a commit looks at none of them but the last. Kept as bytes,
many entries in one piece, they need a fraction of the memory, appending costs nothing per entry already there, and
writing is copying a few pieces.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Self, overload

import msgspec

from nunatak.iceberg.shapes import Json

RUN = 32  # entries in one piece
PIECE_BYTES = 41  # what Python adds to the bytes of a piece: a header and a reference

_encoder = msgspec.json.Encoder()
_entry_decoder = msgspec.json.Decoder(Json)
_array_decoder = msgspec.json.Decoder(list[Json])
_split_decoder = msgspec.json.Decoder(list[msgspec.Raw] | None)


class Entries(Sequence[Json]):
    """Never changes. Whoever looks at an entry gets a dict of its own; what was written alike is equal.

    In `_runs` are RUN entries each, in `_first` and `_last` those around them that are no full run; in all of them a
    comma comes before each entry.
    """

    __slots__ = ("_first", "_last", "_runs", "size_bytes")

    def __init__(self, written: Iterable[bytes] = ()) -> None:
        """Of entries as they are written."""
        pieces = [b"," + each for each in written]
        full = len(pieces) - len(pieces) % RUN
        self._first: tuple[bytes, ...] = ()
        self._runs = tuple(b"".join(pieces[start : start + RUN]) for start in range(0, full, RUN))
        self._last = tuple(pieces[full:])
        self.size_bytes = sum(map(len, pieces))

    @classmethod
    def of(cls, entries: Iterable[Json]) -> Self:
        return cls(map(_encoder.encode, entries))

    @classmethod
    def split(cls, array: msgspec.Raw | None) -> Self:
        """From the array as a file holds it, absent or null if it has none; its entries are not checked."""
        return cls(map(bytes, _split_decoder.decode(array) or ())) if array is not None else cls()

    def _like(
        self, first: tuple[bytes, ...], runs: tuple[bytes, ...], last: tuple[bytes, ...], size_bytes: int
    ) -> Self:
        made = self.__class__.__new__(self.__class__)  # nothing to take apart
        made._first, made._runs, made._last, made.size_bytes = first, runs, last, size_bytes
        return made

    def with_last(self, added: Json) -> Self:
        written = b"," + _encoder.encode(added)
        runs, last = self._runs, self._last + (written,)  # noqa: RUF005 - half as fast unpacked
        if len(last) == RUN:
            runs, last = (*runs, b"".join(last)), ()
        return self._like(self._first, runs, last, self.size_bytes + len(written))

    def without_first(self, count: int) -> Self:
        """Those behind the first `count`; itself if these are none."""
        if count <= 0:
            return self
        first, runs, last = self._first, self._runs, self._last
        if count > len(first):  # whole runs go without a look at them
            whole = min((count - len(first)) // RUN, len(runs))
            count -= len(first) + RUN * whole
            first, runs = (), runs[whole:]
            if count and runs:
                first, runs = _entries_in(runs[0]), runs[1:]
        if count > len(first):
            first, last = (), last[count - len(first) :]
        else:
            first = first[count:]
        return self._like(first, runs, last, sum(map(len, chain(first, runs, last))))

    def pieces(self) -> list[bytes | memoryview]:
        """What makes all of it, without the brackets, when it is put together."""
        pieces: list[bytes | memoryview] = [*self._first, *self._runs, *self._last]
        if pieces:
            pieces[0] = memoryview(pieces[0])[1:]
        return pieces

    def array(self) -> bytes:
        """All of it as JSON."""
        return b"".join((b"[", *self.pieces(), b"]"))

    def written(self) -> list[bytes]:
        """The entries one by one, as they are written."""
        runs = chain.from_iterable(map(_entries_in, self._runs))
        return [each[1:] for each in chain(self._first, runs, self._last)]

    def tail(self, count: int) -> list[Json]:
        """The last entries, as many as there are up to so many."""
        if count > len(self._last):
            return list(self)[-count:]
        return [_entry_decoder.decode(memoryview(each)[1:]) for each in self._last[len(self._last) - count :]]

    @property
    def memory_bytes(self) -> int:
        """About what it takes in memory."""
        return self.size_bytes + PIECE_BYTES * (len(self._first) + len(self._runs) + len(self._last))

    def _written_at(self, index: int) -> bytes:
        """The entry at a place, which is not negative; IndexError if there is none."""
        index -= len(self._first)
        if index < 0:
            return self._first[index][1:]
        run, place = divmod(index, RUN)
        if run < len(self._runs):
            return _entries_in(self._runs[run])[place][1:]
        return self._last[index - RUN * len(self._runs)][1:]

    def __len__(self) -> int:
        return len(self._first) + RUN * len(self._runs) + len(self._last)

    @overload
    def __getitem__(self, index: int) -> Json: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Json | Self:
        if isinstance(index, slice):
            return type(self)(self.written()[index])
        place = index + len(self) if index < 0 else index
        if place < 0:
            raise IndexError(index)
        return _entry_decoder.decode(self._written_at(place))

    def __iter__(self) -> Iterator[Json]:
        """One piece after the other: decoded all at once, a long array takes many times its bytes."""
        for piece in chain(self._first, self._runs, self._last):
            yield from _array_decoder.decode(b"[" + piece[1:] + b"]")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Entries):
            if len(self) != len(other):
                return False
            mine, others = (self._first, self._runs, self._last), (other._first, other._runs, other._last)
            return mine == others or list(self) == list(other)
        return isinstance(other, tuple | list) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(len(self))  # those that are written otherwise may be equal

    def __repr__(self) -> str:
        return f"{type(self).__name__}.of({list(self)!r})"


def _entries_in(run: bytes) -> tuple[bytes, ...]:
    """The entries of a run, each with its comma."""
    return tuple(b"," + bytes(each) for each in _split_decoder.decode(b"[" + run[1:] + b"]") or ())
