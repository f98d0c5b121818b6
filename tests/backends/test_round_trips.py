"""How many statements or round trips each kind of change takes, on each database: one more is noticed here."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nunatak.database.changes import steps_by_change
from nunatak.database.ddl import DIALECTS, Dialect
from nunatak.database.namespace_children import at_once
from nunatak.database.records import (
    AddEvent,
    AddJob,
    AdoptPointer,
    Change,
    ForgetAnswers,
    ForgetPointer,
    SaveAnswer,
    SaveReport,
    SaveSecret,
    StoredResponse,
    Write,
)
from nunatak.database.sqlite import SqliteStore
from tests.backends.builders import (
    create_namespace,
    delete,
    drop_namespace,
    entry,
    insert,
    key,
    move,
    rename,
    stored,
    update_namespace,
)
from tests.backends.conftest import Run
from tests.support.database_servers import MariadbDatabase, PostgresDatabase, TestDatabase

# What each change needs first, and the change; both for a number, so that it can be made twice.
Made = Callable[[int], tuple[list[Change], Change]]


def place(number: int) -> str:
    return f"file:///w/ns/{name(number)}"


def name(number: int) -> str:
    return f"t{number}"


def a_table(number: int) -> list[Change]:
    return [insert(name(number))]


CHANGES: dict[str, Made] = {
    "create a table": lambda n: ([], insert(name(n))),
    "commit": lambda n: (a_table(n), move(name(n), insert(name(n)).new, stored("v2", location=place(n)))),
    "drop": lambda n: (a_table(n), delete(name(n))),
    "rename": lambda n: (a_table(n), rename(key(name(n)), key(f"to{n}"))),
    "adopt": lambda n: (a_table(n), AdoptPointer(key(name(n)), insert(name(n)).new, entry())),
    "forget a pointer": lambda n: ([], ForgetPointer(key(name(n)))),
    "create a namespace": lambda n: ([], create_namespace(f"ns{n}", a="b")),
    "drop a namespace": lambda n: ([create_namespace(f"ns{n}")], drop_namespace(f"ns{n}")),
    "update a namespace": lambda n: ([create_namespace(f"ns{n}", a="b")], update_namespace(f"ns{n}", ("a",), c="d")),
    "save an answer": lambda n: ([], SaveAnswer("ann", f"k{n}", b"h", StoredResponse(204), 0, 10)),
    "forget answers": lambda n: ([], ForgetAnswers(n)),
    "add an event": lambda n: ([], AddEvent(f"e{n}", "purge", "w", "ann", None, n)),
    "add a job": lambda n: ([], AddJob("delete-files", b"{}")),
    "save a report": lambda n: ([], SaveReport(key(name(n)), n, b"{}")),
    "save a secret": lambda n: ([], SaveSecret(f"s{n}", b"x")),
    "write": lambda n: ([], Write("bump_policy", {})),
}

# In the order of DIALECTS: statements on SQLite, with BEGIN, COMMIT and the savepoint of a change; round trips on the
# servers, of which MariaDB needs fewer, since it takes several statements in one.
EXPECTED: dict[str, tuple[int, int, int]] = {
    "create a table": (13, 7, 5),
    "commit": (3, 1, 1),
    "drop": (10, 8, 4),
    "rename": (17, 15, 5),
    "adopt": (8, 6, 4),
    "forget a pointer": (5, 3, 3),
    "create a namespace": (7, 6, 4),
    "drop a namespace": (8, 7, 5),
    "update a namespace": (9, 7, 4),
    "save an answer": (5, 4, 3),
    "forget answers": (5, 3, 3),
    "add an event": (5, 3, 3),
    "add a job": (5, 3, 3),
    "save a report": (6, 4, 3),
    "save a secret": (5, 3, 3),
    "write": (5, 4, 3),
}


def test_every_kind_of_change_is_counted() -> None:
    counted = {type(made(0)[1]) for made in CHANGES.values()}

    assert counted == set(steps_by_change(at_once))


@pytest.mark.parametrize("change", CHANGES)
def test_statements_of_a_change_on_sqlite(tmp_path: Path, run: Run[Any], change: str) -> None:
    store = SqliteStore(tmp_path / "catalog.db")
    run(store.apply([create_namespace()]))
    before, wanted = CHANGES[change](1)
    run(store.apply(before))
    statements: list[str] = []

    def look_on(_: object, sql: str, __: object) -> bool:
        statements.append(sql)
        return True

    store._writer._connection.exec_trace = look_on
    run(store.apply([wanted]))

    assert len(statements) == EXPECTED[change][DIALECTS.index("sqlite")], statements
    run(store.close())


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("dialect", ["postgres", "mariadb"])
def test_round_trips_of_a_change(request: pytest.FixtureRequest, run: Run[Any], dialect: Dialect, change: str) -> None:
    server = request.getfixturevalue(dialect)
    db: TestDatabase = PostgresDatabase(server) if dialect == "postgres" else MariadbDatabase(server)

    async def count() -> int:
        async with db.proxy() as proxy:
            store: Any = await db.through(proxy)
            await store.apply([create_namespace()])
            # The first makes the statements known to the connection.
            for number in range(2):
                before, wanted = CHANGES[change](number)
                await store.apply(before)
                trips = proxy.round_trips
                await store.apply([wanted])
            counted: int = proxy.round_trips - trips
            await store.close()
            return counted

    assert run(count()) == EXPECTED[change][DIALECTS.index(dialect)]
