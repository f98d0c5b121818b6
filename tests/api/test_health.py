"""`GET /management/v1/health`: what a table's metadata tells, who is told, and that a broken table hides no other."""

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.api.conftest import MakeCatalog
from tests.api.manifests import LIST_FIELDS, a_manifest, avro
from tests.api.wire import a_commit, a_table, add_snapshot, ok, path_of, set_branch, set_properties
from tests.support.catalogs.local import LocalCatalog, metadata_file

HEALTH = "/management/v1/health"
MIB = 1 << 20
DAY_MS = 86_400_000


def health(catalog: LocalCatalog, securable: str, **query: str) -> Any:
    more = "".join(f"&{name}={quote(value, safe='')}" for name, value in query.items())
    return ok(catalog.call("GET", f"{HEALTH}?securable={quote(securable, safe='')}{more}"))


def check(table: Any, name: str) -> Any:
    return next(each for each in table["checks"] if each["check"] == name)


def write(catalog: LocalCatalog, name: str, snapshot_id: int, manifest_list: str | None = None, **totals: int) -> None:
    """A commit whose summary tells these totals, written with underscores."""
    update = add_snapshot(snapshot_id)
    told = {"total-" + total.replace("_", "-"): str(count) for total, count in totals.items()}
    update["snapshot"]["summary"] |= told
    if manifest_list is not None:
        update["snapshot"]["manifest-list"] = manifest_list
    ok(catalog.commit("ns", name, a_commit(update, set_branch(snapshot_id))))


def test_a_new_table_lacks_nothing(catalog: LocalCatalog) -> None:
    catalog.table("ns", "t")

    (table,) = health(catalog, "table:default/ns/t")["tables"]

    assert table["score"] == 100
    assert sum(each["most-points"] for each in table["checks"]) == 100
    assert table["facts"]["data-files"] == 0


def test_many_small_files_cost_points_and_name_the_command(catalog: LocalCatalog) -> None:
    catalog.table("ns", "t")
    write(catalog, "t", 1, data_files=2000, files_size=20 * MIB, delete_files=0, records=20_000)

    (table,) = health(catalog, "table:default/ns/t")["tables"]

    small = check(table, "small-files")
    assert (small["value"], small["limit"], small["points"], small["fix"]) == (
        100.0,
        20.0,
        25,
        "nunatak maintain compact ns.t",
    )
    assert small["exact"] is False
    assert check(table, "compaction-debt")["points"] == 10
    assert table["score"] == 65
    assert [each["points"] for each in table["checks"]] == sorted(each["points"] for each in table["checks"])[::-1]


def test_what_the_summary_leaves_out_costs_nothing_and_says_so(catalog: LocalCatalog) -> None:
    catalog.table("ns", "t")
    write(catalog, "t", 1)

    (table,) = health(catalog, "table:default/ns/t")["tables"]

    small = check(table, "small-files")
    assert small["value"] is None
    assert small["points"] == 0
    assert small["fix"] == "nunatak health --deep ns.t"


def test_old_snapshots_and_stale_branches_are_told_by_the_servers_clock(catalog: LocalCatalog) -> None:
    catalog.table("ns", "t")
    write(catalog, "t", 1, data_files=1, files_size=MIB)
    ok(catalog.commit("ns", "t", a_commit(set_branch(1, "try`it"))))
    catalog.clock.added_ms = 40 * DAY_MS

    (table,) = health(catalog, "table:default/ns/t")["tables"]

    stale = check(table, "stale-branches")
    assert stale["value"] == 1
    assert stale["points"] == 1
    assert stale["fix"] == "ALTER TABLE ns.t DROP BRANCH `try``it`"
    assert check(table, "old-snapshots")["points"] == 0, "a branch holds on to the only snapshot"


def test_a_namespace_tells_of_its_tables_page_by_page_and_of_no_view(catalog: LocalCatalog) -> None:
    for name in ("a", "b", "c"):
        catalog.table("ns", name)
    catalog.view("ns", "v")

    first = health(catalog, "namespace:default/ns", pageSize="2")
    second = health(catalog, "namespace:default/ns", pageSize="2", pageToken=first["next-page-token"])

    assert [each["securable"] for each in first["tables"]] == ["table:default/ns/a", "table:default/ns/b"]
    assert [each["securable"] for each in second["tables"]] == ["table:default/ns/c"]
    assert "next-page-token" not in second


def test_a_warehouse_tells_of_every_namespace(catalog: LocalCatalog) -> None:
    catalog.namespace("other")
    catalog.table("ns", "a")
    catalog.table("other", "b")
    catalog.view("other", "v")

    found = health(catalog, "warehouse:default")

    assert [each["securable"] for each in found["tables"]] == ["table:default/ns/a", "table:default/other/b"]


def test_a_table_that_cannot_be_read_does_not_hide_the_others(catalog: LocalCatalog) -> None:
    catalog.table("ns", "a")
    catalog.table("ns", "b")
    write(catalog, "b", 1, manifest_list="file:///elsewhere/list.avro")

    found = health(catalog, "namespace:default/ns", deep="true")

    assert found["tables"][0]["score"] == 100
    assert "outside the table's own places" in found["tables"][1]["error"]


@pytest.mark.parametrize(
    ("securable", "status"),
    [
        ("", 400),
        ("server", 400),
        ("nonsense", 400),
        ("table:default/ns/missing", 404),
        ("namespace:default/missing", 404),
        ("warehouse:missing", 404),
    ],
)
def test_what_is_not_there_is_refused(catalog: LocalCatalog, securable: str, status: int) -> None:
    answer = catalog.call("GET", f"{HEALTH}?securable={quote(securable, safe='')}")

    assert answer.error[0] == status


# Deep


def test_deep_counts_live_files_by_partition(catalog: LocalCatalog) -> None:
    spec = {"spec-id": 0, "fields": [{"name": "data", "transform": "identity", "source-id": 2, "field-id": 1000}]}
    folder = metadata_file(catalog.table("ns", "t", partition_spec=spec)).parent
    # Ten small files of one day can be joined to one; one of another day has nobody to be joined with.
    crowded = [("mon", MIB, 1)] * 10
    lines = [
        a_manifest(folder, "m1", [*crowded, ("mon", 3 * MIB, 2)]),
        a_manifest(folder, "m2", [("tue", MIB, 1), ("wed", 600 * MIB, 0)]),
    ]
    manifest_list = avro(folder / "list.avro", "m", LIST_FIELDS, lines)
    write(catalog, "t", 1, manifest_list=manifest_list, data_files=12, files_size=611 * MIB, records=5)

    (table,) = health(catalog, "table:default/ns/t", deep="true")["tables"]

    small = check(table, "small-files")
    assert small["exact"] is True
    assert small["value"] == round(100 * 10 / 12, 2)
    assert small["reason"] == "10 of 12 data files are below three quarters of 512.0 MiB; a rewrite saves 9"
    assert table["facts"]["partitions"] == 3
    assert table["facts"]["manifests"] == 2
    assert table["facts"]["files-by-size"] == [11, 0, 0, 0, 1]
    assert check(table, "partition-skew")["value"] == round(600 * 3 / 611, 2)


def test_deep_counts_metadata_files_that_no_metadata_names_any_more(catalog: LocalCatalog) -> None:
    catalog.table("ns", "t", properties={"write.metadata.previous-versions-max": "2"})
    for number in range(6):
        ok(catalog.commit("ns", "t", a_commit(set_properties(number=str(number)))))

    (shallow,) = health(catalog, "table:default/ns/t")["tables"]
    (deep,) = health(catalog, "table:default/ns/t", deep="true")["tables"]

    assert (shallow["facts"]["metadata-files"], deep["facts"]["metadata-files"]) == (None, 7)
    assert (check(shallow, "metadata-files")["value"], check(shallow, "metadata-files")["exact"]) == (3, False)
    assert (check(deep, "metadata-files")["value"], check(deep, "metadata-files")["exact"]) == (7, True)
    assert check(deep, "metadata-files")["reason"] == (
        "7 metadata files are in the folder, and the current one references 3"
    )


# Who is told


def test_health_is_for_those_who_may_read_the_metadata(tmp_path: Path) -> None:
    secured = LocalCatalog(tmp_path, auth=True)
    try:
        secured.namespace("sales")
        for name in ("orders", "secret"):
            ok(secured.call("POST", path_of("sales", "tables"), a_table(name)))
        secured.principal("stranger")
        secured.principal("lister", default__sales="TABLE_LIST")
        secured.principal("reader", default__sales____orders="TABLE_READ_META")

        def status(caller: str, securable: str) -> int:
            return secured.call_as(caller, "GET", f"{HEALTH}?securable={securable}").status

        def told(caller: str, securable: str) -> list[str]:
            answer = ok(secured.call_as(caller, "GET", f"{HEALTH}?securable={securable}"))
            return [each["securable"] for each in answer["tables"]]

        assert status("stranger", "table:default/sales/orders") == 404
        assert status("stranger", "namespace:default/sales") == 404
        assert status("lister", "table:default/sales/orders") == 403
        assert told("lister", "namespace:default/sales") == []
        assert told("reader", "table:default/sales/orders") == ["table:default/sales/orders"]
        assert told("reader", "namespace:default/sales") == ["table:default/sales/orders"]
        assert told("reader", "warehouse:default") == ["table:default/sales/orders"]
        assert told("root", "warehouse:default") == ["table:default/sales/orders", "table:default/sales/secret"]
    finally:
        secured.close()


def test_a_table_in_another_warehouse_names_it_in_the_command(make_catalog: MakeCatalog, quick_folder: Path) -> None:
    catalog = make_catalog(warehouses=f"second=file://{quick_folder}/second")
    ok(catalog.call("POST", "/v1/second/namespaces", {"namespace": ["ns"]}))
    ok(catalog.call("POST", "/v1/second/namespaces/ns/tables", a_table("t")))
    ok(catalog.call("POST", "/v1/second/namespaces/ns/tables/t", a_commit(set_properties(color="red"))))
    update = add_snapshot(1)
    update["snapshot"]["summary"] |= {"total-data-files": "900", "total-files-size": "900", "total-delete-files": "0"}
    ok(catalog.call("POST", "/v1/second/namespaces/ns/tables/t", a_commit(update, set_branch(1))))

    (table,) = health(catalog, "table:second/ns/t")["tables"]

    assert check(table, "small-files")["fix"] == "nunatak maintain compact ns.t --warehouse second"
