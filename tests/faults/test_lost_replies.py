"""Replies that get lost and requests that arrive twice: the request sent again ends well, and happened once (F5)."""

import json
import os
import random
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.faults.conftest import NewTables
from tests.support.catalogs.process import RunningServer, running_server
from tests.support.history import Answered, findings, kinds_of
from tests.support.promises import show
from tests.support.proxy import UNNOTICED, Fault, FaultyProxy, faulty_proxy
from tests.support.workload import (
    NAMESPACE,
    SCHEMA,
    TABLES,
    TRANSACTIONS,
    Answer,
    Caller,
    Lost,
    Rotation,
    Run,
    Writer,
    append_to,
    await_true,
    create_tables,
    find_tables,
    local_path,
    seeded,
)

BAD = [fault for fault in Fault if fault is not Fault.NONE]
APPENDS = 5  # per writer, variant and fault
FAULTED = int(os.environ.get("NUNATAK_TEST_COMMITS", "150"))  # commits that meet with a fault, per variant
WRITERS = int(os.environ.get("NUNATAK_TEST_WRITERS", "8"))
KEYED = pytest.mark.parametrize("keyed", [True, False], ids=["with keys", "without keys"])


class Schedule:
    """Strikes each POST of a writer with the given fault, and lets its repetition pass."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self._struck: set[bytes] = set()

    def __call__(self, line: bytes) -> Fault:
        if not line.startswith(b"POST"):
            return Fault.NONE
        if line in self._struck:
            self._struck.discard(line)
            return Fault.NONE
        if self.fault not in UNNOTICED:
            self._struck.add(line)
        return self.fault


@KEYED
@pytest.mark.parametrize("fault", BAD, ids=lambda fault: fault.name)
def test_a_commit_that_is_sent_again_ends_with_200_and_happened_once(
    shared_server: RunningServer, new_tables: NewTables, fault: Fault, keyed: bool
) -> None:
    """Each writer has a table of its own, so no answer but 200 is right, heard or not."""
    chance = seeded(f"resend-{fault.name}-{keyed}")
    names = new_tables(4)
    with faulty_proxy(shared_server.port, Schedule(fault)) as proxy:
        run = Run(
            [
                Writer(number, proxy.port, [name], random.Random(chance.random()), keyed, may_give_up=False)
                for number, name in enumerate(names)
            ]
        )
        run.each_carries_out(APPENDS)

    assert findings(run.attempts, run.reads, find_tables(shared_server.data, shared_server.port, names)) == []
    assert [attempt.status for attempt in run.attempts] == [200] * (APPENDS * len(names))
    assert set(proxy.statuses) == {200}
    assert proxy.faults.count(fault) >= APPENDS * len(names)


@KEYED
@pytest.mark.parametrize("together", [False, True], ids=["one table", "transactions"])
def test_writers_in_each_others_way_lose_and_double_nothing(
    shared_server: RunningServer, new_tables: NewTables, together: bool, keyed: bool
) -> None:
    """Every third request is struck by some fault, and the writers meet on the same tables."""
    chance = seeded(f"mixed-{together}-{keyed}")
    names = new_tables(3)

    def choose(line: bytes) -> Fault:
        return chance.choice(BAD) if line.startswith(b"POST") and chance.random() < 0.34 else Fault.NONE

    with faulty_proxy(shared_server.port, choose) as proxy:
        run = Run(
            [
                Writer(number, proxy.port, names, random.Random(chance.random()), keyed, all_tables_at_once=together)
                for number in range(4)
            ]
        )
        run.each_carries_out(10)

    print(run.summary())
    assert findings(run.attempts, run.reads, find_tables(shared_server.data, shared_server.port, names)) == []
    assert set(proxy.statuses) <= {200, 204, 409}


def answers_of(proxy: FaultyProxy) -> list[Answered]:
    """What each copy of a commit was answered, heard or not."""
    found = []
    for request, status in proxy.answers:
        head, _, body = request.partition(b"\r\n\r\n")
        path = head.split(b" ", 2)[1].decode()
        if head.startswith(b"POST") and path.startswith(f"{TABLES}/"):
            snapshot_id = json.loads(body)["updates"][0]["snapshot"]["snapshot-id"]
            found.append(Answered({path.rpartition("/")[2]: snapshot_id}, status))
    return found


def faulted_run(
    server: RunningServer, chance: random.Random, tables: Sequence[str] | Rotation, faulted: int, *, keyed: bool
) -> tuple[Run, FaultyProxy]:
    """Writers in each other's way, of whose commits every other meets with some fault, until so many have."""

    def choose(line: bytes) -> Fault:
        return chance.choice(BAD) if line.startswith(b"POST") and chance.random() < 0.5 else Fault.NONE

    with faulty_proxy(server.port, choose) as proxy:
        run = Run(
            [
                Writer(number, proxy.port, tables, random.Random(chance.random()), keyed, answer_seconds=10)
                for number in range(WRITERS)
            ]
        )
        with run.working():
            while len(proxy.struck) < faulted:
                run.await_applied(run.applied + 1)
    return run, proxy


@KEYED
def test_commits_that_meet_with_faults_are_never_doubled_nor_answered_wrongly(
    server: RunningServer, keyed: bool
) -> None:
    """Every copy that reached the server counts, whether somebody heard its answer or not."""
    chance = seeded(f"faulted-{keyed}")
    tables = Rotation(server.port, open_at_once=max(3, WRITERS // 2), commits=FAULTED)

    run, proxy = faulted_run(server, chance, tables, FAULTED, keyed=keyed)

    found = find_tables(server.data, server.port, tables.names)
    answers = answers_of(proxy)
    sentences = findings(run.attempts, run.reads, found, answers)
    kinds = kinds_of(sentences)
    show(
        "F5",
        f"faults between client and server, {'with' if keyed else 'without'} keys: nothing doubled, no wrong answer",
        faulted_commits=len(proxy.struck),
        commits=run.applied,
        answers=len(answers),
        writers=WRITERS,
        **{kind: kinds[kind] for kind in ("lost", "doubled", "wrong answer", "stale read")},
    )
    print(run.summary())
    assert sentences == []
    assert {answer.status for answer in answers} == {200, 409}


def test_a_server_that_recognises_no_repetition_is_found_out(tmp_path: Path) -> None:
    """The canary of the test above: its own success refuses the request that is sent again, which is then done anew."""
    chance = seeded("faulted-broken")
    with running_server(tmp_path / "data", broken="no-idempotency") as server:
        create_tables(server.port, ["t1", "t2", "t3"])
        run, proxy = faulted_run(server, chance, ["t1", "t2", "t3"], 40, keyed=True)
        found = find_tables(server.data, server.port, ["t1", "t2", "t3"])

    kinds = kinds_of(findings(run.attempts, run.reads, found, answers_of(proxy)))

    print(dict(kinds))
    assert kinds["doubled"]
    assert kinds["wrong answer"]


def test_a_server_that_swallows_a_refusal_is_found_out(tmp_path: Path) -> None:
    """The canary for answers of the wrong class: what it says was done was not."""
    chance = seeded("faulted-swallowed")
    with running_server(tmp_path / "data", broken="swallow-error-409") as server:
        create_tables(server.port, ["t"])
        run, proxy = faulted_run(server, chance, ["t"], 40, keyed=True)
        found = find_tables(server.data, server.port, ["t"])

    assert kinds_of(findings(run.attempts, run.reads, found, answers_of(proxy)))["lost"]


def test_a_client_that_makes_a_new_append_after_a_lost_reply_is_found_out(
    shared_server: RunningServer, new_tables: NewTables
) -> None:
    """The canary: what the client of the tests above must not do, the checker sees."""
    names = new_tables(1)
    with faulty_proxy(shared_server.port, Schedule(Fault.CUT_REPLY)) as proxy:
        run = Run([Writer(0, proxy.port, names, random.Random(1), keyed=True, resend_as_new=True)])
        run.each_carries_out(2)

    found = findings(run.attempts, run.reads, find_tables(shared_server.data, shared_server.port, names))

    assert [sentence for sentence in found if sentence.startswith("doubled")] == [
        f"doubled: w0-0 is 2 times in {names[0]}",
        f"doubled: w0-1 is 2 times in {names[0]}",
    ]


# Single requests, with a client that loses its first reply


def resent(proxy: FaultyProxy, method: str, path: str, body: Any = None, key: str | None = None) -> Answer:
    """The answer to the second copy, after the reply to the first was lost."""
    content = None if body is None else json.dumps(body).encode()
    with Caller(proxy.port) as caller:
        with pytest.raises(Lost):
            caller.send(method, path, content, key)
        return caller.send(method, path, content, key)


class LoseFirst:
    """Loses the reply to the first request of all."""

    def __init__(self) -> None:
        self._lost = False

    def __call__(self, _: bytes) -> Fault:
        fault = Fault.NONE if self._lost else Fault.CUT_REPLY
        self._lost = True
        return fault


# Method, path, body and the status of a success.
WRITES: dict[str, Callable[[str], tuple[str, str, Any, int]]] = {
    "create": lambda name: ("POST", TABLES, {"name": f"{name}_new", "schema": SCHEMA}, 200),
    "stage": lambda name: ("POST", TABLES, {"name": f"{name}_new", "schema": SCHEMA, "stage-create": True}, 200),
    "set a property": lambda name: (
        "POST",
        f"{TABLES}/{name}",
        {"requirements": [], "updates": [{"action": "set-properties", "updates": {"color": "red"}}]},
        200,
    ),
    "drop": lambda name: ("DELETE", f"{TABLES}/{name}", None, 204),
    "purge": lambda name: ("DELETE", f"{TABLES}/{name}?purgeRequested=true", None, 204),
    "unregister": lambda name: ("POST", f"{TABLES}/{name}/unregister", None, 200),
    "rename": lambda name: (
        "POST",
        "/v1/tables/rename",
        {
            "source": {"namespace": [NAMESPACE], "name": name},
            "destination": {"namespace": [NAMESPACE], "name": f"{name}_new"},
        },
        204,
    ),
    "create namespace": lambda name: ("POST", "/v1/namespaces", {"namespace": [f"{name}_new"]}, 200),
}


@pytest.mark.parametrize("write", WRITES)
def test_any_write_with_a_key_that_is_sent_again_gets_the_answer_that_was_lost(
    shared_server: RunningServer, new_tables: NewTables, write: str
) -> None:
    (name,) = new_tables(1)
    method, path, body, expected = WRITES[write](name)
    key = str(uuid.uuid4())
    with faulty_proxy(shared_server.port, LoseFirst()) as proxy:
        again = resent(proxy, method, path, body, key)
        with Caller(proxy.port) as caller:
            third = caller.send(method, path, None if body is None else json.dumps(body).encode(), key)

    assert (again.status, proxy.statuses) == (expected, [expected] * 3)
    assert again == third
    with Caller(shared_server.port) as caller:
        without_key = caller.send(method, path, None if body is None else json.dumps(body).encode())
    # It was done: as a new request it finds nothing left to do, unless it may be done any number of times.
    anew = {"create": 409, "create namespace": 409, "stage": 200, "set a property": 200}
    assert without_key.status == anew.get(write, 404)


def test_a_server_that_forgets_keys_is_found_out_by_any_write(tmp_path: Path) -> None:
    """The canary of the test above: a create meets what it made itself."""
    with running_server(tmp_path / "data", broken="no-idempotency") as server:
        create_tables(server.port, ["t"])
        method, path, body, _ = WRITES["create"]("t")
        with faulty_proxy(server.port, LoseFirst()) as proxy:
            assert resent(proxy, method, path, body, str(uuid.uuid4())).status == 409


def an_append(server: RunningServer, name: str, snapshot_id: int) -> dict[str, Any]:
    with Caller(server.port) as caller:
        metadata = caller.expect(200, "GET", f"{TABLES}/{name}")["metadata"]
    return append_to(name, metadata, snapshot_id, f"i{snapshot_id}")


@KEYED
def test_a_lost_commit_is_answered_as_done_after_others_went_on_from_it(
    shared_server: RunningServer, new_tables: NewTables, keyed: bool
) -> None:
    """A conflict would make the client delete manifests that the table needs."""
    (name,) = new_tables(1)
    first, key = an_append(shared_server, name, 11), str(uuid.uuid4()) if keyed else None
    with Caller(shared_server.port) as caller:
        assert caller.send("POST", f"{TABLES}/{name}", json.dumps(first).encode(), key).status == 200
        for snapshot_id in range(12, 15):
            caller.expect(200, "POST", f"{TABLES}/{name}", an_append(shared_server, name, snapshot_id))

        again = caller.send("POST", f"{TABLES}/{name}", json.dumps(first).encode(), key)

        assert again.status == 200
        assert 11 in [snapshot["snapshot-id"] for snapshot in again.json["metadata"]["snapshots"]]
        metadata = caller.expect(200, "GET", f"{TABLES}/{name}")["metadata"]
        assert [snapshot["snapshot-id"] for snapshot in metadata["snapshots"]] == [11, 12, 13, 14]
        assert metadata["current-snapshot-id"] == 14


@KEYED
def test_a_lost_commit_is_answered_as_done_after_its_metadata_file_was_cleaned_up(
    shared_server: RunningServer, new_tables: NewTables, keyed: bool
) -> None:
    """The answer of then is gone with its file; that the commit happened is not, and 404 would deny it."""
    (name,) = new_tables(1)
    cleaning = {
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "1",
    }
    key = str(uuid.uuid4()) if keyed else None
    with Caller(shared_server.port) as caller:
        update = {"requirements": [], "updates": [{"action": "set-properties", "updates": cleaning}]}
        caller.expect(200, "POST", f"{TABLES}/{name}", update)
        first = an_append(shared_server, name, 11)
        applied = caller.send("POST", f"{TABLES}/{name}", json.dumps(first).encode(), key)
        for snapshot_id in range(12, 15):
            caller.expect(200, "POST", f"{TABLES}/{name}", an_append(shared_server, name, snapshot_id))
        await_true("its file is gone", lambda: not local_path(applied.json["metadata-location"]).exists())

        again = caller.send("POST", f"{TABLES}/{name}", json.dumps(first).encode(), key)

        assert again.status == 200
        assert 11 in [snapshot["snapshot-id"] for snapshot in again.json["metadata"]["snapshots"]]


@KEYED
@pytest.mark.parametrize("fate", ["renamed", "dropped", "replaced"])
def test_a_lost_commit_to_a_table_that_is_gone_by_now_is_not_denied(
    shared_server: RunningServer, new_tables: NewTables, fate: str, keyed: bool
) -> None:
    """A 404 or 409 would make the client delete files that the table, wherever it is now, needs."""
    (name,) = new_tables(1)
    path, key = f"{TABLES}/{name}", str(uuid.uuid4()) if keyed else None
    lost = json.dumps(an_append(shared_server, name, 11)).encode()
    with Caller(shared_server.port) as caller:
        never_sent = json.dumps(an_append(shared_server, name, 12)).encode()
        assert caller.send("POST", path, lost, key).status == 200
        if fate == "renamed":
            method, target, body, status = WRITES["rename"](name)
            caller.expect(status, method, target, body)
        else:
            caller.expect(204, "DELETE", path)
        if fate == "replaced":
            caller.expect(200, "POST", TABLES, {"name": name, "schema": SCHEMA})

        again = caller.send("POST", path, lost, key)
        refused = caller.send("POST", path, never_sent)

    if keyed:
        assert again.status == 200
    else:
        assert (again.status, again.json["error"]["type"]) == (500, "CommitStateUnknownException")
    assert refused.status == (409 if fate == "replaced" else 404)


def test_a_snapshot_id_of_somebody_else_is_a_conflict(shared_server: RunningServer, new_tables: NewTables) -> None:
    """Only the very same request is answered as done."""
    (name,) = new_tables(1)
    first = an_append(shared_server, name, 11)
    other = json.loads(json.dumps(first))
    other["updates"][0]["snapshot"]["manifest-list"] += ".other"
    with Caller(shared_server.port) as caller:
        caller.expect(200, "POST", f"{TABLES}/{name}", first)
        caller.expect(409, "POST", f"{TABLES}/{name}", other)


def test_a_lost_commit_that_made_the_table_with_its_first_rows_is_answered_as_done(
    shared_server: RunningServer, new_tables: NewTables
) -> None:
    """CREATE TABLE AS SELECT: sent again it would meet the table it made."""
    name = f"{new_tables(1)[0]}_made"
    with Caller(shared_server.port) as caller:
        staged = caller.expect(200, "POST", TABLES, {"name": name, "schema": SCHEMA, "stage-create": True})["metadata"]
    made = [
        {"action": "assign-uuid", "uuid": staged["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": staged["schemas"][0]},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": staged["partition-specs"][0]},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": staged["sort-orders"][0]},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": staged["location"]},
    ]
    commit = append_to(name, staged, 11, "first rows")
    commit = {**commit, "requirements": [{"type": "assert-create"}], "updates": [*made, *commit["updates"]]}
    with faulty_proxy(shared_server.port, LoseFirst()) as proxy:
        assert resent(proxy, "POST", f"{TABLES}/{name}", commit).status == 200

    (table,) = find_tables(shared_server.data, shared_server.port, [name])
    assert (table.chain, table.metadata["table-uuid"]) == ([11], staged["table-uuid"])


def test_a_lost_transaction_is_answered_as_done(shared_server: RunningServer, new_tables: NewTables) -> None:
    names = new_tables(3)
    changes = {"table-changes": [an_append(shared_server, name, 11) for name in names]}
    with faulty_proxy(shared_server.port, LoseFirst()) as proxy:
        assert resent(proxy, "POST", TRANSACTIONS, changes).status == 204

    for table in find_tables(shared_server.data, shared_server.port, names):
        assert table.chain == [11]
