"""A long array of metadata as an immutable value: its entries are stored as encoded JSON.

A table's snapshots and logs are most of its metadata, and a commit reads none of their entries but the last. As bytes,
many entries in one piece, they need a fraction of the memory, appending costs nothing per existing entry, and writing
copies a few pieces.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Self, overload

import msgspec

from nunatak.iceberg.shapes import Json

RUN = 32  # entries in one piece
PIECE_BYTES = 41  # overhead of a piece in Python: object header and reference

_encoder = msgspec.json.Encoder()
_entry_decoder = msgspec.json.Decoder(Json)
_array_decoder = msgspec.json.Decoder(list[Json])
_split_decoder = msgspec.json.Decoder(list[msgspec.Raw] | None)


class Entries(Sequence[Json]):
    """An immutable sequence. Each access decodes an entry to a new dict; sequences with equal entries are equal.

    Each element of `_runs` holds RUN entries; `_first` and `_last` hold single entries before and after the runs. Every
    entry has a comma before it.
    """

    __slots__ = ("_first", "_last", "_runs", "size_bytes")

    def __init__(self, written: Iterable[bytes] = ()) -> None:
        """Build from encoded entries."""
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
        """Build from the encoded array of a file, which may be absent or null; its entries are not checked."""
        return cls(map(bytes, _split_decoder.decode(array) or ())) if array is not None else cls()

    def _like(
        self, first: tuple[bytes, ...], runs: tuple[bytes, ...], last: tuple[bytes, ...], size_bytes: int
    ) -> Self:
        made = self.__class__.__new__(self.__class__)  # not __init__, which would split and join again
        made._first, made._runs, made._last, made.size_bytes = first, runs, last, size_bytes
        return made

    def with_last(self, added: Json) -> Self:
        written = b"," + _encoder.encode(added)
        runs, last = self._runs, self._last + (written,)  # noqa: RUF005 - unpacking is half as fast
        if len(last) == RUN:
            runs, last = (*runs, b"".join(last)), ()
        return self._like(self._first, runs, last, self.size_bytes + len(written))

    def without_first(self, count: int) -> Self:
        """Return the entries after the first `count`; itself if `count` is not positive."""
        if count <= 0:
            return self
        first, runs, last = self._first, self._runs, self._last
        if count > len(first):  # whole runs are dropped without decoding
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
        """Return the pieces that, joined, are the encoded array without its brackets."""
        pieces: list[bytes | memoryview] = [*self._first, *self._runs, *self._last]
        if pieces:
            # Without its leading comma, and without a copy.
            pieces[0] = memoryview(pieces[0])[1:]
        return pieces

    def array(self) -> bytes:
        """Return the whole array as JSON."""
        return b"".join((b"[", *self.pieces(), b"]"))

    def written(self) -> list[bytes]:
        """Return the encoded entries one by one."""
        runs = chain.from_iterable(map(_entries_in, self._runs))
        return [each[1:] for each in chain(self._first, runs, self._last)]

    def tail(self, count: int) -> list[Json]:
        """Return the last `count` entries, or all if there are fewer."""
        if count > len(self._last):
            return list(self)[-count:]
        return [_entry_decoder.decode(memoryview(each)[1:]) for each in self._last[len(self._last) - count :]]

    @property
    def memory_bytes(self) -> int:
        """The approximate size in memory."""
        return self.size_bytes + PIECE_BYTES * (len(self._first) + len(self._runs) + len(self._last))

    def _written_at(self, index: int) -> bytes:
        """Return the encoded entry at a non-negative index; raise IndexError if there is none."""
        index -= len(self._first)
        if index < 0:
            return self._first[index][1:]  # the index is negative now: it counts from the end of `_first`
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
        """Decode piece by piece: decoded all at once, a long array takes many times its bytes."""
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
        return hash(len(self))  # equal entries may be encoded differently

    def __repr__(self) -> str:
        return f"{type(self).__name__}.of({list(self)!r})"


def _entries_in(run: bytes) -> tuple[bytes, ...]:
    """Split a run into its encoded entries, each with its comma."""
    return tuple(b"," + bytes(each) for each in _split_decoder.decode(b"[" + run[1:] + b"]") or ())
