"""The benchmarks of the Spark jobs measure what they say, small; no speed is asserted."""

from typing import TYPE_CHECKING

import pytest

from nunatak.client import Client
from tests.bench.spark import (
    OURS,
    PLAIN,
    Bench,
    Reading,
    compaction_lines,
    fingerprint_lines,
    measure_compaction,
    measure_fingerprint,
)
from tests.bench.verification import WARM, Verification, verification_lines
from tests.support.catalogs.process import RunningServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def bench(spark: "SparkSession", shared_server: RunningServer) -> Bench:
    spark.sql("CREATE NAMESPACE lake.bench")
    return Bench(spark, Client(shared_server.uri), lambda _: None)


def test_a_fingerprint_is_measured_round_by_round(bench: Bench) -> None:
    readings = measure_fingerprint(bench, rows=1_000, rounds=2)

    assert [one.what for one in readings] == ["fingerprint"] * 2
    assert all(one.seconds > 0 and one.cpu_seconds > 0 for one in readings)


def test_the_procedure_and_our_job_join_the_same_files_in_turn(bench: Bench) -> None:
    readings = measure_compaction(bench, rows=1_000, files=10, rounds=2)

    assert [one.what for one in readings] == [PLAIN, OURS, OURS, PLAIN]
    assert bench.spark.table("lake.bench.small.files").count() == 10  # put back after the last one, too


def test_a_ratio_is_that_of_the_rounds_after_the_first() -> None:
    plain = [Reading(PLAIN, seconds, seconds) for seconds in (9.0, 2.0, 4.0)]
    ours = [Reading(OURS, seconds, seconds / 2) for seconds in (1.0, 3.0, 6.0)]

    lines = dict(compaction_lines([*plain, *ours]))

    assert lines["our job against it, 2 rounds"] == "1.50× the time, 0.75× the CPU time"


def test_rows_per_second_are_those_of_a_warm_jvm() -> None:
    readings = [Reading("fingerprint", seconds, 2 * seconds) for seconds in (8.0, 4.0, 2.0, 2.0)]

    lines = dict(fingerprint_lines(readings, rows=4_000_000))

    assert lines["first round"] == "0.50 M rows/s"
    assert lines["warm, the last 2 rounds"] == "2.00 M rows/s"
    assert lines["warm, by CPU time, if 2 cores were free"] == "2.00 M rows/s"


def test_the_time_of_a_verification_is_that_of_one_table() -> None:
    lines = dict(verification_lines(Verification(20, 10.0, 8.0, 19, {"L0": 1.0, "L2": 6.0})))

    assert WARM > 0
    assert lines["tables verified"] == "19 of 20"
    assert lines["each, of the time that passed"] == "0.50 s"
    assert lines["each, by CPU time, if 2 cores were free"] == "0.20 s"
    assert lines["L2 in its thread"] == "0.30 s"
