"""A job for tests that does maintenance jobs one after the other in one session, wherever Spark runs."""

from typing import TYPE_CHECKING

import msgspec

from nunatak.client import Client
from nunatak.maintenance.job_spec import JobSpec
from nunatak_spark.fingerprint import Fingerprint, fingerprint
from nunatak_spark.jobs import Progress, Report, Spec
from nunatak_spark.maintenance.dispatch import maintain
from nunatak_spark.maintenance.job_context import JobContext, JobOutcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ManySpec(Spec, frozen=True, kw_only=True):
    """`dry_run` are types that only look."""

    uri: str
    jobs: list[JobSpec]
    dry_run: tuple[str, ...] = ("orphan-removal",)


class ManyReport(Report, frozen=True, kw_only=True):
    """What became of each, and the rows of the last one's table as this Spark reads them."""

    fingerprint: Fingerprint
    outcomes: dict[str, JobOutcome] = msgspec.field(default_factory=dict)


def do_all(spark: "SparkSession", spec: ManySpec, progress: Progress) -> ManyReport:
    outcomes: dict[str, JobOutcome] = {}
    with Client(spec.uri) as client:
        for each in spec.jobs:
            dry_run = each.type in spec.dry_run
            name = f"test-{each.table_uuid[:8]}"
            work = JobContext(spark, client, "lake", each, name, progress=progress, dry_run=dry_run)
            outcomes[each.type] = maintain(work)
    table = ".".join(("lake", *each.namespace, each.table))
    spark.sql(f"REFRESH TABLE {table}")
    ok = all(each.ok for each in outcomes.values())
    return ManyReport(ok=ok, outcomes=outcomes, fingerprint=fingerprint(spark, table))
