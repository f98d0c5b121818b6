"""The spool: whole files, never in anybody's way, and bounded in memory and on disk."""

import asyncio
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nunatak.database.records import Key
from nunatak.events import spool as spooling
from nunatak.events.reports import flat_report
from nunatak.events.spool import ROTATE_SECONDS, Fields, Kind, Spool

NOW_MS = 1_794_000_000_123  # 2026-11-06T21:20:00.123Z
DAY = "2026-11-06"
PROCESS = "0a1b2c3d-0000-4000-8000-000000000000"


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def spool(tmp_path: Path, clock: Clock) -> Spool:
    return a_spool(tmp_path, clock)


def a_spool(folder: Path, clock: Clock, limit_bytes: int = 1 << 20) -> Spool:
    return Spool(folder / "spool", PROCESS, lambda: NOW_MS, limit_bytes, monotonic=clock)


def flush(spool: Spool, *, finish: bool = False) -> None:
    asyncio.run(spool.flush(finish=finish))


def files(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "spool").rglob("*") if path.is_file())


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in files(folder) for line in path.read_text("utf-8").splitlines()]


def test_what_is_noted_becomes_lines_of_a_file_of_its_kind_and_day(spool: Spool, tmp_path: Path) -> None:
    spool.add("events", {"operation": "commit-table"})
    spool.add("audit", {"action": "createRole"})
    spool.add("events", {"operation": "drop-table"})
    flush(spool, finish=True)

    folders = [path.parent.relative_to(tmp_path / "spool") for path in files(tmp_path)]
    assert folders == [Path("audit") / DAY, Path("events") / DAY]
    assert all(path.name.startswith(f"{spool.node}-{os.getpid()}-{PROCESS[:8]}-") for path in files(tmp_path))
    found = records(tmp_path)
    assert [record.get("operation") for record in found] == [None, "commit-table", "drop-table"]
    assert len({record["event_id"] for record in found}) == 3
    assert {(record["at"], record["node"]) for record in found} == {("2026-11-06T21:20:00.123Z", spool.node)}


def test_lines_wait_until_the_file_is_old_enough(spool: Spool, clock: Clock, tmp_path: Path) -> None:
    spool.add("events", {})
    flush(spool)
    clock.seconds = ROTATE_SECONDS - 0.1
    flush(spool)
    assert files(tmp_path) == []

    clock.seconds = ROTATE_SECONDS
    flush(spool)

    assert len(records(tmp_path)) == 1


def test_lines_wait_no_longer_once_they_are_many(spool: Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spooling, "ROTATE_BYTES", 1000)
    for number in range(30):
        spool.add("events", {"number": number})
    flush(spool)
    early = len(files(tmp_path))
    flush(spool, finish=True)

    assert early >= 2
    assert all(path.stat().st_size < 1200 for path in files(tmp_path))
    assert sorted(record["number"] for record in records(tmp_path)) == list(range(30))


def test_a_crash_while_a_file_is_written_leaves_nothing_that_looks_like_one(
    spool: Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(self: Path, target: Path) -> Path:
        raise KeyboardInterrupt

    spool.add("events", {})
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", crash)
        with pytest.raises(KeyboardInterrupt):
            flush(spool, finish=True)

    (left,) = files(tmp_path)
    assert left.name.startswith(".")  # Spark, too, looks at no such name
    assert not left.name.endswith(".jsonl")

    old = os.stat(left).st_mtime - spooling.ABANDONED_SECONDS - 1
    os.utime(left, (old, old))
    spool.trim()
    assert files(tmp_path) == []


def test_a_disk_that_cannot_be_written_costs_records_and_nothing_else(spool: Spool, tmp_path: Path) -> None:
    (tmp_path / "spool").write_text("a file where the folder should be")
    spool.add("events", {})
    spool.add("audit", {})
    flush(spool, finish=True)
    assert spool.dropped == 2

    (tmp_path / "spool").unlink()
    spool.add("events", {"after": "it"})
    flush(spool, finish=True)

    assert [record["after"] for record in records(tmp_path)] == ["it"]
    assert spool.dropped == 2


os_open = os.open


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="NOT RUN: this system has no /dev/full")
def test_a_full_disk_costs_records_and_nothing_else(
    spool: Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool.add("events", {})
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", lambda *_: os_open("/dev/full", os.O_WRONLY))
        flush(spool, finish=True)

    assert spool.dropped == 1
    assert files(tmp_path) == []


def test_what_cannot_be_written_down_keeps_nothing_else_from_it(spool: Spool, tmp_path: Path) -> None:
    def breaks() -> tuple[Kind, Fields]:
        raise ValueError

    spool.add("events", breaks)
    spool.add("events", {"name": "\ud800"})
    spool.add("events", {"name": object()})
    spool.add("events", {"name": "good"})
    flush(spool, finish=True)

    assert [record["name"] for record in records(tmp_path)] == ["good"]
    assert spool.dropped == 3


def test_memory_is_bounded_by_records_and_by_what_they_hold(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spooling, "MAX_RECORDS", 10)
    monkeypatch.setattr(spooling, "MAX_BYTES", 1000)
    for _ in range(3):
        spool.add("scan_reports", {}, 400)
    assert spool.dropped == 1

    for number in range(20):
        spool.add("events", {})
        spool.count_load(str(number), Key("default", "shop", "orders"))

    assert spool.dropped == 1 + 12
    assert len(spool.loads) == 10
    spool.loads.clear()
    flush(spool, finish=True)
    spool.add("events", {}, 1000)
    assert spool.dropped == 13


def test_what_goes_wrong_once_does_not_end_it(spool: Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spooling, "FLUSH_SECONDS", 0.001)
    monkeypatch.setattr(spooling, "ROTATE_SECONDS", 0)
    moments = iter([RuntimeError("no thread can be started"), None, asyncio.CancelledError()])

    def take(*, finish: bool) -> list[Any]:
        moment = next(moments)
        if moment is not None:
            raise moment
        return [("events", NOW_MS, {})]

    monkeypatch.setattr(spool, "_take", take)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(spooling.run_spool(spool))

    assert records(tmp_path)


def test_the_oldest_files_go_when_there_is_no_room(tmp_path: Path, clock: Clock) -> None:
    spool = a_spool(tmp_path, clock, limit_bytes=700)
    for number in range(10):
        spool.add("events", {"number": number})
        flush(spool, finish=True)
        os.utime(files(tmp_path)[-1], (spool._now_ms() / 1000 + number,) * 2)

    spool.trim()

    kept = [record["number"] for record in records(tmp_path)]
    assert kept == list(range(10 - len(kept), 10))
    assert 1 <= len(kept) <= 6
    assert sum(path.stat().st_size for path in files(tmp_path)) <= 700
    assert spool.dropped == 10 - len(kept)


def test_files_that_nobody_ingests_go_some_day(spool: Spool, clock: Clock, tmp_path: Path) -> None:
    spool.add("events", {"old": True})
    spool.add("events", {"old": True})
    flush(spool, finish=True)
    (old,) = files(tmp_path)
    before = os.stat(old).st_mtime - spooling.OLDEST_SECONDS - 60
    os.utime(old, (before, before))
    clock.seconds = spooling.TRIM_SECONDS
    spool.add("events", {"old": False})
    flush(spool, finish=True)

    assert [record["old"] for record in records(tmp_path)] == [False]
    assert spool.dropped == 2


def test_loads_are_told_as_one_number_for_each_table_and_minute(spool: Spool, clock: Clock, tmp_path: Path) -> None:
    orders, cities = Key("default", "shop", "orders"), Key("default", "shop", "cities")
    for location, key in (("a", orders), ("a", orders), ("b", orders), ("c", cities)):  # b: orders was committed to
        spool.count_load(location, key)
    flush(spool)
    assert len(spool.loads) == 3

    clock.seconds = spooling.LOADS_SECONDS
    flush(spool)
    flush(spool, finish=True)

    assert {(record["table_name"], record["loads"]) for record in records(tmp_path)} == {("orders", 3), ("cities", 1)}
    assert spool.loads == {}


def test_two_processes_never_choose_the_same_names(tmp_path: Path, clock: Clock) -> None:
    """Not even in containers, where every process has the same number."""
    for process in ("11111111-0000", "22222222-0000"):
        spool = Spool(tmp_path / "spool", process, lambda: NOW_MS, 1 << 20, monotonic=clock)
        spool.add("events", {})
        flush(spool, finish=True)

    assert len(files(tmp_path)) == 2
    assert len({record["event_id"] for record in records(tmp_path)}) == 2


def test_a_spool_whose_folder_disappears_makes_it_anew(spool: Spool, tmp_path: Path) -> None:
    spool.add("events", {"number": 1})
    flush(spool, finish=True)
    shutil.rmtree(tmp_path / "spool")
    spool.add("events", {"number": 2})
    flush(spool, finish=True)

    assert [record["number"] for record in records(tmp_path)] == [2]


# Reports

SCAN = {
    "report-type": "scan-report",
    "table-name": "lake.shop.orders",
    "snapshot-id": 7,
    "schema-id": 0,
    "projected-field-names": ["id", "city"],
    "projected-field-ids": [1, 2],
    "filter": {
        "type": "and",
        "left": {"type": "not", "child": {"type": "is-null", "term": "city"}},
        "right": {"type": "eq", "term": {"type": "transform", "transform": "year", "term": "day"}, "value": 1},
    },
    "metrics": {
        "total-planning-duration": {"count": 1, "time-unit": "nanoseconds", "total-duration": 2_644_235_116},
        "result-data-files": {"unit": "count", "value": 3},
    },
    "metadata": {"engine-name": "spark", "engine-version": "4.1.4", "app-id": "local-1"},
}
COMMIT = {
    "report-type": "commit-report",
    "table-name": "lake.shop.orders",
    "snapshot-id": 8,
    "sequence-number": 2,
    "operation": "append",
    "metrics": {"attempts": {"unit": "count", "value": 2}},
}


def flattened(report: object) -> tuple[str, Fields]:
    return flat_report(json.dumps(report).encode(), {"table_name": "orders"})


def test_a_scan_report_becomes_flat() -> None:
    kind, fields = flattened(SCAN)

    assert kind == "scan_reports"
    assert fields["table_name"] == "orders"
    assert fields["reported_table"] == "lake.shop.orders"
    assert (fields["snapshot_id"], fields["schema_id"]) == (7, 0)
    assert fields["projected_fields"] == ["id", "city"]
    assert fields["filter_columns"] == ["city", "day"]
    assert json.loads(fields["filter_json"]) == SCAN["filter"]
    assert fields["counters"] == {"result-data-files": 3}
    assert fields["timers_ms"] == {"total-planning-duration": pytest.approx(2644.235116)}
    assert (fields["engine"], fields["engine_version"], fields["app_id"]) == ("spark", "4.1.4", "local-1")


def test_a_commit_report_becomes_flat() -> None:
    kind, fields = flattened(COMMIT)

    assert kind == "commit_reports"
    assert (fields["operation"], fields["sequence_number"], fields["snapshot_id"]) == ("append", 2, 8)
    assert fields["counters"] == {"attempts": 2}
    assert fields["engine"] is None


def without_type(report: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in report.items() if name != "report-type"}


@pytest.mark.parametrize(("report", "kind"), [(SCAN, "scan_reports"), (COMMIT, "commit_reports")])
def test_a_report_without_its_type_is_recognised_002_36(report: dict[str, Any], kind: str) -> None:
    assert flattened(without_type(report))[0] == kind


ODD: list[Callable[[dict[str, Any]], object]] = [
    lambda report: report.update(metrics=None),
    lambda report: report.update(metrics={"x": 3, "y": {"value": "many"}, "z": {"total-duration": 3}}),
    lambda report: report.update(metadata=[1], filter=[{"term": 5}]),
    lambda report: report.update({"projected-field-names": "id", "snapshot-id": "seven", "schema-id": True}),
    lambda report: report.update({"snapshot-id": 2**70, "filter": {"term": {"term": {"term": {}}}}}),
    lambda report: report.clear(),
]


@pytest.mark.parametrize("spoil", ODD, ids=range(len(ODD)))
def test_a_report_may_be_anything_that_is_an_object(spoil: Callable[[dict[str, Any]], object]) -> None:
    report: dict[str, Any] = json.loads(json.dumps(SCAN))
    spoil(report)

    _, fields = flattened(report)

    assert all(isinstance(value, int) for value in fields["counters"].values())
    assert fields["snapshot_id"] in (None, 7)
