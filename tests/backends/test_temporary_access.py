"""What every database keeps of tables without a pointer: for one principal, until a time, the newest first."""

from typing import Any, cast

import pytest

from nunatak.catalog.cache import StorageFacts
from nunatak.catalog.catalog import Caller, Catalog
from nunatak.catalog.temporary_access import DROPPED_ACCESS_MS, STAGED_ACCESS_MS, State, find_access, record_access
from nunatak.database.records import Key
from nunatak.database.store import Store
from nunatak.objectstore.storage import AccessLevel
from tests.backends.builders import CATALOG
from tests.backends.conftest import Run

KEY = Key(CATALOG, "a", "t")
ANA, BEN = Caller("ana"), Caller("ben")
READ, READ_WRITE = AccessLevel.READ, AccessLevel.READ_WRITE


class Records:
    """A catalog of which only the store and the clock are there."""

    def __init__(self, store: Store, run: Run[Any]) -> None:
        self.store, self._run = store, run
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    @property
    def catalog(self) -> Catalog:
        return cast(Catalog, self)

    def make(self, caller: Caller, state: State, level: AccessLevel, location: str, key: Key = KEY) -> None:
        facts = StorageFacts(location, "uuid-é", {"write.data.path": "s3://b/data"})
        self._run(self.store.apply(record_access(self.catalog, caller, key, state, level, facts)))

    def find(self, caller: Caller = ANA, key: Key = KEY) -> tuple[str, AccessLevel, str] | None:
        found = self._run(find_access(self.catalog, caller, key))
        return None if found is None else (found.state, found.level, found.facts.location)


@pytest.fixture
def records(store: Store, run: Run[Any]) -> Records:
    return Records(store, run)


def test_a_record_is_found_by_its_table_and_principal_alone(records: Records) -> None:
    records.make(ANA, "staged", READ_WRITE, "s3://b/é")

    assert records.find() == ("staged", READ_WRITE, "s3://b/é")
    assert records.find(BEN) is None
    for key in (Key(CATALOG, "a", "T"), Key(CATALOG, "a", "t "), Key(CATALOG, "b", "t"), Key("other", "a", "t")):
        assert records.find(key=key) is None
    assert records.find(Caller("Ana")) is None


def test_the_newest_record_counts(records: Records) -> None:
    records.make(ANA, "staged", READ_WRITE, "s3://b/1")
    records.make(ANA, "dropped", READ, "s3://b/2")
    records.make(BEN, "staged", READ_WRITE, "s3://b/3")

    assert records.find() == ("dropped", READ, "s3://b/2")


@pytest.mark.parametrize(("state", "life_ms"), [("staged", STAGED_ACCESS_MS), ("dropped", DROPPED_ACCESS_MS)])
def test_a_record_ends_and_is_forgotten_when_the_next_is_made(records: Records, state: State, life_ms: int) -> None:
    records.make(ANA, state, READ_WRITE, "s3://b/1")
    records.ms += life_ms - 1
    assert records.find() is not None
    records.ms += 1
    assert records.find() is None

    records.make(BEN, "staged", READ, "s3://b/2")
    records.ms -= 1
    assert records.find() is None, "the ended record is still stored"
    assert records.find(BEN) is not None
