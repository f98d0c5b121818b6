"""Each view on a small set made by hand, whose answer can be worked out on paper."""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from nunatak_spark.jobs import no_progress
from nunatak_spark.system_tables import system_table_name
from nunatak_spark.telemetry.telemetry_page import render_page
from nunatak_spark.telemetry.telemetry_report import ReportSpec, collect, query_view, unseen_tables
from nunatak_spark.telemetry.views import BY_NAME, VIEWS
from tests.spark.telemetry.conftest import Telemetry
from tests.spark.telemetry.lines import a_line, of_table, put
from tests.support.pages import DOCS, blocks_with
from tests.support.spark import configure

SINCE = datetime(2026, 2, 20, tzinfo=UTC)
MIB = 1024 * 1024
OLD = "2026-02-01"


def commit(table: str, at: str, **fields: Any) -> dict[str, Any]:
    return {
        **of_table(table),
        "operation": "commit-table",
        "status": 200,
        "tries": 1,
        "principal": "etl",
        "at": at,
    } | fields


def scan(table: str, at: str, counters: dict[str, int], millis: float, **fields: Any) -> dict[str, Any]:
    timers = {"total-planning-duration": millis}
    return {**of_table(table), "at": at, "counters": counters, "timers_ms": timers, "principal": "bi", **fields}


EVENTS: list[dict[str, Any]] = [
    commit("shop.orders", f"{OLD}T10:00:00Z", operation="create-table", duration_ms=5.0),
    commit(
        "shop.orders",
        "2026-03-01T10:00:00Z",
        duration_ms=10.0,
        snapshot_id=1,
        snapshot_operation="append",
        metadata_bytes=1000,
        counters={
            "added-records": 10,
            "added-files-size": 4 * MIB,
            "total-data-files": 20,
            "total-files-size": 40 * MIB,
        },
    ),
    commit(
        "shop.orders",
        "2026-03-01T11:00:00Z",
        duration_ms=30.0,
        snapshot_id=2,
        snapshot_operation="overwrite",
        tries=3,
        metadata_bytes=2000,
        counters={
            "added-records": 5,
            "deleted-records": 7,
            "added-files-size": MIB,
            "removed-files-size": 3 * MIB,
            "total-data-files": 21,
            "total-files-size": 42 * MIB,
        },
    ),
    commit("shop.orders", "2026-03-01T11:00:01Z", status=409, duration_ms=1.0, snapshot_operation="append"),
    commit("shop.orders", "2026-03-01T11:00:02Z", status=409, duration_ms=1.0, snapshot_operation="replace"),
    commit("shop.orders", "2026-03-01T11:00:03Z", status=400, duration_ms=1.0),
    commit(
        "shop.few",
        "2026-03-02T10:00:00Z",
        duration_ms=900.0,
        snapshot_id=3,
        metadata_bytes=9 * MIB,
        counters={"total-data-files": 3, "total-files-size": 30},
        principal="bi",
    ),
    commit(
        "shop.large",
        "2026-03-02T10:00:00Z",
        duration_ms=1.0,
        snapshot_id=4,
        counters={"total-data-files": 100, "total-files-size": 100 * 512 * MIB, "added-records": 1},
    ),
    commit(
        "shop.gone",
        "2026-03-02T10:00:00Z",
        duration_ms=1.0,
        metadata_bytes=5,
        counters={"total-data-files": 50, "total-files-size": 50},
    ),
    commit("shop.gone", "2026-03-02T11:00:00Z", operation="drop-table", status=204),
    commit("shop.idle", f"{OLD}T09:00:00Z", operation="create-table", status=200, duration_ms=1.0),
    commit("shop.loaded", f"{OLD}T09:00:00Z", operation="create-table", status=200, duration_ms=1.0),
    commit("shop.read", f"{OLD}T09:00:00Z", operation="create-table", status=200, duration_ms=1.0),
]
SCANS: list[dict[str, Any]] = [
    scan(
        "shop.orders",
        "2026-03-01T12:00:00Z",
        {"result-data-files": 5, "skipped-data-files": 15, "result-delete-files": 0, "scanned-data-manifests": 2},
        100.0,
        projected_fields=["id", "city"],
        filter_columns=["city"],
    ),
    scan(
        "shop.orders",
        "2026-03-02T12:00:00Z",
        {"result-data-files": 15, "skipped-data-files": 5, "result-delete-files": 6, "skipped-data-manifests": 1},
        300.0,
        projected_fields=["id"],
        filter_columns=["city", "day"],
    ),
    scan("shop.read", "2026-03-02T12:00:00Z", {"result-data-files": 1}, 8.0),
    scan("shop.idle", f"{OLD}T12:00:00Z", {"result-data-files": 1}, 8.0, filter_columns=["x"]),
]
LOADS = [{**of_table("shop.loaded"), "at": "2026-03-03T00:00:00Z", "loads": 7}]
FINISHED = '{"type":"data-compaction","state":"done","changed":true,"size_bytes":100,"error":""}'
FAILED = '{"type":"snapshot-expiry","state":"failed","changed":false,"size_bytes":0,"error":"lost"}'
AUDIT: list[dict[str, Any]] = [
    {"at": "2026-03-01T00:00:00Z", "principal": "eve", "action": "TABLE_WRITE", "outcome": "denied", "repeats": 4},
    {"at": "2026-03-01T00:00:01Z", "principal": "w", "action": "finishMaintenanceJob", "detail": FINISHED},
    {"at": "2026-03-01T00:00:02Z", "principal": "w", "action": "finishMaintenanceJob", "detail": FINISHED},
    {"at": "2026-03-01T00:00:03Z", "principal": "w", "action": "finishMaintenanceJob", "detail": FAILED},
]

ORDERS, FEW, LARGE = ("default", "shop", "orders"), ("default", "shop", "few"), ("default", "shop", "large")
FIRST, SECOND, THIRD = date(2026, 3, 1), date(2026, 3, 2), date(2026, 3, 3)
GOLDEN: dict[str, list[tuple[Any, ...]]] = {
    "activity": [
        (FIRST, 2, 1, 29.0, 1, 0),
        (SECOND, 3, 0, 810.1, 2, 0),
        (THIRD, 0, 0, None, 0, 7),
    ],
    "small_files": [(*ORDERS, 21, 42 * MIB, 2 * MIB)],
    "growth": [("default", "shop", FIRST, 2, 8, 2 * MIB), ("default", "shop", SECOND, 2, 1, 0)],
    "conflicts": [
        (*ORDERS, 2, 1, 0.3333, 2),
        (*FEW, 1, 0, 0.0, 0),
        ("default", "shop", "gone", 1, 0, 0.0, 0),
        (*LARGE, 1, 0, 0.0, 0),
    ],
    "commit_latency": [
        (*FEW, 1, 900.0, 900.0, 900.0),
        (*ORDERS, 2, 20.0, 29.0, 30.0),
        ("default", "shop", "gone", 1, 1.0, 1.0, 1.0),
        (*LARGE, 1, 1.0, 1.0, 1.0),
    ],
    "metadata_size": [(*FEW, 9 * MIB, 1), (*ORDERS, 2000, 2)],
    "unused_tables": [("default", "shop", "idle", datetime(2026, 2, 1, 12), datetime(2026, 2, 1, 12))],
    "hot_columns": [(*ORDERS, "city", 1, 2), (*ORDERS, "day", 0, 1), (*ORDERS, "id", 2, 0)],
    "scan_planning": [
        (*ORDERS, 2, 200.0, 290.0, 20, 20, 2, 1),
        ("default", "shop", "read", 1, 8.0, 8.0, 1, 0, 0, 0),
    ],
    "delete_drag": [(*ORDERS, 1, 6, 15, 0.4)],
    "top_principals": [
        ("etl", 5, 3, 0, 0, datetime(2026, 3, 2, 11)),
        ("bi", 1, 0, 3, 0, datetime(2026, 3, 2, 12)),
        ("eve", 0, 0, 0, 4, datetime(2026, 3, 1)),
        ("w", 0, 0, 0, 0, datetime(2026, 3, 1, 0, 0, 3)),
    ],
    "maintenance_outcomes": [
        ("data-compaction", "done", 2, 2, 200, datetime(2026, 3, 1, 0, 0, 2), None),
        ("snapshot-expiry", "failed", 1, 0, 0, datetime(2026, 3, 1, 0, 0, 3), "lost"),
    ],
}


def numbered(kind: str, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [a_line(f"{kind}-{number}", **record) for number, record in enumerate(records)]


@pytest.fixture(scope="module")
def filled(telemetry: Telemetry, tmp_path_factory: pytest.TempPathFactory) -> Telemetry:
    spool = tmp_path_factory.mktemp("spool")
    for kind, records in (("events", EVENTS), ("scan_reports", SCANS), ("table_loads", LOADS), ("audit", AUDIT)):
        put(spool, kind, "f", numbered(kind, records))
    assert telemetry.ingest(spool).ok
    return telemetry


def test_there_is_a_worked_out_answer_for_every_view() -> None:
    assert set(GOLDEN) == set(BY_NAME)


@pytest.mark.parametrize("name", BY_NAME)
def test_a_view_answers_what_was_worked_out(filled: Telemetry, name: str) -> None:
    since = f"TIMESTAMP '{SINCE.isoformat()}'"

    answer = filled.values(BY_NAME[name].sql(filled.catalog, since))

    assert answer == GOLDEN[name]


def test_the_views_can_be_read_under_any_name_of_the_catalog(filled: Telemetry) -> None:
    """They look back thirty days, so nothing here is in them any more; but they are there, and can be asked."""
    spark = filled.spark
    uri = spark.conf.get(f"spark.sql.catalog.{filled.catalog}.uri")
    kind = spark.conf.get(f"spark.sql.catalog.{filled.catalog}")
    assert uri is not None
    assert kind is not None
    other = f"{filled.catalog}_again"
    configure(
        spark,
        {
            f"spark.sql.catalog.{other}": kind,
            f"spark.sql.catalog.{other}.type": "rest",
            f"spark.sql.catalog.{other}.uri": uri,
        },
    )

    shown = spark.sql(f"SHOW VIEWS IN {other}.system").collect()
    listed = {row.viewName for row in shown if not row.isTemporary}  # other tests may have left some of the session
    assert listed == set(BY_NAME)
    for view in VIEWS:
        columns = spark.table(system_table_name(other, view.name)).columns
        assert len(columns) == len(GOLDEN[view.name][0])
    # Nobody has used any of the tables that are still there for thirty days.
    unused = [row.table_name for row in spark.sql(f"SELECT table_name FROM {other}.system.unused_tables").collect()]
    assert sorted(unused) == ["few", "idle", "large", "loaded", "orders", "read"]


def test_a_view_is_made_anew_only_if_its_text_is_another_one(filled: Telemetry, tmp_path: Path) -> None:
    def versions() -> int:
        properties = filled.rows("SHOW TBLPROPERTIES system.growth")
        return len(properties)

    filled.spark.sql(f"ALTER VIEW {filled.catalog}.system.growth SET TBLPROPERTIES ('seen' = 'yes')")
    before = versions()
    filled.ingest(tmp_path)

    assert versions() == before  # a view that is replaced has only the properties it is given


def test_the_statements_of_the_page_can_be_asked(filled: Telemetry) -> None:
    (statements,) = blocks_with(DOCS / "how-to" / "see-what-happens.md", "sql", "view")

    for statement in statements.replace("lake.", f"{filled.catalog}.").split(";\n")[:-1]:
        assert filled.spark.sql(statement).columns


def test_the_report_tells_it_to_people(filled: Telemetry) -> None:
    days = (datetime.now(UTC) - SINCE).days + 1

    findings = collect(filled.spark, ReportSpec(catalog=filled.catalog, days=days), no_progress)
    shown = render_page(findings, catalog="test", unseen=["shop.never"])

    assert findings.rows["events"] == len(EVENTS)
    assert query_view(filled.spark, filled.catalog, BY_NAME["delete_drag"], SINCE)[0]["deletes_per_file"] == 0.4
    listed = {"shop.orders", "shop.idle", "shop.loaded", "shop.never"}
    assert unseen_tables(filled.spark, filled.catalog, listed) == ["shop.never"]
    assert unseen_tables(filled.spark, filled.catalog, set()) == []
    assert "nunatak maintain compact shop.orders" in shown
    assert "nunatak maintain expire shop.few" in shown
    assert "<li>shop.never</li>" in shown
