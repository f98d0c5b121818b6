"""Idempotency keys that two servers use at once, told apart by the database both work on."""

import asyncio
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from nunatak.database import postgres_connections
from nunatak.database.postgres import PostgresStore, open_store
from nunatak.database.store import KeyTaken, PointerMoved
from nunatak.errors import AlreadyExists, NoSuchTable
from tests.backends.builders import create_namespace, insert, key
from tests.backends.conftest import Run
from tests.backends.test_store import KEYED


@pytest.fixture
def two(database: str, run: Run[Any]) -> Iterator[list[PostgresStore]]:
    """Two servers on one database, with the namespace `ns` and the table `t`."""
    stores = [run(open_store(database)) for _ in range(2)]
    run(stores[0].apply([create_namespace(), insert("t")]))
    yield stores
    for store in stores:
        run(store.close())


@pytest.mark.parametrize("name", KEYED)
def test_of_many_at_two_servers_with_one_key_one_is_carried_out(
    two: list[PostgresStore], database: str, run: Run[Any], name: str
) -> None:
    async def together() -> list[Any]:
        copies = [store.apply(KEYED[name](0)) for _ in range(4) for store in two]
        return await asyncio.gather(*copies, return_exceptions=True)

    outcomes = run(together())

    assert len([outcome for outcome in outcomes if isinstance(outcome, list)]) == 1
    refusals = (KeyTaken, PointerMoved, NoSuchTable, AlreadyExists)
    assert [outcome for outcome in outcomes if not isinstance(outcome, (list, *refusals))] == []
    assert run(two[1].find_answer("ann", "k", 0)).request_hash == b"h"


@pytest.mark.parametrize("name", KEYED)
def test_a_key_that_another_holds_for_long_is_taken_although_it_has_no_answer_yet(
    database: str, run: Run[Any], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As if a server hung in its transaction: whether that will be carried out nobody can tell."""
    monkeypatch.setitem(postgres_connections.SETTINGS, "lock_timeout", "200ms")

    async def meet_the_other() -> None:
        store = await open_store(database)
        await store.apply([create_namespace(), insert("t")])
        other = await asyncpg.connect(database)
        holding = other.transaction()
        await holding.start()
        await other.execute(
            "INSERT INTO nunatak_idempotency (principal, idempotency_key, request_hash, status, expires_ms)"
            " VALUES ('ann', 'k', '', 200, 1000)"
        )

        with pytest.raises(KeyTaken):
            await store.apply(KEYED[name](0))
        assert await store.find_answer("ann", "k", 0) is None
        head = await store.find_pointer(key("t"), None)
        assert head is not None
        assert head.metadata_location == insert("t").new.metadata_location
        await holding.rollback()
        await store.apply(KEYED[name](0))  # the other gave up

        await other.close()
        await store.close()

    run(meet_the_other())
