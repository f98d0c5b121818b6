"""Spark works with a live server, whose spool is ingested into that same catalog: the views name what was done."""

from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from nunatak_spark.jobs import no_progress
from nunatak_spark.telemetry.ingest import IngestSpec, ingest
from nunatak_spark.telemetry.telemetry_page import render_page
from nunatak_spark.telemetry.telemetry_report import ReportSpec, collect, unseen_tables
from tests.support.catalogs.process import running_server
from tests.support.spark import configure, rest_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = 12


def test_what_spark_does_is_in_the_views_of_the_catalog(spark: "SparkSession", tmp_path: Path) -> None:
    data, catalog = tmp_path / "nunatak-data", f"live_{uuid4().hex[:6]}"
    with running_server(data) as server:
        port = server.port
        configure(spark, rest_catalog(catalog, server.uri))
        spark.sql(f"CREATE NAMESPACE {catalog}.shop")
        spark.sql(f"CREATE TABLE {catalog}.shop.orders (id BIGINT, city STRING) USING iceberg")
        for number in range(FILES):
            spark.sql(f"INSERT INTO {catalog}.shop.orders VALUES ({number}, 'Oslo')")
        assert spark.sql(f"SELECT count(city) FROM {catalog}.shop.orders WHERE id >= 4").collect()[0][0] == FILES - 4
    # It was stopped in good order, so what it noted is in files; the same server again, for whoever has its address.
    with running_server(data, port=port):
        report = ingest(spark, IngestSpec(spool=str(data / "spool"), catalog=catalog), no_progress)

        assert report.ok
        assert report.lines["commit_reports"] == FILES
        assert report.lines["events"] >= FILES + 2
        view = f"SELECT * FROM {catalog}.system"
        (small,) = spark.sql(f"{view}.small_files").collect()
        assert (small.table_name, small.data_files) == ("orders", FILES)
        (scans,) = spark.sql(f"{view}.scan_planning").collect()
        assert (scans.table_name, scans.scans, scans.files_scanned, scans.files_skipped) == ("orders", 1, FILES - 4, 4)
        hot = {row.column_name: row.filtered for row in spark.sql(f"{view}.hot_columns").collect()}
        assert hot == {"id": 1, "city": 0}
        (grown,) = spark.sql(f"{view}.growth").collect()
        assert (grown.namespace, grown.commits, grown.records) == ("shop", FILES, FILES)
        ((engine, app, principal),) = spark.sql(
            f"SELECT DISTINCT engine, app_id, principal FROM {catalog}.system.commit_reports"
        ).collect()
        assert (engine, principal) == ("spark", "anonymous")
        assert app.startswith("local-")
        assert unseen_tables(spark, catalog, {"shop.orders", "shop.never"}) == ["shop.never"]
        findings = collect(spark, ReportSpec(catalog=catalog, days=1), no_progress)
        assert "nunatak maintain compact shop.orders" in render_page(findings, catalog=catalog)
