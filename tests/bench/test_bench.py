"""The benchmark measures everything it says, and would notice a server that loses commits. No speed is asserted."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from click.testing import CliRunner

from tests.bench import content, servers
from tests.bench.__main__ import bench
from tests.bench.content import Head
from tests.bench.generator import Commit, Slice, generator_process
from tests.bench.prepare import judge, prepare
from tests.bench.report import geometric_mean_of_ratios
from tests.bench.rounds import WORKLOADS, Workload
from tests.support.catalogs.process import RunningServer, running_server

PROJECT = Path(__file__).parents[2]
SMALL = ["--rounds", "1", "--warm-up", "0", "--seconds", "0.05", "--tables", "40", "--snapshots", "20"]


@dataclass(frozen=True)
class Run:
    """One small run with a second server beside ours, and what it left behind."""

    report: dict[str, Any]
    page: str
    namespaces_left: list[list[str]]
    files_left: list[Path]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("bench")
    page = folder / "speed.md"
    with running_server(folder / "other") as other:
        given = f"other={other.uri};pid={other.process.pid}"
        command = [sys.executable, "-m", "tests.bench", *SMALL, "--json", "--out", str(page), "--server", given]
        ended = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        with urlopen(f"{other.uri}/v1/namespaces") as answer:
            left = json.load(answer)["namespaces"]
    files = [path for path in (folder / "other" / "warehouse").rglob("*") if path.is_file()]
    return Run(json.loads(ended.stdout), page.read_text("utf-8"), left, files)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_a_workload_is_measured_on_every_server_and_nothing_fails(run: Run, workload: Workload) -> None:
    rows = [row for row in run.report["rows"] if row["workload"] == workload.name]

    assert [row["server"] for row in rows] == ["nunatak", "other"]
    assert all(row["operations"] > 0 and row["failed"] == 0 for row in rows), rows
    assert all(row["speed_ratio"] > 0 for row in rows), rows
    assert f"| {workload.name} | nunatak |" in run.page


def test_nothing_acknowledged_is_lost_and_nothing_refused_is_applied(run: Run) -> None:
    verdicts = [standing["verdict"] for standing in run.report["standings"]]

    assert [(one["lost"], one["applied"]) for one in verdicts] == [(0, 0), (0, 0)]
    assert all(one["acknowledged"] > 0 for one in verdicts)


def test_memory_and_the_start_are_measured_where_they_can_be(run: Run) -> None:
    ours, other = run.report["standings"]

    assert len(ours["cold_start_seconds"]) == 1
    assert other["cold_start_seconds"] == []  # it is not ours to stop
    assert all(standing["idle_bytes"] > 0 and standing["after_bytes"] > 0 for standing in (ours, other))


def test_a_running_server_is_left_as_it_was(run: Run) -> None:
    assert run.namespaces_left == []
    assert run.files_left == []


def test_a_commit_that_was_acknowledged_and_is_not_there_is_lost(server: RunningServer) -> None:
    with generator_process() as drive:
        given = servers.given(f"other={server.uri}")
        with given.start() as running:
            subject = prepare(drive, running, tables=40, hot_tables=1, snapshots=3)
        subject.note(a_slice(acknowledged=(Commit(subject.hot[0].table, 1),)))

        verdict = judge(drive, subject)

    assert (verdict.acknowledged, verdict.lost, verdict.applied) == (1, 1, 0)


def test_a_snapshot_beside_the_history_of_main_is_not_part_of_it() -> None:
    metadata = a_history_of(3)
    metadata["snapshots"].append({"snapshot-id": 7, "parent-snapshot-id": metadata["snapshots"][0]["snapshot-id"]})

    walked = content.snapshots_of_main(metadata)

    assert walked == {one["snapshot-id"] for one in metadata["snapshots"]} - {7}


def test_an_append_stands_on_the_head_it_is_given() -> None:
    head = Head("t", "9c12d441-03fe-4693-9a96-a0705ddf69c1", "file:///w/t", snapshot_id=5, sequence_number=2)

    body, after = content.append_to(head, "n", snapshot_id=6, timestamp_ms=1000)

    commit = json.loads(body)
    snapshot = commit["updates"][0]["snapshot"]
    assert {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 5} in commit["requirements"]
    assert (snapshot["parent-snapshot-id"], snapshot["sequence-number"]) == (5, 3)
    assert (after.snapshot_id, after.sequence_number) == (6, 3)


def test_a_ratio_is_the_geometric_mean_over_the_rounds() -> None:
    assert geometric_mean_of_ratios([2.0, 8.0], [1.0, 1.0]) == pytest.approx(4.0)
    assert geometric_mean_of_ratios([None, 8.0], [1.0, 2.0]) == pytest.approx(4.0)
    assert geometric_mean_of_ratios([], []) is None


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--only", "laod"], "laod"),
        (["--server", "nothing"], "NAME=http://HOST:PORT"),
        (["--baseline", "nobody"], "is none of nunatak"),
    ],
)
def test_a_mistyped_argument_is_named(arguments: list[str], says: str) -> None:
    ended = CliRunner().invoke(bench, arguments)

    assert ended.exit_code == 2
    assert says in ended.output


def a_history_of(count: int) -> dict[str, Any]:
    metadata: dict[str, Any] = json.loads(content.metadata_with_snapshots("file:///w/t", "u", count, now_ms=10**12))
    return metadata


def a_slice(acknowledged: tuple[Commit, ...]) -> Slice:
    return Slice(1, 0, 1.0, 1.0, 1.0, 1, 0.0, acknowledged=acknowledged)
