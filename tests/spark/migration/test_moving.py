"""What a migration refuses to do, and how it goes on: between two catalogs of our own, mostly without Spark."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pyarrow
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog

from nunatak.client import Client
from nunatak.errors import CatalogError
from nunatak_spark.configuration import CatalogConfig
from nunatak_spark.migration.model import MigrationSource, MigrationTable, SourceFreeze, table_title
from nunatak_spark.migration.planning_rules import PlanOptions
from nunatak_spark.migration.sources.jdbc import jdbc_source
from nunatak_spark.migration.sources.rest import rest_source
from nunatak_spark.migration.state import open_folder_state
from nunatak_spark.spark_session import add_catalog
from tests.spark.migration.moving import Move, new_name, states
from tests.spark.migration.test_command import a_view
from tests.support.catalogs.process import RunningServer, running_server
from tests.unit.cli.conftest import run_command

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
def source(old: RunningServer) -> MigrationSource:
    return rest_source("old", old.uri, None, {}, {})


@pytest.fixture
def light(tmp_path: Path, new: RunningServer) -> Move:
    """A move whose steps need no Spark: asking for one would fail."""
    return Move(tmp_path / "migration", cast("SparkSession", None), new.uri, "nowhere")


def pointer(client: Client, name: str = "orders") -> str:
    return str(client.load_table(("shop", name))["metadata-location"])


def test_a_source_that_moved_on_is_caught_up_with(
    here: Client, there: Client, light: Move, source: MigrationSource
) -> None:
    light.inventory(source)
    light.plan()
    light.shadow()
    first = pointer(there)
    here.commit_table(("shop", "orders"), [], PAINT)

    assert states(light.shadow()) == {"shop.orders": "shadowed"}

    assert pointer(there) == pointer(here) != first


def test_what_somebody_wrote_at_the_target_is_not_overwritten(
    here: Client, there: Client, light: Move, source: MigrationSource
) -> None:
    light.inventory(source)
    light.plan()
    light.shadow()
    there.set_shadow(("shop", "orders"), "old:shop.orders", "cut-over")  # somebody opened it too early
    there.commit_table(("shop", "orders"), [], PAINT)
    written = pointer(there)
    here.commit_table(("shop", "orders"), [], PAINT)

    assert "shop.orders at the target has commits since it was created" in states(light.shadow())["shop.orders"]
    assert "shop.orders at the target has commits since it was created" in states(light.roll_back())["shop.orders"]
    assert pointer(there) == written

    assert states(light.roll_back(discard=True)) == {"shop.orders": "rolled-back"}
    assert not there.table_exists(("shop", "orders"))
    assert here.table_exists(("shop", "orders"))


def test_a_table_of_that_name_which_came_from_elsewhere_is_left_alone(
    here: Client, there: Client, light: Move, source: MigrationSource
) -> None:
    light.inventory(source)
    light.plan()
    there.create_namespace(("shop",), {})
    there.create_table(("shop", "orders"), {"schema": SCHEMA})  # after the plan was made
    before = pointer(there)

    assert "does not come from here" in states(light.shadow())["shop.orders"]

    assert pointer(there) == before
    assert states(light.plan(PlanOptions(into=("moved",)))) == {"shop.orders": "planned"}
    assert states(light.shadow()) == {"shop.orders": "shadowed"}
    assert there.table_exists(("moved", "shop", "orders"))


def test_one_table_that_gets_stuck_does_not_hold_up_the_others_and_goes_on_later(
    here: Client, there: Client, light: Move, source: MigrationSource
) -> None:
    here.create_table(("shop", "lost"), {"schema": SCHEMA})
    light.inventory(source)
    light.plan()
    file = Path(pointer(here, "lost").removeprefix("file:"))
    away = file.rename(file.with_suffix(".away"))

    stuck = states(light.shadow())

    assert stuck["shop.orders"] == "shadowed"
    assert stuck["shop.lost"].startswith("planned ")
    assert "lost" in stuck["shop.lost"]
    away.rename(file)
    assert states(light.shadow()) == {"shop.lost": "shadowed", "shop.orders": "shadowed"}


def test_an_inventory_taken_again_forgets_what_is_gone_and_keeps_what_has_moved(
    here: Client, there: Client, light: Move, source: MigrationSource
) -> None:
    here.create_table(("shop", "gone"), {"schema": SCHEMA})
    light.inventory(source)
    light.plan(PlanOptions(include=("shop.orders",)))
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
            add_catalog(spark, CatalogConfig(new.uri, catalog_name))
            move = Move(tmp_path / "migration", spark, new.uri, catalog_name)
            move.inventory(jdbc_source(name, f"jdbc:sqlite:{file}", None, {}))
            move.plan(PlanOptions(adopt=True))
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
    here: Client, there: Client, light: Move, source: MigrationSource
) -> None:
    """The table was registered, nobody got to write that down, and then the source moved on."""
    light.inventory(source)
    light.plan()
    light.shadow()
    with open_folder_state(light.folder, "shadow") as folder:
        (table,) = folder.list_tables()
        folder.save_table(msgspec.structs.replace(table, state="planned", target_pointer=""))
    here.commit_table(("shop", "orders"), [], PAINT)

    assert states(light.shadow()) == {"shop.orders": "shadowed"}
    assert pointer(there) == pointer(here)


# A shadow is not the target's own yet


def shadowed(light: Move, source: MigrationSource) -> None:
    light.inventory(source)
    light.plan()
    assert set(states(light.shadow()).values()) == {"shadowed"}


def cut_over_by_hand(light: Move, there: Client) -> None:
    """What a cut-over leaves behind, without the Spark that verifies."""
    with open_folder_state(light.folder, "cutover") as folder:
        for table in folder.list_tables():
            folder.save_table(msgspec.structs.replace(table, state="done"))
            there.set_shadow(table.found.name, table_title(table.found), "cut-over")


def append(server: RunningServer, *rows: int) -> str:
    """Rows for shop.orders by another client; returns the file that holds them."""
    with closing(RestCatalog("writer", uri=server.uri)) as catalog:
        table = catalog.load_table(("shop", "orders"))
        table.append(pyarrow.table({"id": pyarrow.array(rows, "int64")}))
        (newest, *_) = table.scan().plan_files()
        return newest.file.file_path


def test_a_shadow_is_flagged_until_its_source_is_retired(
    here: Client, there: Client, light: Move, source: MigrationSource
) -> None:
    """MISSION: 003-68, 003-71"""
    shadowed(light, source)
    flag = there.find_shadow(("shop", "orders"))
    assert flag is not None
    assert (flag["source"], flag["state"]) == ("old:shop.orders", "shadow")
    with pytest.raises(CatalogError, match=r"old:shop\.orders"):
        there.commit_table(("shop", "orders"), [], PAINT)

    cut_over_by_hand(light, there)
    there.commit_table(("shop", "orders"), [], PAINT)

    assert states(light.retire()) == {"shop.orders": "retired"}
    assert there.find_shadow(("shop", "orders")) is None


def test_a_shadow_of_an_earlier_version_gets_its_flag(
    here: Client, there: Client, light: Move, source: MigrationSource
) -> None:
    shadowed(light, source)
    there.lift_shadow(there.securable_of(("shop", "orders"), table=True))

    light.shadow()

    assert there.list_shadows()[0]["state"] == "shadow"


def test_a_table_that_was_renamed_at_the_target_is_retired_and_not_rolled_back(
    here: Client, there: Client, light: Move, source: MigrationSource
) -> None:
    shadowed(light, source)
    cut_over_by_hand(light, there)
    there.rename_table(("shop", "orders"), ("shop", "sales"))

    assert "was renamed at the target" in states(light.roll_back())["shop.orders"]
    assert there.table_exists(("shop", "sales"))
    assert states(light.retire()) == {"shop.orders": "retired"}
    assert there.list_shadows() == []


def test_a_source_with_late_writes_is_not_retired(
    here: Client, there: Client, light: Move, source: MigrationSource
) -> None:
    """MISSION: 003-71"""
    shadowed(light, source)
    cut_over_by_hand(light, there)
    here.commit_table(("shop", "orders"), [], PAINT)

    assert "what was written there is not at the target" in states(light.retire())["shop.orders"]

    assert there.list_shadows()[0]["state"] == "cut-over"
    here.drop_table(("shop", "orders"))  # which is one way to retire it
    assert states(light.retire()) == {"shop.orders": "retired"}


def test_a_source_that_is_switched_off_is_retired(
    here: Client, there: Client, light: Move, source: MigrationSource, old: RunningServer
) -> None:
    shadowed(light, source)
    cut_over_by_hand(light, there)
    old.stop()

    assert states(light.retire()) == {"shop.orders": "retired"}
    assert "could not be asked for late writes" in light.whole().log[-1].text


# The way back


def test_a_refused_rollback_leaves_a_table_done_and_watched(
    here: Client, there: Client, light: Move, source: MigrationSource
) -> None:
    shadowed(light, source)
    cut_over_by_hand(light, there)
    there.commit_table(("shop", "orders"), [], PAINT)

    refused = light.roll_back()["shop.orders"]

    assert (refused.state, refused.failed_at) == ("done", "rollback")
    assert "shop.orders at the target has commits since it was created" in refused.problem
    here.commit_table(("shop", "orders"), [], PAINT)
    assert [finding.kind for finding in light.late_writes()["shop.orders"]] == ["late-write"]


def test_a_rollback_says_that_every_file_is_there_only_after_a_look(
    here: Client, there: Client, light: Move, source: MigrationSource, old: RunningServer
) -> None:
    """MISSION 003-70: the target deleted a file that the source's current snapshot needs."""
    append(old, 1, 2)
    lost = append(old, 3)
    shadowed(light, source)
    Path(lost.removeprefix("file://")).unlink()

    refused = light.roll_back(discard=True)["shop.orders"]

    assert refused.state == "shadowed"
    assert "1 of 6 files are missing" in refused.problem
    assert lost in refused.problem
    assert there.table_exists(("shop", "orders"))

    assert states(light.roll_back(discard=True, accept_loss=True)) == {"shop.orders": "rolled-back"}
    said = light.whole().log[-1].text
    assert lost in said
    assert "every file is still there" not in said


def test_a_rollback_counts_the_files_that_it_looked_for(
    here: Client, there: Client, light: Move, source: MigrationSource, old: RunningServer
) -> None:
    append(old, 1, 2)
    shadowed(light, source)

    assert states(light.roll_back()) == {"shop.orders": "rolled-back"}
    # The metadata file, a manifest list, a manifest and a data file.
    assert "every file is still there (4 looked for)" in light.whole().log[-1].text


def test_nothing_is_rolled_back_to_a_source_that_no_longer_has_the_table(
    here: Client, there: Client, light: Move, source: MigrationSource
) -> None:
    shadowed(light, source)
    here.drop_table(("shop", "orders"))

    assert "the source no longer has shop.orders" in states(light.roll_back(discard=True))["shop.orders"]
    assert there.table_exists(("shop", "orders"))


def test_nothing_is_rolled_back_while_the_old_name_is_taken_at_the_source(
    here: Client, there: Client, light: Move, source: MigrationSource
) -> None:
    """The target's entry would go first, and then the rename at the source would fail."""
    shadowed(light, source)
    cut_over_by_hand(light, there)
    with open_folder_state(light.folder, "cutover") as folder:
        (table,) = folder.list_tables()
        frozen = SourceFreeze("renamed", table.source_pointer, "orders__moved")
        folder.save_table(msgspec.structs.replace(table, frozen=frozen))
    here.rename_table(("shop", "orders"), ("shop", "orders__moved"))
    here.create_table(("shop", "orders"), {"schema": SCHEMA})

    assert "the source has a new table shop.orders" in states(light.roll_back())["shop.orders"]
    assert there.table_exists(("shop", "orders"))

    here.drop_table(("shop", "orders"))
    assert states(light.roll_back()) == {"shop.orders": "rolled-back"}
    assert list(here.list_tables(("shop",))) == [("shop", "orders")]


def test_a_table_is_shadowed_again_after_a_rollback(
    here: Client, there: Client, light: Move, source: MigrationSource
) -> None:
    shadowed(light, source)
    light.roll_back()
    assert there.list_shadows() == []
    here.commit_table(("shop", "orders"), [], PAINT)

    assert states(light.shadow()) == {"shop.orders": "shadowed"}
    assert pointer(there) == pointer(here)
    assert there.list_shadows()[0]["state"] == "shadow"


# Properties of namespaces


def namespace(client: Client, *name: str) -> dict[str, str]:
    """Its properties without the place that the catalog chose for it."""
    properties = dict(client.load_namespace(name)["properties"])
    assert properties.pop("location", "").endswith("/".join(name))
    return properties


def test_namespaces_are_carried_with_their_properties(
    here: Client, there: Client, light: Move, source: MigrationSource
) -> None:
    elsewhere = here.load_namespace(("shop",))["properties"]["location"] + "/elsewhere"
    here.update_namespace(("shop",), {"owner": "ana", "location": elsewhere}, [])
    here.create_namespace(("shop", "eu"), {"region": "north"})
    here.create_table(("shop", "eu", "visits"), {"schema": SCHEMA})
    light.inventory(source)
    light.plan(PlanOptions(into=("moved",)))

    light.shadow()

    assert namespace(there, "moved", "shop") == {"owner": "ana"}
    assert namespace(there, "moved", "shop", "eu") == {"region": "north"}
    here.update_namespace(("shop",), {"owner": "bo"}, [])
    here.update_namespace(("shop", "eu"), {}, ["region"])
    light.shadow()  # catches up
    assert namespace(there, "moved", "shop") == {"owner": "bo"}
    assert namespace(there, "moved", "shop", "eu") == {}


def test_a_property_that_the_target_had_before_is_kept_and_said(
    here: Client, there: Client, light: Move, source: MigrationSource
) -> None:
    here.update_namespace(("shop",), {"owner": "ana", "color": "red"}, [])
    there.create_namespace(("shop",), {"owner": "the target's own", "size": "large"})

    shadowed(light, source)

    assert namespace(there, "shop") == {"owner": "the target's own", "size": "large", "color": "red"}
    (carried,) = light.whole().namespaces
    assert (carried.properties, carried.kept) == ({"color": "red"}, ("owner",))
    assert any("the target keeps its own owner" in line.text for line in light.whole().log)


# What the target would refuse is said by the plan


def refusals(tables: dict[str, MigrationTable]) -> dict[str, str]:
    return {
        name: table.planned.because
        for name, table in tables.items()
        if table.planned and table.planned.method == "refused"
    }


def test_a_plan_says_that_a_location_is_not_allowed_and_which_setting_allows_it(
    here: Client, tmp_path: Path, source: MigrationSource
) -> None:
    folder = str(here.load_table(("shop", "orders"))["metadata"]["location"])
    with running_server(tmp_path / "strict") as strict:
        move = Move(tmp_path / "strict-migration", cast("SparkSession", None), strict.uri, "nowhere")
        move.inventory(source)

        (reason,) = refusals(move.plan()).values()

        assert "is outside the locations that the target allows" in reason
        assert reason.endswith(f"add {folder} to NUNATAK_ALLOWED_LOCATIONS there")
    with running_server(tmp_path / "strict", environment={"NUNATAK_ALLOWED_LOCATIONS": folder}) as opened_up:
        move = Move(tmp_path / "second-migration", cast("SparkSession", None), opened_up.uri, "nowhere")
        move.inventory(source)
        assert refusals(move.plan()) == {}
        assert states(move.shadow()) == {"shop.orders": "shadowed"}


def test_a_plan_prints_one_setting_for_all(here: Client, tmp_path: Path, old: RunningServer) -> None:
    here.create_table(("shop", "visits"), {"schema": SCHEMA})
    with running_server(tmp_path / "strict") as strict:
        common = ("--state", str(tmp_path / "cli"), "--uri", strict.uri, "--progress", "none")
        run_command("migrate", "inventory", "--rest", old.uri, *common)

        outcome = run_command("migrate", "plan", *common)

    folder = str(here.load_table(("shop", "orders"))["metadata"]["location"]).rpartition("/")[0]
    assert (
        f"To migrate 2 tables outside the allowed locations, start the target with: "
        f"NUNATAK_ALLOWED_LOCATIONS={folder}\n" in outcome.out
    )


def test_a_plan_knows_the_views_of_the_target(
    here: Client, there: Client, light: Move, source: MigrationSource
) -> None:
    there.create_namespace(("shop",), {})
    there.create_view(("shop", "orders"), a_view())
    light.inventory(source)

    assert "the target has shop.orders already" in refusals(light.plan())["shop.orders"]


def test_a_plan_refuses_the_second_of_two_names_of_one_table(
    here: Client, there: Client, light: Move, source: MigrationSource, old: RunningServer
) -> None:
    light.inventory(source)
    light.inventory(rest_source("twin", old.uri, None, {}, {}))
    with open_folder_state(light.folder, "plan") as folder:
        assert len(folder.list_tables()) == 2

    light.plan(PlanOptions(include=("old:*",)))
    twin = light.plan(PlanOptions(include=("twin:*",), into=("other",)))

    assert "same table as old:shop.orders" in refusals(twin)["shop.orders"]


def test_a_plan_names_the_rights_that_are_missing(here: Client, tmp_path: Path, source: MigrationSource) -> None:
    environment = {"NUNATAK_ALLOWED_LOCATIONS": f"file://{tmp_path}"}
    with running_server(tmp_path / "secured", environment=environment, auth=True) as secured:
        key = secured.principal("mover", warehouse="READ").api_key
        move = Move(tmp_path / "secured-migration", cast("SparkSession", None), secured.uri, "nowhere", key)
        move.inventory(source)

        reason = refusals(move.plan())["shop.orders"]
        assert reason == (
            "mover lacks NS_CREATE at the target: nunatak grant add principal:mover NS_CREATE namespace:default/shop"
        )
        secured.grant("mover", "warehouse", "WRITE")
        assert "mover lacks LOCATION_CHOOSE at the target" in refusals(move.plan())["shop.orders"]
        secured.grant("mover", "warehouse", "LOCATION_CHOOSE")
        assert refusals(move.plan()) == {}
        assert states(move.shadow()) == {"shop.orders": "shadowed"}


def test_a_cut_over_that_was_killed_before_it_let_writers_in_is_completed_by_the_next_one(
    here: Client, there: Client, light: Move, source: MigrationSource
) -> None:
    """It is written down first: afterwards a commit at the target would look like somebody else's table."""
    shadowed(light, source)
    with open_folder_state(light.folder, "cutover") as folder:
        (table,) = folder.list_tables()
        folder.save_table(msgspec.structs.replace(table, state="done"))

    assert states(light.cut_over()) == {"shop.orders": "done"}
    there.commit_table(("shop", "orders"), [], PAINT)
    assert states(light.cut_over()) == {"shop.orders": "done"}


def test_somebody_elses_table_is_no_shadow_although_it_points_at_the_same_file(
    here: Client, there: Client, light: Move, source: MigrationSource
) -> None:
    """It was registered by hand after the plan, and people write to it: a flag would lock them out."""
    light.inventory(source)
    light.plan()
    there.create_namespace(("shop",), {})
    there.register_table(("shop", "orders"), pointer(here))

    assert "does not come from here" in states(light.shadow())["shop.orders"]
    assert there.list_shadows() == []
    there.commit_table(("shop", "orders"), [], PAINT)


def test_a_plan_from_a_warehouse_into_itself_is_refused(here: Client, old: RunningServer, tmp_path: Path) -> None:
    move = Move(tmp_path / "itself", cast("SparkSession", None), old.uri, "nowhere")
    move.inventory(rest_source("old", f"{old.uri}/v1/", None, {}, {}))

    assert "the target's own warehouse" in refusals(move.plan(PlanOptions(into=("moved",))))["shop.orders"]
