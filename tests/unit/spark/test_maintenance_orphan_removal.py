"""Which orphan files are due, what is too young, and what shows that somebody else is at work; without Spark."""

from typing import Any

import pytest

from nunatak_spark.maintenance.job_context import JobRefused
from nunatak_spark.maintenance.orphan_quarantine import ClassifiedOrphans, classify_orphans
from nunatak_spark.maintenance.orphan_removal import DAY_MS, OrphanLimits, orphan_limits
from nunatak_spark.maintenance.overlapping_tables import metadata_version, refuse_foreign_metadata
from nunatak_spark.maintenance.reachable_files import plain_path
from nunatak_spark.sql_text import literal
from nunatak_spark.system_tables import create_statement

NOW = 1_800_000_000_000
DAY = 86_400


def test_a_file_is_due_once_it_was_seen_long_enough_ago_and_is_seen_again() -> None:
    first_seen = {"old": 100, "just": 200, "new": 201, "away": 50}

    sorts = classify_orphans(["fresh", "just", "new", "old"], first_seen, seen_before_ms=200)

    assert sorts == ClassifiedOrphans(fresh=["fresh"], waiting=["new"], due=["just", "old"], unseen=["away"])


def test_what_a_killed_job_had_begun_is_neither_due_nor_unseen() -> None:
    sorts = classify_orphans(["a", "b"], {"b": 0, "c": 0}, seen_before_ms=10, begun={"b", "c"})

    assert sorts == ClassifiedOrphans(fresh=["a"], waiting=[], due=[], unseen=[])


@pytest.mark.parametrize(
    ("options", "limits"),
    [
        ({}, OrphanLimits(NOW - 7 * DAY_MS, NOW - 3 * DAY_MS)),
        ({"older-than-seconds": 3 * DAY, "quarantine-seconds": DAY}, OrphanLimits(NOW - 3 * DAY_MS, NOW - DAY_MS)),
        # A job that waited for a worker counts from when it was planned.
        (
            {"older-than-seconds": 3 * DAY, "older-than-ms": NOW - 9 * DAY_MS},
            OrphanLimits(NOW - 9 * DAY_MS, NOW - 3 * DAY_MS),
        ),
        ({"older-than-seconds": 3 * DAY, "older-than-ms": NOW}, OrphanLimits(NOW - 3 * DAY_MS, NOW - 3 * DAY_MS)),
    ],
)
def test_limits_come_from_the_options(options: dict[str, Any], limits: OrphanLimits) -> None:
    assert orphan_limits(options, NOW) == limits


@pytest.mark.parametrize(
    "options", [{"older-than-seconds": 3 * DAY - 1}, {"older-than-seconds": 0}, {"quarantine-seconds": DAY - 1}]
)
def test_nobody_can_ask_for_less_than_three_days_and_two_sightings(options: dict[str, Any]) -> None:
    with pytest.raises(JobRefused):
        orphan_limits(options, NOW)


METADATA = {
    "location": "s3://bucket/warehouse/t",
    "properties": {"write.metadata.path": "s3a://bucket/elsewhere/metadata/"},
    "metadata-log": [
        {"metadata-file": f"s3://bucket/warehouse/t/metadata/0000{number}-uuid.metadata.json"} for number in (5, 6)
    ],
}


@pytest.mark.parametrize(
    "path",
    [
        "s3a://bucket/warehouse/t/data/a.parquet",
        "s3://bucket/warehouse/t/metadata/a-m0.avro",
        "s3://bucket/warehouse/t/metadata/00004-uuid.metadata.json",
        "s3://bucket/elsewhere/metadata/00000-uuid.gz.metadata.json",
        "s3://bucket/warehouse/t/metadata/1-2.stats",
        "s3://bucket/warehouse/t/metadata/version-hint.text",
        "s3://bucket/warehouse/t/data/metadata/a.parquet",
    ],
)
def test_what_the_table_may_have_left_behind_is_its_own(path: str) -> None:
    refuse_foreign_metadata(METADATA, [path])


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("s3://bucket/warehouse/t/inner/metadata/00000-uuid.metadata.json", "another table"),
        ("s3://bucket/warehouse/t/inner/metadata/v1.metadata.json.gz", "another table"),
        ("s3://bucket/warehouse/t/inner/metadata/a-m0.avro", "another table"),
        ("s3://bucket/warehouse/t/inner/metadata/version-hint.text", "another table"),
        ("s3://bucket/warehouse/t/00000-uuid.metadata.json", "another table"),
        ("s3a://bucket/warehouse/t/metadata/00005-other.metadata.json", "another catalog"),
        ("s3://bucket/warehouse/t/metadata/v7.metadata.json", "another catalog"),
    ],
)
def test_metadata_that_the_table_cannot_have_left_behind_stops_everything(path: str, says: str) -> None:
    with pytest.raises(JobRefused, match=says):
        refuse_foreign_metadata(METADATA, ["s3://bucket/warehouse/t/data/a.parquet", path])


def test_beside_a_table_without_a_log_no_other_metadata_is_expected() -> None:
    new = {"location": "file:///w/t", "metadata-log": []}

    with pytest.raises(JobRefused, match="another catalog"):
        refuse_foreign_metadata(new, ["file:/w/t/metadata/00000-other.metadata.json"])


@pytest.mark.parametrize(
    ("path", "version"),
    [
        ("/t/metadata/00012-uuid.metadata.json", 12),
        ("/t/metadata/00012-uuid.gz.metadata.json", 12),
        ("/t/metadata/v3.metadata.json", 3),
        ("/t/metadata/v3.gz.metadata.json", 3),
        ("/t/metadata/a-m0.avro", None),
        ("/00012-x/metadata/named.metadata.json", None),
    ],
)
def test_a_version_stands_in_the_name_of_a_metadata_file(path: str, version: int | None) -> None:
    assert metadata_version(path) == version


def test_a_path_is_the_same_however_its_place_is_spelled() -> None:
    assert plain_path("file:/w/t") == plain_path("file:///w/t/") == plain_path("/w/t") == "/w/t"
    assert plain_path("s3a://bucket/w/t") == plain_path("s3://bucket/w/t") == "/w/t"


def test_a_system_table_is_made_by_a_statement_that_may_come_second() -> None:
    statement = create_statement(
        "`lake`.`system`.`t`", "id BIGINT", ("days(at)", "id"), {"b": "2", "a": "it's"}, "what's in"
    )

    assert statement == (
        "CREATE TABLE IF NOT EXISTS `lake`.`system`.`t` (id BIGINT) USING iceberg PARTITIONED BY (days(at), id) "
        "COMMENT 'what\\'s in' TBLPROPERTIES ('a' = 'it\\'s', 'b' = '2')"
    )


def test_a_literal_reads_back_as_it_was() -> None:
    assert literal("a\\b'c") == "'a\\\\b\\'c'"
