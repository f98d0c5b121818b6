"""The bytes beside a pointer follow a commit later: seldom enough to be cheap, and nobody ever notices."""

import asyncio
import gzip
from dataclasses import replace
from typing import Any

import pytest
import zstandard

from nunatak.catalog import write_behind
from nunatak.catalog.cache import MetadataCache
from nunatak.catalog.write_behind import MAX_DELAY_SECONDS, QUIET_SECONDS, SMALL_BYTES, WriteBehind, run_write_behind
from nunatak.database.records import Change
from nunatak.database.sqlite import SqliteStore
from nunatak.errors import ServiceUnavailable
from tests.api.wire import a_commit, add_snapshot, ok, path_of, set_properties
from tests.support.catalogs.local import LocalCatalog


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Watched:
    """A catalog whose time stands still, with a table `ns.t`."""

    def __init__(self, catalog: LocalCatalog) -> None:
        self.catalog = catalog
        self.clock = Clock()
        self.write_behind = WriteBehind(catalog.store, self.clock)
        catalog.app.catalog = replace(catalog.app.catalog, write_behind=self.write_behind)
        catalog.table("ns", "t")

    def commit(self, snapshot_id: int, name: str = "t") -> str:
        answer = ok(self.catalog.commit("ns", name, a_commit(add_snapshot(snapshot_id, sequence=snapshot_id))))
        return str(answer["metadata-location"])

    def stored(self, name: str = "t") -> bytes | None:
        """What is stored beside the pointer, unpacked."""
        ((content,),) = self.catalog.rows("SELECT content FROM nunatak_heads WHERE table_name = ?", name)
        return None if content is None else zstandard.decompress(content)

    def store(self, *, everything: bool = False) -> None:
        self.catalog.run(self.write_behind.store(everything=everything))

    def run_until_stored(self) -> None:
        """As the server does all the time; it gives up after a while."""

        async def a_while() -> None:
            duty = asyncio.create_task(run_write_behind(self.write_behind))
            for _ in range(500):
                if self.write_behind.bytes == 0:
                    break
                await asyncio.sleep(0.02)
            duty.cancel()

        self.catalog.run(a_while())

    def forget_all(self) -> None:
        self.catalog.app.catalog = replace(self.catalog.app.catalog, cache=MetadataCache(64 * 1024 * 1024))

    def reads(self) -> int:
        return self.catalog.app.catalog.objects.local.counts["read"]


@pytest.fixture
def watched(catalog: LocalCatalog) -> Watched:
    return Watched(catalog)


def content_of(location: str) -> bytes:
    with open(location.removeprefix("file://"), "rb") as file:
        return file.read()


def test_a_commit_leaves_its_bytes_for_later_and_a_quiet_table_has_them(watched: Watched) -> None:
    assert watched.stored() is not None  # of the creation, which is stored at once
    location = watched.commit(1)

    watched.store()
    assert watched.stored() is None
    watched.clock.now += QUIET_SECONDS
    watched.store()
    assert watched.stored() == content_of(location)
    assert watched.write_behind.bytes == 0


def test_of_many_commits_one_is_stored(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    packed: list[int] = []
    pack = write_behind._compress

    def counting(versions: Any) -> Any:
        packed.append(len(versions))
        return pack(versions)

    monkeypatch.setattr(write_behind, "_compress", counting)
    for number in range(1, 21):
        location = watched.commit(number)
        watched.store()
        watched.clock.now += QUIET_SECONDS / 10

    watched.clock.now += QUIET_SECONDS
    watched.store()
    assert packed == [1]
    assert watched.stored() == content_of(location)


def test_a_table_that_is_never_quiet_is_stored_now_and_then(watched: Watched) -> None:
    stored = 0
    for number in range(1, 101):
        location = watched.commit(number)
        watched.store()
        stored += watched.stored() == content_of(location)
        watched.clock.now += MAX_DELAY_SECONDS / 40
    assert stored == 2


def test_what_waits_is_loaded_without_a_file_although_nobody_remembers_it(watched: Watched) -> None:
    location = watched.commit(1)
    watched.forget_all()
    reads = watched.reads()

    assert watched.catalog.load("ns", "t")["metadata-location"] == location
    answer = ok(watched.catalog.commit("ns", "t", a_commit(set_properties(a="b"))))
    assert answer["metadata"]["last-sequence-number"] == 1
    assert watched.reads() == reads


def test_what_was_committed_meanwhile_goes_on_waiting(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = watched.catalog
    watched.commit(1)
    apply = SqliteStore.apply
    newer: list[str] = []

    async def slow_apply(self: SqliteStore, changes: Any) -> Any:
        if not newer:  # the first call is that of the stored bytes
            newer.append("")
            body = a_commit(add_snapshot(2, sequence=2))
            newer[0] = ok(await catalog.request("POST", path_of("ns", "tables", "t"), body))["metadata-location"]
        return await apply(self, changes)

    with monkeypatch.context() as patched:
        patched.setattr(SqliteStore, "apply", slow_apply)
        watched.store(everything=True)
    assert watched.stored() is None  # the old bytes do not stand beside the new pointer
    assert watched.write_behind.bytes > 0
    watched.store(everything=True)
    assert watched.stored() == content_of(newer[0])
    assert watched.write_behind.bytes == 0


@pytest.mark.parametrize("fate", ["renamed", "dropped"])
def test_a_table_that_is_renamed_or_dropped_meanwhile_is_no_trouble(watched: Watched, fate: str) -> None:
    location = watched.commit(1)
    names = {side: {"namespace": ["ns"], "name": name} for side, name in (("source", "t"), ("destination", "u"))}
    if fate == "renamed":
        assert watched.catalog.call("POST", "/v1/tables/rename", names).status == 204
    else:
        assert watched.catalog.call("DELETE", path_of("ns", "tables", "t")).status == 204

    watched.store(everything=True)
    assert watched.write_behind.bytes == 0
    if fate == "renamed":
        watched.forget_all()
        assert watched.catalog.load("ns", "u")["metadata-location"] == location
        assert watched.stored("u") == content_of(location)


def test_after_a_crash_the_file_is_read_once_and_the_log_tells_of_no_stranger(watched: Watched) -> None:
    catalog = watched.catalog
    location = watched.commit(1)
    lines = catalog.rows("SELECT operation FROM nunatak_commits")
    catalog.app.catalog = replace(catalog.app.catalog, write_behind=None)  # so that nothing is stored at its end
    catalog.restart()
    assert watched.stored() is None

    for _ in range(2):
        assert catalog.load("ns", "t")["metadata-location"] == location
        assert watched.reads() == 1
        assert watched.stored() == content_of(location)
        watched.forget_all()
    assert catalog.rows("SELECT operation FROM nunatak_commits") == lines


def test_a_server_that_stops_stores_what_waits(watched: Watched) -> None:
    location = watched.commit(1)
    watched.catalog.restart()

    assert watched.stored() == content_of(location)
    assert watched.catalog.load("ns", "t")["metadata-location"] == location
    assert watched.reads() == 0


def test_large_metadata_is_stored_at_once(watched: Watched) -> None:
    large = {f"key{number}": "x" * 1000 for number in range(SMALL_BYTES // 1000)}
    answer = watched.catalog.commit("ns", "t", a_commit(set_properties(**large)))
    assert watched.stored() == content_of(ok(answer)["metadata-location"])
    assert watched.write_behind.bytes == 0


def test_all_tables_of_a_transaction_are_stored(watched: Watched) -> None:
    watched.catalog.table("ns", "u")
    changes = [{"identifier": {"namespace": ["ns"], "name": name}, **a_commit(add_snapshot(1))} for name in ("t", "u")]
    assert watched.catalog.call("POST", "/v1/transactions/commit", {"table-changes": changes}).status == 204
    watched.store(everything=True)
    for name in ("t", "u"):
        assert watched.stored(name) == content_of(watched.catalog.load("ns", name)["metadata-location"])


def test_too_much_to_hold_back_is_stored_at_once(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock stands still: by itself the table would not be quiet for ever."""
    monkeypatch.setattr(write_behind, "MAX_BYTES", 1)
    location = watched.commit(1)

    watched.run_until_stored()
    assert watched.stored() == content_of(location)


def test_a_quiet_table_is_stored_by_and_by(watched: Watched) -> None:
    location = watched.commit(1)
    watched.clock.now += QUIET_SECONDS
    watched.run_until_stored()
    assert watched.stored() == content_of(location)


def test_what_is_compressed_is_stored_with_its_commit(watched: Watched) -> None:
    codec = set_properties(**{"write.metadata.compression-codec": "gzip"})
    location = ok(watched.catalog.commit("ns", "t", a_commit(codec)))["metadata-location"]
    assert location.endswith(".gz.metadata.json")
    assert watched.stored() == gzip.decompress(content_of(location))
    assert watched.write_behind.bytes == 0


def test_a_database_that_refuses_is_asked_again(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_behind, "QUIET_SECONDS", 0.01)
    location = watched.commit(1)
    apply = SqliteStore.apply
    refused: list[list[Change]] = []

    async def refusing(self: SqliteStore, changes: list[Change]) -> Any:
        if len(refused) < 2:
            refused.append(changes)
            raise ServiceUnavailable("not now")
        return await apply(self, changes)

    monkeypatch.setattr(SqliteStore, "apply", refusing)
    watched.clock.now += 1
    watched.run_until_stored()
    assert len(refused) == 2
    assert watched.stored() == content_of(location)
