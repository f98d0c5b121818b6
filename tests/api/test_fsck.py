"""What fsck finds in a catalog that was damaged on purpose, and what it mends; a sound one has no findings (F23)."""

import json
import os
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import apsw
import pytest

from nunatak.catalog.fsck import KINDS, Finding, check
from nunatak.catalog.fsck_repair import repair
from nunatak.catalog.sweep import sweep
from nunatak.database.records import Key
from tests.api.wire import a_commit, add_snapshot, done, identifier, ok, path_of, rename, set_branch, set_properties
from tests.support.catalogs.local import LocalCatalog, metadata_file
from tests.unit.cli.conftest import run_command

HOUR_MS = 3_600_000


def found(catalog: LocalCatalog, age_ms: int = HOUR_MS) -> list[Finding]:
    async def all_of_them() -> list[Finding]:
        return [finding async for finding in check(catalog.app.catalog, age_ms)]

    return catalog.run(all_of_them())


def kinds(catalog: LocalCatalog, age_ms: int = HOUR_MS) -> list[str]:
    return [finding.kind for finding in found(catalog, age_ms)]


def mend(catalog: LocalCatalog, age_ms: int = HOUR_MS) -> list[str]:
    """Mend everything that can be, and say what was done."""
    return [
        catalog.run(repair(catalog.app.catalog, each, age_ms)) for each in found(catalog, age_ms) if each.repairable
    ]


def sql(catalog: LocalCatalog, statement: str, *values: object) -> None:
    """Change the database behind the server's back, as another client or a disaster does."""
    connection = apsw.Connection(str(catalog.data / "nunatak.db"))
    connection.set_busy_timeout(10_000)
    try:
        connection.execute(statement, values).fetchall()
    finally:
        connection.close()


def property_commits(catalog: LocalCatalog, name: str, count: int) -> Any:
    for number in range(count):
        ok(catalog.commit("ns", name, a_commit(set_properties(number=str(number)))))
    return catalog.load("ns", name)


def aged(file: Path, seconds: int = 48 * 3600) -> Path:
    status = file.stat()
    os.utime(file, (status.st_atime - seconds, status.st_mtime - seconds))
    return file


def leave_behind(catalog: LocalCatalog, version: int, metadata: Any = None, text: str | None = None) -> Path:
    """A metadata file in the folder of table `t` that nothing names, two days old."""
    loaded = catalog.load("ns", "t")
    file = metadata_file(loaded).parent / f"{version:05d}-{uuid4()}.metadata.json"
    file.write_text(text if text is not None else json.dumps(metadata or loaded["metadata"]))
    return aged(file)


def test_a_catalog_that_was_used_has_no_findings(catalog: LocalCatalog) -> None:
    catalog.table("ns", "t")
    catalog.table("ns", "gz", properties={"write.metadata.compression-codec": "gzip"})
    catalog.view("ns", "v")
    property_commits(catalog, "t", 3)
    ok(catalog.commit("ns", "t", a_commit(add_snapshot(1), set_branch(1))))
    ok(catalog.commit("ns", "gz", a_commit(set_properties(a="b"))))
    done(catalog.call("POST", "/v1/tables/rename", rename(identifier("ns", "t"), identifier("ns", "u"))))
    property_commits(catalog, "u", 1)
    location = catalog.load("ns", "u")["metadata-location"]
    done(catalog.call("DELETE", path_of("ns", "tables", "u")))
    ok(catalog.call("POST", path_of("ns", "register"), {"name": "back", "metadata-location": location}))
    property_commits(catalog, "back", 2)

    assert found(catalog) == []


def test_a_lost_file_is_written_again_from_the_stored_bytes(catalog: LocalCatalog) -> None:
    file = metadata_file(catalog.table("ns", "t"))
    before = file.read_bytes()
    file.unlink()

    (finding,) = found(catalog)
    assert (finding.kind, finding.severity, finding.repairable) == ("lost-file", "error", True)
    assert finding.object == "default/ns.t"
    assert catalog.call("GET", path_of("ns", "tables", "t")).status == 404
    assert mend(catalog) == ["wrote the file again from the stored bytes"]

    assert file.read_bytes() == before
    assert found(catalog) == []
    assert catalog.load("ns", "t")["metadata-location"] == f"file://{file}"


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_a_torn_file_is_set_aside_and_written_again(catalog: LocalCatalog, codec: str) -> None:
    file = metadata_file(catalog.table("ns", "t", properties={"write.metadata.compression-codec": codec}))
    whole = file.read_bytes()
    file.write_bytes(whole[:100])

    assert kinds(catalog) == ["torn-file"]
    (said,) = mend(catalog)

    (damaged_name,) = [each for each in file.parent.iterdir() if ".torn-" in each.name]
    assert damaged_name.name in said
    assert damaged_name.read_bytes() == whole[:100]
    assert found(catalog) == []
    catalog.restart()
    assert catalog.load("ns", "t")["metadata"]["properties"]


def test_a_file_that_says_something_else_is_reported_and_left_alone(catalog: LocalCatalog) -> None:
    loaded = catalog.table("ns", "t")
    file = metadata_file(loaded)
    changed = json.dumps(loaded["metadata"] | {"properties": {"who": "somebody else"}})
    file.write_text(changed)

    assert [(each.kind, each.repairable) for each in found(catalog)] == [("changed-file", False)]
    assert mend(catalog) == []
    assert file.read_text() == changed


def test_a_file_that_can_be_read_is_never_written_again(catalog: LocalCatalog) -> None:
    file = metadata_file(catalog.table("ns", "t"))
    changed = file.read_bytes().replace(b'"properties":{', b'"properties":{"who":"somebody else",')
    file.write_bytes(changed)
    key = Key("default", "ns", "t")
    late = Finding("torn-file", "default/ns.t", "it was torn when it was looked at", repairable=True, key=key)

    assert catalog.run(repair(catalog.app.catalog, late, HOUR_MS)) == "the file is readable; not changed"
    assert file.read_bytes() == changed


def test_a_lost_file_whose_bytes_are_not_stored_cannot_be_mended(catalog: LocalCatalog) -> None:
    metadata_file(catalog.table("ns", "t")).unlink()
    sql(catalog, "UPDATE nunatak_heads SET content = NULL")

    assert [(each.kind, each.repairable) for each in found(catalog)] == [("lost-file", False)]


def test_a_record_that_does_not_fit_its_file_is_read_again(catalog: LocalCatalog) -> None:
    catalog.table("ns", "t")
    sql(catalog, "UPDATE nunatak_heads SET location = location || '-not'")
    assert kinds(catalog) == ["wrong-record"]
    mend(catalog)
    assert found(catalog) == []

    sql(catalog, "UPDATE nunatak_heads SET content = x'00'")
    assert kinds(catalog) == ["bad-stored-bytes"]
    mend(catalog)
    assert found(catalog) == []


def test_a_uuid_that_differs_from_the_file_is_found(catalog: LocalCatalog) -> None:
    catalog.table("ns", "t")
    sql(catalog, "UPDATE nunatak_heads SET table_uuid = 'other'")

    assert "wrong-record" in kinds(catalog)


def test_what_another_client_dropped_or_moved_is_a_notice_and_is_mended(catalog: LocalCatalog) -> None:
    catalog.table("ns", "dropped")
    first = catalog.table("ns", "moved")
    second = property_commits(catalog, "moved", 1)
    sql(catalog, "DELETE FROM iceberg_tables WHERE table_name = 'dropped'")
    sql(catalog, "UPDATE nunatak_heads SET metadata_location = ?", first["metadata-location"])

    assert [(each.kind, each.severity) for each in found(catalog)] == [
        ("stale-record", "notice"),
        ("unknown-pointer", "notice"),
    ]
    assert len(mend(catalog)) == 2

    assert found(catalog) == []
    assert catalog.rows("SELECT table_name, metadata_location FROM nunatak_heads") == [
        ("moved", second["metadata-location"])
    ]


def test_a_namespace_that_exists_only_through_its_tables_gets_a_row(catalog: LocalCatalog) -> None:
    catalog.table("ns", "t")
    sql(catalog, "DELETE FROM iceberg_namespace_properties")

    assert kinds(catalog) == ["unmarked-namespace"]
    mend(catalog)
    assert found(catalog) == []


def test_a_line_missing_from_the_commit_log_is_found(catalog: LocalCatalog) -> None:
    catalog.table("ns", "t")
    property_commits(catalog, "t", 3)
    sql(catalog, "DELETE FROM nunatak_commits WHERE sequence = 3")

    (finding,) = found(catalog)

    assert finding.kind == "broken-log"
    assert "line 4 moves the pointer from" in finding.text


def test_a_doubled_line_and_a_missing_last_line_are_found(catalog: LocalCatalog) -> None:
    catalog.table("ns", "t")
    property_commits(catalog, "t", 2)
    columns = ", ".join(row[1] for row in catalog.rows("PRAGMA table_info(nunatak_commits)")[1:])
    sql(
        catalog,
        f"INSERT INTO nunatak_commits ({columns}) SELECT {columns} FROM nunatak_commits WHERE sequence = 3",
    )
    assert kinds(catalog) == ["broken-log"]

    sql(catalog, "DELETE FROM nunatak_commits WHERE sequence >= 3")
    (finding,) = found(catalog)
    assert (finding.kind, "no line of the commit log leads to" in finding.text) == ("broken-log", True)


def test_two_tables_in_one_folder_are_found_once(catalog: LocalCatalog) -> None:
    catalog.table("ns", "a")
    outer = catalog.table("ns", "b")["metadata"]["location"]
    sql(catalog, "UPDATE nunatak_heads SET location = ? WHERE table_name = 'a'", f"{outer}/inner")

    assert sorted(kinds(catalog)) == ["overlap", "wrong-record"]


def test_metadata_that_contradicts_itself_is_found(catalog: LocalCatalog) -> None:
    ok_metadata = catalog.table("ns", "t")["metadata"]
    wrong = ok_metadata | {"last-column-id": 0}
    file = catalog.warehouse / "wrong.metadata.json"
    file.write_text(json.dumps(wrong | {"table-uuid": "11111111-1111-4111-8111-111111111111"}))
    done(catalog.call("DELETE", path_of("ns", "tables", "t")))
    ok(catalog.call("POST", path_of("ns", "register"), {"name": "t", "metadata-location": f"file://{file}"}))

    (finding,) = found(catalog)

    assert (finding.kind, finding.text) == ("bad-metadata", "last-column-id is 0, but a column has the id 2")


def test_a_location_that_is_no_longer_allowed_is_found(quick_folder: Path) -> None:
    data, elsewhere = quick_folder / "data", f"file://{quick_folder}/elsewhere"
    with closing(LocalCatalog(data, {"NUNATAK_ALLOWED_LOCATIONS": elsewhere})) as catalog:
        catalog.namespace("ns")
        catalog.table("ns", "t", location=f"{elsewhere}/t")
        assert found(catalog) == []

    with closing(LocalCatalog(data)) as catalog:
        assert kinds(catalog) == ["outside"]


def test_earlier_metadata_that_is_gone_is_found(catalog: LocalCatalog) -> None:
    first = metadata_file(catalog.table("ns", "t"))
    property_commits(catalog, "t", 2)
    first.unlink()

    assert [(each.kind, each.severity) for each in found(catalog)] == [("lost-log-file", "warning")]


def test_a_warehouse_nobody_configured_is_found(catalog: LocalCatalog) -> None:
    catalog.table("ns", "t")
    sql(catalog, "UPDATE iceberg_tables SET catalog_name = 'prod'")

    assert sorted(kinds(catalog)) == ["stale-record", "unknown-warehouse"]


def test_answers_beyond_their_time_and_stuck_jobs_are_found(catalog: LocalCatalog) -> None:
    catalog.table("ns", "t")
    key = {"Idempotency-Key": "0197a000-0000-7000-8000-000000000001"}
    ok(catalog.commit("ns", "t", a_commit(set_properties(a="b")), key))
    sql(catalog, "INSERT INTO nunatak_jobs (kind, payload, attempts, last_error) VALUES ('purge', x'00', 7, 'no disk')")
    assert kinds(catalog) == ["stuck-job"]
    catalog.clock.added_ms = 10 * HOUR_MS

    assert kinds(catalog, 24 * HOUR_MS) == ["stuck-job", "expired-answers"]
    assert mend(catalog, 24 * HOUR_MS) == ["deleted the expired responses"]
    assert kinds(catalog, 24 * HOUR_MS) == ["stuck-job"]


# Files that nothing names


def test_a_file_that_lost_its_server_is_an_orphan_once_it_is_old(catalog: LocalCatalog) -> None:
    catalog.table("ns", "t")
    property_commits(catalog, "t", 2)
    lost = leave_behind(catalog, 1)
    torn = leave_behind(catalog, 2, text='{"format-ver')
    os.utime(torn)
    before = catalog.files()

    assert kinds(catalog, 72 * HOUR_MS) == []
    assert [each.text for each in found(catalog)] == [f"no table references file://{lost}"]
    aged(torn)
    assert kinds(catalog) == ["orphan", "orphan"]
    mend(catalog)

    assert found(catalog) == []
    assert before - catalog.files() == {str(each.relative_to(catalog.warehouse)) for each in (lost, torn)}
    assert catalog.files() <= before


def test_the_sweep_deletes_what_fsck_calls_an_orphan_and_nothing_else(catalog: LocalCatalog) -> None:
    catalog.table("ns", "t", properties={"write.metadata.previous-versions-max": "1"})
    catalog.view("ns", "v")
    property_commits(catalog, "t", 3)
    lost = leave_behind(catalog, 2)
    leave_behind(catalog, 7)  # ahead of the pointer: perhaps all that is left of a commit
    for name in ("v2.metadata.json", "notes.metadata.json", "snap-1.avro"):
        lost.with_name(name).write_text("{}")
    for file in metadata_file(catalog.load("ns", "t")).parent.iterdir():
        aged(file)
    before = catalog.files()

    assert catalog.run(sweep(catalog.app.catalog, HOUR_MS)) == 1

    assert before - catalog.files() == {str(lost.relative_to(catalog.warehouse))}
    assert kinds(catalog) == ["file-ahead"]


def test_no_sweep_touches_a_table_that_others_write_too(catalog: LocalCatalog) -> None:
    """Its files may be another catalog's: a table registered here for a try, or one that a JDBC client writes."""
    registered = catalog.table("ns", "t")["metadata-location"]
    done(catalog.call("DELETE", path_of("ns", "tables", "t")))
    ok(catalog.call("POST", path_of("ns", "register"), {"name": "t", "metadata-location": registered}))
    property_commits(catalog, "t", 3)
    theirs = leave_behind(catalog, 1)

    assert catalog.run(sweep(catalog.app.catalog, HOUR_MS)) == 0
    assert [(each.kind, each.severity) for each in found(catalog)] == [("unnamed-file", "notice")]
    assert theirs.exists()


def test_a_file_of_another_table_in_the_folder_stays(catalog: LocalCatalog) -> None:
    loaded = catalog.table("ns", "t")
    property_commits(catalog, "t", 3)
    other = leave_behind(catalog, 1, loaded["metadata"] | {"table-uuid": "11111111-1111-4111-8111-111111111111"})

    assert catalog.run(sweep(catalog.app.catalog, HOUR_MS)) == 0
    assert kinds(catalog) == ["unnamed-file"]
    assert other.exists()


def test_a_file_that_another_pointer_leads_to_stays(catalog: LocalCatalog) -> None:
    catalog.table("ns", "t")
    property_commits(catalog, "t", 3)
    other = leave_behind(catalog, 1)
    sql(
        catalog,
        "INSERT INTO iceberg_tables VALUES ('default', 'ns', 'by_jdbc', ?, NULL, 'TABLE')",
        f"file:{other}",  # as Hadoop spells it
    )

    assert catalog.run(sweep(catalog.app.catalog, HOUR_MS)) == 0
    assert other.exists()


def test_a_file_that_comes_to_count_between_two_looks_stays(
    catalog: LocalCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    uuid = catalog.table("ns", "t")["metadata"]["table-uuid"]
    property_commits(catalog, "t", 3)
    lost = leave_behind(catalog, 1)
    read = catalog.app.catalog.objects.read_metadata

    async def read_while_somebody_logs_it(location: str) -> bytes:
        sql(
            catalog,
            "INSERT INTO nunatak_commits (commit_id, operation, catalog_name, table_namespace, table_name, table_uuid,"
            " metadata_location, principal, committed_ms) VALUES ('late', 'commit-table', 'default', 'ns', 't', ?, ?,"
            " 'ann', 1)",
            uuid,
            location,
        )
        return await read(location)

    monkeypatch.setattr(catalog.app.catalog.objects, "read_metadata", read_while_somebody_logs_it)

    assert catalog.run(sweep(catalog.app.catalog, HOUR_MS)) == 0
    assert lost.exists()


# Metadata files that a table drops from its log: deleted by a job, after the commit

TRIMMED = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "1"}


def test_trimmed_metadata_is_deleted_by_a_job_and_not_by_the_commit(catalog: LocalCatalog) -> None:
    first = metadata_file(catalog.table("ns", "t", properties=TRIMMED))
    property_commits(catalog, "t", 2)

    assert first.exists()
    assert catalog.rows("SELECT kind FROM nunatak_jobs") == [("delete-files",)]
    assert catalog.work_off_jobs() == 1
    assert not first.exists()
    assert found(catalog) == []


def test_trimmed_metadata_stays_while_the_table_is_at_it_under_another_name(catalog: LocalCatalog) -> None:
    created = catalog.table("ns", "t", properties=TRIMMED)
    wanted = {"name": "twin", "metadata-location": created["metadata-location"]}
    ok(catalog.call("POST", path_of("ns", "register"), wanted))
    property_commits(catalog, "t", 3)

    assert catalog.work_off_jobs() == 2

    assert catalog.load("ns", "twin")["metadata-location"] == created["metadata-location"]
    assert found(catalog) == []


def test_trimmed_metadata_stays_if_the_table_was_rolled_back_to_it_meanwhile(catalog: LocalCatalog) -> None:
    created = catalog.table("ns", "t", properties=TRIMMED)
    property_commits(catalog, "t", 2)
    back = {"name": "t", "metadata-location": created["metadata-location"], "overwrite": True}
    ok(catalog.call("POST", path_of("ns", "register"), back))

    assert catalog.work_off_jobs() == 1

    assert catalog.load("ns", "t")["metadata-location"] == created["metadata-location"]
    assert found(catalog) == []


def test_a_purge_takes_along_what_the_table_s_log_forgot_and_what_killed_commits_left(catalog: LocalCatalog) -> None:
    catalog.table("ns", "t", properties={"write.metadata.previous-versions-max": "1"})
    property_commits(catalog, "t", 3)
    leave_behind(catalog, 2)
    leave_behind(catalog, 9, text="{torn")
    other = leave_behind(catalog, 1, {"table-uuid": "11111111-1111-4111-8111-111111111111"})

    done(catalog.call("DELETE", path_of("ns", "tables", "t") + "?purgeRequested=true"))
    catalog.work_off_jobs()

    assert catalog.files() == {str(other.relative_to(catalog.warehouse))}


def test_a_purge_leaves_what_another_catalog_may_lead_to(catalog: LocalCatalog) -> None:
    location = catalog.table("ns", "t")["metadata-location"]
    done(catalog.call("DELETE", path_of("ns", "tables", "t")))
    ok(catalog.call("POST", path_of("ns", "register"), {"name": "t", "metadata-location": location}))
    theirs = leave_behind(catalog, 5)

    done(catalog.call("DELETE", path_of("ns", "tables", "t") + "?purgeRequested=true"))
    catalog.work_off_jobs()

    assert catalog.files() == {str(theirs.relative_to(catalog.warehouse))}


# The command


def test_the_command_checks_beside_a_running_server_and_repairs_without_one(quick_folder: Path) -> None:
    data = quick_folder / "data"
    arguments = ("fsck", "--data", str(data))
    with closing(LocalCatalog(data)) as catalog:
        catalog.namespace("ns")
        file = metadata_file(catalog.table("ns", "t"))
        sound = run_command(*arguments)
        assert (sound.code, sound.out) == (0, "Everything agrees.\n")
        catalog.restart()  # what was written is on disk: the next start does not look after it
        file.unlink()

        beside = run_command(*arguments, "--json")
        assert beside.code == 1
        (finding,) = beside.json
        assert (finding["kind"], finding["severity"], finding["done"]) == ("lost-file", "error", None)
        assert finding["hint"] == KINDS["lost-file"][1]
        refused = run_command(*arguments, "--repair")
        assert refused.code == 2
        assert "another server already works on" in refused.err

    mended = run_command(*arguments, "--repair")
    assert mended.code == 0
    assert "repaired: wrote the file again from the stored bytes" in mended.out
    assert run_command(*arguments).code == 0
    with closing(LocalCatalog(data)) as catalog:
        assert catalog.load("ns", "t")["metadata-location"] == f"file://{file}"


def test_a_folder_without_a_database_cannot_be_checked(tmp_path: Path) -> None:
    outcome = run_command("fsck", "--data", str(tmp_path / "mistyped"))

    assert outcome.code == 2
    assert "there is no database at" in outcome.err
    assert not (tmp_path / "mistyped").exists()
