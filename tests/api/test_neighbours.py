"""Who else keeps files in a table's folder: asked before files are deleted that look like nobody's."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.api.wire import a_table, ok, path_of
from tests.support.catalogs.local import LocalCatalog

NEIGHBOURS = "/management/v1/maintenance/neighbours?securable=table:default/ns/"


@pytest.fixture
def inhabited(catalog: LocalCatalog) -> LocalCatalog:
    """The table `home` in the folder `street/home`, and two tables that lie elsewhere."""
    catalog.table("ns", "home", location=place(catalog, "street/home"))
    catalog.table("ns", "far", location=place(catalog, "street/home-2"))
    catalog.view("ns", "v")
    return catalog


def place(catalog: LocalCatalog, folder: str) -> str:
    return f"file://{catalog.warehouse}/{folder}"


def neighbours(catalog: LocalCatalog, table: str = "home") -> Any:
    found = ok(catalog.call("GET", NEIGHBOURS + table))
    assert found["count"] == len(found["neighbours"])
    return found["neighbours"]


def point_at(catalog: LocalCatalog, name: str, metadata_location: str) -> None:
    """As another client does that shares the database and knows nothing of this server."""
    connection = apsw.Connection(str(catalog.data / "nunatak.db"))
    connection.execute(
        "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location, iceberg_type) "
        "VALUES ('default', 'ns', ?, ?, 'TABLE')",
        (name, metadata_location),
    )
    connection.close()


def test_a_table_with_a_folder_of_its_own_has_none(inhabited: LocalCatalog) -> None:
    found = ok(inhabited.call("GET", NEIGHBOURS + "home"))

    home = place(inhabited, "street/home")
    assert found == {"location": home, "count": 0, "neighbours": [], "places": [home], "shadow": None}


@pytest.mark.parametrize(
    ("writes_to", "folder"),
    [("street/new/inside", "street/new"), ("street/new", "street/new"), ("avenue", "avenue/new")],
)
@pytest.mark.parametrize("name", ["write.data.path", "write.metadata.path"])
def test_whoever_writes_into_the_folder_or_around_it_is_one(
    inhabited: LocalCatalog, name: str, writes_to: str, folder: str
) -> None:
    inhabited.table("ns", "writer", properties={name: place(inhabited, writes_to)})
    inhabited.table("ns", "new", location=place(inhabited, folder))

    assert neighbours(inhabited, "new") == ["table:default/ns/writer"]
    assert neighbours(inhabited, "far") == []


def test_another_name_of_the_same_table_is_one(inhabited: LocalCatalog) -> None:
    loaded = inhabited.load("ns", "home")
    request = {"name": "twin", "metadata-location": loaded["metadata-location"]}
    ok(inhabited.call("POST", path_of("ns", "register"), request))

    assert neighbours(inhabited) == ["table:default/ns/twin"]
    assert neighbours(inhabited, "twin") == ["table:default/ns/home"]


@pytest.mark.parametrize(
    ("metadata_file", "touches"),
    [
        ("street/home/lodger/metadata/00000-a.metadata.json", True),
        ("street/home/metadata/00000-a.metadata.json", True),
        ("street/metadata/00000-a.metadata.json", True),
        ("street/home-3/metadata/00000-a.metadata.json", False),
        ("avenue/metadata/00000-a.metadata.json", False),
    ],
)
def test_what_another_client_put_there_is_one(inhabited: LocalCatalog, metadata_file: str, touches: bool) -> None:
    # Spark spells file:/ what the server spells file:///.
    point_at(inhabited, "lodger", place(inhabited, metadata_file).replace("file:///", "file:/"))

    assert neighbours(inhabited) == (["table:default/ns/lodger"] if touches else [])


def test_many_pointers_of_another_client_are_all_looked_at(inhabited: LocalCatalog) -> None:
    for number in range(1001):  # more than a page
        point_at(inhabited, f"p{number:04d}", place(inhabited, f"avenue/{number}/metadata/00000-a.metadata.json"))
    point_at(inhabited, "z", place(inhabited, "street/home/z/metadata/00000-a.metadata.json"))

    assert neighbours(inhabited) == ["table:default/ns/z"]


def test_only_a_table_has_neighbours(inhabited: LocalCatalog) -> None:
    assert inhabited.call("GET", NEIGHBOURS.replace("table:default/ns/", "namespace:default/ns")).error[0] == 400
    assert inhabited.call("GET", NEIGHBOURS + "nobody").error[0] == 404
    assert inhabited.call("GET", NEIGHBOURS + "v").error[0] == 404


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[LocalCatalog]:
    made = LocalCatalog(tmp_path, auth=True)
    for namespace in ("ns", "hr"):
        made.namespace(namespace)
    secret = a_table("secret", properties={"write.data.path": place(made, "street/home/x")})
    ok(made.call("POST", path_of("hr", "tables"), secret))
    ok(made.call("POST", path_of("ns", "tables"), a_table("home", location=place(made, "street/home"))))
    made.principal("stranger")
    made.principal("reader", default__ns="READ")
    made.principal("worker", default__ns="WRITE")
    made.principal("both", default__ns="WRITE", default__hr="READ")
    yield made
    made.close()


def test_a_neighbour_that_the_caller_may_not_see_is_counted_and_not_named(secured: LocalCatalog) -> None:
    def found(caller: str) -> tuple[int, list[str]]:
        told = ok(secured.call_as(caller, "GET", NEIGHBOURS + "home"))
        assert "secret" not in str({**told, "neighbours": []})
        return told["count"], told["neighbours"]

    assert found("worker") == (1, [])
    assert found("both") == (1, ["table:default/hr/secret"])
    assert secured.call_as("reader", "GET", NEIGHBOURS + "home").status == 403
    assert secured.call_as("stranger", "GET", NEIGHBOURS + "home").status == 404
