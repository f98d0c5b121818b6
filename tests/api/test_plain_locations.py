"""Tables at `<namespace>/<table>`, for a warehouse that wants it: never in a folder that was another table's."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.api.conftest import MakeCatalog
from tests.api.wire import a_table, a_view, done, identifier, ok, path_of
from tests.support.catalogs.local import LocalCatalog


@pytest.fixture
def plain(make_catalog: MakeCatalog) -> LocalCatalog:
    made = make_catalog(plain_locations="default,later")
    made.namespace("ns")
    return made


def place(catalog: LocalCatalog, table: Any) -> str:
    """Where it lies below the warehouse, without the uuid of its own."""
    location: str = table["metadata"]["location"]
    below = location.removeprefix(f"file://{catalog.warehouse}/")
    assert below != location
    return below.replace(table["metadata"]["table-uuid"], "UUID")


def test_a_table_lies_at_its_namespace_and_name(plain: LocalCatalog) -> None:
    """MISSION: 004-22"""
    plain.namespace("a", "b")
    plain.namespace("given", location=f"file://{plain.warehouse}/some/where")

    table = plain.table("ns", "t")

    assert place(plain, table) == "ns/t"
    assert table["metadata-location"].startswith(f"file://{plain.warehouse}/ns/t/metadata/00000-")
    assert sorted(os.listdir(plain.warehouse / "ns" / "t")) == ["data", "metadata"]
    assert place(plain, plain.table("a\x1fb", "t")) == "a/b/t"
    assert place(plain, plain.table("given", "t")) == "some/where/t"


def test_another_warehouse_keeps_its_uuids(make_catalog: MakeCatalog, quick_folder: Path) -> None:
    catalog = make_catalog(plain_locations="other", warehouses=f"other=file://{quick_folder}/other")
    catalog.namespace("ns")
    ok(catalog.call("POST", "/v1/other/namespaces", {"namespace": ["ns"]}))

    assert place(catalog, catalog.table("ns", "t")) == "ns/t-UUID"
    other = ok(catalog.call("POST", "/v1/other/namespaces/ns/tables", a_table("t")))
    assert other["metadata"]["location"] == f"file://{quick_folder}/other/ns/t"


def test_a_warehouse_made_while_the_server_runs_is_known_by_its_name(plain: LocalCatalog) -> None:
    ok(plain.call("POST", "/management/v1/warehouses", {"name": "later"}))
    ok(plain.call("POST", "/v1/later/namespaces", {"namespace": ["ns"]}))

    table = ok(plain.call("POST", "/v1/later/namespaces/ns/tables", a_table("t")))

    assert table["metadata"]["location"] == f"file://{plain.data}/warehouses/later/ns/t"


@pytest.mark.parametrize("how", ["dropped", "purged", "renamed", "left behind", "an empty folder", "a file", "a link"])
def test_a_folder_that_is_there_is_not_used_again(plain: LocalCatalog, how: str) -> None:
    table = path_of("ns", "tables", "t")
    if how in ("dropped", "purged", "renamed"):
        plain.table("ns", "t")
        (plain.warehouse / "ns" / "t" / "data" / "old.parquet").write_bytes(b"of the table before")
    if how in ("dropped", "purged"):
        done(plain.call("DELETE", f"{table}?purgeRequested={'true' if how == 'purged' else 'false'}"))
    elif how == "renamed":
        renamed = {"source": identifier("ns", "t"), "destination": identifier("ns", "u")}
        done(plain.call("POST", "/v1/tables/rename", renamed))
    else:
        (plain.warehouse / "ns").mkdir(parents=True)
        if how == "a file":
            (plain.warehouse / "ns" / "t").touch()
        elif how == "a link":
            (plain.warehouse / "ns" / "t").symlink_to(plain.data / "elsewhere")
        else:
            (plain.warehouse / "ns" / "t").mkdir()
            if how == "left behind":
                (plain.warehouse / "ns" / "t" / "old.parquet").touch()

    assert place(plain, plain.table("ns", "t")) == "t-UUID"


@pytest.mark.parametrize("name", ["with space", "dot.ted", "slash/ed", "ümlaut", "x" * 49])
def test_a_name_that_cannot_be_a_folder_as_it_is_gets_a_uuid(plain: LocalCatalog, name: str) -> None:
    assert place(plain, plain.table("ns", name)).endswith("-UUID")


def test_a_table_and_a_namespace_of_one_name_keep_apart(plain: LocalCatalog) -> None:
    plain.namespace("ns", "t")
    plain.table("ns", "t")
    assert place(plain, plain.table("ns\x1ft", "inner")) == "inner-UUID"
    ok(plain.call("POST", path_of("ns\x1ft", "views"), a_view("v")))
    plain.namespace("ns", "u")
    assert place(plain, plain.table("ns\x1fu", "inner")) == "ns/u/inner"

    assert place(plain, plain.table("ns", "u")) == "u-UUID"


def test_a_staged_table_gets_a_uuid(plain: LocalCatalog) -> None:
    """Whether its folder is its own is known only when it is committed, and then it holds files."""
    staged = ok(plain.call("POST", path_of("ns", "tables"), a_table("t", stage_create=True)))

    assert place(plain, staged) == "t-UUID"
    assert place(plain, plain.table("ns", "t")) == "ns/t"


def test_a_refused_table_gives_its_folder_back(plain: LocalCatalog) -> None:
    refused = a_table("t", properties={"write.data.path": "file:///etc"})
    assert plain.call("POST", path_of("ns", "tables"), refused).status == 400

    assert place(plain, plain.table("ns", "t")) == "ns/t"


def test_of_many_who_create_one_table_one_has_the_folder(plain: LocalCatalog) -> None:
    answers = plain.together(*(plain.request("POST", path_of("ns", "tables"), a_table("t")) for _ in range(5)))

    assert sorted(answer.status for answer in answers) == [200, 409, 409, 409, 409]
    winner = next(answer.json for answer in answers if answer.status == 200)
    files = [file for file in plain.files() if file.endswith(".metadata.json")]
    assert [f"file://{plain.warehouse}/{file}" for file in files] == [winner["metadata-location"]]
    assert plain.load("ns", "t")["metadata-location"] == winner["metadata-location"]
