"""Purges beside evil neighbours and through crashes: all files of the purged table go, and no other does (F18)."""

import asyncio
import dataclasses
import os
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from nunatak.catalog.catalog import Caller as CatalogCaller
from nunatak.catalog.jobs import run_next
from nunatak.catalog.namespaces import create_namespace
from nunatak.catalog.tables import NewTable, create_table, drop_entry, register_table
from nunatak.database.records import StoredResponse
from nunatak.errors import BadRequest, InternalError
from nunatak.iceberg.identifiers import Identifier
from nunatak.objectstore.store import ObjectStore
from tests.support.catalogs.local import opened_app, settings_of
from tests.support.catalogs.process import RunningServer, running_server
from tests.support.promises import show
from tests.support.workload import Caller, await_jobs_done, local_path, seeded

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "city", StringType(), required=False))
BY_CITY = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="city"))
PURGES = int(os.environ.get("NUNATAK_TEST_PURGES", "8"))  # a soak sets more
MOST_PURGES = 12  # until a kill comes in the middle of one; most need one
# Neighbours whose places begin like the one of t1, or are spelled like it, or lie beside it in one folder.
SIBLINGS = ("t1", "t10", "t1_backup", "T1", "t1-", "t1.bak/t1", "t1%2F", "other/t1")


@contextmanager
def opened(uri: str) -> Iterator[RestCatalog]:
    with closing(RestCatalog("lake", uri=uri)) as catalog:
        catalog.create_namespace_if_not_exists("db")
        yield catalog


def rows(*pairs: tuple[int, str]) -> pa.Table:
    return pa.table({"id": [number for number, _ in pairs], "city": [city for _, city in pairs]})


def a_table_with_history(catalog: RestCatalog, name: str, location: str | None = None) -> Table:
    """Three snapshots: two appends, and a delete that leaves a file only the older ones reach."""
    table: Table = catalog.create_table(("db", name), SCHEMA, location=location, partition_spec=BY_CITY)
    table.append(rows((1, "Oslo"), (2, "Bergen")))
    table.append(rows((3, "Oslo")))
    table.delete("city == 'Bergen'")
    return table


def reachable(table: Table) -> set[Path]:
    """Every file of the table, found by PyIceberg from its metadata."""
    found = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
    for snapshot in table.metadata.snapshots:
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            found.add(manifest.manifest_path)
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
            found.update(entry.data_file.file_path for entry in entries)
    return {local_path(location) for location in found}


def files_below(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def purge_among_siblings(server: RunningServer, around: Path, chance: random.Random) -> list[str]:
    """Purge one after the other of tables whose places are easily mistaken; returns what went or stayed wrongly."""
    wrong = []
    folder = around.name
    with opened(server.uri) as catalog:
        tables = {
            place: a_table_with_history(catalog, f"{folder}_{place.replace('/', '_')}", f"file://{around}/{place}")
            for place in SIBLINGS
        }
        foreign = around / "t1" / "data" / "notes.txt"
        foreign.write_text("not a file of the table, although it lies in its folder")
        files = {place: reachable(table) for place, table in tables.items()}
        left = files_below(around)
        assert left == set.union({foreign}, *files.values())
        # The first one has the most evil neighbours; the others go in any order.
        for place in ["t1", *chance.sample(SIBLINGS[1:], len(SIBLINGS) - 1)]:
            catalog.purge_table(tables[place].name())
            await_jobs_done(server.data)
            before, left = left, files_below(around)
            wrong += [f"{path} went with {place}" for path in sorted(before - left - files[place])]
            wrong += [f"{path} stayed without {place}" for path in sorted(files[place] & left)]
    return wrong


def test_a_purge_takes_exactly_the_files_of_its_table(server: RunningServer) -> None:
    """Not every file in the folder, as 002 has it: what no metadata names may be somebody else's."""
    chance = seeded("purge")
    rounds = -(-PURGES // len(SIBLINGS))

    wrong = [
        sentence
        for number in range(rounds)
        for sentence in purge_among_siblings(server, server.data / "warehouse" / f"evil{number}", chance)
    ]

    show(
        "F18",
        "a purge takes exactly the files of its table, whoever its neighbours are",
        purges=rounds * len(SIBLINGS),
        wrong_files=len(wrong),
    )
    assert wrong == []


def test_a_purge_by_the_beginning_of_names_is_found_out(tmp_path: Path) -> None:
    """The canary: what many object stores call a folder."""
    with running_server(tmp_path / "data", broken="purge-by-prefix") as server:
        wrong = purge_among_siblings(server, server.data / "warehouse" / "evil", seeded("prefix"))

    assert [sentence for sentence in wrong if "/t10/" in sentence and sentence.endswith(" went with t1")]


def test_the_neighbours_of_a_purged_table_can_still_be_read(server: RunningServer) -> None:
    around = server.data / "warehouse" / "evil"
    with opened(server.uri) as catalog:
        for place in SIBLINGS:
            a_table_with_history(catalog, place.replace("/", "_"), f"file://{around}/{place}")

        catalog.purge_table(("db", "t1"))
        await_jobs_done(server.data)

        for place in SIBLINGS[1:]:
            city = catalog.load_table(("db", place.replace("/", "_"))).scan().to_arrow().column("city")
            assert city.to_pylist() == ["Oslo", "Oslo"]


def test_a_purge_leaves_the_files_of_others_that_its_table_also_names(server: RunningServer) -> None:
    """Files may be added to a second table; they stay as long as the table lives in whose folder they lie."""
    with opened(server.uri) as catalog:
        owner = a_table_with_history(catalog, "owner")
        borrower = catalog.create_table(("db", "borrower"), SCHEMA)
        borrower.append(rows((9, "Narvik")))
        borrowed = catalog.create_table(("db", "lender"), SCHEMA)
        borrowed.append(rows((4, "Bodø")))
        borrower.add_files([task.file.file_path for task in borrowed.scan().plan_files()])
        mine = reachable(borrower) - reachable(borrowed)
        before = files_below(server.data / "warehouse")

        catalog.purge_table(borrower.name())
        await_jobs_done(server.data)

        assert before - files_below(server.data / "warehouse") == mine
        assert borrowed.scan().to_arrow().column("city").to_pylist() == ["Bodø"]
        assert len(owner.scan().to_arrow()) == 2


def test_tables_that_share_a_place_for_their_data_lose_only_their_own_files(server: RunningServer) -> None:
    """`write.data.path` may name one place for many tables: a file goes only if no live table leads to it."""
    warehouse = server.data / "warehouse"
    shared = {"write.data.path": f"file://{warehouse}/shared"}
    with opened(server.uri) as catalog:
        keeper = catalog.create_table(("db", "keeper"), SCHEMA, properties=shared)
        keeper.append(rows((1, "Oslo")))
        victim = catalog.create_table(("db", "victim"), SCHEMA, properties=shared)
        victim.append(rows((2, "Bergen")))
        victim.add_files([task.file.file_path for task in keeper.scan().plan_files()])
        mine = reachable(victim) - reachable(keeper)
        before = files_below(warehouse)

        catalog.purge_table(victim.name())
        await_jobs_done(server.data)

        assert before - files_below(warehouse) == mine
        assert catalog.load_table(keeper.name()).scan().to_arrow().column("city").to_pylist() == ["Oslo"]


def test_a_table_about_to_be_purged_cannot_be_registered_again() -> None:
    """The purge would delete under it."""

    async def scene(data: Path) -> None:
        async with opened_app(settings_of(data)) as app:
            catalog, caller = app.catalog, CatalogCaller()
            warehouse = catalog.warehouse("")
            await create_namespace(catalog, warehouse, caller, ("db",), {}, StoredResponse(200))
            schema = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
            name = Identifier(("db",), "t")
            loaded = await create_table(catalog, warehouse, caller, NewTable(name, schema, None, None, None, {}))
            await drop_entry(catalog, warehouse, caller, name, "TABLE", purge=True)
            with pytest.raises(BadRequest, match="are being purged"):
                await register_table(catalog, warehouse, caller, name, loaded.metadata_location, overwrite=False)

    with tempfile.TemporaryDirectory() as data:
        asyncio.run(scene(Path(data)))


def test_a_purge_spares_a_table_that_was_registered_from_the_same_file(server: RunningServer) -> None:
    """Two names for one table: as long as one is left, its files are needed."""
    with opened(server.uri) as catalog:
        table = a_table_with_history(catalog, "first")
        catalog.register_table(("db", "second"), table.metadata_location)
        before = files_below(server.data / "warehouse")

        catalog.purge_table(("db", "first"))
        await_jobs_done(server.data)

        assert files_below(server.data / "warehouse") == before
        assert len(catalog.load_table(("db", "second")).scan().to_arrow()) == 2

        catalog.purge_table(("db", "second"))
        await_jobs_done(server.data)

        assert files_below(server.data / "warehouse") == set()


@pytest.mark.parametrize("query", ["", "?purgeRequested=false"])
def test_a_drop_without_purge_keeps_every_file(server: RunningServer, query: str) -> None:
    """MISSION: 002-17"""
    with opened(server.uri) as catalog, Caller(server.port) as caller:
        table = a_table_with_history(catalog, "kept")
        before = files_below(server.data / "warehouse")

        caller.expect(204, "DELETE", f"/v1/namespaces/db/tables/kept{query}")
        await_jobs_done(server.data)

        assert files_below(server.data / "warehouse") == before
        again = catalog.register_table(("db", "again"), table.metadata_location)
        assert len(again.scan().to_arrow()) == 2


@pytest.mark.parametrize("purge", ["false", "true"])
def test_a_table_whose_metadata_file_is_gone_can_be_dropped(server: RunningServer, purge: str) -> None:
    with opened(server.uri) as catalog, Caller(server.port) as caller:
        table = a_table_with_history(catalog, "broken")
        local_path(table.metadata_location).unlink()
        before = files_below(server.data / "warehouse")

        caller.expect(204, "DELETE", f"/v1/namespaces/db/tables/broken?purgeRequested={purge}")
        await_jobs_done(server.data)

        caller.expect(404, "GET", "/v1/namespaces/db/tables/broken")
        assert files_below(server.data / "warehouse") == before  # nothing says any more which files were its own
        catalog.create_table(("db", "broken"), SCHEMA)


def a_table_of_many_files(catalog: RestCatalog, name: str, count: int) -> Table:
    """One snapshot of `count` data files, all links to one content."""
    table: Table = catalog.create_table(("db", name), SCHEMA)
    folder = local_path(table.location()) / "data"
    pq.write_table(rows((1, "Oslo")), folder / "0.parquet")
    for number in range(1, count):
        os.link(folder / "0.parquet", folder / f"{number}.parquet")
    table.add_files([f"file://{folder}/{number}.parquet" for number in range(count)])
    return table


def kill_midway(server: RunningServer, victim: Table) -> tuple[bool, set[Path]]:
    """Kill the server while it purges a table of many files; whether it was midway, and what is left in the end."""
    folder = local_path(victim.location()) / "data"
    count = len(os.listdir(folder))
    with Caller(server.port) as caller:
        caller.expect(204, "DELETE", f"/v1/namespaces/db/tables/{victim.name()[1]}?purgeRequested=true")
    deadline = time.monotonic() + 30
    while len(os.listdir(folder)) == count and time.monotonic() < deadline:
        time.sleep(0.0005)
    server.kill()
    midway = folder.exists() and 0 < len(os.listdir(folder)) < count
    server.restart()
    await_jobs_done(server.data)
    return midway, files_below(folder.parent)


def test_a_purge_that_was_killed_midway_is_finished_after_the_restart(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server:
        warehouse = server.data / "warehouse"
        with opened(server.uri) as catalog:
            kept = a_table_with_history(catalog, "kept")
            before = files_below(warehouse)
        ends: list[tuple[bool, set[Path]]] = []
        while len(ends) < 3 or not any(was_midway for was_midway, _ in ends):
            assert len(ends) < MOST_PURGES, "no kill came at the right moment: the test showed nothing"
            with opened(server.uri) as catalog:
                victim = a_table_of_many_files(catalog, f"t{len(ends)}", 200)
            ends.append(kill_midway(server, victim))
        print(f"{sum(was_midway for was_midway, _ in ends)} of {len(ends)} purges were killed midway")
        assert [left for _, left in ends] == [set()] * len(ends)
        assert files_below(warehouse) == before == reachable(kept)


def test_a_purge_that_is_taken_for_done_too_early_is_found_out(tmp_path: Path) -> None:
    """The canary: killed midway, nobody finishes it."""
    with running_server(tmp_path / "data", broken="finish-before-purge") as server:
        for number in range(MOST_PURGES):
            with opened(server.uri) as catalog:
                victim = a_table_of_many_files(catalog, f"t{number}", 200)
            _, left = kill_midway(server, victim)
            if left:
                return
    raise AssertionError("no file was left over: the test would not notice")


class Refusing(ObjectStore):
    """Cannot delete one file, as if a crash came right before it and after all that ran beside it."""

    refused: Path

    async def delete(self, location: str) -> None:
        if local_path(location) == self.refused:
            raise InternalError(f"Cannot delete {location}")
        await super().delete(location)


def test_a_purge_cut_off_before_any_one_of_its_deletes_is_finished_by_the_next_try(server: RunningServer) -> None:
    """Whichever file is left over, the next try still finds it: what leads to a file goes after the file."""

    def two_appends(number: int) -> Table:
        table: Table = catalog.create_table(("db", f"t{number}"), SCHEMA)
        table.append(rows((1, "Oslo")))
        table.append(rows((2, "Bergen")))
        return table

    with opened(server.uri) as catalog:
        files = [sorted(reachable(two_appends(0)))]
        files += [sorted(reachable(two_appends(number))) for number in range(1, len(files[0]))]
    server.stop()

    async def purge_each() -> None:
        async with opened_app(settings_of(server.data)) as app:
            warehouse = app.catalog.warehouse("")
            refusing = Refusing(app.catalog.objects.local)
            refusing.attach(refusing.local, warehouse.allowed)
            for number, mine in enumerate(files):
                refusing.refused = mine[number]
                identifier = Identifier(("db",), f"t{number}")
                await drop_entry(app.catalog, warehouse, CatalogCaller(), identifier, "TABLE", purge=True)
                assert await run_next(dataclasses.replace(app.catalog, objects=refusing))
                assert mine[number].exists()
                an_hour_later = app.catalog.now_ms() + 3_600_000
                assert await run_next(dataclasses.replace(app.catalog, now_ms=lambda: an_hour_later))  # noqa: B023
                assert [path for path in mine if path.exists()] == [], f"after {mine[number]} was left over"
                assert not await run_next(app.catalog)

    asyncio.run(purge_each())


@pytest.mark.parametrize("place", ["", "/inside"], ids=["same folder", "folder inside"])
def test_a_purge_spares_a_table_that_was_made_in_its_place_meanwhile(server: RunningServer, place: str) -> None:
    """Also its folders, which are empty as long as it is new: some clients write into them without making them."""
    location = f"file://{server.data}/warehouse/chosen"
    with opened(server.uri) as catalog:
        old = sorted(reachable(a_table_with_history(catalog, "old", location)))
    server.stop()

    async def purge_late() -> Path:
        async with opened_app(settings_of(server.data)) as app:
            warehouse = app.catalog.warehouse("")
            identifier = Identifier(("db",), "old")
            await drop_entry(app.catalog, warehouse, CatalogCaller(), identifier, "TABLE", purge=True)
            schema = {"type": "struct", "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}]}
            wanted = NewTable(Identifier(("db",), "new"), schema, None, None, f"{location}{place}", {})
            new = await create_table(app.catalog, warehouse, CatalogCaller(), wanted)
            assert await run_next(app.catalog)
            return local_path(new.metadata_location)

    metadata_file = asyncio.run(purge_late())

    assert metadata_file.is_file()
    assert (metadata_file.parent.parent / "data").is_dir()
    # In one folder nothing tells the files of the two apart for good, so all of them stay.
    assert [path.exists() for path in old] == [place == ""] * len(old)
