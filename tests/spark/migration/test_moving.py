"""What a migration refuses to do, and how it goes on: between two catalogs of our own, mostly without Spark."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pyarrow
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from nunatak.client import Client
from nunatak_spark.configuration import Catalog
from nunatak_spark.migration.planning import Wishes
from nunatak_spark.migration.sources.jdbc import jdbc_source
from nunatak_spark.migration.sources.rest import rest_source
from nunatak_spark.migration.state import opened
from nunatak_spark.migration.values import Source
from nunatak_spark.sessions import add_catalog
from tests.spark.migration.moving import Move, new_name, states
from tests.support.server import RunningServer, running_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
PAINT: list[dict[str, Any]] = [{"action": "set-properties", "updates": {"color": "red"}}]


@pytest.fixture
def old(tmp_path: Path) -> Iterator[RunningServer]:
    with running_server(tmp_path / "old") as started:
        yield started


@pytest.fixture
def new(tmp_path: Path) -> Iterator[RunningServer]:
    with running_server(tmp_path / "new", environment={"NUNATAK_ALLOWED_LOCATIONS": f"file://{tmp_path}"}) as started:
        yield started


@pytest.fixture
def here(old: RunningServer) -> Iterator[Client]:
    with Client(old.uri) as client:
        client.create_namespace(("shop",), {})
        client.create_table(("shop", "orders"), {"schema": SCHEMA})
        yield client


@pytest.fixture
def there(new: RunningServer) -> Iterator[Client]:
    with Client(new.uri) as client:
        yield client


@pytest.fixture
def source(old: RunningServer) -> Source:
    return rest_source("old", old.uri, None, {}, {})


@pytest.fixture
def light(tmp_path: Path, new: RunningServer) -> Move:
    """A move whose steps need no Spark: asking for one would fail."""
    return Move(tmp_path / "migration", cast("SparkSession", None), new.uri, "nowhere")


def pointer(client: Client, name: str = "orders") -> str:
    return str(client.load_table(("shop", name))["metadata-location"])


def test_a_source_that_moved_on_is_caught_up_with(here: Client, there: Client, light: Move, source: Source) -> None:
    light.inventory(source)
    light.plan()
    light.shadow()
    first = pointer(there)
    here.commit_table(("shop", "orders"), [], PAINT)

    assert states(light.shadow()) == {"shop.orders": "shadowed"}

    assert pointer(there) == pointer(here) != first


def test_what_somebody_wrote_at_the_target_is_not_overwritten(
    here: Client, there: Client, light: Move, source: Source
) -> None:
    light.inventory(source)
    light.plan()
    light.shadow()
    there.commit_table(("shop", "orders"), [], PAINT)
    written = pointer(there)
    here.commit_table(("shop", "orders"), [], PAINT)

    assert "somebody wrote to shop.orders at the target" in states(light.shadow())["shop.orders"]
    assert "somebody wrote to shop.orders at the target" in states(light.roll_back())["shop.orders"]
    assert pointer(there) == written

    assert states(light.roll_back(discard=True)) == {"shop.orders": "rolled-back"}
    assert not there.table_exists(("shop", "orders"))
    assert here.table_exists(("shop", "orders"))


def test_a_table_of_that_name_which_came_from_elsewhere_is_left_alone(
    here: Client, there: Client, light: Move, source: Source
) -> None:
    light.inventory(source)
    light.plan()
    there.create_namespace(("shop",), {})
    there.create_table(("shop", "orders"), {"schema": SCHEMA})  # after the plan was made
    before = pointer(there)

    assert "does not come from here" in states(light.shadow())["shop.orders"]

    assert pointer(there) == before
    assert states(light.plan(Wishes(into=("moved",)))) == {"shop.orders": "planned"}
    assert states(light.shadow()) == {"shop.orders": "shadowed"}
    assert there.table_exists(("moved", "shop", "orders"))


def test_one_table_that_gets_stuck_does_not_hold_up_the_others_and_goes_on_later(
    here: Client, there: Client, light: Move, source: Source
) -> None:
    here.create_table(("shop", "lost"), {"schema": SCHEMA})
    light.inventory(source)
    light.plan()
    file = Path(pointer(here, "lost").removeprefix("file:"))
    away = file.rename(file.with_suffix(".away"))

    stuck = states(light.shadow())

    assert stuck["shop.orders"] == "shadowed"
    assert stuck["shop.lost"].startswith("failed ")
    away.rename(file)
    assert states(light.shadow()) == {"shop.lost": "shadowed", "shop.orders": "shadowed"}


def test_an_inventory_taken_again_forgets_what_is_gone_and_keeps_what_has_moved(
    here: Client, there: Client, light: Move, source: Source
) -> None:
    here.create_table(("shop", "gone"), {"schema": SCHEMA})
    light.inventory(source)
    light.plan(Wishes(include=("shop.orders",)))
    light.shadow()
    here.drop_table(("shop", "gone"))
    here.create_table(("shop", "late"), {"schema": SCHEMA})

    assert states(light.inventory(source)) == {"shop.orders": "shadowed", "shop.late": "discovered"}


def test_a_database_is_adopted_where_it_lies(spark: "SparkSession", tmp_path: Path) -> None:
    """MISSION 003-65: the same rows behind the new interface; both kinds of clients see every commit at once."""
    name, catalog_name = new_name("lake"), new_name("adopted")
    rows = pyarrow.table({"id": [1, 2]})
    file = tmp_path / "catalog.db"
    with closing(SqlCatalog(name, uri=f"sqlite:///{file}", warehouse=f"file://{tmp_path}/lake")) as old:
        old.create_namespace("shop")
        old.create_table(("shop", "orders"), rows.schema).append(rows)
        environment = {"NUNATAK_DEFAULT_WAREHOUSE": name, "NUNATAK_WAREHOUSE": f"file://{tmp_path}/lake"}
        arguments = ("--database-url", f"sqlite:///{file}")
        with running_server(tmp_path / "data", environment=environment, arguments=arguments) as new:
            add_catalog(spark, Catalog(new.uri, catalog_name))
            move = Move(tmp_path / "migration", spark, new.uri, catalog_name)
            move.inventory(jdbc_source(name, f"jdbc:sqlite:{file}", None, {}))
            move.plan(Wishes(adopt=True))
            assert states(move.shadow()) == {"shop.orders": "shadowed"}
            old.load_table(("shop", "orders")).append(rows)

            assert states(move.verify()) == {"shop.orders": "verified"}
            assert states(move.cut_over()) == {"shop.orders": "done"}

            with Client(new.uri) as client:
                now = old.load_table(("shop", "orders")).metadata_location
                assert client.load_table(("shop", "orders"))["metadata-location"] == now
                assert states(move.roll_back()) == {"shop.orders": "rolled-back"}
                assert client.table_exists(("shop", "orders"))  # dropping it would have dropped the source's own row
        assert old.load_table(("shop", "orders")).scan().to_arrow().num_rows == 4


def test_a_crash_between_the_target_and_the_folder_is_no_riddle_later(
    here: Client, there: Client, light: Move, source: Source
) -> None:
    """The table was registered, nobody got to write that down, and then the source moved on."""
    light.inventory(source)
    light.plan()
    light.shadow()
    with opened(light.folder, "shadow") as folder:
        (table,) = folder.list_tables()
        folder.save_table(msgspec.structs.replace(table, state="planned", target_pointer=""))
    here.commit_table(("shop", "orders"), [], PAINT)

    assert states(light.shadow()) == {"shop.orders": "shadowed"}
    assert pointer(there) == pointer(here)
