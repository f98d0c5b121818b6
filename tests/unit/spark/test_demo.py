"""The demo without Spark: how much there is to do, where its plots lie, and which folder it takes."""

import subprocess
import sys
from pathlib import Path

import pytest

from nunatak_spark.demo import plot_geometry
from nunatak_spark.demo.command import commands_for
from nunatak_spark.demo.demo_folder import MARK, claim_folder
from nunatak_spark.demo.sample_data import DemoSize, demo_size, files_of
from nunatak_spark.errors import ConfigurationConflict


def test_the_scale_is_that_of_the_orders_and_the_mess_is_always_a_mess() -> None:
    assert (demo_size(1).orders, demo_size(1).files) == (200_000, 2_000)
    assert (demo_size(2.5).orders, demo_size(2.5).files) == (500_000, 2_000)
    assert demo_size(0.001).orders == 1_000


@pytest.mark.parametrize("size", [DemoSize(1_000), DemoSize(1_000, 47, 10), DemoSize(1_000, 40, 40)], ids=str)
def test_the_commits_of_the_mess_write_all_of_its_files(size: DemoSize) -> None:
    assert sum(files_of(commit, size) for commit in range(size.commits)) == size.files


@pytest.mark.parametrize("files", [40, 99, 500, 2_000])
def test_every_day_of_the_mess_has_files_to_join(files: int) -> None:
    size = demo_size(1, files)
    days = [commit * size.click_days // size.commits for commit in range(size.commits)]
    written = [sum(files_of(commit, size) for commit, on in enumerate(days) if on == day) for day in set(days)]

    assert len(written) == size.click_days <= 10
    assert min(written) >= 10


# Plots


@pytest.mark.parametrize(
    ("highest", "steps"),
    [
        (0, [0, 1]),
        (1, [0, 0.25, 0.5, 0.75, 1]),
        (9, [0, 2.5, 5, 7.5, 10]),
        (81_000, [0, 25_000, 50_000, 75_000, 100_000]),
    ],
)
def test_an_axis_has_round_numbers_up_to_the_highest(highest: float, steps: list[float]) -> None:
    assert plot_geometry.nice_steps(highest) == steps


def test_areas_lie_on_top_of_each_other() -> None:
    plot = plot_geometry.stacked_area(["a", "b"], {"low": [1, 1], "high": [1, 3]}, width=100, height=40, every=1)

    assert [tick.text for tick in plot.y_ticks] == ["0", "1", "2", "3", "4"]
    assert plot.layers[0].path == "M0.0,30.0 L100.0,30.0 L100.0,40.0 L0.0,40.0Z"
    assert plot.layers[1].path == "M0.0,20.0 L100.0,0.0 L100.0,30.0 L0.0,30.0Z"
    assert [tick.text for tick in plot.x_ticks] == ["a", "b"]
    assert plot.slots[1].values == (("low", 1), ("high", 3))


def test_bars_are_drawn_against_the_largest_and_little_is_more_than_nothing() -> None:
    bars = plot_geometry.bars({"all": 1_000, "half": 500, "one": 1, "none": 0})

    assert [bar.percent for bar in bars] == [100, 50, 0.4, 0]
    assert bars[0].text == "1,000"


def test_acts_follow_each_other_without_a_gap() -> None:
    first, second = plot_geometry.spans({"a": 1.0, "b": 3.0})

    assert (first.start, first.length, second.start, second.length) == (0, 25, 25, 75)


# The folder


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")

    with pytest.raises(ConfigurationConflict, match="was not created by a demo"), claim_folder(tmp_path):
        pytest.fail("it was taken")

    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_what_an_earlier_demo_left_is_cleared_away(tmp_path: Path) -> None:
    with claim_folder(tmp_path / "demo") as folder:
        (folder / "data").mkdir()
        (folder / "data" / "catalog.db").touch()
        (folder / "demo.html").touch()

    with claim_folder(folder):
        assert [path.name for path in folder.iterdir()] == [MARK]


def test_two_demos_do_not_share_a_folder(tmp_path: Path) -> None:
    with (
        claim_folder(tmp_path) as folder,
        pytest.raises(ConfigurationConflict, match="runs in"),
        claim_folder(folder),
    ):
        pytest.fail("both have it")


# The command


def test_what_to_try_next_starts_the_catalog_unless_it_still_runs() -> None:
    ended = commands_for(Path("d"), None)
    kept = commands_for(Path("d"), "http://127.0.0.1:99")

    assert next(iter(ended.values())) == "nunatak serve --data d/data"
    assert not any("serve" in command for command in kept.values())
    assert all("http://127.0.0.1:99" in command for command in kept.values())


def test_packages_that_are_missing_are_named_before_anything_is_imported() -> None:
    script = """
import sys
sys.modules["duckdb"] = sys.modules["jinja2"] = None  # as if they were not installed
from nunatak_spark.demo.__main__ import main
sys.exit(main())
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert ended.returncode == 3
    assert "pip install 'nunatak[migration]' 'pyiceberg[pyiceberg-core]'" in ended.stderr
