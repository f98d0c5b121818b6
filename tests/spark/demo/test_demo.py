"""The demo as an audience sees it, small: what every act shows is true, and the page needs nobody."""

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nunatak.client import Client
from nunatak_spark.demo import engines, sample_data
from nunatak_spark.demo.demo_context import DemoContext
from nunatak_spark.demo.demo_page import render
from nunatak_spark.demo.demo_run import DemoResult, run_demo
from nunatak_spark.demo.sample_data import DemoSize
from nunatak_spark.fingerprint import fingerprint
from nunatak_spark.jobs import Progress, no_progress
from tests.support.catalogs.process import RunningServer
from tests.support.spark import Installation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = DemoSize(orders=1_500, files=40, commits=4)
# Whoever changes the data changes these; a machine, a parallelism or a version of Spark must not.
CONTENT = {
    "orders": ("2b20d53faafa6e18", sample_data.raw_orders),
    "corrections": ("792410fd4affd8c5", sample_data.raw_corrections),
}
COMMAND_SECONDS = 500


@dataclass
class SilentNarrator:
    """A narrator that only collects the texts."""

    said: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def act(self, title: str, sentence: str) -> Iterator[None]:
        yield

    def say(self, text: str) -> None:
        self.said.append(text)

    @property
    def progress(self) -> Progress:
        return no_progress


@pytest.fixture(scope="module")
def stage(spark: "SparkSession", shared_server: RunningServer) -> DemoContext:
    root = f"demo_{os.getpid()}"
    return DemoContext(spark, Client(shared_server.uri), shared_server.uri, SMALL, SilentNarrator(), root=root)


@pytest.fixture(scope="module")
def play(stage: DemoContext) -> DemoResult:
    return run_demo(stage)


@pytest.mark.parametrize("name", CONTENT)
def test_the_data_are_the_same_whatever_computes_them(spark: "SparkSession", name: str) -> None:
    expected, query = CONTENT[name]

    found = {fingerprint(spark, spark.sql(query(SMALL, partitions))).sum for partitions in (1, 3, 8)}

    assert found == {expected}


def test_nothing_went_otherwise_than_it_should(play: DemoResult) -> None:
    assert list(play.problems()) == []
    assert [act.title for act in play.acts][0::6] == ["Bronze", "Three engines, one answer"]


def test_the_layers_are_namespaces_of_one_that_holds_them(stage: DemoContext, play: DemoResult) -> None:
    """MISSION: 001-07, 001-08, 001-10"""
    layers = [(stage.root, layer) for layer in ("bronze", "gold", "silver")]

    assert sorted(stage.client.list_namespaces((stage.root,))) == layers
    assert stage.client.load_namespace(layers[0])["properties"]["owner"] == "data-team"
    assert list(stage.client.list_tables(layers[1])) == [(stage.root, "gold", "revenue")]


def test_silver_holds_each_readable_order_once_and_as_it_was_last_corrected(
    stage: DemoContext, play: DemoResult
) -> None:
    raw, silver = stage.name("bronze.events"), stage.name("silver.orders")
    readable = stage.value(
        f"SELECT count(DISTINCT order_id) FROM ({sample_data.parse_orders(raw)}) WHERE amount IS NOT NULL"
    )
    stale = stage.value(
        f"SELECT count(*) FROM {silver} AS s JOIN ({sample_data.parse_orders(raw)}) AS r ON s.order_id = r.order_id "
        "WHERE r.amount IS NOT NULL AND r.changed_at > s.changed_at"
    )

    assert play.bronze.events == SMALL.orders + SMALL.resent + SMALL.corrections
    assert play.bronze.resent == SMALL.resent
    assert 0 < play.bronze.unreadable < play.bronze.events // 50
    assert play.silver.orders == readable == play.refused.rows_before
    assert 0 < play.silver.corrected <= SMALL.corrections
    assert stale == 0


def test_a_spoiled_batch_is_caught_on_its_branch_and_readers_never_see_it(play: DemoResult) -> None:
    audit = play.refused

    assert [count > 0 for count in audit.violations.values()] == [True, True, True, False]
    assert audit.rows_on_branch > audit.rows_before == audit.rows_after


def test_a_sound_batch_is_published_whole_and_the_branch_is_gone(stage: DemoContext, play: DemoResult) -> None:
    audit = play.published
    refs = stage.client.load_table(stage.levels("silver.orders"))["metadata"]["refs"]

    assert set(audit.violations.values()) == {0}
    assert audit.rows_after == audit.rows_on_branch == audit.rows_before + SMALL.batch
    assert set(refs) == {"main"}


def test_gold_adds_up_to_silver(stage: DemoContext, play: DemoResult) -> None:
    orders, revenue = stage.row(f"SELECT count(*), sum(amount) FROM {stage.name('silver.orders')}")

    assert (sum(row.orders for row in play.gold.rows), play.gold.revenue) == (orders, revenue)
    assert len({row.day for row in play.gold.rows}) == sample_data.DAYS + 1


def test_the_mess_is_seen_by_the_catalog_and_maintenance_clears_it_up(play: DemoResult) -> None:
    before, after = play.before.health, play.after.health

    assert before.data_files == SMALL.files
    assert before.delete_files > 0
    assert {"small-files", "delete-files"} <= {finding.check for finding in before.findings}
    assert (after.data_files, after.delete_files) == (SMALL.click_days, 0)  # each day is a partition
    assert after.snapshots < before.snapshots
    assert {job.type for job in play.jobs} >= {"data-compaction", "snapshot-expiry", "statistics"}
    assert play.before.content.rows < SMALL.files * sample_data.CLICKS_PER_FILE  # some customers were forgotten


def test_three_engines_read_the_same_revenue(play: DemoResult) -> None:
    """MISSION: 001-01, 003-01"""
    expected: dict[str, tuple[int, Decimal]] = {}
    for row in play.gold.rows:
        orders, revenue = expected.get(row.country, (0, Decimal(0)))
        expected[row.country] = (orders + row.orders, revenue + row.revenue)
    lines = tuple((country, orders, str(revenue)) for country, (orders, revenue) in sorted(expected.items()))

    assert {answer.engine: answer.lines for answer in play.answers} == dict.fromkeys(engines.ENGINES, lines)


# The page


@pytest.fixture(scope="module")
def page(play: DemoResult) -> str:
    commands = {"Look <closer>": "nunatak health"}
    return render(play, made_at=datetime(2026, 1, 1, tzinfo=UTC), versions={"Spark": "4.1"}, commands=commands)


def test_the_page_asks_nobody_for_anything(page: str) -> None:
    assert re.findall(r"(?:https?:)?//[\w.]+|@import|url\(|<script|<iframe", page) == []
    assert re.findall(r"\b(?:src|href)\s*=\s*\"([^\"]*)\"", page) == ["data:,"]


def test_the_page_shows_the_figures_and_escapes_what_it_is_given(play: DemoResult, page: str) -> None:
    figures = [play.bronze.events, play.published.rows_after, play.refused.violations["unknown countries"]]

    assert all(f"{figure:,}" in page for figure in figures)
    assert f"<b>{play.before.health.score} <i>→</i> {play.after.health.score}</b>" in page
    assert all(Decimal(line[2]) > 0 and f"{Decimal(line[2]):,}" in page for line in play.answers[0].lines)
    assert "Look &lt;closer&gt;" in page
    assert "identical" in page


# The command


def run_command(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nunatak_spark.demo", "--scale", "0.01", "--files", "40", "--folder", str(folder)]
    return subprocess.run(
        [*command, "--master", "local[2]"],
        env={**os.environ, "COLUMNS": "200", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=COMMAND_SECONDS,
    )


def test_the_command_starts_everything_shows_it_and_leaves_a_page(installation: Installation, tmp_path: Path) -> None:
    folder = tmp_path / "demo"

    ended = run_command(
        folder,
        JAVA_HOME=str(installation.java_home),
        NUNATAK_SPARK_JARS=",".join(map(str, installation.jars)),
        NUNATAK_DATABASE_URL="postgresql://nobody@127.0.0.1:1/real",  # that of the shell is left alone
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr + (folder / "spark.log").read_text()
    assert f"The page is {folder / 'demo.html'}" in ended.stdout
    assert "all three say the same" in ended.stdout
    assert f"nunatak serve --data {folder / 'data'}" in ended.stdout
    assert "<title>Nunatak: from raw events to revenue</title>" in (folder / "demo.html").read_text("utf-8")
    uri = re.search(r"listens on http://127.0.0.1:(\d+)", ended.stdout)
    assert uri is not None
    with pytest.raises(ConnectionError):  # it is down again
        Client(f"http://127.0.0.1:{uri.group(1)}").load_config()


def test_without_java_the_command_says_so_at_once(tmp_path: Path) -> None:
    ended = run_command(tmp_path / "demo", JAVA_HOME=str(tmp_path))

    assert ended.returncode == 3
    assert "no Java at all" in ended.stdout
    assert "Fix:" in ended.stdout
    assert not (tmp_path / "demo").exists()
