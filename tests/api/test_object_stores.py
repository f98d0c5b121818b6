"""A catalog whose warehouse lies on S3: how many requests it sends, and what stays true and clean when they fail."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard

from nunatak.catalog.fsck import check
from nunatak.catalog.fsck_repair import repair
from nunatak.catalog.sweep import sweep
from nunatak.catalog.write_behind import content_reader
from nunatak.errors import OutcomeUnknown
from nunatak.server import open_objects
from tests.api.conftest import MakeCatalog
from tests.api.wire import (
    Answer,
    a_commit,
    a_table,
    add_snapshot,
    identifier,
    ok,
    path_of,
    set_branch,
    set_properties,
)
from tests.support.catalogs.local import LocalCatalog, settings_of
from tests.support.faulty_s3 import FaultyS3, S3Fault, faulty_s3
from tests.support.object_stores import S3Emulator

T, TABLES, TRANSACTION = path_of("ns", "tables", "t"), path_of("ns", "tables"), "/v1/transactions/commit"
METADATA = r"^{} /.*\.metadata\.json"
DAY_MS = 86_400_000


class CatalogOnS3:
    """A catalog, the proxy in front of its store, and what lies in the bucket."""

    def __init__(self, data: Path, emulator: S3Emulator, proxy: FaultyS3) -> None:
        self.proxy = proxy
        self._emulator = emulator
        self.bucket = emulator.new_bucket()
        self.location = f"s3://{self.bucket}/lake"
        self.catalog = LocalCatalog(data, emulator.server_environment(self.location, proxy.endpoint))
        self.catalog.namespace("ns")

    def keys(self) -> set[str]:
        """The objects in the bucket, seen past the proxy."""
        with closing(self._emulator.client()) as s3:
            listed = s3.list_objects_v2(Bucket=self.bucket)
        assert not listed["IsTruncated"]
        return {each["Key"] for each in listed.get("Contents", ())}

    def delete(self, location: str) -> None:
        with closing(self._emulator.client()) as s3:
            s3.delete_object(Bucket=self.bucket, Key=location.removeprefix(f"s3://{self.bucket}/"))

    def referenced(self) -> set[str]:
        """The metadata files that the tables lead to, with their logs."""
        found = set()
        for each in ok(self.catalog.call("GET", TABLES))["identifiers"]:
            table = self.catalog.load("ns", each["name"])
            named = [table["metadata-location"], *(log["metadata-file"] for log in table["metadata"]["metadata-log"])]
            found |= {location.removeprefix(f"s3://{self.bucket}/") for location in named}
        return found

    def clean_up(self) -> None:
        """Stores the notes of failed commits and does the jobs that are due a day later."""
        app = self.catalog.app
        self.proxy.heal()
        self.catalog.run(app.catalog.unpublished.store(app.catalog.store))
        self.catalog.clock.added_ms += 2 * DAY_MS
        self.catalog.work_off_jobs()

    def requests(self) -> Counter[str]:
        """The requests to the store since the last call."""
        counted = self.proxy.counts()
        self.proxy.forget()
        return counted


@pytest.fixture
def lake(quick_folder: Path, s3_store: S3Emulator) -> Iterator[CatalogOnS3]:
    yield from _opened(quick_folder, s3_store)


@pytest.fixture
def fast_lake(quick_folder: Path, ministack_store: S3Emulator) -> Iterator[CatalogOnS3]:
    """The same on one make of store only."""
    yield from _opened(quick_folder, ministack_store)


def _opened(folder: Path, store: S3Emulator) -> Iterator[CatalogOnS3]:
    with faulty_s3(store.endpoint) as proxy:
        opened = CatalogOnS3(folder / "data", store, proxy)
        try:
            yield opened
        finally:
            opened.catalog.close()


def test_a_new_table_gets_a_folder_with_a_uuid_inside_the_warehouse(lake: CatalogOnS3) -> None:
    table = lake.catalog.table("ns", "t")

    assert table["metadata"]["location"].startswith(f"{lake.location}/ns/t-")
    assert lake.keys() == lake.referenced()
    assert lake.catalog.load("ns", "t") == table


def test_a_warm_commit_is_one_put_and_a_load_sends_nothing(lake: CatalogOnS3) -> None:
    lake.catalog.table("ns", "t")
    assert lake.requests() == {"PUT": 1}

    for number in range(1, 4):
        ok(lake.catalog.call("POST", T, a_commit(add_snapshot(number), set_branch(number))))
        assert lake.requests() == {"PUT": 1}
        loaded = lake.catalog.load("ns", "t")
        assert loaded["metadata"]["current-snapshot-id"] == number
        assert lake.requests() == {}

    lake.catalog.restart()
    assert lake.catalog.load("ns", "t") == loaded
    assert lake.requests() == {}  # the content is stored beside the pointer
    ok(lake.catalog.call("POST", T, a_commit(set_properties(a="1"))))
    assert lake.requests() == {"PUT": 1}
    assert lake.keys() == lake.referenced()


def test_a_commit_that_is_refused_before_its_file_sends_nothing(fast_lake: CatalogOnS3) -> None:
    fast_lake.catalog.table("ns", "t")
    fast_lake.requests()
    stale = {"type": "assert-table-uuid", "uuid": "00000000-0000-4000-8000-000000000000"}

    answer = fast_lake.catalog.call("POST", T, {"requirements": [stale], "updates": [set_properties(a="1")]})

    assert answer.status == 409
    assert fast_lake.requests() == {}


def test_the_files_of_a_transaction_are_written_at_the_same_time(fast_lake: CatalogOnS3) -> None:
    for number in range(6):
        fast_lake.catalog.table("ns", f"t{number}")
    fast_lake.requests()
    changes = [{"identifier": identifier("ns", f"t{n}"), **a_commit(set_properties(a="1"))} for n in range(6)]
    open_at_once = most = 0
    objects = fast_lake.catalog.app.catalog.objects
    storage: Any = objects.storage_of(fast_lake.catalog.app.catalog.warehouse("").allowed[0])
    honest = storage.write_new

    async def counted(*arguments: Any) -> None:
        nonlocal open_at_once, most
        open_at_once += 1
        most = max(most, open_at_once)
        await honest(*arguments)
        open_at_once -= 1

    storage.write_new = counted

    assert fast_lake.catalog.call("POST", TRANSACTION, {"table-changes": changes}).status == 204

    assert most == 6
    assert fast_lake.requests() == {"PUT": 6}


def test_of_two_creates_of_one_name_the_refused_one_leaves_nothing(fast_lake: CatalogOnS3) -> None:
    create = [fast_lake.catalog.request("POST", TABLES, a_table("t")) for _ in range(4)]

    statuses = sorted(answer.status for answer in fast_lake.catalog.together(*create))

    assert statuses == [200, 409, 409, 409]
    assert fast_lake.keys() == fast_lake.referenced()


def test_a_refused_commit_whose_file_cannot_be_deleted_is_cleaned_up_later(fast_lake: CatalogOnS3) -> None:
    fast_lake.proxy.inject(r"^(DELETE|POST .*\?delete)", S3Fault.REFUSE, status=503)
    create = [fast_lake.catalog.request("POST", TABLES, a_table("t")) for _ in range(2)]
    answers = fast_lake.catalog.together(*create)
    assert sorted(answer.status for answer in answers) == [200, 409]
    assert len(fast_lake.keys()) == 2

    fast_lake.clean_up()

    assert fast_lake.keys() == fast_lake.referenced()


@pytest.mark.parametrize("times", [1, None], ids=["once", "always"])
@pytest.mark.parametrize("fault", S3Fault)
def test_a_put_that_fails_is_repeated_or_refused_and_leaves_nothing(
    fast_lake: CatalogOnS3, fault: S3Fault, times: int | None
) -> None:
    fast_lake.catalog.table("ns", "t")
    before = fast_lake.catalog.load("ns", "t")
    fast_lake.proxy.inject(METADATA.format("PUT"), fault, times=times)

    answer = fast_lake.catalog.call("POST", T, a_commit(set_properties(color="red")))

    if answer.status == 200:
        assert fast_lake.catalog.load("ns", "t")["metadata"]["properties"]["color"] == "red"
    else:
        assert answer.error[:2] == (503, "ServiceUnavailableException")
        assert answer.headers["retry-after"] == "1"
        assert "http://" not in answer.body.decode()
        assert fast_lake.catalog.load("ns", "t") == before
        assert times is None, "one failure must not be seen by clients"
    fast_lake.clean_up()
    assert fast_lake.keys() == fast_lake.referenced()
    again = fast_lake.catalog.call("POST", T, a_commit(set_properties(color="blue")))
    assert ok(again)["metadata"]["properties"]["color"] == "blue"


def test_a_file_that_appears_after_its_commit_was_refused_is_deleted(fast_lake: CatalogOnS3) -> None:
    fast_lake.catalog.table("ns", "t")
    fast_lake.proxy.inject(METADATA.format("PUT"), S3Fault.LATE)
    assert fast_lake.catalog.call("POST", T, a_commit(set_properties(a="1"))).status == 503
    fast_lake.proxy.heal()  # waits until the late requests have arrived
    assert len(fast_lake.keys()) == 2

    fast_lake.clean_up()

    assert fast_lake.keys() == fast_lake.referenced()
    assert len(fast_lake.keys()) == 1


@pytest.mark.parametrize("applied", [True, False], ids=["applied", "not applied"])
def test_the_file_of_a_commit_with_unknown_outcome_stays_only_if_it_was_applied(
    fast_lake: CatalogOnS3, monkeypatch: pytest.MonkeyPatch, applied: bool
) -> None:
    fast_lake.catalog.table("ns", "t")
    store = fast_lake.catalog.app.catalog.store
    honest = store.apply

    async def apply_and_lose_the_answer(changes: Any) -> Any:
        if applied:
            await honest(changes)
        raise OutcomeUnknown("the connection was lost")

    monkeypatch.setattr(store, "apply", apply_and_lose_the_answer)
    answer = fast_lake.catalog.call("POST", T, a_commit(set_properties(a="1")))
    monkeypatch.undo()

    assert answer.error[:2] == (500, "CommitStateUnknownException")
    assert len(fast_lake.keys()) == 2
    fast_lake.catalog.restart()
    fast_lake.clean_up()
    assert ("a" in fast_lake.catalog.load("ns", "t")["metadata"]["properties"]) is applied
    assert fast_lake.keys() == fast_lake.referenced()
    assert len(fast_lake.keys()) == 1 + applied


def test_a_note_waits_for_a_database_that_is_not_reachable(
    fast_lake: CatalogOnS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast_lake.catalog.table("ns", "t")
    fast_lake.proxy.inject(METADATA.format("PUT"), S3Fault.LATE)
    assert fast_lake.catalog.call("POST", T, a_commit(set_properties(a="1"))).status == 503
    catalog = fast_lake.catalog.app.catalog

    async def refuse(changes: Any) -> Any:
        raise OutcomeUnknown("the database is away")

    monkeypatch.setattr(catalog.store, "apply", refuse)
    with pytest.raises(OutcomeUnknown):
        fast_lake.catalog.run(catalog.unpublished.store(catalog.store))
    monkeypatch.undo()
    fast_lake.clean_up()

    assert fast_lake.keys() == fast_lake.referenced()


def test_an_hourly_sweep_lists_no_bucket_and_a_rare_one_deletes_what_a_kill_left(fast_lake: CatalogOnS3) -> None:
    table = fast_lake.catalog.table("ns", "t")
    objects, current = fast_lake.catalog.app.catalog.objects, table["metadata-location"]
    left = f"{current.rpartition('/')[0]}/00000-11111111-2222-4333-8444-555555555555.metadata.json"
    fast_lake.catalog.run(objects.write_metadata(left, json.dumps(table["metadata"]).encode(), len))
    fast_lake.catalog.clock.added_ms += DAY_MS
    fast_lake.requests()

    assert fast_lake.catalog.run(sweep(fast_lake.catalog.app.catalog, 1000, with_object_stores=False)) == 0
    assert fast_lake.requests() == {}
    assert fast_lake.catalog.run(sweep(fast_lake.catalog.app.catalog, 1000)) == 1
    assert fast_lake.keys() == fast_lake.referenced()


def test_a_purge_whose_deletes_fail_is_finished_later(fast_lake: CatalogOnS3) -> None:
    fast_lake.catalog.table("ns", "t")
    ok(fast_lake.catalog.call("POST", T, a_commit(set_properties(a="1"))))
    fast_lake.proxy.inject(r"^(DELETE|POST .*\?delete)", S3Fault.REFUSE, status=503)
    assert fast_lake.catalog.call("DELETE", f"{T}?purgeRequested=true").status == 204
    fast_lake.catalog.work_off_jobs()
    assert fast_lake.keys() != set()

    fast_lake.clean_up()

    assert fast_lake.keys() == set()


@pytest.mark.parametrize("lost", [False, True], ids=["all there", "current file lost"])
def test_a_check_finds_a_lost_file_and_a_repair_writes_it_again(fast_lake: CatalogOnS3, lost: bool) -> None:
    table = fast_lake.catalog.table("ns", "t")
    fast_lake.catalog.restart()  # stores the content beside the pointer
    if lost:
        fast_lake.delete(table["metadata-location"])
    catalog = fast_lake.catalog.app.catalog

    async def check_and_repair() -> list[str]:
        found = [each async for each in check(catalog, DAY_MS)]
        for each in found:
            await repair(catalog, each, DAY_MS)
        return [each.kind for each in found]

    assert fast_lake.catalog.run(check_and_repair()) == (["lost-file"] if lost else [])
    assert fast_lake.keys() == fast_lake.referenced()


def test_a_purged_table_leaves_no_object(lake: CatalogOnS3) -> None:
    lake.catalog.table("ns", "t")
    for number in range(1, 4):
        ok(lake.catalog.call("POST", T, a_commit(set_properties(a=str(number)))))
    lake.catalog.table("ns", "kept")
    lake.requests()

    assert lake.catalog.call("DELETE", f"{T}?purgeRequested=true").status == 204
    lake.catalog.work_off_jobs()

    assert lake.proxy.counts(r"^(DELETE|POST)").total() <= 3  # in stages; each deletes its files by one request

    assert lake.keys() == lake.referenced()
    assert len(lake.keys()) == 1


def test_staged_registered_and_renamed_tables_and_views_work(lake: CatalogOnS3) -> None:
    staged = ok(lake.catalog.call("POST", TABLES, a_table("staged", stage_create=True)))
    assert staged["metadata"]["location"].startswith(f"{lake.location}/")
    assert lake.keys() == set()
    table = lake.catalog.table("ns", "t")
    assert lake.catalog.call("DELETE", T).status == 204
    body = {"name": "again", "metadata-location": table["metadata-location"]}
    registered = ok(lake.catalog.call("POST", "/v1/namespaces/ns/register", body))
    assert registered["metadata"] == table["metadata"]
    lake.catalog.view("ns", "v")
    assert lake.catalog.load("ns", "v", "views")["metadata"]["location"].startswith(f"{lake.location}/")
    answer = lake.catalog.call(
        "POST", "/v1/tables/rename", {"source": identifier("ns", "again"), "destination": identifier("ns", "b")}
    )
    assert answer.status == 204
    assert lake.catalog.load("ns", "b")["metadata"] == table["metadata"]


def test_a_backup_holds_the_content_that_is_not_stored_yet(fast_lake: CatalogOnS3, tmp_path: Path) -> None:
    fast_lake.catalog.table("ns", "t")
    committed = ok(fast_lake.catalog.call("POST", T, a_commit(set_properties(a="1"))))
    places = {"default": fast_lake.catalog.app.catalog.warehouse("")}
    uuid = committed["metadata"]["table-uuid"]

    with content_reader(open_objects(settings_of(tmp_path), places)) as read_compressed:
        content = read_compressed(committed["metadata-location"], uuid)
        assert read_compressed(committed["metadata-location"], "00000000-0000-4000-8000-000000000000") is None
        assert read_compressed(f"{fast_lake.location}/missing.metadata.json", uuid) is None
        assert read_compressed("s3://other/missing.metadata.json", uuid) is None

    assert content is not None
    assert json.loads(zstandard.decompress(content)) == committed["metadata"]


@pytest.mark.parametrize("kind", ["azure", "gcs"])
def test_tables_live_on_the_other_clouds_as_they_do_on_s3(
    request: pytest.FixtureRequest, make_catalog: MakeCatalog, kind: str
) -> None:
    store = request.getfixturevalue(f"{kind}_store")
    catalog = make_catalog(
        warehouse=store.location(store.new_bucket(), "lake"),
        storage=json.dumps({"default": msgspec.to_builtins(store.profile())}),
        storage_secrets=json.dumps({"default": msgspec.to_builtins(store.secret())}),
    )
    catalog.namespace("ns")
    objects = catalog.app.catalog.objects
    home = catalog.app.catalog.warehouse("").location

    async def files() -> list[str]:
        return [str(place) async for place, _ in catalog.app.catalog.objects.walk(home)]

    catalog.table("ns", "t")
    ok(catalog.call("POST", T, a_commit(set_properties(a="1"))))
    before = dict(objects.counts)
    ok(catalog.call("POST", T, a_commit(add_snapshot(1), set_branch(1))))
    loaded = catalog.load("ns", "t")
    after = {name: count - before[name] for name, count in objects.counts.items() if count != before[name]}

    assert after == {"write": 1}
    assert len(catalog.run(files())) == 3
    assert loaded["metadata-location"] in catalog.run(files())
    assert catalog.call("DELETE", f"{T}?purgeRequested=true").status == 204
    catalog.work_off_jobs()
    assert catalog.run(files()) == []


def test_clients_may_name_the_warehouse_by_its_location(fast_lake: CatalogOnS3) -> None:
    for spelled in (fast_lake.location, f"{fast_lake.location}/", fast_lake.location.replace("s3:", "s3a:")):
        assert fast_lake.catalog.call("GET", f"/v1/config?warehouse={spelled}").status == 200
    assert fast_lake.catalog.call("GET", "/v1/config?warehouse=s3://other").status == 404


def test_a_location_outside_the_warehouse_is_refused(fast_lake: CatalogOnS3) -> None:
    for location in ("s3://other/t", f"s3://{fast_lake.bucket}/elsewhere/t", "file:///tmp/t", "gs://other/t"):
        answer = fast_lake.catalog.call("POST", TABLES, a_table("t", location=location))
        assert answer.error[0] == 400, answer.body
    assert fast_lake.keys() == set()


def test_many_faults_at_once_leave_true_answers_and_no_file(fast_lake: CatalogOnS3) -> None:
    """A quick form of the storm: every kind of fault, several writers, each answer checked against what is there."""
    names = [f"t{number}" for number in range(4)]
    for name in names:
        fast_lake.catalog.table("ns", name)
    fast_lake.proxy.seed(15)
    for fault in S3Fault:
        fast_lake.proxy.inject("^(PUT|GET|DELETE|POST) ", fault, share=0.04)

    async def write(name: str, number: int) -> tuple[str, int, Answer]:
        commit = a_commit(set_properties(**{f"p{number}": "x"}))
        return name, number, await fast_lake.catalog.request("POST", path_of("ns", "tables", name), commit)

    async def write_all() -> list[tuple[str, int, Answer]]:
        outcomes = []
        for start in range(0, 120, 12):
            some = [write(names[number % len(names)], number) for number in range(start, start + 12)]
            outcomes += await asyncio.gather(*some)
        return outcomes

    outcomes = fast_lake.catalog.run(write_all())
    fast_lake.clean_up()

    assert {answer.status for _, _, answer in outcomes} <= {200, 503}
    assert sum(answer.status == 200 for _, _, answer in outcomes) > 60
    for name in names:
        loaded = fast_lake.catalog.load("ns", name)["metadata"]["properties"]
        properties = {each for each in loaded if each.startswith("p")}
        expected = {f"p{number}" for each, number, answer in outcomes if each == name and answer.status == 200}
        assert properties == expected
    assert fast_lake.keys() == fast_lake.referenced()
