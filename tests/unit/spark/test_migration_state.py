"""The folder of a migration: durable, for one command at a time, and bound to one target."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from nunatak_spark.errors import CannotRun
from nunatak_spark.migration.model import (
    CopiedNamespace,
    Evidence,
    InventoryTable,
    MigrationSource,
    MigrationTable,
    SourceFreeze,
    State,
    TablePlan,
    table_title,
)
from nunatak_spark.migration.state import open_folder_state

HOLD = """
import sys
from pathlib import Path
from nunatak_spark.migration.state import open_folder_state
from nunatak_spark.migration.model import InventoryTable, MigrationTable
with open_folder_state(Path(sys.argv[1]), "shadow", create=True) as folder:
    for number in range(3):
        found = InventoryTable(source="old", name=("a", f"t{number}"), kind="iceberg")
        folder.save_table(MigrationTable(found=found), "seen")
    print("held", flush=True)
    sys.stdin.read()
"""


def a_table(name: str = "t") -> MigrationTable:
    return MigrationTable(found=InventoryTable(source="old", name=("a", name), kind="iceberg"))


def test_what_was_saved_is_there_for_the_next_command(tmp_path: Path) -> None:
    table = MigrationTable(
        found=a_table().found, state="planned", planned=TablePlan("register", ("a", "t"), 2, "because")
    )
    evidence = Evidence(level="L0", ok=True, facts={"uuid": "x"}, started_ms=1, ended_ms=2)
    with open_folder_state(tmp_path / "m", "inventory", create=True, now_ms=lambda: 7) as folder:
        folder.keep_target("http://here", "")
        folder.save_source(MigrationSource(kind="hadoop", name="old", address="/srv"))
        saved = folder.save_table(table, "planned it")
        folder.save_evidence(table, [evidence])

    with open_folder_state(tmp_path / "m", "report") as folder:
        whole = folder.whole()

    assert whole.tables == (saved,)
    assert saved.changed_ms == 7
    assert whole.evidence == {table_title(table.found): (evidence,)}
    assert [(line.command, line.text, line.table) for line in whole.log] == [("inventory", "planned it", "old:a.t")]
    assert [source.address for source in whole.sources] == ["/srv"]


def test_a_second_command_at_the_same_time_is_refused_and_a_killed_one_is_no_hindrance(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(CannotRun, match="Another command uses"), open_folder_state(tmp_path, "shadow"):
            pass

        os.kill(other.pid, signal.SIGKILL)
        other.wait()

        with open_folder_state(tmp_path, "shadow") as folder:
            assert len(folder.list_tables()) == 3


def test_a_folder_without_a_migration_is_not_made_one_by_mistake(tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match="There is no migration"), open_folder_state(tmp_path / "typo", "shadow"):
        pass

    assert not (tmp_path / "typo").exists()


def test_a_migration_keeps_its_target(tmp_path: Path) -> None:
    with open_folder_state(tmp_path, "inventory", create=True) as folder:
        folder.keep_target("http://here", "")
        folder.keep_target("http://here", "")

        with pytest.raises(CannotRun, match="goes to http://here, not to http://there"):
            folder.keep_target("http://there", "")


def test_a_folder_of_another_version_is_left_alone(tmp_path: Path) -> None:
    with open_folder_state(tmp_path, "inventory", create=True) as folder:
        folder._database.execute("UPDATE facts SET value = '99' WHERE name = 'format'")
        folder._database.commit()

    with pytest.raises(CannotRun, match="another version of Nunatak"), open_folder_state(tmp_path, "plan"):
        pass


def test_names_with_dots_have_titles_of_their_own() -> None:
    one = InventoryTable(source="old", name=("a.b", "c"), kind="iceberg")
    other = InventoryTable(source="old", name=("a", "b", "c"), kind="iceberg")

    assert table_title(one) == "old:`a.b`.c"
    assert table_title(other) == "old:a.b.c"


@pytest.mark.parametrize(
    ("table", "state"),
    [
        (a_table(), "discovered"),
        (msgspec.structs.replace(a_table(), planned=TablePlan("register", ("a", "t"))), "planned"),
        (msgspec.structs.replace(a_table(), target_pointer="file:/t.json"), "shadowed"),
        (msgspec.structs.replace(a_table(), target_pointer="file:/t.json", frozen=SourceFreeze("renamed")), "cutover"),
    ],
)
def test_a_table_that_an_earlier_version_called_failed_goes_on_where_it_was(
    tmp_path: Path, table: MigrationTable, state: State
) -> None:
    with open_folder_state(tmp_path, "verify", create=True) as folder:
        folder.save_table(msgspec.structs.replace(table, state="failed", problem="no answer", failed_at="verify"))

        (found,) = folder.list_tables()

        assert (found.state, found.problem) == (state, "no answer")
        assert folder.find_table(table_title(table.found)) == found


def test_what_was_carried_of_a_namespace_is_known_by_both_names(tmp_path: Path) -> None:
    carried = CopiedNamespace(source="old", name=("a",), target=("b",), properties={"owner": "ana"}, kept=("color",))
    with open_folder_state(tmp_path, "shadow", create=True) as folder:
        folder.save_namespace(carried, "carried owner")

        assert folder.find_namespace("old", ("a",), ("b",)) == carried
        assert folder.find_namespace("old", ("a",), ("c",)) is None
        assert folder.whole().namespaces == (carried,)
        assert [line.text for line in folder.list_log()] == ["carried owner"]
