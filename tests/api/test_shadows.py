"""A shadow's files belong to another catalog: no commit and no job touches it until a migration says so."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.api.wire import Answer, a_commit, add_snapshot, done, identifier, ok, path_of, set_branch, set_properties
from tests.support.catalogs.local import LocalCatalog, metadata_file

SHADOWS, JOBS = "/management/v1/shadows", "/management/v1/maintenance/jobs"
LEASE, PLAN = "/management/v1/maintenance/lease", "/management/v1/maintenance/plan?securable="
T, REGISTER = path_of("ns", "tables", "t"), path_of("ns", "register")
TABLE, SOURCE = "table:default/ns/t", "hive:sales.orders"
WRITING, DELETING = ("data-compaction", "manifest-rewrite"), ("snapshot-expiry", "orphan-removal", "metadata-retention")


@pytest.fixture
def shadowed(catalog: LocalCatalog) -> LocalCatalog:
    """The table `t`, registered from a file of another catalog, and the ordinary table `plain`."""
    ok(register(catalog, a_source(catalog)))
    catalog.table("ns", "plain")
    return catalog


def a_source(catalog: LocalCatalog, uuid: str = "00000000-0000-4000-8000-00000000000a", **changed: Any) -> str:
    """A metadata file as the source's catalog has written it, in the source's folder."""
    catalog.table("ns", "pattern")
    metadata = catalog.load("ns", "pattern")["metadata"]
    done(catalog.call("DELETE", path_of("ns", "tables", "pattern")))
    folder = catalog.warehouse / f"source-{uuid[-1]}"
    snapshot = add_snapshot(1)["snapshot"] | {"manifest-list": f"file://{folder}/metadata/list.avro"}
    metadata |= {"location": f"file://{folder}", "table-uuid": uuid, "snapshots": [snapshot]}
    metadata |= {"current-snapshot-id": 1, "last-sequence-number": 1, "last-updated-ms": snapshot["timestamp-ms"]}
    metadata["refs"] = {"main": {"type": "branch", "snapshot-id": 1}}
    number = len(list((folder / "metadata").glob("*"))) if (folder / "metadata").exists() else 0
    file = folder / "metadata" / f"{number:05d}-{number}.metadata.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(metadata | changed))
    return f"file://{file}"


def register(catalog: LocalCatalog, file: str, **fields: Any) -> Answer:
    body = {"name": "t", "metadata-location": file, "shadow-of": SOURCE} | fields
    return catalog.call("POST", REGISTER, {name: value for name, value in body.items() if value is not None})


def shadows(catalog: LocalCatalog, securable: str = "warehouse:default") -> Any:
    return ok(catalog.call("GET", f"{SHADOWS}?securable={securable}"))["shadows"]


def put(catalog: LocalCatalog, state: str, securable: str = TABLE) -> None:
    done(catalog.call("PUT", SHADOWS, {"securable": securable, "source": SOURCE, "state": state}))


def commit(catalog: LocalCatalog, name: str = "t") -> Answer:
    return catalog.commit("ns", name, a_commit(set_properties(a="b")))


def refused(answer: Answer) -> None:
    status, kind, message = answer.error
    assert (status, kind) == (403, "ShadowTableException")
    assert SOURCE in message
    assert "nunatak migrate cutover" in answer.hint


# The flag


def test_a_register_makes_a_shadow(shadowed: LocalCatalog) -> None:
    (found,) = shadows(shadowed)

    assert found.pop("since-ms") > 0
    uuid = shadowed.load("ns", "t")["metadata"]["table-uuid"]
    assert found == {"securable": TABLE, "table-uuid": uuid, "source": SOURCE, "state": "shadow"}
    assert shadows(shadowed, "namespace:default/ns") == shadows(shadowed, TABLE) == shadows(shadowed)
    assert shadows(shadowed, "table:default/ns/plain") == []
    shadowed.namespace("other")
    assert shadows(shadowed, "namespace:default/other") == []
    neighbours = ok(shadowed.call("GET", f"/management/v1/maintenance/neighbours?securable={TABLE}"))
    assert neighbours["shadow"]["source"] == SOURCE
    assert set(neighbours["shadow"]) == {"source", "state", "since-ms"}


def test_the_flag_is_set_changed_and_lifted(shadowed: LocalCatalog) -> None:
    since = shadows(shadowed)[0]["since-ms"]
    shadowed.clock.added_ms += 1000
    put(shadowed, "cut-over")
    assert [(each["state"], each["since-ms"]) for each in shadows(shadowed)] == [("cut-over", since)]
    put(shadowed, "shadow", "table:default/ns/plain")
    assert [each["state"] for each in shadows(shadowed)] == ["shadow", "cut-over"]

    done(shadowed.call("DELETE", f"{SHADOWS}?securable={TABLE}"))

    assert [each["securable"] for each in shadows(shadowed)] == ["table:default/ns/plain"]
    done(shadowed.call("DELETE", f"{SHADOWS}?securable={TABLE}"))


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"securable": TABLE, "source": SOURCE, "state": "over"}, 400),
        ({"securable": TABLE, "source": "", "state": "shadow"}, 400),
        ({"securable": TABLE, "source": "a\x1b[2J", "state": "shadow"}, 400),
        ({"securable": TABLE, "source": "x" * 501, "state": "shadow"}, 400),
        ({"securable": "namespace:default/ns", "source": SOURCE, "state": "shadow"}, 400),
        ({"securable": "table:default/ns/none", "source": SOURCE, "state": "shadow"}, 404),
    ],
)
def test_what_makes_no_sense_is_refused(shadowed: LocalCatalog, body: Any, status: int) -> None:
    assert shadowed.call("PUT", SHADOWS, body).error[0] == status
    assert shadowed.call("POST", REGISTER, {"name": "n", "metadata-location": "x", "shadow-of": ""}).error[0] == 400


def test_a_rename_keeps_the_flag(shadowed: LocalCatalog) -> None:
    body = {"source": identifier("ns", "t"), "destination": identifier("ns", "renamed")}
    done(shadowed.call("POST", "/v1/tables/rename", body))

    assert [each["securable"] for each in shadows(shadowed)] == ["table:default/ns/renamed"]
    refused(commit(shadowed, "renamed"))


# Commits


def test_a_commit_to_a_shadow_is_refused_and_leaves_no_file(shadowed: LocalCatalog) -> None:
    shadowed.load("ns", "t")
    files, pointers = shadowed.files(), shadowed.rows("SELECT * FROM iceberg_tables")

    for _ in range(2):
        refused(commit(shadowed))
    update = add_snapshot(2, parent=1, sequence=2)
    refused(shadowed.commit("ns", "t", a_commit(update, set_branch(2))))
    both = [{"identifier": identifier("ns", name)} | a_commit(set_properties(a="b")) for name in ("plain", "t")]
    refused(shadowed.call("POST", "/v1/transactions/commit", {"table-changes": both}))

    assert shadowed.files() == files
    assert shadowed.rows("SELECT * FROM iceberg_tables") == pointers


def test_a_commit_that_waits_beside_others_is_refused_by_itself(shadowed: LocalCatalog) -> None:
    body = a_commit(set_properties(a="b"))
    answers = shadowed.together(
        *(shadowed.request("POST", path_of("ns", "tables", name), body) for name in ("plain", "t"))
    )

    assert answers[0].status == 200
    refused(answers[1])


def test_after_the_cut_over_commits_work(shadowed: LocalCatalog) -> None:
    put(shadowed, "cut-over")

    ok(commit(shadowed))


def test_a_commit_costs_no_statement_more_for_the_flag(catalog: LocalCatalog) -> None:
    catalog.table("ns", "plain")
    ok(commit(catalog, "plain"))
    reads = catalog.store.counts["read"]

    ok(catalog.commit("ns", "plain", a_commit(set_properties(a="c"))))

    assert catalog.store.counts["read"] == reads


# Refreshing


def test_a_shadow_is_refreshed_from_a_newer_file(shadowed: LocalCatalog) -> None:
    since = shadows(shadowed)[0]["since-ms"]
    shadowed.clock.added_ms += 1000
    newer = a_source(shadowed, properties={"newer": "yes"})

    ok(register(shadowed, newer, overwrite=True))

    assert shadowed.load("ns", "t")["metadata"]["properties"] == {"newer": "yes"}
    assert [(each["state"], each["since-ms"]) for each in shadows(shadowed)] == [("shadow", since)]
    refused(commit(shadowed))


def test_a_shadow_whose_source_was_made_anew_is_refreshed(shadowed: LocalCatalog) -> None:
    other = "00000000-0000-4000-8000-00000000000b"

    ok(register(shadowed, a_source(shadowed, other), overwrite=True))

    assert [(each["securable"], each["table-uuid"]) for each in shadows(shadowed)] == [(TABLE, other)]
    assert shadowed.rows("SELECT count(*) FROM nunatak_shadows") == [(1,)]


@pytest.mark.parametrize("uuid", ["00000000-0000-4000-8000-00000000000a", "00000000-0000-4000-8000-00000000000b"])
def test_a_shadow_is_not_overwritten_as_if_it_were_none(shadowed: LocalCatalog, uuid: str) -> None:
    refused(register(shadowed, a_source(shadowed, uuid), overwrite=True, **{"shadow-of": None}))


def test_what_was_cut_over_is_not_refreshed(shadowed: LocalCatalog) -> None:
    put(shadowed, "cut-over")

    assert register(shadowed, a_source(shadowed), overwrite=True).error[0] == 409


def test_a_live_table_does_not_become_a_shadow_by_a_second_name(shadowed: LocalCatalog) -> None:
    file = shadowed.load("ns", "plain")["metadata-location"]

    assert register(shadowed, file, name="second").error[0] == 409
    ok(commit(shadowed, "plain"))


def test_a_second_name_of_a_shadow_is_one_as_well(shadowed: LocalCatalog) -> None:
    file = shadowed.load("ns", "t")["metadata-location"]
    ok(register(shadowed, file, name="second", **{"shadow-of": None}))

    refused(commit(shadowed, "second"))
    done(shadowed.call("DELETE", T))
    refused(commit(shadowed, "second"))


# Dropping


@pytest.mark.parametrize("state", ["shadow", "cut-over"])
def test_dropping_a_shadow_deletes_no_file_and_the_flag(shadowed: LocalCatalog, state: str) -> None:
    put(shadowed, state)
    files = shadowed.files()

    done(shadowed.call("DELETE", f"{T}?purgeRequested=true"))
    shadowed.work_off_jobs()

    assert shadowed.files() == files
    assert shadowed.rows("SELECT * FROM nunatak_shadows") == []
    ((told,),) = shadowed.rows("SELECT detail FROM nunatak_audit WHERE action = 'purge'")
    assert json.loads(told)["kept-for"] == SOURCE
    ok(register(shadowed, a_source(shadowed), **{"shadow-of": None}))
    ok(commit(shadowed))


def test_a_shadow_that_is_dropped_can_be_registered_again_at_once(shadowed: LocalCatalog) -> None:
    done(shadowed.call("DELETE", f"{T}?purgeRequested=true"))

    ok(register(shadowed, a_source(shadowed)))
    shadowed.work_off_jobs()

    refused(commit(shadowed))


def test_a_flag_that_another_client_left_behind_does_not_count_for_a_new_table(shadowed: LocalCatalog) -> None:
    file = shadowed.load("ns", "t")["metadata-location"]
    connection = apsw.Connection(str(shadowed.data / "nunatak.db"))
    connection.execute("DELETE FROM iceberg_tables WHERE table_name = 't'")
    connection.close()

    ok(register(shadowed, file, **{"shadow-of": None}))

    ok(commit(shadowed))


def test_old_metadata_files_of_a_table_that_was_cut_over_stay(shadowed: LocalCatalog) -> None:
    old = metadata_file(shadowed.load("ns", "t"))
    put(shadowed, "cut-over")
    often = {
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "1",
    }
    ok(shadowed.commit("ns", "t", a_commit({"action": "set-properties", "updates": often})))
    for number in range(3):
        ok(shadowed.commit("ns", "t", a_commit(set_properties(a=str(number)))))
    shadowed.work_off_jobs()

    assert old.exists()


# Jobs


def ask_for(catalog: LocalCatalog, kind: str, *, dry_run: bool = False) -> Answer:
    return catalog.call("POST", JOBS, {"securable": TABLE, "type": kind, "dry-run": dry_run})


def lease(catalog: LocalCatalog, job_id: int | None = None) -> Answer:
    body = {"securable": "warehouse:default", "worker": "w"}
    return catalog.call("POST", LEASE, body if job_id is None else body | {"job-id": job_id})


@pytest.mark.parametrize("kind", [*WRITING, *DELETING])
def test_no_job_is_asked_for_on_a_shadow(shadowed: LocalCatalog, kind: str) -> None:
    for dry_run in (True, False):
        status, _, message = ask_for(shadowed, kind, dry_run=dry_run).error
        assert status == 400
        assert SOURCE in message
    assert shadowed.rows("SELECT * FROM nunatak_jobs WHERE runs_on = 'worker'") == []


@pytest.mark.parametrize("state", ["shadow", "cut-over"])
def test_no_policy_plans_a_job_that_must_not_be(shadowed: LocalCatalog, state: str) -> None:
    put(shadowed, state)
    for kind in (*WRITING, *DELETING):
        policy = {"type": kind, "trigger": {"max-delay-seconds": 1}}
        done(shadowed.call("POST", "/management/v1/policies", {"securable": "warehouse:default", "policy": policy}))
    shadowed.clock.added_ms += 10 * 86_400_000

    decisions = ok(shadowed.call("GET", PLAN + TABLE))["tables"][0]["decisions"]
    jobs = ok(shadowed.call("POST", JOBS, {"securable": "warehouse:default"}))["jobs"]

    held = {each["type"]: each for each in decisions if SOURCE in each["because"]}
    assert set(held) >= set(DELETING)
    assert set(WRITING).isdisjoint(held) == (state == "cut-over")
    assert all(each["job"] is None for each in held.values())
    queued = {each["job"]["type"] for each in jobs if each["job"]["table"] == "t"}
    assert not queued & set(DELETING)
    assert not queued or state == "cut-over"
    word = "cutover" if state == "shadow" else "retire"
    assert all(f"nunatak migrate {word}" in each["because"] for each in held.values())


@pytest.mark.parametrize("named", [True, False])
def test_a_job_that_was_queued_before_is_not_leased(shadowed: LocalCatalog, named: bool) -> None:
    done(shadowed.call("DELETE", f"{SHADOWS}?securable={TABLE}"))
    job_id = ok(ask_for(shadowed, "snapshot-expiry"))["jobs"][0]["job-id"]
    put(shadowed, "cut-over")

    answer = lease(shadowed, job_id if named else None)

    if named:
        assert answer.error[0] == 409
        assert "nunatak migrate retire" in answer.error[2]
    else:
        assert ok(answer)["job"] is None
    job = ok(shadowed.call("GET", f"{JOBS}/{job_id}"))
    assert (job["state"], SOURCE in job["error"]) == ("cancelled", True)


def test_the_worker_of_a_job_that_runs_is_told_to_stop(shadowed: LocalCatalog) -> None:
    done(shadowed.call("DELETE", f"{SHADOWS}?securable={TABLE}"))
    job_id = ok(ask_for(shadowed, "snapshot-expiry"))["jobs"][0]["job-id"]
    assert ok(lease(shadowed))["job"]["job-id"] == job_id
    heartbeat = f"{JOBS}/{job_id}/heartbeat"
    assert ok(shadowed.call("POST", heartbeat, {"worker": "w"})) == {"cancelled": False}

    put(shadowed, "cut-over")

    assert ok(shadowed.call("POST", heartbeat, {"worker": "w"})) == {"cancelled": True}


def test_compaction_of_a_table_that_was_cut_over_is_leased(shadowed: LocalCatalog) -> None:
    put(shadowed, "cut-over")
    ok(ask_for(shadowed, "data-compaction"))

    assert ok(lease(shadowed))["job"]["type"] == "data-compaction"


# Who may


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[LocalCatalog]:
    made = LocalCatalog(tmp_path, auth=True)
    made.namespace("ns")
    made.table("ns", "t")
    made.principal("stranger")
    made.principal("reader", default__ns="READ")
    made.principal("writer", default__ns="WRITE")
    yield made
    made.close()


def test_flags_are_for_those_who_may_change_the_table(secured: LocalCatalog) -> None:
    body = {"securable": TABLE, "source": SOURCE, "state": "shadow"}
    query = f"{SHADOWS}?securable={TABLE}"

    def statuses(caller: str) -> list[int]:
        asked = [("PUT", SHADOWS, body), ("GET", query, None), ("DELETE", query, None)]
        return [secured.call_as(caller, *each).status for each in asked]

    assert statuses("stranger") == [404, 404, 404]
    assert statuses("reader") == [403, 200, 403]
    assert statuses("writer") == [204, 200, 204]
    actions = secured.rows("SELECT action, principal FROM nunatak_audit WHERE action LIKE '%-shadow' ORDER BY 1")
    assert actions == [("drop-shadow", "writer"), ("set-shadow", "writer")]
