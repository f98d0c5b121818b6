"""Commits to several tables at once: all of them or none."""

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.mission.wire import created, send
from tests.support.catalogs.process import RunningServer

COMMIT = "/v1/transactions/commit"
TABLES = "/v1/namespaces/analytics/tables"
NAMES = ("events", "events_summary")
SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "id", "required": True, "type": "long"}]}


@pytest.fixture
def events(catalog: RunningServer) -> RunningServer:
    """The catalog with `analytics.events` and `analytics.events_summary`."""
    created(send(catalog, "POST", "/v1/namespaces", {"namespace": ["analytics"]}))
    for name in NAMES:
        created(send(catalog, "POST", TABLES, {"name": name, "schema": SCHEMA}))
    return catalog


def load(server: RunningServer, name: str) -> Any:
    return created(send(server, "GET", f"{TABLES}/{name}"))


def change(name: str, requirements: Iterable[Any] = (), **properties: str) -> dict[str, Any]:
    return {
        "identifier": {"namespace": ["analytics"], "name": name},
        "requirements": list(requirements),
        "updates": [{"action": "set-properties", "updates": properties}],
    }


def has_schema(schema_id: int) -> dict[str, Any]:
    return {"type": "assert-current-schema-id", "current-schema-id": schema_id}


@pytest.mark.parametrize(
    "path", [COMMIT, "/v1/default/transactions/commit", "/apis/iceberg/v1/default/transactions/commit"]
)
def test_a_transaction_commits_all_of_its_tables(events: RunningServer, path: str) -> None:
    """MISSION: 000-85, 002-29, 002-30, 003-10, 003-18"""
    changes = [change(name, [has_schema(0)], batch="1") for name in NAMES]

    answer = send(events, "POST", path, {"table-changes": changes})

    assert (answer.status, answer.body) == (204, b"")
    assert [load(events, name)["metadata"]["properties"]["batch"] for name in NAMES] == ["1", "1"]


@pytest.mark.parametrize("broken", NAMES)
def test_a_broken_requirement_of_one_table_stops_all(events: RunningServer, broken: str) -> None:
    """MISSION: 002-30, 002-31, 002-47"""
    before = [load(events, name) for name in NAMES]
    files = set((events.data / "warehouse").rglob("*.metadata.json"))
    changes = [change(name, [has_schema(9 if name == broken else 0)], batch="1") for name in NAMES]

    answer = send(events, "POST", COMMIT, {"table-changes": changes})

    assert answer.error == (409, "CommitFailedException")
    assert [load(events, name) for name in NAMES] == before
    assert set((events.data / "warehouse").rglob("*.metadata.json")) == files


def test_an_impossible_update_of_one_table_stops_all(events: RunningServer) -> None:
    """MISSION: 002-30"""
    before = [load(events, name) for name in NAMES]
    impossible = {**change("events_summary"), "updates": [{"action": "set-current-schema", "schema-id": 99}]}

    answer = send(events, "POST", COMMIT, {"table-changes": [change("events", batch="1"), impossible]})

    assert answer.status == 400
    assert [load(events, name) for name in NAMES] == before


def test_a_missing_table_stops_all(events: RunningServer) -> None:
    """MISSION: 002-30, 002-46"""
    before = load(events, "events")

    answer = send(events, "POST", COMMIT, {"table-changes": [change("events", batch="1"), change("absent", batch="1")]})

    assert answer.error == (404, "NoSuchTableException")
    assert load(events, "events") == before


def test_every_pointer_of_a_transaction_has_its_file(events: RunningServer) -> None:
    """MISSION: 002-32"""
    assert send(events, "POST", COMMIT, {"table-changes": [change(name, batch="1") for name in NAMES]}).status == 204

    for name in NAMES:
        assert Path(load(events, name)["metadata-location"].removeprefix("file://")).is_file()


def test_transactions_that_race_are_retried_by_the_server(events: RunningServer) -> None:
    """No requirement speaks against them, so each is applied on top of the other. MISSION: 002-33"""
    writers, each = 4, 5
    statuses: list[int] = []
    start = threading.Barrier(writers)

    def write(writer: int) -> None:
        start.wait(30)
        for number in range(each):
            changes = [
                change(name, **{f"writer-{writer}": str(number), "last": f"{writer}-{number}"}) for name in NAMES
            ]
            # Half of the writers name the tables in the other order: nobody may wait for somebody who waits for them.
            answer = send(events, "POST", COMMIT, {"table-changes": changes if writer % 2 else changes[::-1]})
            statuses.append(answer.status)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)

    assert statuses == [204] * (writers * each)
    first, second = (load(events, name)["metadata"]["properties"] for name in NAMES)
    assert first == second
    assert {f"writer-{writer}": str(each - 1) for writer in range(writers)}.items() <= first.items()
