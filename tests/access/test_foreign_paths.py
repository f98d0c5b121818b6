"""A path in metadata is followed only inside the table's own places: no road leads into another table's.

`mallory` owns the namespace `own` and may choose locations; the namespace `hr` and all in it is hidden from her.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw
import pytest

from tests.api.wire import Answer, a_commit, a_table, a_view, add_snapshot, ok, path_of, set_branch
from tests.support.catalogs.local import LocalCatalog, metadata_file

MINE, SEVERAL = path_of("own", "tables", "mine"), "/v1/transactions/commit"
REGISTER = path_of("own", "register")
Road = Callable[[LocalCatalog, str, str], Answer]


@pytest.fixture
def hostile(tmp_path: Path) -> Iterator[LocalCatalog]:
    made = LocalCatalog(tmp_path, auth=True)
    for namespace in ("own", "hr"):
        made.namespace(namespace)
    made.principal("mallory", default__own="ADMIN,LOCATION_CHOOSE")
    made.principal("reader", default__own="ADMIN,LOCATION_CHOOSE", default__hr="READ")
    made.principal("both", default__own="ADMIN,LOCATION_CHOOSE", default__hr="WRITE")
    steering = {
        "write.data.path": place(made, "far/victim-data"),
        "write.metadata.path": place(made, "far/victim-metadata"),
    }
    made.table("hr", "payroll", location=place(made, "street/victim"))
    made.table("hr", "wages", location=place(made, "street/steered"), properties=steering)
    made.view("hr", "seen", location=place(made, "street/view"))
    ok(made.call_as("mallory", "POST", path_of("own", "tables"), a_table("mine", properties={"format-version": "2"})))
    old = a_table("old", properties={"format-version": "1"})
    ok(made.call_as("mallory", "POST", path_of("own", "tables"), old))
    ok(made.call_as("mallory", "POST", path_of("own", "tables"), a_table("second")))
    yield made
    made.close()


def place(catalog: LocalCatalog, folder: str) -> str:
    return f"file://{catalog.warehouse}/{folder}"


def snapshot(path: str, **other: Any) -> dict[str, Any]:
    update = add_snapshot(7)
    update["snapshot"] |= {"manifest-list": path} | other
    return update


def statistics(path: str) -> dict[str, Any]:
    found = {"snapshot-id": 7, "statistics-path": path, "file-size-in-bytes": 1, "file-footer-size-in-bytes": 1}
    return {"action": "set-statistics", "statistics": found | {"blob-metadata": []}}


def partition_statistics(path: str) -> dict[str, Any]:
    found = {"snapshot-id": 7, "statistics-path": path, "file-size-in-bytes": 1}
    return {"action": "set-partition-statistics", "partition-statistics": found}


# The roads by which a path comes in


def by_manifest_list(catalog: LocalCatalog, caller: str, path: str) -> Answer:
    return catalog.call_as(caller, "POST", MINE, a_commit(snapshot(path), set_branch(7)))


def by_unreferenced_snapshot(catalog: LocalCatalog, caller: str, path: str) -> Answer:
    return catalog.call_as(caller, "POST", MINE, a_commit(snapshot(path)))


def by_branch(catalog: LocalCatalog, caller: str, path: str) -> Answer:
    return catalog.call_as(caller, "POST", MINE, a_commit(snapshot(path), set_branch(7, "dev")))


def by_manifests(catalog: LocalCatalog, caller: str, path: str) -> Answer:
    update = add_snapshot(7)
    del update["snapshot"]["manifest-list"], update["snapshot"]["sequence-number"]
    update["snapshot"]["manifests"] = ["file:///elsewhere/first.avro", path]
    return catalog.call_as(caller, "POST", path_of("own", "tables", "old"), a_commit(update))


def by_statistics(catalog: LocalCatalog, caller: str, path: str) -> Answer:
    own = f"{catalog.load('own', 'mine')['metadata']['location']}/metadata/list.avro"
    return catalog.call_as(caller, "POST", MINE, a_commit(snapshot(own), statistics(path)))


def by_partition_statistics(catalog: LocalCatalog, caller: str, path: str) -> Answer:
    own = f"{catalog.load('own', 'mine')['metadata']['location']}/metadata/list.avro"
    return catalog.call_as(caller, "POST", MINE, a_commit(snapshot(own), partition_statistics(path)))


def by_create_transaction(catalog: LocalCatalog, caller: str, path: str) -> Answer:
    return catalog.call_as(caller, "POST", path_of("own", "tables", "new"), _creating(catalog, caller, path))


def _creating(catalog: LocalCatalog, caller: str, path: str) -> dict[str, Any]:
    wanted = a_table("new", stage_create=True)
    staged = ok(catalog.call_as(caller, "POST", path_of("own", "tables"), wanted))["metadata"]
    updates = [
        {"action": "assign-uuid", "uuid": staged["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": staged["schemas"][0]},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": staged["location"]},
        snapshot(path),
        set_branch(7),
    ]
    return a_commit(*updates, requires=[{"type": "assert-create"}])


def by_transaction(catalog: LocalCatalog, caller: str, path: str) -> Answer:
    good = {"identifier": {"namespace": ["own"], "name": "second"}} | a_commit(
        {"action": "set-properties", "updates": {"a": "b"}}
    )
    bad = {"identifier": {"namespace": ["own"], "name": "mine"}} | a_commit(snapshot(path))
    return catalog.call_as(caller, "POST", SEVERAL, {"table-changes": [good, bad]})


def by_transaction_that_creates(catalog: LocalCatalog, caller: str, path: str) -> Answer:
    change = {"identifier": {"namespace": ["own"], "name": "new"}} | _creating(catalog, caller, path)
    return catalog.call_as(caller, "POST", SEVERAL, {"table-changes": [change]})


def written(catalog: LocalCatalog, **changed: Any) -> str:
    """A metadata file in a folder of mallory's own, as if she had made it by hand."""
    metadata = catalog.load("own", "second")["metadata"]
    folder = catalog.warehouse / "crafted"
    metadata |= {"location": f"file://{folder}", "table-uuid": "00000000-0000-4000-8000-00000000abcd"}
    metadata |= {"last-sequence-number": 1} | changed
    file = folder / "metadata" / "00009-crafted.metadata.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(metadata))
    return f"file://{file}"


def registering(catalog: LocalCatalog, caller: str, file: str, **fields: Any) -> Answer:
    return catalog.call_as(caller, "POST", REGISTER, {"name": "taken", "metadata-location": file} | fields)


def by_registered_snapshot(catalog: LocalCatalog, caller: str, path: str) -> Answer:
    return registering(catalog, caller, written(catalog, snapshots=[snapshot(path)["snapshot"]]))


def by_registered_log(catalog: LocalCatalog, caller: str, path: str) -> Answer:
    log = [{"timestamp-ms": 1, "metadata-file": path}]
    return registering(catalog, caller, written(catalog, **{"metadata-log": log}))


def by_registered_statistics(catalog: LocalCatalog, caller: str, path: str) -> Answer:
    found = statistics(path)["statistics"]
    snapshots = [snapshot(place(catalog, "crafted/metadata/list.avro"))["snapshot"]]
    return registering(catalog, caller, written(catalog, statistics=[found], snapshots=snapshots))


def by_register_overwrite(catalog: LocalCatalog, caller: str, path: str) -> Answer:
    file = written(catalog, snapshots=[snapshot(path)["snapshot"]])
    return registering(catalog, caller, file, name="mine", overwrite=True)


ROADS = [each for name, each in sorted(globals().items()) if name.startswith("by_")]
road = pytest.mark.parametrize("way", ROADS, ids=[each.__name__ for each in ROADS])

SPELLINGS: dict[str, Callable[[str], str]] = {
    "plain": lambda path: f"file://{path}",
    "one slash": lambda path: f"file:{path}",
    "no scheme": lambda path: path,
    "capitals": lambda path: f"FILE://{path}",
    "host": lambda path: f"file://localhost{path}",
    "double slash": lambda path: f"file://{path.replace('/street', '//street')}",
    "many slashes": lambda path: f"file:////{path}",
    "dots": lambda path: f"file://{path.replace('/street', '/own/../street')}",
    "one dot": lambda path: f"file://{path.replace('/street', '/./street')}",
    "encoded": lambda path: f"file://{path.replace('street', '%73treet')}",
    "encoded twice": lambda path: f"file://{path.replace('street', '%2573treet')}",
    "encoded slash": lambda path: f"file://{path.replace('/street', '%2Fstreet')}",
    "encoded dots": lambda path: f"file://{path.replace('/street', '/own/%2e%2E/street')}",
    "query": lambda path: f"file://{path}?x=1",
    "fragment": lambda path: f"file://{path}#x",
    "backslash": lambda path: f"file://{path.replace('/street', chr(92) + 'street')}",
    "trailing slash": lambda path: f"file://{path}/",
    "end of line": lambda path: f"file://{path}\n",
}


def refused(answer: Answer) -> None:
    status, kind, message = answer.error
    assert (status, kind) == (403, "ForbiddenException"), message
    # Where it lies is known to whoever names the path; whose it is stays hidden.
    assert not [name for name in ("payroll", "wages", "table:", "hr/") if name in answer.body.decode()]


# What is refused


HIDDEN = (
    "street/victim/metadata/snap.avro",
    "street/victim/data/part=1/x.parquet",
    "street/victim/x",
    "street/steered/metadata/x",
    "far/victim-data/x.parquet",
    "far/victim-metadata/deep/x.avro",
    "street/view/metadata/v.json",
)


@road
def test_no_road_leads_into_a_hidden_tables_places(hostile: LocalCatalog, way: Road) -> None:
    pointers = hostile.rows("SELECT * FROM iceberg_tables ORDER BY 1, 2, 3")

    for target in HIDDEN:
        refused(way(hostile, "mallory", place(hostile, target)))

    assert hostile.rows("SELECT * FROM iceberg_tables ORDER BY 1, 2, 3") == pointers


@pytest.mark.parametrize("way", [by_manifest_list, by_statistics, by_create_transaction, by_registered_log])
def test_no_spelling_leads_there(hostile: LocalCatalog, way: Road) -> None:
    for spelled in SPELLINGS.values():
        refused(way(hostile, "mallory", spelled(f"{hostile.warehouse}/street/victim/metadata/snap.avro")))


def test_no_spelling_leads_out_of_ones_own_folder(hostile: LocalCatalog) -> None:
    own = hostile.load("own", "mine")["metadata"]["location"]
    up = "/".join([".."] * (own.count("/") - place(hostile, "").rstrip("/").count("/")))
    for path in (
        f"{own}/{up}/street/victim/metadata/snap.avro",
        f"{own}/{quote(up, safe='').replace('.', '%2e')}/street/victim/metadata/snap.avro",
        f"{own}/{up.replace('.', '%2e')}/street/victim/metadata/snap.avro",
        f"{own}/{up.replace('..', '%252e%252e')}/street/victim/metadata/snap.avro",
    ):
        refused(by_manifest_list(hostile, "mallory", path))


def test_no_link_leads_there(hostile: LocalCatalog) -> None:
    (hostile.warehouse / "link").symlink_to(hostile.warehouse / "street", target_is_directory=True)

    refused(by_manifest_list(hostile, "mallory", place(hostile, "link/victim/metadata/snap.avro")))


def test_no_link_above_the_warehouse_leads_there(hostile: LocalCatalog, tmp_path: Path) -> None:
    other = tmp_path / "alias"
    other.symlink_to(hostile.warehouse, target_is_directory=True)

    refused(by_manifest_list(hostile, "mallory", f"file://{other}/street/victim/metadata/snap.avro"))


def test_a_renamed_table_keeps_its_places(hostile: LocalCatalog) -> None:
    source, to = ({"namespace": ["hr"], "name": name} for name in ("wages", "renamed"))
    assert hostile.call("POST", "/v1/tables/rename", {"source": source, "destination": to}).status == 204

    refused(by_manifest_list(hostile, "mallory", place(hostile, "far/victim-data/x.parquet")))
    refused(by_manifest_list(hostile, "mallory", place(hostile, "street/steered/x.parquet")))


def test_a_table_of_another_warehouse_is_another_table(hostile: LocalCatalog) -> None:
    answer = hostile.call("POST", "/management/v1/warehouses", {"name": "lake"})
    assert answer.status < 300, answer.body
    made = hostile.call("POST", "/v1/lake/namespaces", {"namespace": ["ns"]})
    assert made.status == 200, made.body
    table = ok(hostile.call("POST", "/v1/lake/namespaces/ns/tables", a_table("t")))

    refused(by_manifest_list(hostile, "mallory", f"{table['metadata']['location']}/metadata/list.avro"))


def test_one_foreign_path_among_many_is_found(hostile: LocalCatalog) -> None:
    own = hostile.load("own", "mine")["metadata"]["location"]
    updates = []
    for number in range(1, 20):
        update = add_snapshot(number, sequence=number)
        update["snapshot"]["manifest-list"] = f"{own}/metadata/{number}.avro"
        updates.append(update)
    updates[13]["snapshot"]["manifest-list"] = place(hostile, "street/victim/metadata/x.avro")

    refused(hostile.call_as("mallory", "POST", MINE, a_commit(*updates)))


def test_a_very_long_path_is_refused_before_it_costs_anything(hostile: LocalCatalog) -> None:
    answer = by_manifest_list(hostile, "mallory", place(hostile, "a/../" * 100_000 + "street/victim/x"))

    assert answer.error[0] == 400
    assert len(answer.body) < 1000


# Places that somebody chooses

TAKEN = ("far/victim-data", "far/victim-data/inside", "far", "own/%2e%2e/street/victim", "link/victim")


def overlaps(answer: Answer) -> None:
    status, _, message = answer.error
    assert status == 400
    assert "overlaps" in message
    assert not [name for name in ("payroll", "wages", "hr/") if name in answer.body.decode()]


@pytest.fixture
def linked(hostile: LocalCatalog) -> LocalCatalog:
    (hostile.warehouse / "link").symlink_to(hostile.warehouse / "street", target_is_directory=True)
    return hostile


@pytest.mark.parametrize("name", ["write.data.path", "write.metadata.path", "write.object-storage.path"])
def test_no_property_takes_a_place_of_a_hidden_table(linked: LocalCatalog, name: str) -> None:
    for target in TAKEN:
        update = {"action": "set-properties", "updates": {name: place(linked, target)}}
        overlaps(linked.call_as("mallory", "POST", MINE, a_commit(update)))
        wanted = a_table("greedy", properties={name: place(linked, target)})
        overlaps(linked.call_as("mallory", "POST", path_of("own", "tables"), wanted))
        overlaps(linked.call_as("mallory", "POST", path_of("own", "tables"), wanted | {"stage-create": True}))
    shared = {"action": "set-properties", "updates": {name: place(linked, "far/victim-data")}}
    assert linked.call_as("both", "POST", MINE, a_commit(shared)).status == 200


def test_no_location_takes_a_place_of_a_hidden_table(linked: LocalCatalog) -> None:
    for target in (*TAKEN, "street/victim", "street/victim/inside", "street"):
        wanted = a_table("greedy", location=place(linked, target))
        overlaps(linked.call_as("mallory", "POST", path_of("own", "tables"), wanted))
        overlaps(linked.call_as("mallory", "POST", path_of("own", "tables"), wanted | {"stage-create": True}))
        view = a_view("v", location=place(linked, target))
        overlaps(linked.call_as("mallory", "POST", path_of("own", "views"), view))
        moved = {"action": "set-location", "location": place(linked, target)}
        overlaps(linked.call_as("mallory", "POST", MINE, a_commit(moved)))


def test_nobody_is_kept_from_creating_by_one_who_writes_to_a_place_around(hostile: LocalCatalog) -> None:
    hostile.table("hr", "around", properties={"write.data.path": place(hostile, "own2")})
    hostile.namespace("own2")
    hostile.grant("mallory", "default__own2", "ADMIN")

    ok(hostile.call_as("mallory", "POST", path_of("own2", "tables"), a_table("t")))


def test_a_staged_create_in_another_tables_folder_is_refused(hostile: LocalCatalog) -> None:
    wanted = a_table("inside", location=place(hostile, "street/victim/inside"), stage_create=True)

    status, _, message = hostile.call_as("mallory", "POST", path_of("own", "tables"), wanted).error

    assert status == 400
    assert "overlaps" in message
    assert not (hostile.warehouse / "street/victim/inside").exists()


# What is allowed


@road
def test_whoever_may_read_and_write_the_other_table_may_name_its_files(hostile: LocalCatalog, way: Road) -> None:
    answer = way(hostile, "both", place(hostile, "street/victim/metadata/snap.avro"))

    assert answer.status in (200, 204), answer.body


@road
def test_to_read_the_other_table_is_not_enough(hostile: LocalCatalog, way: Road) -> None:
    refused(way(hostile, "reader", place(hostile, "street/victim/metadata/snap.avro")))


@road
@pytest.mark.parametrize("target", ["s3://bucket/a/b.avro", "street/victim2/x.avro"])
def test_a_place_that_is_nobodys_is_kept_as_given(hostile: LocalCatalog, way: Road, target: str) -> None:
    path = target if ":" in target else place(hostile, target)

    answer = way(hostile, "mallory", path)

    assert answer.status in (200, 204), answer.body


def test_paths_in_the_tables_own_places_cost_no_statement(hostile: LocalCatalog) -> None:
    own = hostile.load("own", "mine")["metadata"]["location"]
    elsewhere = {"action": "set-properties", "updates": {"write.metadata.path": place(hostile, "mine-too")}}
    ok(hostile.call_as("mallory", "POST", MINE, a_commit(elsewhere)))

    def cost(number: int, path: str) -> int:
        update = add_snapshot(number, sequence=number)
        update["snapshot"]["manifest-list"] = path
        before = hostile.store.counts["read"]
        assert hostile.call_as("mallory", "POST", MINE, a_commit(update)).status == 200
        return hostile.store.counts["read"] - before

    plain = a_commit({"action": "set-properties", "updates": {"a": "1"}})
    ok(hostile.call_as("mallory", "POST", MINE, plain))
    before = hostile.store.counts["read"]
    ok(hostile.call_as("mallory", "POST", MINE, a_commit({"action": "set-properties", "updates": {"a": "2"}})))
    without = hostile.store.counts["read"] - before

    assert cost(1, f"{own}/metadata/1.avro") == without
    assert cost(2, place(hostile, "mine-too/2.avro")) == without
    assert cost(3, "file:///elsewhere/3.avro") > without


def test_a_table_can_be_moved_and_still_name_its_files(hostile: LocalCatalog) -> None:
    own = hostile.load("own", "mine")["metadata"]["location"]
    moved = {"action": "set-location", "location": place(hostile, "moved")}

    ok(hostile.call_as("mallory", "POST", MINE, a_commit(moved, snapshot(f"{own}/metadata/x.avro"))))


# Registering


def absent(answer: Answer) -> tuple[int, bytes]:
    return answer.status, answer.body.replace(b"00000-here", b"00000-gone")


@pytest.mark.parametrize(
    "folder", ["street/victim/metadata", "far/victim-metadata", "far/victim-data", "street/view/metadata"]
)
@pytest.mark.parametrize("kind", ["register", "register-view"])
def test_a_file_of_a_hidden_table_is_answered_like_one_that_is_absent(
    hostile: LocalCatalog, kind: str, folder: str
) -> None:
    """Byte for byte, and with as many statements and reads of files."""
    source = metadata_file(hostile.load("hr", "seen", "views") if "view" in kind else hostile.load("hr", "payroll"))
    where = hostile.warehouse / folder
    where.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, where / "00000-here.metadata.json")
    (hostile.warehouse / "nobodys").mkdir()
    counts = hostile.app.catalog.objects.local.counts

    def asked(file: str) -> tuple[Answer, int, int]:
        body = {"name": "taken", "metadata-location": place(hostile, file)}
        reads, files = hostile.store.counts["read"], counts["read"]
        answer = hostile.call_as("mallory", "POST", path_of("own", kind), body)
        return answer, hostile.store.counts["read"] - reads, counts["read"] - files

    hidden, gone = asked(f"{folder}/00000-here.metadata.json"), asked(f"{folder}/00000-gone.metadata.json")
    nobodys = asked("nobodys/00000-gone.metadata.json")

    assert hidden[0].status == 404
    assert absent(hidden[0]) == absent(gone[0])
    assert absent(hidden[0]) == (404, nobodys[0].body.replace(b"nobodys", folder.encode()))
    assert hidden[1:] == gone[1:] == nobodys[1:]


def test_the_live_metadata_of_a_hidden_table_cannot_be_registered(hostile: LocalCatalog) -> None:
    file = hostile.load("hr", "payroll")["metadata-location"]

    for spelled in (file, file.replace("file:///", "file:/"), file.replace("file:///", "/")):
        answer = registering(hostile, "mallory", spelled)
        assert answer.error[0] == 404, spelled
        assert answer.error[2].startswith(f"Failed to open input stream for file: {spelled[:60]}")
    assert registering(hostile, "reader", file).status == 404
    assert registering(hostile, "both", file).status == 200


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_file_that_claims_a_hidden_tables_folder_is_answered_like_an_absent_one(
    hostile: LocalCatalog, overwrite: bool
) -> None:
    """Also if it claims to be that very table: a second name would give read and write to it."""
    victim = hostile.load("hr", "payroll")["metadata"]
    for claimed in (
        {"location": victim["location"], "table-uuid": victim["table-uuid"]},
        {"location": victim["location"]},
        {"location": place(hostile, "street/victim/inside")},
        {"location": place(hostile, "far/victim-data")},
        {"properties": {"write.data.path": place(hostile, "street/victim/data")}},
    ):
        file = written(hostile, **claimed)
        answer = registering(hostile, "mallory", file, name="mine" if overwrite else "taken", overwrite=overwrite)
        assert answer.error[0] == 404, claimed
        assert answer.error[2] == f"Failed to open input stream for file: {file}"


def test_a_table_of_another_client_that_nobody_has_loaded_is_found_too(hostile: LocalCatalog) -> None:
    file = hostile.load("hr", "payroll")["metadata-location"]
    connection = apsw.Connection(str(hostile.data / "nunatak.db"))
    connection.execute("DELETE FROM nunatak_heads WHERE table_name = 'payroll'")
    connection.close()

    assert registering(hostile, "mallory", file).error[0] == 404


def test_a_register_that_overwrites_asks_for_rights_on_what_it_replaces(hostile: LocalCatalog) -> None:
    """The table is created between the admission of the register and its own look at the name."""
    file = written(hostile)
    hostile.grant("mallory", "default__hr", "TABLE_CREATE,LOCATION_CHOOSE,NS_LIST")
    store = hostile.store
    real = store.namespace_exists
    calls: list[str] = []

    async def namespace_exists(catalog: str, namespace: str) -> bool:
        """Asked by the register itself, after it was admitted."""
        if not calls:
            calls.append(namespace)
            answer = await hostile.request("POST", path_of("hr", "tables"), a_table("race"), hostile.headers("root"))
            assert answer.status == 200
        return await real(catalog, namespace)

    store.namespace_exists = namespace_exists  # type: ignore[method-assign]
    try:
        body = {"name": "race", "metadata-location": file, "overwrite": True}
        answer = hostile.call_as("mallory", "POST", path_of("hr", "register"), body)
    finally:
        del store.namespace_exists

    assert calls
    assert answer.error[:2] == (404, "NoSuchTableException")
    assert hostile.load("hr", "race")["metadata"]["table-uuid"] != "00000000-0000-4000-8000-00000000abcd"
