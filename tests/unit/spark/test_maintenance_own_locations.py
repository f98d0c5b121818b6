"""What a job asks before it begins, in plain values: own places, neighbours, shadows, hidden names, snapshots."""

from typing import Any

import pytest

from nunatak.maintenance.job_spec import JobSpec, JobType
from nunatak_spark.maintenance import preconditions
from nunatak_spark.maintenance.hidden_files import visible_files
from nunatak_spark.maintenance.job_context import JobContext, JobOutcome, JobRefused
from nunatak_spark.maintenance.loaded_table import LoadedTable, Snapshot
from nunatak_spark.maintenance.overlapping_tables import (
    OverlappingTables,
    load_overlapping_tables,
    refuse_overlapping_tables,
    refuse_shadow,
)
from nunatak_spark.maintenance.own_locations import (
    FOLDERS_PER_REQUEST,
    OwnLocations,
    files_in_metadata,
    is_local_path,
    table_securable,
)
from nunatak_spark.maintenance.snapshot_removal import expired_refs, removal_commit

HOUR_MS = 3_600_000


class Server:
    """Answers the question for neighbours with what it was given, and that for folders by their beginning."""

    def __init__(self, **answer: Any) -> None:
        self.answer = answer
        self.asked: list[list[str]] = []
        self.securables: list[str] = []

    def manage(self, method: str, segments: tuple[str, ...], body: Any = None, *, query: Any = None) -> dict[str, Any]:
        if segments == ("maintenance", "neighbours"):
            self.securables.append(query["securable"])
            return self.answer
        assert (method, segments) == ("POST", ("maintenance", "folders"))
        self.asked.append(body["folders"])
        return {
            "foreign": [each for each in body["folders"] if each.startswith("s3://b/victim")],
            "outside": [each for each in body["folders"] if each.startswith("s3://elsewhere")],
        }


def a_job(kind: JobType = "snapshot-expiry", server: Server | None = None, **names: Any) -> JobContext:
    named = {"warehouse": "w", "namespace": ["n"], "table": "t", **names}
    spec = JobSpec(type=kind, table_uuid="u", **named)
    return JobContext(spark=None, client=server, catalog="lake", spec=spec, job="7")  # type: ignore[arg-type]


def own_locations(*places: str, server: Server | None = None, is_alone: bool = True) -> OwnLocations:
    return OwnLocations(a_job(server=server), places, is_alone=is_alone)


@pytest.mark.parametrize("path", ["s3://b/t/data/x.parquet", "s3a://b/t/x", "s3n://b/t/a/b/c", "s3://b/d/x%20y/f"])
def test_a_path_in_an_own_place_needs_no_question(path: str) -> None:
    assert own_locations("s3://b/t/", "s3a://b/d").contains(path)


@pytest.mark.parametrize(
    "path",
    [
        "s3://b/t",
        "s3://b/tt/x",
        "s3://b/t2/x",
        "s3://c/t/x",
        "gs://b/t/x",
        "s3://b/t/../victim/x",
        "s3://b/t/./../victim/x",
        "s3://b/t//x",
        "s3://b/t/%2e%2E/victim/x",
        "s3://b/t/..%2fvictim/x",
        "s3://b/t/..\\victim\\x",
        "s3://b/t/..",
        "s3://b/t/a\nb",
        "b/t/x",
        "x",
        "",
    ],
)
def test_about_every_other_path_the_server_is_asked(path: str) -> None:
    assert not own_locations("s3://b/t").contains(path)


def test_with_another_table_around_or_on_this_machine_the_server_is_asked_about_every_folder() -> None:
    assert not own_locations("s3://b/t", is_alone=False).contains("s3://b/t/x")
    assert not own_locations("file:///b/t").contains("file:///b/t/x")  # a link may lead elsewhere
    assert own_locations("s3://b/t", is_alone=False).contains_sql("path") == "false"


def test_folders_are_asked_for_in_batches() -> None:
    server = Server()
    own = [f"s3://b/t/{number}" for number in range(FOLDERS_PER_REQUEST)]

    found = own_locations("s3://b/t", server=server).classify_folders(
        [*own, "s3://b/victim/data", "s3://elsewhere", "", "s3://b/t/0"]
    )

    assert found.foreign == ("s3://b/victim/data",)
    assert set(found.outside) == {"s3://elsewhere", ""}
    assert sorted(map(len, server.asked)) == [2, FOLDERS_PER_REQUEST]


def test_of_a_name_only_percent_signs_and_slashes_change() -> None:
    server = Server(location="l", count=0, neighbours=[], places=[], shadow=None)
    work = a_job(server=server, namespace=["a b", "c%20d"], table="x/y ☃'")

    load_overlapping_tables(work)

    assert server.securables == [table_securable(work)] == ["table:w/a b/c%2520d/x%2Fy ☃'"]


def test_a_server_that_does_not_know_a_tables_places_is_refused() -> None:
    with pytest.raises(JobRefused, match="older"):
        load_overlapping_tables(a_job(server=Server(location="l", count=0, neighbours=[])))


def neighbours(count: int = 0, names: tuple[str, ...] = (), shadow: Any = None) -> OverlappingTables:
    return OverlappingTables("s3://b/t", count, names, ("s3://b/t",), shadow)


@pytest.mark.parametrize(
    ("count", "names", "said"),
    [
        (1, (), "another table has files"),
        (1, ("table:w/a",), "table:w/a has files"),
        (9, ("a", "b"), "a, b and 7 more has files"),
    ],
)
def test_neighbours_are_counted_also_where_they_are_not_named(count: int, names: tuple[str, ...], said: str) -> None:
    with pytest.raises(JobRefused, match=said):
        refuse_overlapping_tables(a_job(), neighbours(count, names))
    refuse_overlapping_tables(a_job(), neighbours())


def test_a_shadow_is_left_alone_and_keeps_its_files_after_cut_over() -> None:
    deleting: set[JobType] = {"snapshot-expiry", "metadata-retention", "orphan-removal"}
    others: set[JobType] = {"row-retention", "data-compaction", "delete-compaction", "manifest-rewrite", "statistics"}
    for kind in deleting | others:
        refuse_shadow(a_job(kind), neighbours())
        for state in ("shadow", "a state of a later version", None):
            with pytest.raises(JobRefused, match="hive:x"):
                refuse_shadow(a_job(kind), neighbours(shadow={"source": "hive:x", "state": state}))
    for kind in deleting:
        with pytest.raises(JobRefused, match="migrate retire"):
            refuse_shadow(a_job(kind), neighbours(shadow={"source": "hive:x", "state": "cut-over"}))
    for kind in others:
        refuse_shadow(a_job(kind), neighbours(shadow={"source": "hive:x", "state": "cut-over"}))


def test_every_path_that_metadata_names_is_looked_at() -> None:
    metadata = {
        "snapshots": [{"manifest-list": "a"}, {"manifests": ["b", "c"]}],
        "statistics": [{"statistics-path": "d"}],
        "partition-statistics": [{"statistics-path": "e"}],
        "metadata-log": [{"metadata-file": "f"}],
    }

    assert list(files_in_metadata(metadata, "data-compaction")) == ["a", "b", "c", "d", "e"]
    assert list(files_in_metadata(metadata, "metadata-retention")) == ["a", "b", "c", "d", "e", "f"]
    assert list(files_in_metadata({}, "data-compaction")) == []


@pytest.mark.parametrize(
    ("folder", "here"),
    [("file:/a", True), ("/a", True), ("a/b", True), ("", True), ("s3://b", False), ("hdfs:/a", False)],
)
def test_paths_of_the_workers_own_disk_are_known(folder: str, here: bool) -> None:
    assert is_local_path(folder) == here


SPECS = [{"fields": [{"name": "_year"}, {"name": "day"}]}, {"fields": [{"name": "_a b"}, {"name": ".dot"}]}]


@pytest.mark.parametrize(
    ("name", "is_visible"),
    [
        ("data/a.parquet", True),
        ("data/_year=2020/a.parquet", True),
        ("data/_year=2020/day=1/a.parquet", True),
        ("data/_a+b=1/a.parquet", True),
        ("data/_a b=1/a.parquet", True),
        ("data/.dot=1/a.parquet", True),
        ("data/a_b.parquet", True),
        ("_checkpoint/0", False),
        ("_delta_log/0.json", False),
        ("a/b/_delta_log/0.json", False),
        (".hoodie/x/y", False),
        ("_SUCCESS", False),
        ("data/_SUCCESS", False),
        ("data/.a.parquet.crc", False),
        ("data/_month=1/a.parquet", False),
        ("data/_year/a.parquet", False),
        ("data/_year=2020/_tmp/a.parquet", False),
        ("data/_year=2020", False),  # a file
    ],
)
@pytest.mark.parametrize("scheme", ["file:", "file://"])
def test_hidden_names_are_not_looked_at(name: str, is_visible: bool, scheme: str) -> None:
    metadata = {"location": "file:///w/_tables/t", "partition-specs": SPECS}
    path = f"{scheme}/w/_tables/t/{name}"

    assert visible_files(metadata, [path]) == ([path] if is_visible else [])


def test_what_lies_outside_the_folder_is_not_looked_at() -> None:
    metadata = {"location": "s3://b/t", "partition-specs": []}

    assert visible_files(metadata, ["s3://b/t2/x", "s3://b/x", "s3://b/t", "s3a://b/t/x"]) == ["s3a://b/t/x"]


def a_table(**metadata: Any) -> LoadedTable:
    """Snapshots 1 to 3, an hour apart; 3 is current, written with schema 2 and spec 1."""
    snapshots = {number: Snapshot(number, number - 1, number * HOUR_MS, number, "append", {}) for number in (1, 2, 3)}
    return LoadedTable(
        "t",
        {
            "table-uuid": "u",
            "refs": {"main": {"type": "branch", "snapshot-id": 3}},
            "snapshots": [{"snapshot-id": number, "schema-id": min(2, number)} for number in snapshots],
            "schemas": [{"schema-id": number} for number in range(4)],
            "current-schema-id": 3,
            "partition-specs": [{"spec-id": number} for number in range(3)],
            "default-spec-id": 2,
            **{name.replace("_", "-"): value for name, value in metadata.items()},
        },
        snapshots,
    )


def test_a_parent_that_came_and_went_while_the_job_ran_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preconditions, "load_table", lambda _: a_table())
    monkeypatch.setattr(preconditions, "refuse_foreign_files", lambda *_: None)
    server = Server(location="l", count=0, neighbours=[], places=[], shadow=None)
    work = a_job("data-compaction", server)

    def again(known: set[int], *made: int) -> JobOutcome:
        return preconditions.recheck_preconditions(
            work, frozenset(known), JobOutcome(changed=True, detail={"snapshots": list(made)})
        )

    assert again({1, 2}, 3).ok  # its parent is 2
    assert again(set(), 3).ok  # not seen before, and seen now
    assert again({0}, 1).ok
    told = again({1, 2}, 1)  # its parent, 0, was never seen
    assert not told.ok
    assert "was added and expired" in told.detail["problem"]


def test_removed_snapshots_take_with_them_what_nothing_else_needs() -> None:
    requirements, updates = removal_commit(a_table(), {1}, {1}, 4 * HOUR_MS)

    assert updates == [
        {"action": "remove-snapshots", "snapshot-ids": [1]},
        {"action": "remove-partition-specs", "spec-ids": [0]},
        {"action": "remove-schemas", "schema-ids": [0, 1]},
    ]
    assert requirements == [
        {"type": "assert-table-uuid", "uuid": "u"},
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 3},
        {"type": "assert-default-spec-id", "default-spec-id": 2},
        {"type": "assert-current-schema-id", "current-schema-id": 3},
    ]


def test_what_is_not_known_to_be_unused_stays() -> None:
    table = a_table(snapshots=[{"snapshot-id": 1}, {"snapshot-id": 2}, {"snapshot-id": 3, "schema-id": 2}])

    _, updates = removal_commit(table, {1}, None, 4 * HOUR_MS)

    assert updates == [{"action": "remove-snapshots", "snapshot-ids": [1]}]


def test_branches_and_tags_whose_time_is_over_go_and_main_never() -> None:
    refs = {
        "main": {"type": "branch", "snapshot-id": 1, "max-ref-age-ms": 1},
        "old": {"type": "tag", "snapshot-id": 1, "max-ref-age-ms": HOUR_MS},
        "kept": {"type": "tag", "snapshot-id": 1, "max-ref-age-ms": 9 * HOUR_MS},
        "usual": {"type": "branch", "snapshot-id": 2},
        "lost": {"type": "tag", "snapshot-id": 77},
    }

    assert expired_refs(a_table(refs=refs), 4 * HOUR_MS) == {"old", "lost"}
    properties = {"history.expire.max-ref-age-ms": str(HOUR_MS)}
    assert expired_refs(a_table(refs=refs, properties=properties), 4 * HOUR_MS) == {"old", "lost", "usual"}
