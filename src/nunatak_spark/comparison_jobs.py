"""The jobs `fingerprint` and `compare`: the fingerprint of one table, and the comparison of two."""

from typing import TYPE_CHECKING

import msgspec

from nunatak_spark.comparison import Difference, PartitionDifferences, compare, compare_partitions
from nunatak_spark.fingerprint import Fingerprint, fingerprint, fingerprint_by
from nunatak_spark.jobs import Progress, Report, Spec
from nunatak_spark.progress import report_task_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class FingerprintSpec(Spec, frozen=True, kw_only=True):
    """`by` are SQL expressions, usually the partition expressions; empty: only the whole table."""

    table: str
    snapshot_id: int | None = None
    by: tuple[str, ...] = ()


class FingerprintReport(Report, frozen=True, kw_only=True):
    table: str
    fingerprint: Fingerprint
    partitions: dict[str, Fingerprint] = msgspec.field(default_factory=dict)


class CompareSpec(Spec, frozen=True, kw_only=True):
    """Two tables by full name, in any catalogs of the session; `by` are compared only if the whole tables differ."""

    left: str
    right: str
    left_snapshot_id: int | None = None
    right_snapshot_id: int | None = None
    by: tuple[str, ...] = ()


class CompareReport(Report, frozen=True, kw_only=True):
    left: str
    right: str
    difference: Difference
    sentences: tuple[str, ...]
    partitions: PartitionDifferences | None = None


def fingerprint_table(spark: "SparkSession", spec: FingerprintSpec, progress: Progress) -> FingerprintReport:
    with report_task_progress(spark, f"reading {spec.table}", progress):
        partitions = fingerprint_by(spark, spec.table, spec.by, snapshot_id=spec.snapshot_id) if spec.by else {}
        whole = sum_fingerprints(partitions) or fingerprint(spark, spec.table, snapshot_id=spec.snapshot_id)
    return FingerprintReport(table=spec.table, fingerprint=whole, partitions=partitions)


def sum_fingerprints(partitions: dict[str, Fingerprint]) -> Fingerprint | None:
    """Returns the fingerprint of all partitions together without reading them again; None without partitions."""
    whole = None
    for part in partitions.values():
        whole = part if whole is None else whole + part
    return whole


def compare_tables(spark: "SparkSession", spec: CompareSpec, progress: Progress) -> CompareReport:
    with report_task_progress(spark, f"reading {spec.left}", progress):
        left = fingerprint(spark, spec.left, snapshot_id=spec.left_snapshot_id)
    with report_task_progress(spark, f"reading {spec.right}", progress):
        right = fingerprint(spark, spec.right, snapshot_id=spec.right_snapshot_id)
    difference = compare(left, right)
    partitions = None
    if spec.by and not difference.same_data:
        with report_task_progress(spark, "looking for the partitions that differ", progress):
            partitions = compare_partitions(
                fingerprint_by(spark, spec.left, spec.by, snapshot_id=spec.left_snapshot_id),
                fingerprint_by(spark, spec.right, spec.by, snapshot_id=spec.right_snapshot_id),
            )
    return CompareReport(
        ok=difference.same_data,
        left=spec.left,
        right=spec.right,
        difference=difference,
        sentences=tuple(difference.sentences()),
        partitions=partitions,
    )
