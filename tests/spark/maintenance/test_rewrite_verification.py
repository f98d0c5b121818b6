"""Guards on a live server: pins that others respect, and rewrites that change rows, which are found and named."""

import time
from typing import Any

import pytest

from nunatak.errors import CommitFailed
from nunatak_spark.maintenance.dispatch import maintain
from nunatak_spark.maintenance.loaded_table import load_table
from nunatak_spark.maintenance.snapshot_pins import pin_snapshot, unpin_snapshot
from tests.spark.maintenance.conftest import Maintenance
from tests.spark.maintenance.test_compaction import SHARED, a_heap


def test_a_pinned_snapshot_outlives_the_expiry_of_another_client(maintenance: Maintenance) -> None:
    sql = maintenance.sql
    a_heap(maintenance, "t")
    work = maintenance.work("t", "data-compaction", job="9")
    pinned = load_table(work).current
    assert pinned is not None
    for number in range(3):
        sql(f"INSERT INTO t VALUES ({1000 + number}, 'later')")
    pin_snapshot(work, pinned)

    with pytest.raises(CommitFailed, match="the tag nunatak-pin-9 pins it"):
        maintenance.commit("t", {"action": "remove-snapshots", "snapshot-ids": [pinned.snapshot_id]})
    now = f"TIMESTAMP '{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(time.time() + 60))}Z'"
    sql.call("expire_snapshots", f"table => '{sql.namespace}.t', older_than => {now}, retain_last => 1")

    left = {each["snapshot-id"] for each in maintenance.metadata("t")["snapshots"]}
    assert left == {pinned.snapshot_id, maintenance.metadata("t")["current-snapshot-id"]}
    unpin_snapshot(work, load_table(work))
    assert maintenance.pins("t") == []
    maintenance.commit("t", {"action": "remove-snapshots", "snapshot-ids": [pinned.snapshot_id]})


class Planter:
    """Called between the steps of a job: once it is at work, commits as a rewrite what is none."""

    def __init__(self, maintenance: Maintenance, manifest_list: str, said: dict[str, str]) -> None:
        self._maintenance, self._manifest_list, self._said, self._calls = maintenance, manifest_list, said, 0
        self.planted = 4711

    def __call__(self) -> None:
        self._calls += 1
        if self._calls != 2:  # the first is before anything began
            return
        metadata = self._maintenance.metadata("t")
        snapshot: dict[str, Any] = {
            "snapshot-id": self.planted,
            "parent-snapshot-id": metadata["current-snapshot-id"],
            "sequence-number": metadata["last-sequence-number"] + 1,
            "timestamp-ms": int(time.time() * 1000),
            "manifest-list": self._manifest_list,
            "summary": {"operation": "replace", "total-delete-files": "0", **self._said},
            "schema-id": metadata["current-schema-id"],
        }
        self._maintenance.commit(
            "t",
            {"action": "add-snapshot", "snapshot": snapshot},
            {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": self.planted},
        )


@pytest.mark.parametrize(
    ("statement", "verify", "found"),
    [
        ("UPDATE t SET word = 'other' WHERE id = 3", "full", "values differ in: word"),
        ("UPDATE t SET id = 100000 WHERE id = 3", "metadata", "id was from 0 to 59 and now has values outside of that"),
        ("UPDATE t SET word = NULL WHERE id = 3", "metadata", "0 nulls in word became 1"),
        ("DELETE FROM t WHERE id = 3", "rows", "60 rows became 59"),
        ("DELETE FROM t WHERE id = 3", None, "60 rows became 59"),
        ("UPDATE t SET rate = double('NaN') WHERE id = 3", None, "0 NaNs in rate became 1"),
    ],
)
def test_a_rewrite_that_changes_rows_is_found_and_can_be_undone(
    maintenance: Maintenance, statement: str, verify: str | None, found: str
) -> None:
    sql = maintenance.sql
    a_heap(maintenance, "t", properties=SHARED)
    if "rate" in statement:
        sql("ALTER TABLE t ADD COLUMN rate DOUBLE")
        sql("INSERT OVERWRITE t SELECT id, word, CAST(id AS DOUBLE) FROM t")
    right = maintenance.metadata("t")["current-snapshot-id"]
    rows = maintenance.fingerprint("t")
    sql(statement)
    changed = sql.value("SELECT max_by(manifest_list, committed_at) FROM here.t.snapshots")
    sql.call("rollback_to_snapshot", f"'{sql.namespace}.t', {right}")
    # A summary is what a writer says of its own work: only who compares no more than rows believes it.
    said = {} if verify == "rows" else {"total-records": "60"}
    planter = Planter(maintenance, changed, said)

    level: dict[str, Any] = {} if verify is None else {"verify": verify}
    work = maintenance.work("t", "data-compaction", job="11", check=planter, min_input_files=2, **level)
    if verify is None:
        del work.spec.options["verify"]
    outcome = maintain(work)

    assert not outcome.ok
    assert found in outcome.detail["problem"]
    assert outcome.detail["snapshots"][0] == planter.planted
    assert outcome.detail["kept-snapshot"] == right
    kept = maintenance.metadata("t")["refs"]["nunatak-pin-11"]
    assert kept["snapshot-id"] == right
    assert kept["max-ref-age-ms"] > 6 * 86_400_000
    sql(outcome.detail["rollback"])
    assert maintenance.fingerprint("t") == rows


@pytest.mark.parametrize(("mode", "reached"), [("copy-on-write", "metadata"), ("merge-on-read", "rows")])
def test_an_outcome_tells_the_level_that_was_reached(maintenance: Maintenance, mode: str, reached: str) -> None:
    """Where delete files are about, manifests count deleted rows too, so no more than the number of rows is shown."""
    a_heap(maintenance, "t", properties=f"{SHARED}, 'write.delete.mode' = '{mode}'")
    maintenance.sql("DELETE FROM t WHERE id = 3")

    outcome = maintenance.run("t", "data-compaction", verify="metadata")

    assert (outcome.ok, outcome.changed, outcome.detail["verified"]) == (True, True, reached)
