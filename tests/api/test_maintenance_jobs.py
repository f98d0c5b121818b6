"""Maintenance jobs over HTTP: planned into the queue, asked for, leased by workers, watched and cancelled."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.api.test_health import write
from tests.api.test_policies import COMPACTION, decision, set_policy
from tests.api.wire import a_table, done, identifier, ok, path_of, rename
from tests.support.catalogs.local import LocalCatalog

JOBS, LEASE = "/management/v1/maintenance/jobs", "/management/v1/maintenance/lease"
MIB = 1 << 20
KEY = {"Idempotency-Key": "0192d5a0-0000-7000-8000-000000000001"}


@pytest.fixture
def messy(catalog: LocalCatalog) -> LocalCatalog:
    """The tables `a` and `b` with a hundred small files each, to be compacted by the warehouse's policy."""
    for name in ("a", "b"):
        catalog.table("ns", name)
        write(catalog, name, 1, data_files=100, files_size=100 * MIB, delete_files=0)
    catalog.view("ns", "v")
    set_policy(catalog, "warehouse:default", COMPACTION)
    return catalog


def add(catalog: LocalCatalog, securable: str = "warehouse:default", **more: Any) -> list[Any]:
    added: list[Any] = ok(catalog.call("POST", JOBS, {"securable": securable, **more}))["jobs"]
    return added


def lease(catalog: LocalCatalog, worker: str = "w1", securable: str = "warehouse:default") -> Any:
    return ok(catalog.call("POST", LEASE, {"securable": securable, "worker": worker}))["job"]


def state(catalog: LocalCatalog, job_id: int) -> str:
    return str(ok(catalog.call("GET", f"{JOBS}/{job_id}"))["state"])


def test_what_is_due_is_added_once(messy: LocalCatalog) -> None:
    added = add(messy)
    again = add(messy)

    assert [(each["job"]["table"], each["job"]["type"]) for each in added] == [
        ("a", "data-compaction"),
        ("b", "data-compaction"),
    ]
    assert again == []
    held = decision(messy, "table:default/ns/a", "data-compaction")
    assert held["state"] == "held"
    assert [each["because"] for each in held["holds"]] == ["open-job"]


def test_a_worker_leases_keeps_alive_and_finishes_a_job(messy: LocalCatalog) -> None:
    add(messy)

    job = lease(messy)
    beat = ok(messy.call("POST", f"{JOBS}/{job['job-id']}/heartbeat", {"worker": "w1", "progress": {"done": 3}}))
    seen = ok(messy.call("GET", f"{JOBS}/{job['job-id']}"))
    result = {"worker": "w1", "state": "done", "changed": True, "size-bytes": 9, "result": {"files": 1}}
    done(messy.call("POST", f"{JOBS}/{job['job-id']}/finish", result, KEY))
    done(messy.call("POST", f"{JOBS}/{job['job-id']}/finish", result, KEY))
    over = ok(messy.call("GET", f"{JOBS}/{job['job-id']}"))

    ((securable, detail),) = messy.rows("SELECT securable, detail FROM nunatak_outbox WHERE type LIKE 'finish%'")
    told = {"type": "data-compaction", "state": "done", "changed": True, "error": "", "size_bytes": 9}
    assert (securable, json.loads(detail)["facts"]) == ("default\x1fns.\x1ea", told)
    assert job["job"]["options"]["strategy"] == "binpack"
    assert job["worker"] == "anonymous/w1"
    assert beat == {"cancelled": False}
    assert (seen["state"], seen["progress"], seen["attempts"]) == ("running", {"done": 3}, 1)
    assert (over["state"], over["changed"], over["result"], over["error"]) == ("done", True, {"files": 1}, None)
    assert decision(messy, "table:default/ns/a", "data-compaction")["holds"][0]["because"] == "min-interval"


def test_a_failure_makes_the_next_plan_wait(messy: LocalCatalog) -> None:
    add(messy, "table:default/ns/a")
    job = lease(messy)
    done(messy.call("POST", f"{JOBS}/{job['job-id']}/finish", {"worker": "w1", "state": "failed", "error": "no space"}))

    waits = decision(messy, "table:default/ns/a", "data-compaction")
    messy.clock.added_ms = 901_000
    goes_on = decision(messy, "table:default/ns/a", "data-compaction")

    assert [each["because"] for each in waits["holds"]] == ["backoff"]
    assert goes_on["state"] == "due"


def test_a_worker_that_slept_too_long_is_told_to_stop(messy: LocalCatalog) -> None:
    add(messy, "table:default/ns/a")
    job = lease(messy, "sleeper")
    messy.clock.added_ms = 91_000
    other = lease(messy, "other")

    for action, body in (("heartbeat", {}), ("finish", {"state": "done"}), ("hand-back", {})):
        answer = messy.call("POST", f"{JOBS}/{job['job-id']}/{action}", {"worker": "sleeper", **body})
        assert answer.error[0] == 409
        assert "stop" in answer.hint
    assert (other["job-id"], other["attempts"]) == (job["job-id"], 2)
    done(messy.call("POST", f"{JOBS}/{job['job-id']}/hand-back", {"worker": "other"}))
    assert lease(messy, "third")["job-id"] == job["job-id"]


def test_a_job_is_cancelled_before_and_while_it_runs(messy: LocalCatalog) -> None:
    first, second = (each["job-id"] for each in add(messy))
    assert lease(messy)["job-id"] == first

    done(messy.call("POST", f"{JOBS}/{first}/cancel"))
    done(messy.call("POST", f"{JOBS}/{second}/cancel"))

    assert (state(messy, first), state(messy, second)) == ("running", "cancelled")
    assert ok(messy.call("POST", f"{JOBS}/{first}/heartbeat", {"worker": "w1"})) == {"cancelled": True}
    done(messy.call("POST", f"{JOBS}/{first}/finish", {"worker": "w1", "state": "cancelled"}))
    assert messy.call("POST", f"{JOBS}/{first}/cancel").error[0] == 409
    assert lease(messy) is None


def test_a_job_may_be_asked_for_whatever_the_policies_say(catalog: LocalCatalog) -> None:
    catalog.table("ns", "t")
    write(catalog, "t", 1, data_files=1, files_size=MIB)

    (added,) = add(catalog, "table:default/ns/t", type="snapshot-expiry")

    assert added["job"]["reasons"] == ["asked for"]
    body = {"securable": "table:default/ns/t", "type": "snapshot-expiry"}
    assert catalog.call("POST", JOBS, body).error[0] == 409
    assert catalog.call("POST", JOBS, body | {"type": "tidying"}).error[0] == 400
    assert catalog.call("POST", JOBS, body | {"securable": "namespace:default/ns"}).error[0] == 400


def test_jobs_are_listed_newest_first_page_by_page(messy: LocalCatalog) -> None:
    numbers = [each["job-id"] for each in add(messy)]
    numbers += [each["job-id"] for each in add(messy, "table:default/ns/a", type="statistics")]

    path = f"{JOBS}?securable={quote('namespace:default/ns', safe='')}&pageSize=2"
    first = ok(messy.call("GET", path))
    second = ok(messy.call("GET", f"{path}&pageToken={first['next-page-token']}"))

    assert [each["job-id"] for each in (*first["jobs"], *second["jobs"])] == numbers[::-1]
    assert "next-page-token" not in second


def test_a_certain_job_is_leased_by_its_number(messy: LocalCatalog) -> None:
    first, second = (each["job-id"] for each in add(messy))
    (third,) = (each["job-id"] for each in add(messy, "table:default/ns/b", type="statistics"))
    here, elsewhere = "table:default/ns/b", "table:default/ns/a"

    def ask(job: int, worker: str = "w1", securable: str = here) -> Any:
        return messy.call("POST", LEASE, {"securable": securable, "worker": worker, "job-id": job})

    assert ok(ask(second))["job"]["job-id"] == second
    for taken in (second, third):
        answer = ask(taken, "w2")
        assert answer.error[0] == 409
        assert f"Job {second}, data-compaction of {here}, is being done by anonymous/w1" in answer.error[2]
    assert ask(first).error[0] == 404, "a job outside the place is not there"
    assert ask(first, securable=elsewhere).status == 200
    assert ask(999).error[0] == 404
    done(messy.call("POST", f"{JOBS}/{second}/finish", {"worker": "w1", "state": "done"}))
    assert "is done" in ask(second).error[2]
    assert ok(ask(third, "w2"))["job"]["worker"] == "anonymous/w2"


def test_a_certain_job_of_a_table_that_is_gone_is_cancelled(messy: LocalCatalog) -> None:
    (job,) = (each["job-id"] for each in add(messy, "table:default/ns/a"))
    done(messy.call("DELETE", path_of("ns", "tables", "a")))

    answer = messy.call("POST", LEASE, {"securable": "warehouse:default", "worker": "w1", "job-id": job})

    assert answer.error[0] == 409
    assert "dropped or renamed" in answer.error[2]
    assert state(messy, job) == "cancelled"


def test_a_dry_run_tells_of_the_jobs_and_adds_none(messy: LocalCatalog) -> None:
    due = add(messy, "warehouse:default", **{"dry-run": True})
    asked = add(messy, "table:default/ns/a", type="statistics", **{"dry-run": True})

    assert [(each["job-id"], each["job"]["table"]) for each in due] == [(None, "a"), (None, "b")]
    assert [(each["job-id"], each["job"]["type"]) for each in asked] == [(None, "statistics")]
    assert lease(messy) is None


@pytest.mark.parametrize("job", ["0", "7", "x", "99999999999999999999999", "-1"])
def test_a_job_that_is_not_there_is_refused(catalog: LocalCatalog, job: str) -> None:
    assert catalog.call("GET", f"{JOBS}/{job}").error[0] == 404
    assert catalog.call("POST", f"{JOBS}/{job}/heartbeat", {"worker": "w"}).error[0] == 404


def test_a_job_of_a_table_that_is_gone_goes_to_nobody(messy: LocalCatalog) -> None:
    renamed, dropped = (each["job-id"] for each in add(messy))
    done(messy.call("POST", "/v1/tables/rename", rename(identifier("ns", "a"), identifier("ns", "c"))))
    done(messy.call("DELETE", path_of("ns", "tables", "b")))
    messy.table("ns", "b")

    assert lease(messy) is None
    assert (state(messy, renamed), state(messy, dropped)) == ("cancelled", "cancelled")
    assert [each["job"]["table"] for each in add(messy)] == ["c"], "under its new name it is planned anew"


def test_a_policys_jobs_are_no_more_than_it_allows(messy: LocalCatalog) -> None:
    set_policy(messy, "warehouse:default", {**COMPACTION, "budget": {"concurrent-jobs": 1}})

    added = add(messy)
    held = decision(messy, "table:default/ns/b", "data-compaction")

    assert [each["job"]["table"] for each in added] == ["a"]
    assert [each["because"] for each in held["holds"]] == ["budget"]
    done(messy.call("POST", f"{JOBS}/{added[0]['job-id']}/cancel"))
    assert [each["job"]["table"] for each in add(messy, "table:default/ns/b")] == ["b"]


def test_too_much_progress_is_refused(messy: LocalCatalog) -> None:
    add(messy)
    job = lease(messy)

    answer = messy.call("POST", f"{JOBS}/{job['job-id']}/heartbeat", {"worker": "w1", "progress": "x" * 5000})

    assert answer.error[0] == 400
    assert state(messy, job["job-id"]) == "running"


def test_jobs_survive_a_restart_of_the_server(messy: LocalCatalog) -> None:
    add(messy)
    job = lease(messy)

    messy.restart()

    assert ok(messy.call("POST", f"{JOBS}/{job['job-id']}/heartbeat", {"worker": "w1"})) == {"cancelled": False}
    assert lease(messy, "w2")["job-id"] != job["job-id"]


# Who may


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[LocalCatalog]:
    made = LocalCatalog(tmp_path, auth=True)
    for namespace in ("sales", "hr"):
        made.namespace(namespace)
        ok(made.call("POST", path_of(namespace, "tables"), a_table("t")))
        write_as_root(made, namespace)
    made.principal("stranger")
    made.principal("reader", default__sales="READ")
    made.principal("worker", default__sales="WRITE")
    yield made
    made.close()


def write_as_root(catalog: LocalCatalog, namespace: str) -> None:
    snapshot = {
        "snapshot-id": 1,
        "sequence-number": 1,
        "timestamp-ms": catalog.app.catalog.now_ms(),
        "manifest-list": "file:///elsewhere/snap-1.avro",
        "summary": {"operation": "append", "total-data-files": "100", "total-files-size": "100"},
        "schema-id": 0,
    }
    updates = [
        {"action": "add-snapshot", "snapshot": snapshot},
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 1},
    ]
    ok(catalog.call("POST", path_of(namespace, "tables", "t"), {"requirements": [], "updates": updates}))


def test_a_worker_gets_and_touches_jobs_of_tables_that_it_may_change_alone(secured: LocalCatalog) -> None:
    numbers = {
        namespace: add(secured, f"table:default/{namespace}/t", type="statistics")[0]["job-id"]
        for namespace in ("sales", "hr")
    }

    def status(caller: str, method: str, path: str, body: Any = None) -> int:
        return secured.call_as(caller, method, path, body).status

    for_sales = {"securable": "namespace:default/sales", "worker": "w1"}
    assert status("worker", "POST", LEASE, {"securable": "warehouse:default", "worker": "w1"}) == 403
    assert status("worker", "POST", LEASE, {"securable": "namespace:default/hr", "worker": "w1"}) == 404
    assert status("reader", "POST", LEASE, for_sales) == 403
    assert status("stranger", "POST", LEASE, for_sales) == 404
    leased = ok(secured.call_as("worker", "POST", LEASE, for_sales))["job"]
    assert leased["job-id"] == numbers["sales"]

    mine, others = f"{JOBS}/{numbers['sales']}", f"{JOBS}/{numbers['hr']}"
    assert status("reader", "GET", mine) == 200
    assert status("reader", "POST", f"{mine}/cancel") == 403
    assert status("stranger", "GET", mine) == 404
    assert status("worker", "GET", others) == 404
    assert status("worker", "POST", f"{others}/cancel") == 404
    # Another principal cannot speak for the worker, although it knows its name.
    assert status("root", "POST", f"{mine}/heartbeat", {"worker": "w1"}) == 409
    assert status("worker", "POST", f"{mine}/heartbeat", {"worker": "w1"}) == 200


def test_whose_a_hidden_job_is_cannot_be_told_from_one_that_is_not_there(secured: LocalCatalog) -> None:
    (hidden,) = add(secured, "table:default/hr/t", type="statistics")

    seen = secured.call_as("worker", "GET", f"{JOBS}/{hidden['job-id']}")
    absent = secured.call_as("worker", "GET", f"{JOBS}/999")

    assert seen.body.replace(str(hidden["job-id"]).encode(), b"N") == absent.body.replace(b"999", b"N")


def test_a_hidden_job_takes_the_same_steps_as_one_that_is_not_there(secured: LocalCatalog) -> None:
    (hidden,) = add(secured, "table:default/hr/t", type="statistics")
    counts = secured.store.counts

    def told(number: str, method: str, path: str) -> tuple[int, bytes]:
        before = counts["read"]
        answer = secured.call_as("worker", method, f"{JOBS}/{number}{path}", {"worker": "w1"})
        assert answer.status == 404
        return counts["read"] - before, answer.body.replace(number.encode(), b"N")

    told("999", "GET", "")  # now it is known who asks
    for method, path in (("GET", ""), ("POST", "/cancel"), ("POST", "/heartbeat"), ("POST", "/finish")):
        assert told(str(hidden["job-id"]), method, path) == told("999", method, path)
        assert told(f"00{hidden['job-id']}", method, path) == told("00999", method, path)


def test_no_name_of_a_worker_makes_it_another_principals(secured: LocalCatalog) -> None:
    """`ops` with the worker `etl/w1` is not `ops/etl` with the worker `w1`."""
    secured.principal("ops", default__sales="WRITE")
    secured.principal("ops/etl", default__sales="WRITE")
    (job,) = add(secured, "table:default/sales/t", type="statistics")
    one = f"{JOBS}/{job['job-id']}"
    leased = secured.call_as("ops/etl", "POST", LEASE, {"securable": "namespace:default/sales", "worker": "w1"})
    assert ok(leased)["job"]["worker"] == "ops/etl/w1"

    for path, body in (
        ("/heartbeat", {"worker": "etl/w1"}),
        ("/hand-back", {"worker": "etl/w1"}),
        ("/finish", {"worker": "etl/w1", "state": "done"}),
    ):
        assert secured.call_as("ops", "POST", one + path, body).error[0] == 409
    for worker in ("etl\x1fw1", "\x1fw1", ""):
        assert secured.call_as("ops", "POST", f"{one}/heartbeat", {"worker": worker}).error[0] == 400
    assert secured.call_as("ops/etl", "POST", f"{one}/heartbeat", {"worker": "w1"}).status == 200
