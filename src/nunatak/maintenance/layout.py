"""The layout of a table's live files: sizes and partitions, counted from its current manifests one by one.

The caller reads the manifests; only counts per partition and per file size are kept.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from nunatak.objectstore.live_files import LiveFile, ManifestFile

MIN_INPUT_FILES = 5  # the least number at which Iceberg's rewrite merges files that do not fill a new one
BUCKETS_MIB = (8, 32, 128, 512)  # upper bounds of the histogram of file sizes


@dataclass(frozen=True, slots=True)
class Layout:
    """Counts of live files; `small_files` excludes the only small file of a partition, which nothing can merge with."""

    manifests: int
    manifests_read: int
    data_files: int
    data_bytes: int
    delete_files: int
    small_files: int
    small_file_bytes: int
    files_saved: int
    partitions: int
    largest_partition: str
    skew: float
    histogram: tuple[int, ...]

    @property
    def is_whole(self) -> bool:
        return self.manifests_read == self.manifests


@dataclass(slots=True)
class _Partition:
    files: int = 0
    bytes: int = 0
    small: int = 0
    small_bytes: int = 0


@dataclass(slots=True)
class Counter:
    """Counts files as manifests are read; `target_bytes` is the target size, below `small_bytes` a file is small."""

    target_bytes: int
    small_bytes: int
    _partitions: dict[str, _Partition] = field(default_factory=lambda: defaultdict(_Partition))
    _histogram: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_MIB) + 1))
    _manifests_read: int = 0

    def add(self, files: Iterable[LiveFile]) -> None:
        """Counts the live data files of one more manifest."""
        self._manifests_read += 1
        for file in files:
            partition = self._partitions[file.partition]
            partition.files += 1
            partition.bytes += file.size_bytes
            if file.size_bytes < self.small_bytes:
                partition.small += 1
                partition.small_bytes += file.size_bytes
            self._histogram[_bucket(file.size_bytes)] += 1

    def layout(self, manifests: list[ManifestFile]) -> Layout:
        """Returns the counts; if manifests were not read, the number of files is that of the manifest list."""
        parts = self._partitions
        joined = [each for each in parts.values() if each.small > 1]
        total = sum(each.bytes for each in parts.values())
        largest = max(parts, key=lambda name: parts[name].bytes, default="")
        of_data = [each for each in manifests if not each.holds_deletes]
        is_whole = self._manifests_read == len(of_data)
        counted, told = sum(each.files for each in parts.values()), sum(each.live_files for each in of_data)
        return Layout(
            manifests=len(manifests),
            manifests_read=self._manifests_read + len(manifests) - len(of_data),
            data_files=counted if is_whole else told,
            data_bytes=total,
            delete_files=sum(each.live_files for each in manifests if each.holds_deletes),
            small_files=sum(each.small for each in joined),
            small_file_bytes=sum(each.small_bytes for each in joined),
            files_saved=sum(self._saved(each) for each in joined),
            partitions=len(parts),
            largest_partition=largest,
            skew=parts[largest].bytes * len(parts) / total if total else 1.0,
            histogram=tuple(self._histogram),
        )

    def _saved(self, partition: _Partition) -> int:
        # Iceberg's rewrite starts with enough files, or with enough bytes for one full file.
        if partition.small < MIN_INPUT_FILES and partition.small_bytes < self.target_bytes:
            return 0
        full = -(-partition.small_bytes // max(1, self.target_bytes))
        return max(0, partition.small - max(1, full))


def _bucket(size_bytes: int) -> int:
    return sum(size_bytes >= limit << 20 for limit in BUCKETS_MIB)
