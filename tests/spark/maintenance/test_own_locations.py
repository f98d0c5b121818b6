"""No job reads or deletes a file of another table, whoever wrote its path into metadata, and wherever."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import pytest

from nunatak.maintenance.job_spec import JobType
from nunatak_spark.maintenance import dispatch, snapshot_expiry, snapshot_removal
from nunatak_spark.maintenance.deletion_journal import DeletionJournal
from nunatak_spark.maintenance.job_context import JobContext, JobOutcome, JobRefused
from nunatak_spark.maintenance.job_failures import JobFailed
from nunatak_spark.maintenance.own_locations import OwnLocations, folder_of
from tests.spark.maintenance.conftest import Maintenance, later
from tests.support.forged_manifests import Forger, forge_avro
from tests.support.spark import local_path

JOB_TYPES: tuple[JobType, ...] = get_args(JobType)
DELETING: tuple[JobType, ...] = ("snapshot-expiry", "metadata-retention", "orphan-removal")
OPTIONS = {
    "max_snapshot_age_seconds": 0,
    "max_age_seconds": 60,
    "column": "at",
    "older_than_seconds": 60 * 86_400,
    "min_input_files": 2,
}


@dataclass(frozen=True)
class Tables:
    """A table that a hostile client may write to, and one of somebody else."""

    maintenance: Maintenance
    own: Forger
    victim: Forger

    @property
    def victims_files(self) -> dict[str, bytes]:
        folder = local_path(self.victim.metadata["location"])
        return {str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file()}

    @property
    def victims_data(self) -> str:
        """The path of one of its data files."""
        sql = self.maintenance.sql
        return str(sql.value(f"SELECT file_path FROM lake.{sql.namespace}.victim.files LIMIT 1"))

    def run(self, kind: JobType, **more: object) -> JobOutcome:
        return self.maintenance.run("own", kind, now_ms=later(3600), **{**OPTIONS, **more})


@pytest.fixture
def tables(maintenance: Maintenance) -> Tables:
    sql = maintenance.sql
    for name in ("own", "victim"):
        sql(f"CREATE TABLE {name} (id BIGINT, word STRING, at TIMESTAMP) USING iceberg")
        for number in range(3):
            sql(f"INSERT INTO {name} SELECT id, '{name}', TIMESTAMP '2020-01-01' FROM range({number}, {number + 3})")
    namespace = sql.namespace
    client = maintenance.client
    return Tables(maintenance, Forger(client, (namespace, "own")), Forger(client, (namespace, "victim")))


def data_file(tables: Tables) -> None:
    tables.own.forge_data(tables.victims_data)


def data_file_of_an_earlier_snapshot(tables: Tables) -> None:
    tables.own.forge_data(tables.victims_data, is_current=False)


def delete_file(tables: Tables) -> None:
    tables.own.forge_data(tables.victims_data, content=1, is_current=False)


def data_file_by_another_spelling(tables: Tables) -> None:
    path = tables.victims_data.replace("file:///", "/").replace("file:/", "/")
    tables.own.forge_data(f"file:{path}")


def data_file_behind_dots(tables: Tables) -> None:
    victim = Path(local_path(tables.victims_data))
    own = local_path(tables.own.metadata["location"])
    ups = "/".join([".."] * (len(own.parts) - 1))
    tables.own.forge_data(f"file://{own}/data/../{ups}{victim}")


def data_file_without_a_scheme(tables: Tables) -> None:
    tables.own.forge_data(str(local_path(tables.victims_data)))


def data_file_behind_a_link(tables: Tables) -> None:
    victim = Path(local_path(tables.victims_data))
    link = local_path(tables.own.metadata["location"]) / "data" / "link"
    link.symlink_to(victim.parent)
    tables.own.forge_data(f"file://{link}/{victim.name}")


def manifest(tables: Tables) -> None:
    victims = tables.victim.manifests()[0]
    tables.own.commit_snapshot(tables.own.forged_list(f"file://{victims}", victims.stat().st_size))


def manifest_list(tables: Tables) -> None:
    tables.own.commit_snapshot(tables.victim.current()["manifest-list"])


def statistics(tables: Tables) -> None:
    """Of the own current snapshot, in a file of the victim."""
    sql = tables.maintenance.sql
    sql.call("compute_table_stats", f"'{sql.namespace}.victim'")
    found = dict(tables.victim.metadata["statistics"][0])
    found["snapshot-id"] = tables.own.metadata["current-snapshot-id"]
    tables.maintenance.commit("own", {"action": "set-statistics", "statistics": found})


FORGERIES = [
    data_file,
    data_file_of_an_earlier_snapshot,
    delete_file,
    data_file_by_another_spelling,
    data_file_behind_dots,
    data_file_without_a_scheme,
    data_file_behind_a_link,
    manifest,
    manifest_list,
    statistics,
]


@pytest.mark.parametrize("forge", FORGERIES)
def test_no_job_runs_on_a_table_that_leads_to_another_ones_files(
    tables: Tables, forge: Callable[[Tables], None]
) -> None:
    forge(tables)
    victims, pointer = tables.victims_files, tables.own.metadata

    for kind in JOB_TYPES:
        with pytest.raises(JobRefused, match="another table"):
            tables.run(kind)

    assert tables.victims_files == victims
    assert tables.own.metadata == pointer


def test_a_second_name_of_the_same_files_keeps_them_all(tables: Tables) -> None:
    client, namespace = tables.maintenance.client, tables.maintenance.sql.namespace
    location = client.load_table((namespace, "own"))["metadata-location"]
    client.register_table((namespace, "second"), location)

    for kind in DELETING:
        with pytest.raises(JobRefused, match="is shared"):
            tables.run(kind)


def test_no_job_runs_on_a_shadow_and_none_deletes_before_its_source_is_retired(tables: Tables) -> None:
    client, namespace = tables.maintenance.client, tables.maintenance.sql.namespace
    securable = f"table:default/{namespace}/own"
    before = {str(file) for file in local_path(tables.own.metadata["location"]).rglob("*.parquet")}

    client.manage("PUT", ("shadows",), {"securable": securable, "source": "hive:a.b", "state": "shadow"})
    for kind in JOB_TYPES:
        with pytest.raises(JobRefused, match=r"shadow of hive:a\.b.*migrate cutover"):
            tables.run(kind)

    client.manage("PUT", ("shadows",), {"securable": securable, "source": "hive:a.b", "state": "cut-over"})
    for kind in DELETING:
        with pytest.raises(JobRefused, match="migrate retire"):
            tables.run(kind)
    assert tables.run("data-compaction").changed
    assert before <= {str(file) for file in local_path(tables.own.metadata["location"]).rglob("*.parquet")}

    client.manage("DELETE", ("shadows",), query={"securable": securable})
    assert tables.run("snapshot-expiry").changed


def test_what_lies_outside_is_left_and_listed(tables: Tables, tmp_path: Path) -> None:
    """Files that add_files took over belong to nobody here, and may be somebody's elsewhere."""
    sql = tables.maintenance.sql
    sql.spark.range(5).selectExpr("id", "'x' AS word", "TIMESTAMP '2021-01-01' AS at").write.parquet(f"{tmp_path}/in")
    sql.call("add_files", f"table => '{sql.namespace}.own', source_table => '`parquet`.`{tmp_path}/in`'")
    imported = {str(file) for file in (tmp_path / "in").glob("*.parquet")}
    inside = {str(file) for file in local_path(tables.own.metadata["location"]).rglob("*.parquet")}
    before = tables.maintenance.fingerprint("own")

    assert tables.run("data-compaction").changed
    outcome = tables.run("snapshot-expiry")

    assert outcome.ok
    assert outcome.changed
    assert {str(local_path(path)) for path in outcome.detail["left-outside"]} == imported
    assert all(Path(file).exists() for file in imported)
    assert not any(Path(file).exists() for file in inside)
    assert outcome.detail["deleted"]["data"] == len(inside)
    assert tables.maintenance.fingerprint("own") == before
    noted = sql.spark.sql("SELECT path FROM lake.system.deleted_files").collect()
    assert not {str(local_path(row["path"])) for row in noted} & imported


def test_an_expiry_that_was_killed_leaves_and_lists_the_same_when_it_comes_back(
    tables: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the commit that removes the snapshots and the first deletion."""
    sql = tables.maintenance.sql
    sql.spark.range(5).selectExpr("id", "'x' AS word", "TIMESTAMP '2021-01-01' AS at").write.parquet(f"{tmp_path}/in")
    sql.call("add_files", f"table => '{sql.namespace}.own', source_table => '`parquet`.`{tmp_path}/in`'")
    imported = {str(file) for file in (tmp_path / "in").glob("*.parquet")}
    inside = [*local_path(tables.own.metadata["location"]).rglob("*.parquet")]
    sql("INSERT OVERWRITE own VALUES (1, 'a', TIMESTAMP '2020-01-01')")
    with monkeypatch.context() as patch:
        patch.setattr(DeletionJournal, "delete_unreachable", _killed)
        with pytest.raises(KeyboardInterrupt):
            tables.run("snapshot-expiry", job="killed", verify="none")

    outcome = tables.run("snapshot-expiry", job="killed", verify="none")

    assert all(Path(file).exists() for file in imported)
    assert {str(local_path(path)) for path in outcome.detail["left-outside"]} == imported
    assert outcome.detail["deleted"]["data"] == len(inside)
    assert not any(file.exists() for file in inside)


def _killed(_: DeletionJournal) -> None:
    raise KeyboardInterrupt


def test_a_manifest_that_is_exchanged_while_snapshots_expire_deletes_nothing_of_others(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path of a manifest stays and its content changes, after all of it was looked at."""
    manifests, victims_data = tables.own.manifests(), tables.victims_data
    tables.maintenance.sql("INSERT OVERWRITE own VALUES (1, 'a', TIMESTAMP '2020-01-01')")
    victims = tables.victims_files
    real = snapshot_removal.remove_snapshots

    def exchanged(*arguments: object) -> int:
        for manifest in manifests:
            manifest.with_name(f".{manifest.name}.crc").unlink(missing_ok=True)
            forge_avro(manifest, manifest, lambda entry: entry["data_file"].update(file_path=victims_data))
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(snapshot_expiry, "remove_snapshots", exchanged)
    outcome = tables.run("snapshot-expiry", verify="none")

    assert outcome.changed
    assert tables.victims_files == victims


@pytest.mark.parametrize("kind", ["snapshot-expiry", "orphan-removal"])
def test_a_commit_between_the_look_and_the_act_deletes_nothing_of_others(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, kind: JobType
) -> None:
    victims = tables.victims_files
    commit_first(kind, lambda: tables.own.forge_all_of(tables.victim), monkeypatch)

    with suppress(JobFailed, JobRefused):
        tables.run(kind, verify="none")

    assert tables.victims_files == victims


@pytest.mark.parametrize("goes", [False, True], ids=["and stays", "and goes"])
def test_a_commit_between_the_look_and_a_compaction_is_told(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, goes: bool
) -> None:
    """Iceberg compacts what is current when it begins; whether the forged snapshot is still there at the end or not."""
    forged: list[int] = []
    commit_first("data-compaction", lambda: forged.append(tables.own.forge_all_of(tables.victim)), monkeypatch)
    if goes:
        remove = {"action": "remove-snapshots", "snapshot-ids": forged}
        real = dispatch.MAINTENANCE["data-compaction"]

        def then_removed(work: JobContext) -> JobOutcome:
            outcome = real(work)
            tables.maintenance.commit("own", remove)
            return outcome

        monkeypatch.setitem(dispatch.MAINTENANCE, "data-compaction", then_removed)

    outcome = tables.run("data-compaction", verify="none")

    assert outcome.changed
    assert not outcome.ok
    assert "may not read" in outcome.detail["problem"]


def commit_first(kind: JobType, commit: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody commits after the job has looked at the table and before it begins."""
    real = dispatch.MAINTENANCE[kind]

    def after_a_commit(work: JobContext) -> JobOutcome:
        commit()
        return real(work)

    monkeypatch.setitem(dispatch.MAINTENANCE, kind, after_a_commit)


def test_spark_and_python_agree_on_what_lies_in_an_own_place(maintenance: Maintenance) -> None:
    """The condition of SQL leaves out what the server need not be asked about."""
    inside = ["s3://b/t/x/y.parquet", "s3a://b/t/a=%20/y", "s3n://b/d/y", "s3://b/t/..a/y", "s3://b/t/a./it's ☃/y"]
    doubtful = [
        *("s3://b/tt/x", "s3://b/t", "s3://c/t/x", "gs://b/t/x", "x", "", "/b/t/x", "S3://b/t/x", "s3://b/T/x"),
        *(
            "s3://b/t/../v/x",
            "s3://b/t/./x",
            "s3://b/t//x",
            "s3://b/t/%2E%2e/v/x",
            "s3://b/t/..\\v\\x",
            "s3://b/t/a\nb",
        ),
        *("s3://b/t/..", "s3://b/t/a%2fb/x", "file:///b/t/x", "s3://b/t?x/y"),
    ]
    maintenance.sql("CREATE TABLE t (id BIGINT) USING iceberg")
    places = OwnLocations(maintenance.work("t", "statistics"), ["s3://b/t/", "s3a://b/d"], is_alone=True)
    paths = maintenance.sql.spark.createDataFrame([(path,) for path in (*inside, *doubtful, None)], "path STRING")

    assert [path for path in inside if not places.contains(path)] == []
    assert [path for path in doubtful if places.contains(path)] == []
    assert set(places.unclear_folders(paths)) == {folder_of(path) for path in doubtful}


def test_a_property_that_names_a_class_keeps_every_job_from_the_table(tables: Tables) -> None:
    tables.maintenance.commit(
        "own",
        {"action": "set-properties", "updates": {"write.location-provider.impl": "com.example.Evil"}},
    )

    for kind in JOB_TYPES:
        with pytest.raises(JobRefused, match=r"write\.location-provider\.impl"):
            tables.run(kind)
