"""The facts about a table that maintenance needs, computed from its metadata alone. No clock, no I/O.

Counts come from the totals in the snapshot summary. A count is None if the writer left it out; `layout.py` counts what
the totals do not contain.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from nunatak.catalog.shadows import Shadow
from nunatak.iceberg.conventions import TARGET_FILE_BYTES
from nunatak.iceberg.shapes import Json
from nunatak.iceberg.snapshot import MAIN
from nunatak.iceberg.table_metadata import TableMetadata
from nunatak.maintenance.layout import MIN_INPUT_FILES, Layout

MIB = 1 << 20
TARGET_FILE_SIZE = "write.target-file-size-bytes"
SMALL_SHARE = 0.75  # below this share of the target size Iceberg's rewrite considers a file too small


@dataclass(frozen=True, slots=True)
class SnapshotFact:
    snapshot_id: int
    parent_id: int | None
    timestamp_ms: int
    operation: str


@dataclass(frozen=True, slots=True)
class RefFact:
    """A branch or tag; limits that are None are those of the table, and without `max_ref_age_ms` it never expires."""

    name: str
    is_branch: bool
    snapshot_id: int
    min_snapshots_to_keep: int | None = None
    max_snapshot_age_ms: int | None = None
    max_ref_age_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """One table at one moment; `data_bytes` includes delete files, since summaries do not separate them.

    `metadata_files` counts the files in the folder of the current one; None if it was not listed.
    """

    table_uuid: str
    format_version: int
    metadata_bytes: int
    snapshot_id: int | None = None
    properties: Mapping[str, str]
    partitioned: bool = False
    splitting_column: str | None = None
    target_bytes: int = TARGET_FILE_BYTES
    data_files: int | None = 0
    data_bytes: int | None = 0
    delete_files: int | None = 0
    equality_deletes: int = 0
    records: int | None = 0
    manifests: int | None = None
    partitions_at_least: int = 1
    metadata_log: int = 0
    metadata_files: int | None = None
    snapshots: tuple[SnapshotFact, ...] = ()
    refs: tuple[RefFact, ...] = ()
    statistics: frozenset[int] = frozenset()
    layout: Layout | None = None
    shadow: Shadow | None = None

    @property
    def small_bytes(self) -> int:
        """Returns the size below which a file is small."""
        return int(self.target_bytes * SMALL_SHARE)

    @property
    def small_files(self) -> int | None:
        """Returns the number of small files: as counted if there is a layout, otherwise a lower bound.

        The total bytes limit how many files can be large; all others are small.
        """
        if self.layout is not None:
            return self.layout.small_files
        if self.data_files is None or self.data_bytes is None:
            return None
        return max(0, self.data_files - self.data_bytes // max(1, self.small_bytes))

    @property
    def small_file_percent(self) -> float | None:
        if not self.data_files:
            return 0.0 if self.data_files == 0 else None
        small = self.small_files
        return None if small is None else min(100.0, 100.0 * small / self.data_files)

    @property
    def files_needed(self) -> int | None:
        """Returns the number of files after a rewrite."""
        if self.data_files is None or self.data_bytes is None:
            return None
        if self.layout is not None:
            return max(0, self.data_files - self.layout.files_saved)
        if self.data_files == 0:
            return 0
        full = -(-self.data_bytes // max(1, self.target_bytes))
        return min(self.data_files, max(1, full, self.partitions_at_least))

    @property
    def files_saved(self) -> int:
        """Returns by how many files a rewrite would reduce the table; 0 if there are too few for it to start."""
        if self.data_files is None or self.files_needed is None:
            return 0
        if self.layout is None and self.data_files < MIN_INPUT_FILES:
            return 0
        return self.data_files - self.files_needed

    @property
    def small_file_bytes(self) -> int:
        """Returns the bytes that a rewrite of the small files reads and writes."""
        if self.layout is not None:
            return self.layout.small_file_bytes
        return self.data_bytes or 0

    @property
    def delete_file_percent(self) -> float | None:
        """Returns the number of delete files per hundred data files."""
        if self.delete_files is None or self.data_files is None:
            return None
        return 100.0 * self.delete_files / max(1, self.data_files)

    def commits_since(self, moment_ms: int | None) -> int:
        return sum(moment_ms is None or each.timestamp_ms > moment_ms for each in self.snapshots)

    def commits_since_statistics(self) -> int | None:
        """Returns how many snapshots the newest statistics are behind the current one; None if no ancestor has any."""
        for distance, snapshot in enumerate(self.ancestors(self.snapshot_id)):
            if snapshot.snapshot_id in self.statistics:
                return distance
        return None

    def ancestors(self, snapshot_id: int | None) -> Iterator[SnapshotFact]:
        """Yields the snapshot, its parent and so on, until one has expired."""
        return _line({each.snapshot_id: each for each in self.snapshots}, snapshot_id)

    def expirable(self, now_ms: int, max_age_ms: int, min_to_keep: int) -> list[SnapshotFact]:
        """Returns the snapshots that Iceberg's expiry would remove: those that no branch or tag retains, by its own
        limits or, without them, by these."""
        kept: set[int] = set()
        led_to: set[int] = set()
        by_id = {each.snapshot_id: each for each in self.snapshots}
        for ref in self.refs:
            line = list(_line(by_id, ref.snapshot_id))
            if not line or _is_over(ref, line[0], now_ms):
                continue
            if not ref.is_branch:
                line = line[:1]
            led_to.update(each.snapshot_id for each in line)
            oldest_ms = now_ms - (ref.max_snapshot_age_ms or max_age_ms)
            wanted = ref.min_snapshots_to_keep or min_to_keep
            # The snapshot of the ref itself, at position 0, is always retained.
            for position, snapshot in enumerate(line):
                if position > 0 and position >= wanted and snapshot.timestamp_ms < oldest_ms:
                    break
                kept.add(snapshot.snapshot_id)
        # A recent snapshot without a ref is kept: a writer may be about to use it.
        young_ms = now_ms - max_age_ms
        return [
            each
            for each in self.snapshots
            if each.snapshot_id not in kept and (each.snapshot_id in led_to or each.timestamp_ms < young_ms)
        ]

    def stale_branches(self, now_ms: int, age_ms: int) -> list[str]:
        """Returns the branches besides main without a commit for `age_ms`, or for their own maximum age."""
        by_id = {each.snapshot_id: each for each in self.snapshots}
        return sorted(
            ref.name
            for ref in self.refs
            if ref.is_branch
            and ref.name != MAIN
            and ref.snapshot_id in by_id
            and by_id[ref.snapshot_id].timestamp_ms < now_ms - (ref.max_ref_age_ms or age_ms)
        )


def _line(by_id: Mapping[int, SnapshotFact], snapshot_id: int | None) -> Iterator[SnapshotFact]:
    seen: set[int] = set()  # invalid metadata may contain a cycle of parents
    while snapshot_id is not None and snapshot_id in by_id and snapshot_id not in seen:
        seen.add(snapshot_id)
        snapshot = by_id[snapshot_id]
        yield snapshot
        snapshot_id = snapshot.parent_id


def _is_over(ref: RefFact, head: SnapshotFact, now_ms: int) -> bool:
    """Whether a branch or tag is older than its maximum age; main never is."""
    return ref.name != MAIN and ref.max_ref_age_ms is not None and head.timestamp_ms < now_ms - ref.max_ref_age_ms


def facts_of(
    metadata: TableMetadata, metadata_bytes: int, layout: Layout | None = None, shadow: Shadow | None = None
) -> Facts:
    current = metadata.current_snapshot
    summary: Mapping[str, str] = (current or {}).get("summary") or {}
    empty = current is None
    fields = metadata.default_spec["fields"]
    data_files, data_bytes = _total(summary, "total-data-files", empty), _total(summary, "total-files-size", empty)
    delete_files, manifests = _total(summary, "total-delete-files", empty), _manifests(summary, empty)
    if layout is not None:
        data_files, delete_files, manifests = layout.data_files, layout.delete_files, layout.manifests
        # A layout of a part of the manifests lacks bytes: then the total of the summary is better.
        data_bytes = layout.data_bytes if layout.is_whole or data_bytes is None else data_bytes
    return Facts(
        table_uuid=metadata.table_uuid,
        format_version=metadata.format_version,
        metadata_bytes=metadata_bytes,
        snapshot_id=metadata.current_snapshot_id,
        properties=metadata.properties,
        partitioned=any(field.get("transform") != "void" for field in fields),
        splitting_column=_find_splitting_column(metadata),
        target_bytes=whole_property(metadata.properties, TARGET_FILE_SIZE) or TARGET_FILE_BYTES,
        data_files=data_files,
        data_bytes=data_bytes,
        delete_files=delete_files,
        equality_deletes=_total(summary, "total-equality-deletes", True) or 0,
        records=_total(summary, "total-records", empty),
        manifests=manifests,
        partitions_at_least=_partitions(metadata.snapshots) if fields else 1,
        metadata_log=len(metadata.metadata_log),
        snapshots=tuple(_snapshot_fact(each) for each in metadata.snapshots),
        refs=tuple(_ref_fact(name, ref) for name, ref in metadata.refs.items()),
        statistics=frozenset(each["snapshot-id"] for each in metadata.statistics),
        layout=layout,
        shadow=shadow,
    )


def whole_property(properties: Mapping[str, str], name: str) -> int | None:
    """Returns a property as a positive integer; None for any other value."""
    text = properties.get(name, "")
    # 18 digits always fit a signed 64-bit integer.
    return int(text) or None if text.isascii() and text.isdigit() and len(text) <= 18 else None


def _total(summary: Mapping[str, str], name: str, empty: bool) -> int | None:
    """Returns a total of a snapshot summary, or None; 0 for an `empty` table, which has no snapshot."""
    text = summary.get(name)
    if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= 18:
        return int(text)
    return 0 if empty else None


def _manifests(summary: Mapping[str, str], empty: bool) -> int | None:
    created, kept = _total(summary, "manifests-created", empty), _total(summary, "manifests-kept", empty)
    return None if created is None or kept is None else created + kept


def _partitions(snapshots: Iterable[Json]) -> int:
    """Returns a lower bound of the number of partitions: the most that one commit changed."""
    changed = (_total(each.get("summary") or {}, "changed-partition-count", True) for each in snapshots)
    return max((count or 0 for count in changed), default=0) or 1


def _find_splitting_column(metadata: TableMetadata) -> str | None:
    """Returns a column to split a partition by: an identifier field, else the first one not used for partitioning."""
    schema = metadata.current_schema
    used = {field["source-id"] for field in metadata.default_spec["fields"] if "source-id" in field}
    plain = [each for each in schema["fields"] if isinstance(each["type"], str) and each["id"] not in used]
    telling = set(schema.get("identifier-field-ids") or ())
    chosen = next((each for each in plain if each["id"] in telling), plain[0] if plain else None)
    return None if chosen is None else str(chosen["name"])


def _snapshot_fact(snapshot: Json) -> SnapshotFact:
    return SnapshotFact(
        snapshot["snapshot-id"],
        snapshot.get("parent-snapshot-id"),
        snapshot["timestamp-ms"],
        (snapshot.get("summary") or {}).get("operation", ""),
    )


def _ref_fact(name: str, ref: Json) -> RefFact:
    return RefFact(
        name,
        ref["type"] == "branch",
        ref["snapshot-id"],
        ref.get("min-snapshots-to-keep"),
        ref.get("max-snapshot-age-ms"),
        ref.get("max-ref-age-ms"),
    )
