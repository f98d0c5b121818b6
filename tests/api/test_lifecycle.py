"""Tables, views and namespaces from creation to drop, and where the two kinds meet; the texts are the reference's."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.api.wire import (
    a_commit,
    a_table,
    a_view,
    done,
    identifier,
    ok,
    path_of,
    rename,
    set_properties,
)
from tests.support.catalogs.local import LocalCatalog, metadata_file

T, V = path_of("ns", "tables", "t"), path_of("ns", "views", "v")
REGISTER, REGISTER_VIEW = path_of("ns") + "/register", path_of("ns") + "/register-view"


@pytest.fixture
def full(catalog: LocalCatalog) -> LocalCatalog:
    catalog.namespace("empty")
    catalog.table("ns", "t")
    catalog.view("ns", "v")
    return catalog


def names(catalog: LocalCatalog, namespace: str, kind: str) -> list[str]:
    return [entry["name"] for entry in ok(catalog.call("GET", path_of(namespace, kind)))["identifiers"]]


# Creating


def test_a_created_table_is_there_in_every_way_of_asking(full: LocalCatalog) -> None:
    created = full.table("ns", "new", properties={"owner": "ann"})

    assert full.load("ns", "new") == created
    assert created["metadata"]["properties"]["owner"] == "ann"
    assert full.call("HEAD", path_of("ns", "tables", "new")).status == 204
    assert names(full, "ns", "tables") == ["new", "t"]
    assert names(full, "ns", "views") == ["v"]
    assert metadata_file(created).is_file()


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_created_table_has_its_folders_wherever_its_metadata_goes(catalog: LocalCatalog, *, elsewhere: bool) -> None:
    """Some clients write into them without making them."""
    place = f"file://{catalog.warehouse}/apart"
    created = catalog.table("ns", "new", properties={"write.metadata.path": place} if elsewhere else {})

    assert created["metadata-location"].startswith(place) == elsewhere
    folder = Path(created["metadata"]["location"].removeprefix("file://"))
    assert sorted(each.name for each in folder.iterdir()) == ["data", "metadata"]


def test_a_created_view_is_there_in_every_way_of_asking(full: LocalCatalog) -> None:
    created = full.view("ns", "new", properties={"owner": "ann"})

    assert full.load("ns", "new", "views") == created
    assert full.call("HEAD", path_of("ns", "views", "new")).status == 204
    assert names(full, "ns", "views") == ["new", "v"]
    assert names(full, "ns", "tables") == ["t"]


def test_a_staged_table_is_nowhere(full: LocalCatalog) -> None:
    state = full.state()

    staged = ok(full.call("POST", path_of("ns", "tables"), a_table("staged", stage_create=True)))

    assert "metadata-location" not in staged
    assert staged["metadata"]["table-uuid"]
    assert full.state() == state
    assert full.call("HEAD", path_of("ns", "tables", "staged")).status == 404
    assert names(full, "ns", "tables") == ["t"]


def test_a_name_that_is_staged_is_free_for_others(full: LocalCatalog) -> None:
    first = ok(full.call("POST", path_of("ns", "tables"), a_table("staged", stage_create=True)))
    second = full.table("ns", "staged")

    assert first["metadata"]["table-uuid"] != second["metadata"]["table-uuid"]
    assert first["metadata"]["location"] != second["metadata"]["location"]


def test_a_location_is_kept_as_it_was_spelled(full: LocalCatalog) -> None:
    for spelled in (
        f"file:{full.warehouse}/one",
        f"file://{full.warehouse}/two",
        f"file://localhost{full.warehouse}/three",
    ):
        table = full.table("ns", spelled.rpartition("/")[2], location=spelled)
        assert table["metadata"]["location"] == spelled
        assert table["metadata-location"].startswith(f"{spelled}/metadata/00000-")
        assert full.load("ns", spelled.rpartition("/")[2]) == table


def test_a_table_goes_into_the_place_of_its_namespace(full: LocalCatalog) -> None:
    full.namespace("placed", location=f"file://{full.warehouse}/somewhere")
    full.namespace("lost")
    full.rows(  # by another client of the database, which knows more places than we do
        "INSERT INTO iceberg_namespace_properties VALUES ('default', 'lost', 'location', 's3://bucket/elsewhere')"
    )

    assert full.table("placed", "t")["metadata"]["location"].startswith(f"file://{full.warehouse}/somewhere/t-")
    assert full.table("lost", "t")["metadata"]["location"].startswith(f"file://{full.warehouse}/lost/t-")


TAKEN = [
    ("POST", path_of("ns", "tables"), a_table("t"), "Table already exists: ns.t"),
    ("POST", path_of("ns", "tables"), a_table("v"), "View with same name already exists: ns.v"),
    ("POST", path_of("ns", "tables"), a_table("v", stage_create=True), "View with same name already exists: ns.v"),
    ("POST", path_of("ns", "views"), a_view("v"), "View already exists: ns.v"),
    ("POST", path_of("ns", "views"), a_view("t"), "Table with same name already exists: ns.t"),
    ("POST", "/v1/tables/rename", rename(identifier("ns", "t"), identifier("ns", "v")),
     "Cannot rename ns.t to ns.v. View already exists"),
    ("POST", "/v1/views/rename", rename(identifier("ns", "v"), identifier("ns", "t")),
     "Cannot rename ns.v to ns.t. Table already exists"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "body", "message"), TAKEN, ids=[case[3] for case in TAKEN])
def test_a_name_that_is_taken_stays_with_its_owner(
    full: LocalCatalog, method: str, path: str, body: Any, message: str
) -> None:
    state = full.state()

    assert full.call(method, path, body).error == (409, "AlreadyExistsException", message)
    assert full.state() == state


@pytest.mark.parametrize("kinds", [("tables", "tables"), ("views", "views"), ("tables", "views")], ids="-and-".join)
def test_of_many_who_create_one_name_at_once_one_succeeds(full: LocalCatalog, kinds: tuple[str, str]) -> None:
    """The others are told 409, and leave no file."""
    bodies = {"tables": a_table("race"), "views": a_view("race")}
    files = full.files()

    answers = full.together(
        *(full.request("POST", path_of("ns", kind), bodies[kind]) for _ in range(4) for kind in kinds)
    )

    assert sorted(answer.status for answer in answers) == [200] + [409] * 7
    winner = next(answer for answer in answers if answer.status == 200)
    assert {str(full.warehouse / file) for file in full.files() - files} == {str(metadata_file(winner.json))}


# Dropping


@pytest.mark.parametrize(("kind", "name"), [("tables", "t"), ("views", "v")])
def test_a_drop_forgets_the_name_and_keeps_every_file(full: LocalCatalog, kind: str, name: str) -> None:
    files = full.files()

    for query in ("", "?purgeRequested=false") if kind == "tables" else ("",):
        done(full.call("DELETE", path_of("ns", kind, name) + query))
        assert full.call("GET", path_of("ns", kind, name)).status == 404
        assert full.call("HEAD", path_of("ns", kind, name)).status == 404
        assert names(full, "ns", kind) == []
        assert full.work_off_jobs() == 0
        assert files <= full.files()
        (full.table if kind == "tables" else full.view)("ns", name)


def test_a_table_without_its_metadata_file_is_dropped_all_the_same(full: LocalCatalog) -> None:
    """A broken table must not stay for ever because it is broken."""
    metadata_file(full.load("ns", "t")).unlink()
    answer = full.call("GET", T)
    assert answer.error[:2] == (404, "NotFoundException")
    assert answer.error[2].startswith("Failed to open input stream for file: file://")

    full.restart()
    done(full.call("DELETE", T))
    assert full.call("HEAD", T).status == 404


def test_a_purge_deletes_what_the_table_reaches_and_nothing_else(full: LocalCatalog) -> None:
    other = full.table("ns", "t2")
    for number in range(3):
        ok(full.call("POST", T, a_commit(set_properties(number=str(number)))))
    stray = metadata_file(full.load("ns", "t")).parent.parent / "data" / "not-in-the-metadata.parquet"
    stray.write_bytes(b"data of somebody's unfinished job")

    done(full.call("DELETE", f"{T}?purgeRequested=true"))
    assert full.call("HEAD", T).status == 404
    assert full.work_off_jobs() == 1

    left = {file for file in full.files() if "/t-" in file}
    assert left == {str(stray.relative_to(full.warehouse))}
    assert full.load("ns", "t2") == other
    assert full.rows("SELECT * FROM nunatak_jobs") == []


def test_a_purge_that_was_promised_happens_after_a_restart(full: LocalCatalog) -> None:
    done(full.call("DELETE", f"{T}?purgeRequested=true"))
    full.restart()

    assert full.work_off_jobs() == 1
    assert not any("/t-" in file for file in full.files())


def test_a_purge_never_touches_a_file_that_the_metadata_only_points_at(full: LocalCatalog, quick_folder: Path) -> None:
    """Pointers outside the warehouse, or into another table, are kept but never followed."""
    victim = metadata_file(full.table("ns", "victim"))
    outside = quick_folder / "precious.avro"
    outside.write_bytes(b"precious")
    for number, target in enumerate((f"file://{outside}", f"file://{victim}"), start=1):
        statistics = {
            "snapshot-id": number,
            "statistics-path": target,
            "file-size-in-bytes": 1,
            "file-footer-size-in-bytes": 1,
            "blob-metadata": [],
        }
        ok(full.call("POST", T, a_commit({"action": "set-statistics", "statistics": statistics})))

    done(full.call("DELETE", f"{T}?purgeRequested=true"))
    assert full.work_off_jobs() == 1

    assert outside.read_bytes() == b"precious"
    assert victim.is_file()
    assert not any("/t-" in file for file in full.files())


def test_a_table_made_again_never_gets_the_folder_of_the_dropped_one(full: LocalCatalog) -> None:
    """Else whoever reads the new table could meet data of the old one, and a late purge would hit the new one."""
    first = full.load("ns", "t")["metadata"]
    done(full.call("DELETE", T))
    second = full.table("ns", "t")["metadata"]

    assert second["table-uuid"] != first["table-uuid"]
    assert second["location"] != first["location"]


# Renaming


@pytest.mark.parametrize(("kind", "name"), [("tables", "t"), ("views", "v")])
def test_a_rename_moves_the_name_and_nothing_else(full: LocalCatalog, kind: str, name: str) -> None:
    before, files = full.load("ns", name, kind), full.files()

    done(full.call("POST", f"/v1/{kind}/rename", rename(identifier("ns", name), identifier("empty", "moved"))))

    assert full.load("empty", "moved", kind) == before
    assert full.call("GET", path_of("ns", kind, name)).status == 404
    assert full.files() == files
    ok(full.call("POST", path_of("empty", kind, "moved"), a_commit(set_properties(a="b"))))
    (full.table if kind == "tables" else full.view)("ns", name)  # the old name is free


def test_a_rename_is_refused_in_the_words_of_the_reference(full: LocalCatalog) -> None:
    def refusal(kind: str, source: str, to: str, name: str = "new") -> tuple[int, str, str]:
        return full.call("POST", f"/v1/{kind}/rename", rename(identifier("ns", source), identifier(to, name))).error

    assert refusal("tables", "no", "ns") == (404, "NoSuchTableException", "Table does not exist: ns.no")
    assert refusal("tables", "v", "ns") == (404, "NoSuchTableException", "Table does not exist: ns.v")
    assert refusal("tables", "t", "no") == (404, "NoSuchNamespaceException", "Namespace does not exist: no")
    assert refusal("views", "no", "ns") == (404, "NoSuchViewException", "View does not exist: ns.no")
    assert refusal("views", "t", "ns") == (404, "NoSuchViewException", "View does not exist: ns.t")
    assert refusal("views", "v", "no") == (404, "NoSuchNamespaceException", "Namespace does not exist: no")


@pytest.mark.parametrize(("kind", "name"), [("tables", "t"), ("views", "v")])
def test_a_rename_to_the_name_it_has_changes_nothing(full: LocalCatalog, kind: str, name: str) -> None:
    state = full.state()

    done(full.call("POST", f"/v1/{kind}/rename", rename(identifier("ns", name), identifier("ns", name))))

    assert full.state() == state
    missing = full.call("POST", f"/v1/{kind}/rename", rename(identifier("ns", "no"), identifier("ns", "no")))
    assert missing.status == 404


def test_tables_that_swap_names_through_a_third_keep_their_identity(full: LocalCatalog) -> None:
    first, second = full.load("ns", "t"), full.table("ns", "u")

    for source, to in (("t", "spare"), ("u", "t"), ("spare", "u")):
        done(full.call("POST", "/v1/tables/rename", rename(identifier("ns", source), identifier("ns", to))))

    assert (full.load("ns", "t"), full.load("ns", "u")) == (second, first)


def test_of_many_who_rename_one_table_one_succeeds(full: LocalCatalog) -> None:
    """The others are told that the table is not there any more, which is true."""
    answers = full.together(
        *(
            full.request("POST", "/v1/tables/rename", rename(identifier("ns", "t"), identifier("ns", f"n{n}")))
            for n in range(8)
        )
    )

    assert sorted(answer.status for answer in answers) == [204] + [404] * 7
    assert len(names(full, "ns", "tables")) == 1


# Registering


def test_a_dropped_table_comes_back_by_its_metadata_file(full: LocalCatalog) -> None:
    before = full.load("ns", "t")
    done(full.call("DELETE", T))

    registered = full.call("POST", REGISTER, {"name": "back", "metadata-location": before["metadata-location"]})

    assert ok(registered) == before
    assert full.load("ns", "back") == before
    ok(full.call("POST", path_of("ns", "tables", "back"), a_commit(set_properties(a="b"))))


def test_a_dropped_view_comes_back_by_its_metadata_file(full: LocalCatalog) -> None:
    before = full.load("ns", "v", "views")
    done(full.call("DELETE", V))

    assert (
        ok(full.call("POST", REGISTER_VIEW, {"name": "v", "metadata-location": before["metadata-location"]})) == before
    )
    assert full.load("ns", "v", "views") == before


def test_an_unregistered_table_keeps_its_files_and_says_where_they_are(full: LocalCatalog) -> None:
    before, files = full.load("ns", "t"), full.files()

    assert ok(full.call("POST", f"{T}/unregister")) == before
    assert full.call("GET", T).status == 404
    assert full.files() == files
    assert ok(full.call("POST", REGISTER, {"name": "t", "metadata-location": before["metadata-location"]})) == before


def test_an_unregister_hands_out_what_another_server_committed_in_between(
    full: LocalCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client will register what it was told elsewhere: told too little, it would lose an acknowledged commit."""
    before = full.load("ns", "t")
    file = metadata_file(before)
    newer = file.with_name(file.name.replace("00000-", "00001-"))
    content = before["metadata"] | {"properties": before["metadata"]["properties"] | {"from": "elsewhere"}}
    newer.write_text(json.dumps(content))
    location = before["metadata-location"].replace("/00000-", "/00001-")
    apply = full.store.apply
    others = ["another server commits"]

    async def apply_later(changes: Any) -> list[object]:
        if others:
            others.pop()
            full.rows("UPDATE iceberg_tables SET metadata_location = ? WHERE table_name = 't'", location)
        return await apply(changes)

    monkeypatch.setattr(full.store, "apply", apply_later)
    answer = ok(full.call("POST", f"{T}/unregister"))

    assert answer["metadata-location"] == location
    assert answer["metadata"]["properties"]["from"] == "elsewhere"
    assert full.call("GET", T).status == 404


def test_a_register_with_overwrite_takes_the_table_back_to_an_older_version(full: LocalCatalog) -> None:
    old = full.load("ns", "t")
    ok(full.call("POST", T, a_commit(set_properties(a="b"))))
    body = {"name": "t", "metadata-location": old["metadata-location"]}

    assert full.call("POST", REGISTER, body).error == (409, "AlreadyExistsException", "Table already exists: ns.t")
    assert ok(full.call("POST", REGISTER, body | {"overwrite": True})) == old
    assert full.load("ns", "t") == old
    assert ok(full.call("POST", T, a_commit(set_properties(a="c"))))["metadata"]["properties"]["a"] == "c"


def test_a_register_with_overwrite_creates_what_is_missing_and_spares_views(full: LocalCatalog) -> None:
    before = ok(full.call("POST", f"{T}/unregister"))
    body = {"name": "t", "metadata-location": before["metadata-location"], "overwrite": True}

    assert ok(full.call("POST", REGISTER, body)) == before
    assert full.call("POST", REGISTER, body | {"name": "v"}).error == (
        409,
        "AlreadyExistsException",
        "View with same name already exists: ns.v",
    )


def test_a_table_that_is_registered_twice_is_not_purged_under_the_other_name(full: LocalCatalog) -> None:
    """The same metadata under two names, as the reference allows it: purging one must not kill the other."""
    before = full.load("ns", "t")
    body = {"name": "twin", "metadata-location": before["metadata-location"]}
    assert ok(full.call("POST", REGISTER, body)) == before

    done(full.call("DELETE", f"{T}?purgeRequested=true"))

    assert full.work_off_jobs() == 1
    assert full.load("ns", "twin") == before


def test_a_registered_table_of_another_writer_keeps_fields_we_do_not_know(full: LocalCatalog) -> None:
    metadata = full.load("ns", "t")["metadata"] | {"from-the-future": {"a": [1, None]}}
    file = full.warehouse / "foreign" / "v7.metadata.json"
    file.parent.mkdir()
    file.write_text(json.dumps(metadata | {"location": f"file://{full.warehouse}/foreign"}))

    ok(full.call("POST", REGISTER, {"name": "foreign", "metadata-location": f"file://{file}"}))
    changed = ok(full.call("POST", path_of("ns", "tables", "foreign"), a_commit(set_properties(a="b"))))

    assert changed["metadata"]["from-the-future"] == {"a": [1, None]}
    assert metadata_file(changed).name.startswith("00008-")


# Namespaces


def test_a_namespace_with_anything_in_it_is_not_dropped(full: LocalCatalog) -> None:
    full.namespace("parent", "child")
    full.namespace("views")
    full.view("views", "v")
    state = full.state()

    for namespace, message in [
        ("ns", "Namespace ns is not empty. Contains 1 table(s)."),
        ("views", "Namespace views is not empty. Contains 1 view(s)."),
        ("parent", "Namespace parent is not empty. Contains 1 child namespace(s)."),
    ]:
        assert full.call("DELETE", path_of(namespace)).error == (409, "NamespaceNotEmptyException", message)
    assert full.state() == state
    done(full.call("DELETE", path_of(["parent", "child"])))
    done(full.call("DELETE", path_of("parent")))


def test_a_namespace_outlives_its_last_table(full: LocalCatalog) -> None:
    done(full.call("DELETE", T))
    done(full.call("DELETE", V))

    assert full.call("HEAD", path_of("ns")).status == 204
    done(full.call("DELETE", path_of("ns")))
    assert full.call("HEAD", path_of("ns")).status == 404


def test_a_child_brings_its_missing_parents_with_it(full: LocalCatalog) -> None:
    full.namespace("a", "b", "c")

    assert ok(full.call("GET", "/v1/namespaces"))["namespaces"] == [["a"], ["empty"], ["ns"]]
    assert full.call("HEAD", path_of(["a", "b"])).status == 204
    done(full.call("DELETE", path_of(["a", "b", "c"])))
    assert full.call("HEAD", path_of(["a", "b"])).status == 204


def test_properties_are_set_replaced_removed_and_missed(full: LocalCatalog) -> None:
    path = path_of("empty") + "/properties"

    assert ok(full.call("POST", path, {"updates": {"a": "1", "b": "2"}})) == {
        "updated": ["a", "b"], "removed": [], "missing": [],
    }  # fmt: skip
    assert ok(full.call("POST", path, {"updates": {"b": "3"}, "removals": ["a", "none"]})) == {
        "updated": ["b"], "removed": ["a"], "missing": ["none"],
    }  # fmt: skip
    properties = ok(full.call("GET", path_of("empty")))["properties"]
    assert {key: properties[key] for key in properties if key != "location"} == {"b": "3"}


def test_the_mark_by_which_jdbc_clients_know_a_namespace_is_nobodys_property(full: LocalCatalog) -> None:
    assert "exists" not in ok(full.call("GET", path_of("ns")))["properties"]

    answer = ok(full.call("POST", path_of("empty") + "/properties", {"removals": ["exists"]}))

    assert answer["missing"] == ["exists"]
    assert full.call("HEAD", path_of("empty")).status == 204
