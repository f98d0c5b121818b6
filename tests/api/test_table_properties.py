"""Properties the catalog keeps about a table: apart from its metadata, audited, and gone with the table."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.wire import done, identifier, ok, path_of
from tests.support.catalogs.local import LocalCatalog

PLACE = "/management/v1/table-properties"
TABLE = "table:default/ns/t"
T = path_of("ns", "tables", "t")


@pytest.fixture
def made(catalog: LocalCatalog) -> LocalCatalog:
    catalog.table("ns", "t", properties={"owner": "of the metadata"})
    return catalog


def properties(catalog: LocalCatalog, table: str = TABLE) -> Any:
    return ok(catalog.call("GET", f"{PLACE}?securable={table}"))["properties"]


def update(catalog: LocalCatalog, removals: tuple[str, ...] = (), table: str = TABLE, **updates: str) -> None:
    body = {"securable": table, "updates": updates, "removals": list(removals)}
    done(catalog.call("PATCH", PLACE, body))


def test_they_are_set_changed_and_removed_apart_from_the_metadata(made: LocalCatalog) -> None:
    """MISSION: 004-08"""
    before = made.load("ns", "t")
    assert properties(made) == {}

    update(made, owner="the catalog", tier="gold")
    update(made, ("tier", "absent"), owner="somebody", empty="")

    assert properties(made) == {"owner": "somebody", "empty": ""}
    assert made.load("ns", "t") == before
    stored = made.rows("SELECT table_name, property_key, property_value FROM iceberg_table_properties ORDER BY 2")
    assert ("t", "owner", "somebody") in stored
    done(made.call("DELETE", f"{PLACE}?securable={TABLE}"))
    assert properties(made) == {}
    assert made.rows("SELECT * FROM iceberg_table_properties") == []


def test_they_follow_a_rename_and_go_with_a_drop(made: LocalCatalog) -> None:
    update(made, tier="gold")

    done(
        made.call("POST", "/v1/tables/rename", {"source": identifier("ns", "t"), "destination": identifier("ns", "u")})
    )

    assert properties(made, "table:default/ns/u") == {"tier": "gold"}
    done(made.call("DELETE", path_of("ns", "tables", "u")))
    made.table("ns", "u")
    assert properties(made, "table:default/ns/u") == {}
    assert made.rows("SELECT * FROM iceberg_table_properties") == []


def test_those_of_a_table_that_another_client_dropped_are_not_those_of_the_next(made: LocalCatalog) -> None:
    update(made, tier="gold", owner="ann")
    made.rows("DELETE FROM iceberg_tables WHERE table_name = 't'")
    made.rows("DELETE FROM nunatak_heads WHERE table_name = 't'")
    made.table("ns", "t")

    assert properties(made) == {}
    update(made, owner="bo")
    assert properties(made) == {"owner": "bo"}
    made.rows("DELETE FROM iceberg_tables WHERE table_name = 't'")
    made.rows("DELETE FROM nunatak_heads WHERE table_name = 't'")
    made.table("ns", "other")
    renamed = {"source": identifier("ns", "other"), "destination": identifier("ns", "t")}
    done(made.call("POST", "/v1/tables/rename", renamed))
    assert properties(made) == {}


def test_what_another_client_wrote_is_shown(made: LocalCatalog) -> None:
    made.rows("INSERT INTO iceberg_table_properties VALUES ('default', 'ns', 't', 'tier', 'silver')")

    assert properties(made) == {"tier": "silver"}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"updates": {"k" * 256: "v"}}, 400),
        ({"updates": {"k": "v" * 1001}}, 400),
        ({"updates": {"k": "a\0b"}}, 400),
        ({"updates": {"": "v"}}, 400),
        ({"updates": {"s3.secret-access-key": "v"}}, 400),
        ({"updates": {"nunatak.table-uuid": "v"}}, 400),
        ({"removals": ["nunatak.table-uuid"]}, 400),
        ({"updates": {"k": "v"}, "removals": ["k"]}, 422),
        ({"updates": {str(number): "v" for number in range(1001)}}, 400),
        ({"updates": {"k": 1}}, 400),
        ({"securable": "namespace:default/ns", "updates": {"k": "v"}}, 400),
        ({"securable": "table:default/ns/absent", "updates": {"k": "v"}}, 404),
        ({"securable": "server", "updates": {"k": "v"}}, 400),
    ],
)
def test_what_cannot_be_kept_is_refused_and_changes_nothing(
    made: LocalCatalog, body: dict[str, Any], status: int
) -> None:
    update(made, tier="gold")

    assert made.call("PATCH", PLACE, {"securable": TABLE, **body}).status == status

    assert properties(made) == {"tier": "gold"}


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[LocalCatalog]:
    made = LocalCatalog(tmp_path, auth=True)
    made.namespace("ns")
    made.table("ns", "t")
    yield made
    made.close()


def test_reading_needs_the_right_to_read_and_changing_the_right_to_alter(secured: LocalCatalog) -> None:
    secured.principal("reader", default__ns____t="TABLE_READ_META")
    secured.principal("owner", default__ns____t="TABLE_READ_META,TABLE_ALTER")
    secured.principal("nobody", default__ns____u="READ")
    body = {"securable": TABLE, "updates": {"tier": "gold"}}
    get = f"{PLACE}?securable={TABLE}"

    assert secured.call_as("nobody", "GET", get).status == 404
    assert secured.call_as("nobody", "PATCH", PLACE, body).status == 404
    assert secured.call_as("reader", "PATCH", PLACE, body).status == 403
    assert secured.call_as("reader", "DELETE", get).status == 403
    done(secured.call_as("owner", "PATCH", PLACE, body))
    assert ok(secured.call_as("reader", "GET", get))["properties"] == {"tier": "gold"}
    done(secured.call_as("owner", "DELETE", get))
    rows = secured.rows("SELECT principal, action FROM nunatak_audit WHERE action LIKE '%table-properties'")
    assert rows == [("owner", "update-table-properties"), ("owner", "drop-table-properties")]
