"""Snapshots, references to them, and lookup of a snapshot by id. All stay JSON dicts."""

from collections.abc import Collection, Container, Iterable
from typing import Self

import msgspec

from nunatak.errors import IllegalArgument, InvalidMetadata
from nunatak.iceberg.entries import Entries
from nunatak.iceberg.shapes import Json, SnapshotShape, check

MAIN = "main"
FEW = 8  # up to so many ids are looked up one by one; for more, all ids of the table are read once
MAX_FOREIGN_POSITIONS = 10_000  # refused commits leave their positions in the shared index
NO_SNAPSHOT = -1  # means "none" in formats before v3 and for some clients


class _Named(msgspec.Struct, rename="kebab", gc=False):
    """The part of a snapshot that identifies it."""

    snapshot_id: int


_name_decoder = msgspec.json.Decoder(_Named)
_names_decoder = msgspec.json.Decoder(list[_Named])


class Snapshots(Entries):
    """A table's snapshots, found by id.

    Successive versions of a table share one index from id to position, so that appending reads no earlier snapshot.
    The index holds every id of each version that shares it, and perhaps ids and positions of other versions: a hit
    must be verified, a miss is certain.
    """

    __slots__ = ("_positions",)

    def __init__(self, written: Iterable[bytes] = ()) -> None:
        super().__init__(written)
        self._positions: dict[int, int] | None = None

    def _like(
        self, first: tuple[bytes, ...], runs: tuple[bytes, ...], last: tuple[bytes, ...], size_bytes: int
    ) -> Self:
        made = super()._like(first, runs, last, size_bytes)
        made._positions = None
        return made

    def ids(self) -> list[int]:
        return [each.snapshot_id for each in _names_decoder.decode(self.array())]

    def are_unique(self) -> bool:
        """Return whether each id occurs once; only for a list that was just read, which shares no index yet."""
        return len(self._all_positions()) == len(self)

    def find(self, snapshot_id: int) -> Json | None:
        position = self._position_of(snapshot_id)
        return None if position is None else self[position]

    def holds(self, snapshot_id: int) -> bool:
        return self._position_of(snapshot_id) is not None

    def with_last(self, added: Json) -> Self:
        # Too many positions of other versions: build the index anew, for this version.
        if self._positions is not None and len(self._positions) > len(self) + MAX_FOREIGN_POSITIONS:
            self._positions = None
        positions = self._all_positions()
        positions[added["snapshot-id"]] = len(self)
        longer = super().with_last(added)
        longer._positions = positions
        return longer

    def without(self, snapshot_ids: Container[int]) -> Self:
        """Return the snapshots with other ids; itself if it holds none of these."""
        kept = [written for id_, written in zip(self.ids(), self.written(), strict=True) if id_ not in snapshot_ids]
        return self if len(kept) == len(self) else type(self)(kept)

    def only(self, snapshot_ids: Container[int]) -> Self:
        kept = [written for id_, written in zip(self.ids(), self.written(), strict=True) if id_ in snapshot_ids]
        return type(self)(kept)

    def _all_positions(self) -> dict[int, int]:
        if self._positions is None:
            self._positions = {id_: position for position, id_ in enumerate(self.ids())}
        return self._positions

    def _position_of(self, snapshot_id: int) -> int | None:
        position = self._all_positions().get(snapshot_id)
        if position is None:
            return None
        if position < len(self) and _name_decoder.decode(self._written_at(position)).snapshot_id == snapshot_id:
            return position
        # The position was that of another version. Build an index for this version alone, so that a miss is certain.
        self._positions = {id_: place for place, id_ in enumerate(self.ids())}
        return self._positions.get(snapshot_id)


class ChangedSnapshots:
    """A table's snapshots while a commit adds and removes some; existing ones are filtered once, at the end."""

    __slots__ = ("_added", "_base", "_base_ids", "_removed")

    def __init__(self, base: Snapshots) -> None:
        self._base = base
        self._base_ids: set[int] | None = None
        self._added: dict[int, Json] = {}
        self._removed: set[int] = set()  # ids in the base

    def holds(self, snapshot_id: int) -> bool:
        return snapshot_id in self._added or self._base_holds(snapshot_id)

    def find(self, snapshot_id: int) -> Json | None:
        found = self._added.get(snapshot_id)
        if found is None and snapshot_id not in self._removed:
            found = self._base.find(snapshot_id)
        return found

    def add(self, snapshot: Json) -> None:
        self._added[snapshot["snapshot-id"]] = snapshot

    def remove(self, snapshot_ids: Iterable[int]) -> None:
        for snapshot_id in snapshot_ids:
            if self._added.pop(snapshot_id, None) is None:
                self._removed.add(snapshot_id)

    def present(self, snapshot_ids: Collection[int]) -> set[int]:
        """Return the ids of existing snapshots among these."""
        if len(snapshot_ids) > FEW and self._base_ids is None:
            self._base_ids = set(self._base.ids())
        return {snapshot_id for snapshot_id in snapshot_ids if self.holds(snapshot_id)}

    def finished(self) -> Snapshots:
        result = self._base.without(self._removed) if self._removed else self._base
        for snapshot in self._added.values():
            result = result.with_last(snapshot)
        return result

    def _base_holds(self, snapshot_id: int) -> bool:
        if snapshot_id in self._removed:
            return False
        return self._base.holds(snapshot_id) if self._base_ids is None else snapshot_id in self._base_ids


def read_snapshot(snapshot: object) -> Json:
    """Return a copy without nulls, and with the operation a summary must have; raise IllegalArgument if malformed."""
    shape = check(snapshot, SnapshotShape, "snapshot")
    assert isinstance(snapshot, dict)
    if shape.snapshot_id == NO_SNAPSHOT:
        raise IllegalArgument("Invalid snapshot id: -1 means that there is no snapshot")
    if shape.manifest_list is None and shape.manifests is None:
        raise IllegalArgument("Cannot parse missing list: manifests")
    check_rows(shape.first_row_id, shape.added_rows)
    result = {key: value for key, value in snapshot.items() if value is not None}
    if shape.first_row_id is None:
        result.pop("added-rows", None)  # has no meaning without row lineage; the reference drops it, too
    if shape.summary is not None:
        if not shape.summary:
            del result["summary"]
        elif "operation" not in shape.summary:
            # The reference reads a summary without operation as an overwrite, the operation that promises least.
            result["summary"] = {"operation": "overwrite", **shape.summary}
    return result


def check_rows(first_row_id: int | None, added_rows: int | None) -> None:
    """Raise IllegalArgument for row lineage fields that a snapshot cannot have."""
    if first_row_id is not None:
        if first_row_id < 0:
            raise IllegalArgument(f"Invalid first-row-id (cannot be negative): {first_row_id}")
        if added_rows is None:
            raise IllegalArgument("Invalid added-rows (required when first-row-id is set): null")
    if added_rows is not None and added_rows < 0:
        raise IllegalArgument(f"Invalid added-rows (cannot be negative): {added_rows}")


def sequence_number(snapshot: Json) -> int:
    return snapshot.get("sequence-number") or 0


def read_ref(
    name: str,
    snapshot_id: int,
    ref_type: str,
    *,
    min_snapshots_to_keep: int | None = None,
    max_snapshot_age_ms: int | None = None,
    max_ref_age_ms: int | None = None,
) -> Json:
    kind = ref_type.lower()
    if kind not in ("branch", "tag"):
        raise IllegalArgument(f"Invalid snapshot ref type: {ref_type}")
    if kind == "tag" and name == MAIN:
        raise InvalidMetadata("Cannot set main to a tag: main is always a branch")
    ref: Json = {"snapshot-id": snapshot_id, "type": kind}
    if min_snapshots_to_keep is not None:
        ref["min-snapshots-to-keep"] = min_snapshots_to_keep
    if max_snapshot_age_ms is not None:
        ref["max-snapshot-age-ms"] = max_snapshot_age_ms
    if max_ref_age_ms is not None:
        ref["max-ref-age-ms"] = max_ref_age_ms
    check_retention(ref)
    return ref


def check_retention(ref: Json) -> None:
    """Raise IllegalArgument for retention settings that a branch or tag cannot have."""
    min_snapshots_to_keep = ref.get("min-snapshots-to-keep")
    max_snapshot_age_ms, max_ref_age_ms = ref.get("max-snapshot-age-ms"), ref.get("max-ref-age-ms")
    if ref["type"].lower() == "tag":
        if min_snapshots_to_keep is not None:
            raise IllegalArgument("Tags do not support setting minSnapshotsToKeep")
        if max_snapshot_age_ms is not None:
            raise IllegalArgument("Tags do not support setting maxSnapshotAgeMs")
    if min_snapshots_to_keep is not None and min_snapshots_to_keep <= 0:
        raise IllegalArgument("Min snapshots to keep must be greater than 0")
    if max_snapshot_age_ms is not None and max_snapshot_age_ms <= 0:
        raise IllegalArgument("Max snapshot age must be greater than 0 ms")
    if max_ref_age_ms is not None and max_ref_age_ms <= 0:
        raise IllegalArgument("Max reference age must be greater than 0")
