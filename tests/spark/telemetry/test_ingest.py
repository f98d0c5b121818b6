"""From lines of the spool to rows of the `system` tables: each once, whatever it looks like and whatever happens."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from nunatak_spark.errors import CannotRun
from nunatak_spark.telemetry import spool_files as spooled
from nunatak_spark.telemetry import views
from nunatak_spark.telemetry.rejections import Rejections
from tests.spark.telemetry.conftest import Telemetry
from tests.spark.telemetry.lines import DAY, a_line, of_table, put

BROKEN = "not JSON of this kind"


def events(*numbers: int, prefix: str) -> list[dict[str, object]]:
    return [a_line(f"{prefix}-{number}", operation="commit-table", status=200, **of_table("a.t")) for number in numbers]


def ids(telemetry: Telemetry, prefix: str) -> list[str]:
    return [row[0] for row in telemetry.rows(f"SELECT event_id FROM system.events WHERE event_id LIKE '{prefix}-%'")]


def test_every_kind_becomes_a_row_and_what_is_not_known_is_kept(telemetry: Telemetry, tmp_path: Path) -> None:
    table = of_table("a.t")
    counted: dict[str, Any] = {"counters": {"result-data-files": 2**40}, "timers_ms": {"total-planning-duration": 1.5}}
    put(tmp_path, "events", "f", [a_line("k-1", **table, operation="commit-table", status=200, snapshot_id=2**60)])
    put(tmp_path, "scan_reports", "f", [a_line("k-2", **table, **counted, filter_columns=["x"], metadata={"a": "b"})])
    put(tmp_path, "commit_reports", "f", [a_line("k-3", **table, sequence_number=4)])
    put(tmp_path, "audit", "f", [a_line("k-4", action="loadTable", repeats=3, later={"x": [1, "é"]}, more=True)])
    put(tmp_path, "table_loads", "f", [a_line("k-5", **table, loads=9)])

    report = telemetry.ingest(tmp_path)

    assert report.ok
    assert report.lines == {"events": 1, "scan_reports": 1, "commit_reports": 1, "audit": 1, "table_loads": 1}
    assert (report.files, report.files_left) == (5, 0)
    (event,) = telemetry.rows("SELECT * FROM system.events WHERE event_id = 'k-1'")
    assert (event.table_name, event.snapshot_id, event.rest) == ("t", 2**60, None)
    assert event.at == datetime(2026, 3, 1, 12)
    (scan,) = telemetry.rows("SELECT * FROM system.scan_reports WHERE event_id = 'k-2'")
    assert (scan.counters, scan.timers_ms) == (counted["counters"], counted["timers_ms"])
    assert (scan.filter_columns, scan.metadata) == (["x"], {"a": "b"})
    (audit,) = telemetry.rows("SELECT * FROM system.audit WHERE event_id = 'k-4'")
    assert (audit.repeats, audit.rest) == (3, '{"later":"{\\"x\\":[1,\\"é\\"]}","more":"true"}')
    assert telemetry.values("SELECT loads FROM system.table_loads WHERE event_id = 'k-5'") == [(9,)]
    (partition,) = telemetry.rows("SELECT DISTINCT partition.at_day FROM system.table_loads.files")
    assert str(partition.at_day) == DAY


def test_a_line_that_cannot_be_understood_is_rejected_and_stops_nothing(telemetry: Telemetry, tmp_path: Path) -> None:
    bad = [
        ('{"event_id":"r-2","at":', BROKEN),
        ("[1]", BROKEN),
        ("\x00\x01binary", BROKEN),
        ('{"event_id":"r-3","at":"yesterday","node":"n"}', BROKEN),
        ('{"event_id":"r-4","at":"2026-03-01T00:00:00Z","node":"n","status":"many"}', BROKEN),
        ('{"at":"2026-03-01T00:00:00Z","node":"n"}', "event_id is missing"),
        ('{"event_id":"r-5","node":"n"}', "at is missing"),
    ]
    lines: list[dict[str, Any] | str] = [*events(1, prefix="r"), "", *(line for line, _ in bad), *events(9, prefix="r")]
    put(tmp_path, "events", "f", lines)
    put(tmp_path, "unknown_kind", "f", ["of a newer server"])

    report = telemetry.ingest(tmp_path)

    assert (report.ok, report.rejected) == (False, len(bad))
    assert sorted(ids(telemetry, "r")) == ["r-1", "r-9"]
    found = telemetry.values("SELECT line, reason, kind, element_at(split(file, '/'), -1) FROM system.rejected")
    assert sorted(found) == sorted((line, reason, "events", "f.jsonl") for line, reason in bad)
    assert [path.parent.parent.name for path in tmp_path.rglob("*.jsonl")] == ["unknown_kind"]


def test_files_that_come_later_are_ingested_and_those_that_stay_not_again(telemetry: Telemetry, tmp_path: Path) -> None:
    put(tmp_path, "events", "f1", events(1, 2, prefix="s"))
    telemetry.ingest(tmp_path, keep_files=True)
    put(tmp_path, "events", "f2", events(3, prefix="s"))

    again = telemetry.ingest(tmp_path, keep_files=True)

    assert again.lines == {"events": 1}
    assert sorted(ids(telemetry, "s")) == ["s-1", "s-2", "s-3"]


class Killed(BaseException):
    """As if the process were gone: nothing between here and the test may catch it."""


def killed(*_: object) -> None:
    raise Killed


@pytest.mark.parametrize("keep_files", [False, True])
@pytest.mark.parametrize(
    ("owner", "step"),
    [(Rejections, "count"), (spooled, "delete_files"), (views, "ensure_views"), (Rejections, "report")],
)
def test_a_rejected_line_is_reported_once_whenever_a_run_is_killed(
    telemetry: Telemetry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: object,
    step: str,
    keep_files: bool,
) -> None:
    """Two of them, on two days; killed before the named step. With files that stay no file is deleted."""
    put(tmp_path, "events", "f1", [*events(1, prefix=f"k-{step}"), "not JSON"])
    put(tmp_path, "audit", "f2", ["neither"], day="2026-03-02")
    with monkeypatch.context() as patch:
        patch.setattr(owner, step, killed)
        with pytest.raises(Killed):
            telemetry.ingest(tmp_path)

    reports = [telemetry.ingest(tmp_path, keep_files=keep_files) for _ in range(2)]

    assert [(report.ok, report.rejected) for report in reports] == [(False, 2), (True, 0)]
    found = telemetry.values(f"SELECT line FROM system.rejected WHERE contains(file, '{tmp_path.name}/')")
    assert sorted(found) == [("neither",), ("not JSON",)]


def test_each_spool_reports_its_own_rejected_lines(telemetry: Telemetry, tmp_path: Path) -> None:
    for name, bad in (("one", ["x"]), ("two", ["x", "y"])):
        put(tmp_path / name, "events", "f", bad)

    assert telemetry.ingest(tmp_path / "one", keep_files=True).rejected == 1
    assert telemetry.ingest(tmp_path / "two", keep_files=True).rejected == 2
    assert telemetry.ingest(tmp_path / "one", keep_files=True).rejected == 0


def test_a_batch_that_was_committed_before_a_crash_is_not_written_again(telemetry: Telemetry, tmp_path: Path) -> None:
    """The worst moment: the rows are in the table, and Spark has not noted that its batch is done."""
    put(tmp_path, "events", "f1", events(1, 2, prefix="w"))
    telemetry.ingest(tmp_path, keep_files=True)
    note = tmp_path / spooled.CHECKPOINTS / DAY / "events" / "commits"
    (note / "0").unlink()
    (note / ".0.crc").unlink()
    put(tmp_path, "events", "f2", events(3, prefix="w"))

    report = telemetry.ingest(tmp_path)

    assert report.lines == {"events": 3}  # it was read again, but
    assert sorted(ids(telemetry, "w")) == ["w-1", "w-2", "w-3"]
    assert report.files_left == 0


def test_a_file_the_server_deletes_meanwhile_is_no_error(telemetry: Telemetry, tmp_path: Path) -> None:
    """Noted as part of a batch that a crash cut off, and gone before the batch is done again."""
    gone = put(tmp_path, "events", "f1", events(1, prefix="g"))
    telemetry.ingest(tmp_path, keep_files=True)
    notes = tmp_path / spooled.CHECKPOINTS / DAY
    for note in (notes / "events" / "commits" / "0", notes / "events" / "commits" / ".0.crc"):
        note.unlink()
    gone.unlink()
    put(tmp_path, "events", "f2", events(2, prefix="g"))

    telemetry.ingest(tmp_path)

    assert sorted(ids(telemetry, "g")) == ["g-1", "g-2"]


def test_where_only_spark_can_look_files_are_found_and_left(
    telemetry: Telemetry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in an object store; a local folder stands for it here, which this process is not to see."""
    put(tmp_path, "events", "f", events(1, prefix="o"))
    (tmp_path / "events" / DAY / ".f2.jsonl.tmp").write_text("not finished")
    monkeypatch.setattr(spooled, "local_folder", lambda place: None)

    first = telemetry.ingest(tmp_path)
    again = telemetry.ingest(tmp_path)

    assert (first.files, first.files_left, first.lines) == (1, 1, {"events": 1})
    assert (again.files, again.lines) == (1, {"events": 0})
    assert ids(telemetry, "o") == ["o-1"]


def test_what_spark_remembers_of_a_day_goes_when_nothing_can_come_any_more(
    telemetry: Telemetry, tmp_path: Path
) -> None:
    today = datetime.now(UTC).date()
    for number, days in enumerate((0, 1, 5)):
        day = (today - timedelta(days=days)).isoformat()
        put(tmp_path, "events", "f", events(number, prefix="d"), day=day)

    telemetry.ingest(tmp_path)

    kept = {(today - timedelta(days=days)).isoformat() for days in (0, 1)}
    assert {path.name for path in (tmp_path / spooled.CHECKPOINTS).iterdir()} == kept
    assert {path.name for path in (tmp_path / "events").iterdir()} == kept
    assert len(ids(telemetry, "d")) == 3


def test_one_ingests_at_a_time(telemetry: Telemetry, tmp_path: Path) -> None:
    put(tmp_path, "events", "f", events(1, prefix="h"))

    with spooled.lock_spool(tmp_path), pytest.raises(CannotRun, match="Another ingest uses"):
        telemetry.ingest(tmp_path)

    assert telemetry.ingest(tmp_path).lines == {"events": 1}
