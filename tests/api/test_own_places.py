"""The server reads and deletes files of a table only in the table's own places, whatever its metadata names."""

import json
import logging
from pathlib import Path
from typing import Any

import apsw
import pytest

from nunatak.database.records import AddJob
from tests.api.manifests import manifest_list_of
from tests.api.wire import a_commit, a_table, add_snapshot, done, ok, path_of, set_branch
from tests.support.catalogs.local import LocalCatalog

T = path_of("ns", "tables", "t")
DEEP = "/management/v1/health?deep=true&securable=table:default/ns/"
NEIGHBOURS = "/management/v1/maintenance/neighbours?securable=table:default/ns/"
FOLDERS = "/management/v1/maintenance/folders"
AUDIT = "SELECT detail FROM nunatak_audit WHERE action = 'purge'"


def folder_of(loaded: Any) -> Path:
    return Path(loaded["metadata"]["location"].removeprefix("file://"))


def a_file(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(str(path))
    return f"file://{path}"


def point_at(catalog: LocalCatalog, name: str, manifest_list: str, snapshot_id: int = 1) -> None:
    update = add_snapshot(snapshot_id, sequence=snapshot_id)
    update["snapshot"]["manifest-list"] = manifest_list
    ok(catalog.commit("ns", name, a_commit(update, set_branch(snapshot_id))))


def set_statistics(path: str, kind: str = "statistics") -> dict[str, Any]:
    found: dict[str, Any] = {"snapshot-id": 1, "statistics-path": path, "file-size-in-bytes": 1}
    if kind == "statistics":
        found |= {"file-footer-size-in-bytes": 1, "blob-metadata": []}
    return {"action": f"set-{kind}", kind: found}


def purge(catalog: LocalCatalog, name: str = "t") -> None:
    done(catalog.call("DELETE", f"{path_of('ns', 'tables', name)}?purgeRequested=true"))
    catalog.work_off_jobs()


# Purge


def test_a_purge_deletes_nothing_outside_the_tables_own_places(
    catalog: LocalCatalog, caplog: pytest.LogCaptureFixture
) -> None:
    """Statistics, a manifest list, a manifest, data files: each named from inside, each lying in nobody's folder."""
    folder, nobodys = folder_of(catalog.table("ns", "t")), catalog.warehouse / "unregistered"
    data = [a_file(nobodys / "data/imported.parquet"), a_file(folder / "data/own.parquet")]
    point_at(catalog, "t", manifest_list_of(folder / "metadata", "list", data))
    point_at(catalog, "t", manifest_list_of(nobodys / "metadata", "other", [a_file(nobodys / "data/2.parquet")]), 2)
    statistics = a_file(nobodys / "metadata/00001.metadata.json")
    ok(catalog.commit("ns", "t", a_commit(set_statistics(statistics))))
    more = a_file(nobodys / "stats.puffin")
    ok(catalog.commit("ns", "t", a_commit(set_statistics(more, "partition-statistics"))))
    before = {each for each in catalog.files() if each.startswith("unregistered/")}

    with caplog.at_level(logging.WARNING):
        purge(catalog)

    assert catalog.files() == before
    assert len(before) == 6
    ((told,),) = catalog.rows(AUDIT)
    left = json.loads(told)["left"]
    assert left["outside"] == 4  # what the list outside leads to is not even read
    assert set(left["files"]) == {statistics, more, data[0], f"file://{nobodys}/metadata/other.avro"}
    assert "unregistered/stats.puffin" in caplog.text


def test_a_purge_deletes_nothing_that_the_manifests_of_version_1_name_outside(catalog: LocalCatalog) -> None:
    folder = folder_of(catalog.table("ns", "t", properties={"format-version": "1"}))
    outside, inside = a_file(catalog.warehouse / "x/m0.avro"), a_file(folder / "metadata/m1.avro")
    Path(inside.removeprefix("file://")).write_bytes(b"")
    update = add_snapshot(1)
    del update["snapshot"]["manifest-list"], update["snapshot"]["sequence-number"]
    update["snapshot"]["manifests"] = [outside, inside]
    ok(catalog.commit("ns", "t", a_commit(update)))

    purge(catalog)

    assert catalog.files() == {"x/m0.avro"}


def test_a_purge_deletes_nothing_that_a_metadata_log_names_outside(catalog: LocalCatalog) -> None:
    table = catalog.table("ns", "first")
    metadata = table["metadata"] | {"location": f"file://{catalog.warehouse}/copy"}
    outside = a_file(catalog.warehouse / "x/00000.metadata.json")
    metadata |= {"metadata-log": [{"timestamp-ms": 1, "metadata-file": outside}], "table-uuid": "u-2"}
    file = catalog.warehouse / "copy/metadata/00001-a.metadata.json"
    a_file(file)
    file.write_text(json.dumps(metadata))
    ok(catalog.call("POST", path_of("ns", "register"), {"name": "t", "metadata-location": f"file://{file}"}))
    before = catalog.files()

    purge(catalog)

    assert before - catalog.files() == {"copy/metadata/00001-a.metadata.json"}


def test_a_metadata_file_outside_the_tables_own_places_is_left(catalog: LocalCatalog) -> None:
    table = catalog.table("ns", "first")
    metadata = table["metadata"] | {"location": f"file://{catalog.warehouse}/copy", "table-uuid": "u-2"}
    file = catalog.warehouse / "backup/00001-a.metadata.json"
    a_file(file)
    file.write_text(json.dumps(metadata))
    ok(catalog.call("POST", path_of("ns", "register"), {"name": "t", "metadata-location": f"file://{file}"}))

    purge(catalog)

    assert file.exists()


def test_a_purge_deletes_in_the_places_that_the_table_wrote_to(catalog: LocalCatalog) -> None:
    far = catalog.warehouse / "far"
    properties = {"write.data.path": f"file://{far}/data", "write.metadata.path": f"file://{far}/metadata"}
    catalog.table("ns", "t", properties=properties)
    point_at(catalog, "t", manifest_list_of(far / "metadata", "list", [a_file(far / "data/x.parquet")]))

    purge(catalog)

    assert catalog.files() == set()


def test_a_purge_leaves_a_table_that_lies_in_a_place_the_purged_one_wrote_to(catalog: LocalCatalog) -> None:
    """The place was the table's own before the other was made inside it."""
    far = catalog.warehouse / "far"
    folder = folder_of(catalog.table("ns", "t", properties={"write.data.path": f"file://{far}"}))
    inner = a_file(far / "inner/data/x.parquet")
    point_at(catalog, "t", manifest_list_of(folder / "metadata", "list", [inner, a_file(far / "own.parquet")]))
    catalog.table("ns", "inner", location=f"file://{far}/inner")

    purge(catalog)

    assert "far/inner/data/x.parquet" in catalog.files()
    assert "far/own.parquet" not in catalog.files()
    ok(catalog.call("GET", path_of("ns", "tables", "inner")))


def test_old_metadata_files_outside_the_tables_own_places_are_left(catalog: LocalCatalog) -> None:
    """What `write.metadata.delete-after-commit.enabled` drops from the log of a registered table may lie anywhere."""
    table = catalog.table("ns", "first")
    outside = a_file(catalog.warehouse / "x/00000.metadata.json")
    metadata = table["metadata"] | {"location": f"file://{catalog.warehouse}/copy", "table-uuid": "u-2"}
    metadata["metadata-log"] = [{"timestamp-ms": 1, "metadata-file": outside}]
    metadata["properties"] = {
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "1",
    }
    file = catalog.warehouse / "copy/metadata/00001-a.metadata.json"
    a_file(file)
    file.write_text(json.dumps(metadata))
    ok(catalog.call("POST", path_of("ns", "register"), {"name": "t", "metadata-location": f"file://{file}"}))

    for number in range(3):
        update = {"action": "set-properties", "updates": {"a": str(number)}}
        ok(catalog.commit("ns", "t", a_commit(update)))
        catalog.work_off_jobs()

    assert "x/00000.metadata.json" in catalog.files()
    assert not file.exists()  # in its own places it is deleted as asked


def test_old_metadata_files_of_a_job_that_an_earlier_version_added_are_deleted(catalog: LocalCatalog) -> None:
    table = catalog.table("ns", "t")
    old, outside = a_file(folder_of(table) / "metadata/old.json"), a_file(catalog.warehouse / "x/old.json")
    payload = {"catalog": "default", "table-uuid": table["metadata"]["table-uuid"], "files": [old, outside]}
    catalog.run(catalog.store.apply([AddJob("delete-files", json.dumps(payload).encode())]))

    catalog.work_off_jobs()

    assert not (folder_of(table) / "metadata/old.json").exists()
    assert (catalog.warehouse / "x/old.json").exists()


# Empty folders


def test_a_purge_removes_no_folder_behind_a_link(catalog: LocalCatalog, tmp_path: Path) -> None:
    folder = folder_of(catalog.table("ns", "t"))
    outside = tmp_path / "outside"
    (outside / "empty" / "deep").mkdir(parents=True)
    (folder / "data").rmdir()
    (folder / "data").symlink_to(outside, target_is_directory=True)

    purge(catalog)

    assert (outside / "empty" / "deep").is_dir()


def test_a_purge_removes_no_folder_if_a_link_leads_to_the_table(catalog: LocalCatalog, tmp_path: Path) -> None:
    location = f"file://{catalog.warehouse}/street/t"
    catalog.table("ns", "t", location=location)
    outside = tmp_path / "outside"
    (outside / "t" / "empty").mkdir(parents=True)
    done(catalog.call("DELETE", f"{T}?purgeRequested=true"))
    (catalog.warehouse / "street").rename(catalog.warehouse / "aside")
    (catalog.warehouse / "street").symlink_to(outside, target_is_directory=True)

    catalog.work_off_jobs()

    assert (outside / "t" / "empty").is_dir()


def test_the_folders_of_a_staged_table_that_never_came_are_removed(catalog: LocalCatalog) -> None:
    staged = ok(catalog.call("POST", path_of("ns", "tables"), a_table("t", stage_create=True)))
    kept = ok(catalog.call("POST", path_of("ns", "tables"), a_table("u", stage_create=True)))
    a_file(folder_of(kept) / "data/x.parquet")
    assert folder_of(staged).is_dir()
    catalog.work_off_jobs()
    assert folder_of(staged).is_dir()

    catalog.clock.added_ms += 86_400_000 + 1
    catalog.work_off_jobs()

    assert not folder_of(staged).exists()
    assert (folder_of(kept) / "data/x.parquet").exists()
    assert catalog.rows("SELECT * FROM nunatak_jobs") == []


def test_the_folders_of_a_staged_table_that_came_stay(catalog: LocalCatalog) -> None:
    location = f"file://{catalog.warehouse}/street/t"
    ok(catalog.call("POST", path_of("ns", "tables"), a_table("t", location=location, stage_create=True)))
    table = catalog.table("ns", "t", location=location)

    catalog.clock.added_ms += 86_400_000 + 1
    catalog.work_off_jobs()

    assert (folder_of(table) / "data").is_dir()


# Readers


def test_health_does_not_look_into_another_tables_manifests(catalog: LocalCatalog) -> None:
    """Whoever may name them here (nobody is asked to log in): what lies there is never told."""
    folder = folder_of(catalog.table("ns", "victim"))
    point_at(catalog, "victim", manifest_list_of(folder / "metadata", "list", [a_file(folder / "data/secret.parquet")]))
    catalog.table("ns", "t")
    point_at(catalog, "t", f"file://{folder}/metadata/list.avro")
    counts = catalog.app.catalog.objects.local.counts
    before = counts["read"]

    answer = catalog.call("GET", DEEP + "t")

    assert answer.error[0] == 400
    assert "own places" in answer.error[2]
    assert counts["read"] == before
    ok(catalog.call("GET", DEEP + "victim"))


def test_health_does_not_follow_a_manifest_list_of_ones_own_to_another_tables_manifest(catalog: LocalCatalog) -> None:
    victim, mine = folder_of(catalog.table("ns", "victim")), folder_of(catalog.table("ns", "t"))
    manifest_list_of(victim / "metadata", "list", [])
    point_at(catalog, "t", manifest_list_of(mine / "metadata", "list", [], manifest=victim / "metadata/list-m0.avro"))

    status, _, message = catalog.call("GET", DEEP + "t").error

    assert status == 400
    assert "own places" in message


# Whose a folder is


def sorted_folders(catalog: LocalCatalog, *folders: str, name: str = "t") -> tuple[list[str], list[str]]:
    found = ok(catalog.call("POST", FOLDERS, {"securable": f"table:default/ns/{name}", "folders": list(folders)}))
    assert set(found) == {"foreign", "outside"}
    return found["foreign"], found["outside"]


@pytest.fixture
def street(catalog: LocalCatalog) -> LocalCatalog:
    far = f"file://{catalog.warehouse}/far"
    catalog.table("ns", "t", location=place(catalog, "t"), properties={"write.data.path": f"{far}/t"})
    catalog.table("ns", "other", location=place(catalog, "other"), properties={"write.data.path": f"{far}/other"})
    catalog.view("ns", "v", location=place(catalog, "view"))
    return catalog


def register_twin(catalog: LocalCatalog) -> None:
    file = catalog.load("ns", "t")["metadata-location"]
    ok(catalog.call("POST", path_of("ns", "register"), {"name": "twin", "metadata-location": file}))


def place(catalog: LocalCatalog, folder: str) -> str:
    return f"file://{catalog.warehouse}/{folder}"


def test_folders_are_own_foreign_or_nobodys(street: LocalCatalog) -> None:
    own = [place(street, each) for each in ("t", "t/data", "t/data/", "far/t/a=1")]
    foreign = [place(street, each) for each in ("other", "other/metadata", "far/other", "far/other/x", "view/metadata")]
    outside = [place(street, each) for each in ("t2", "far", "", "other2/x")] + ["s3://bucket/x", "nonsense"]

    assert sorted_folders(street, *own, *foreign, *outside) == (foreign, outside)


def test_folders_are_compared_by_what_they_mean(street: LocalCatalog) -> None:
    (street.warehouse / "t" / "link").symlink_to(street.warehouse / "other", target_is_directory=True)
    foreign = [
        place(street, "t/../other/data"),
        place(street, "t/%2e%2e/other"),
        place(street, "t/link/data"),
        place(street, "other/data").replace("file:///", "file:/"),
        place(street, "//other"),
    ]

    assert sorted_folders(street, *foreign, place(street, "t/data").replace("file:///", "FILE:/")) == (foreign, [])


@pytest.mark.parametrize(
    "folder", ["\x00", "%00", "\ud83d", "file:///\u202e", "a" * 100_000, "file:" + "/.." * 30_000, "%"]
)
def test_no_folder_is_too_odd_to_be_asked_for(street: LocalCatalog, folder: str) -> None:
    answer = street.call("POST", FOLDERS, {"securable": "table:default/ns/t", "folders": [folder]})

    assert answer.status in (200, 400), answer.body[:200]


def test_a_second_name_shares_its_folders(street: LocalCatalog) -> None:
    loaded = street.load("ns", "t")
    ok(
        street.call(
            "POST", path_of("ns", "register"), {"name": "twin", "metadata-location": loaded["metadata-location"]}
        )
    )

    assert sorted_folders(street, place(street, "t/data")) == ([], [])


def test_a_table_that_lies_in_a_place_of_this_one_is_another(street: LocalCatalog) -> None:
    street.table("ns", "inner", location=place(street, "far/t/inner"))

    inner, own = place(street, "far/t/inner/data"), place(street, "far/t/x")
    assert sorted_folders(street, inner, own) == ([inner], [])


def test_what_another_client_put_there_is_foreign(street: LocalCatalog) -> None:
    connection = apsw.Connection(str(street.data / "nunatak.db"))
    connection.execute(
        "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location) "
        "VALUES ('default', 'ns', 'unknown', ?)",
        (place(street, "unknown/metadata/00000-a.metadata.json"),),
    )
    connection.close()

    folder = place(street, "unknown/data")
    assert sorted_folders(street, folder) == ([folder], [])


def test_ten_thousand_folders_are_asked_for_at_once(street: LocalCatalog) -> None:
    folders = [place(street, f"other/data/d={number}") for number in range(10_000)]
    reads = street.store.counts["read"]

    assert sorted_folders(street, *folders) == (folders, [])

    assert street.store.counts["read"] - reads < 100
    more = {"securable": "table:default/ns/t", "folders": [*folders, "x"]}
    assert street.call("POST", FOLDERS, more).error[0] == 400


def test_the_neighbours_count_a_second_name_that_lies_elsewhere_by_now(street: LocalCatalog) -> None:
    loaded = street.load("ns", "t")
    ok(
        street.call(
            "POST", path_of("ns", "register"), {"name": "twin", "metadata-location": loaded["metadata-location"]}
        )
    )
    updates: list[dict[str, Any]] = [
        {"action": "set-location", "location": place(street, "moved")},
        {"action": "remove-properties", "removals": ["write.data.path"]},
    ]
    ok(street.commit("ns", "twin", a_commit(*updates)))

    found = ok(street.call("GET", NEIGHBOURS + "t"))

    assert (found["count"], found["neighbours"]) == (1, ["table:default/ns/twin"])
    assert found["places"] == [place(street, "t"), place(street, "far/t")]


def test_the_neighbours_count_whoever_shares_a_place_to_write_to(street: LocalCatalog) -> None:
    street.table("ns", "sharing", properties={"write.metadata.path": place(street, "far/t/inside")})

    found = ok(street.call("GET", NEIGHBOURS + "t"))

    assert found["neighbours"] == ["table:default/ns/sharing"]


@pytest.mark.parametrize("road", ["commit", "property after it", "register"])
def test_the_neighbours_count_whoever_points_into_a_place(street: LocalCatalog, road: str) -> None:
    """Its files are needed by a table that lies elsewhere: nothing that deletes may begin here."""
    outside = f"file://{street.warehouse}/t/metadata/borrowed.avro".replace("file:///", "file:/")
    street.table("ns", "borrower")
    point_at(street, "borrower", outside)
    if road == "property after it":
        update = {"action": "set-properties", "updates": {"write.data.path": place(street, "elsewhere")}}
        ok(street.commit("ns", "borrower", a_commit(update)))
    elif road == "register":
        file = street.load("ns", "borrower")["metadata-location"]
        done(street.call("DELETE", path_of("ns", "tables", "borrower")))
        ok(street.call("POST", path_of("ns", "register"), {"name": "borrower", "metadata-location": file}))

    found = ok(street.call("GET", NEIGHBOURS + "t"))
    assert found["neighbours"] == ["table:default/ns/borrower"]
    assert sorted_folders(street, place(street, "t/metadata")) == ([], [])
    assert (
        ok(street.call("GET", "/management/v1/maintenance/neighbours?securable=table:default/ns/other"))["count"] == 0
    )

    done(street.call("DELETE", path_of("ns", "tables", "borrower")))
    assert ok(street.call("GET", NEIGHBOURS + "t"))["count"] == 0


def test_a_purge_leaves_what_a_live_table_points_at(street: LocalCatalog) -> None:
    folder = street.warehouse / "t"
    kept = manifest_list_of(folder / "metadata", "kept", [a_file(folder / "data/kept.parquet")])
    gone = manifest_list_of(folder / "metadata", "gone", [a_file(folder / "data/gone.parquet")])
    point_at(street, "t", kept)
    point_at(street, "t", gone, 2)
    street.table("ns", "borrower")
    point_at(street, "borrower", kept)

    purge(street)

    left = {each for each in street.files() if each.startswith("t/")}
    assert left == {"t/metadata/kept.avro", "t/metadata/kept-m0.avro", "t/data/kept.parquet"}
