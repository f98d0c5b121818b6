"""A table that is renamed stays in the views, with all that was told of it, under the name that it has now."""

from datetime import UTC, datetime
from typing import Any

import pytest

from nunatak_spark.telemetry.telemetry_report import unseen_tables
from nunatak_spark.telemetry.views import BY_NAME
from tests.spark.telemetry.conftest import Telemetry
from tests.spark.telemetry.lines import put
from tests.spark.telemetry.test_views import commit, numbered, scan

SINCE = f"TIMESTAMP '{datetime(2026, 2, 20, tzinfo=UTC).isoformat()}'"
OLD = "2026-02-01T10:00:00Z"


def created(table: str, at: str, files: int, metadata_bytes: int = 7) -> dict[str, Any]:
    counters = {"total-data-files": files, "total-files-size": files}
    return commit(
        table, at, operation="create-table", duration_ms=1.0, metadata_bytes=metadata_bytes, counters=counters
    )


def renamed(table: str, to: str, at: str, status: int = 204) -> dict[str, Any]:
    return commit(table, at, operation="rename-table", status=status, renamed_to=to)


MINUTE = "2026-03-01T12:{:02}:00Z".format
EVENTS: list[dict[str, Any]] = [
    # Two tables exchange their names.
    created("shop.a", MINUTE(1), files=20),
    created("shop.b", MINUTE(2), files=30),
    commit("shop.a", MINUTE(3), status=409, duration_ms=1.0),
    renamed("shop.a", "shop.t", MINUTE(10)),
    renamed("shop.b", "shop.a", MINUTE(11)),
    renamed("shop.t", "shop.b", MINUTE(12)),
    # Dots in names, and a rename that was refused.
    created("shop.c", MINUTE(1), files=40),
    renamed("shop.c", "de%2Eep.er.x%2Ey", MINUTE(10)),
    renamed("shop.a", "shop.never", MINUTE(20), status=409),
    # Renamed, then dropped; and another table of the first name.
    created("shop.e", MINUTE(1), files=50),
    renamed("shop.e", "shop.f", MINUTE(10)),
    commit("shop.f", MINUTE(11), operation="drop-table", status=204),
    created("shop.e", MINUTE(12), files=60),
    # Away and back again.
    created("shop.g", MINUTE(1), files=70),
    renamed("shop.g", "shop.h", MINUTE(10)),
    renamed("shop.h", "shop.g", MINUTE(11)),
    # Renamed long ago, and not used since.
    created("shop.i", OLD, files=80),
    renamed("shop.i", "shop.j", OLD.replace("T10", "T12")),
]
SCANS = [
    scan("shop.a", MINUTE(5), {"result-delete-files": 1, "result-data-files": 2}, 5.0, filter_columns=["x"]),
    scan("shop.a", MINUTE(30), {"result-delete-files": 3, "result-data-files": 2}, 5.0, filter_columns=["y"]),
    scan("shop.i", OLD.replace("T10", "T11"), {}, 5.0),
]
NOW = {("shop", "b"): 20, ("shop", "a"): 30, ("de%2Eep.er", "x.y"): 40, ("shop", "e"): 60, ("shop", "g"): 70}


@pytest.fixture(scope="module")
def filled(telemetry: Telemetry, tmp_path_factory: pytest.TempPathFactory) -> Telemetry:
    spool = tmp_path_factory.mktemp("spool")
    put(spool, "events", "f", numbered("events", EVENTS))
    put(spool, "scan_reports", "f", numbered("scan_reports", SCANS))
    assert telemetry.ingest(spool).ok
    return telemetry


def answer(filled: Telemetry, view: str, columns: str) -> set[tuple[Any, ...]]:
    return set(filled.values(f"SELECT {columns} FROM ({BY_NAME[view].sql(filled.catalog, SINCE)})"))


def test_what_was_told_of_a_table_is_told_under_its_new_name(filled: Telemetry) -> None:
    small = answer(filled, "small_files", "namespace, table_name, data_files")
    sizes = answer(filled, "metadata_size", "namespace, table_name")

    assert {row[:2]: row[2] for row in small} == NOW
    assert sizes == set(NOW)


def test_conflicts_and_scans_follow_the_table_and_not_the_name(filled: Telemetry) -> None:
    conflicts = answer(filled, "conflicts", "namespace, table_name, commits, conflicts, ratio")
    columns = answer(filled, "hot_columns", "namespace, table_name, column_name")
    deletes = answer(filled, "delete_drag", "namespace, table_name, delete_files")

    assert conflicts == {("shop", "b", 0, 1, 1.0)}
    assert columns == {("shop", "b", "x"), ("shop", "a", "y")}
    assert deletes == {("shop", "b", 1), ("shop", "a", 3)}


def test_a_table_renamed_long_ago_is_unused_under_its_new_name(filled: Telemetry) -> None:
    unused = answer(filled, "unused_tables", "namespace, table_name, last_used, last_scanned")

    assert unused == {("shop", "j", datetime(2026, 2, 1, 12), datetime(2026, 2, 1, 11))}


def test_a_new_name_is_not_unheard_of(filled: Telemetry) -> None:
    listed = {"shop.j", "de%2Eep.er.x.y", "shop.never"}

    assert unseen_tables(filled.spark, filled.catalog, listed) == ["shop.never"]
