"""The soak: its table knows every fault test, sizes shrink with the scale, and the report says what happened."""

import dataclasses
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.soak import report
from tests.soak.run import PROJECT, TESTS, Line, Outcome, commit, count, held_before, read_lines, run
from tests.soak.trials import TRIALS, VARIABLE, Trial, chosen
from tests.support.promises import FIGURES_VARIABLE, show

KILLED = Trial(
    "F1", "kill -9", "Nothing is lost.", "faults/test_kill.py", {"COMMITS": 1000}, {"WRITERS": 32}, {"commits": 1000}
)


def an_outcome(commits: int = 1000, failed: int = 0) -> Outcome:
    line = Line("F1", "killed", {"commits": commits, "lost": 0, "restart seconds": 0.5})
    return Outcome(KILLED, (line,), 7, failed, 0, 61.4, 1.0, Path("log"), "0123abc")


def test_every_fault_test_is_part_of_the_soak() -> None:
    assert {Path(trial.test).name for trial in TRIALS} >= {path.name for path in (TESTS / "faults").glob("test_*.py")}


@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: f"{trial.fault} {trial.title}")
def test_a_trial_sets_what_its_test_reads(trial: Trial) -> None:
    """A size that nobody reads would leave the test small, and the report would not say so."""
    text = (TESTS / trial.test).read_text("utf-8")

    assert [name for name in {**trial.sizes, **trial.fixed} if f'"{VARIABLE}{name}"' not in text] == []


def test_sizes_shrink_with_the_scale_and_fixed_ones_do_not() -> None:
    assert KILLED.environment(0.1) == {"NUNATAK_TEST_COMMITS": "100", "NUNATAK_TEST_WRITERS": "32"}
    assert KILLED.environment(0.0001)["NUNATAK_TEST_COMMITS"] == "1"


def test_faults_are_chosen_by_their_names() -> None:
    assert {trial.fault for trial in chosen(("f1", "F5"))} == {"F1", "F5"}
    assert chosen(()) == TRIALS
    with pytest.raises(ValueError, match="no such fault: F99"):
        chosen(("F99",))


def test_a_line_that_a_test_shows_is_read_by_the_soak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FIGURES_VARIABLE, str(tmp_path / "figures"))
    show("F1", "killed", commits=5, slowest_restart_seconds=0.5)

    assert read_lines(tmp_path / "figures") == (Line("F1", "killed", {"commits": 5, "slowest restart seconds": 0.5}),)


def test_a_promise_held_only_if_its_tests_passed_and_its_goal_was_reached() -> None:
    assert an_outcome().kept
    assert not an_outcome(failed=1).kept
    assert an_outcome(commits=999).short_of == ["commits 999 of 1,000"]
    assert not an_outcome(commits=999).kept
    assert dataclasses.replace(an_outcome(commits=999), scale=0.5).kept
    assert not dataclasses.replace(an_outcome(), passed=0).kept


def test_a_trial_runs_and_a_failure_is_counted(tmp_path: Path) -> None:
    test = tmp_path / "test_two.py"
    test.write_text(
        "import os\n"
        "from tests.support.promises import show\n"
        "def test_good(): show('F1', 'good', commits=int(os.environ['NUNATAK_TEST_COMMITS']))\n"
        "def test_bad(): assert os.environ['NUNATAK_TEST_SEED'] == 'another'\n"
    )
    trial = dataclasses.replace(KILLED, test=str(test))

    outcome = run(trial, 0.5, "this", tmp_path)

    assert (outcome.passed, outcome.failed, outcome.skipped) == (1, 1, 0)
    assert outcome.lines == (Line("F1", "good", {"commits": 500}),)
    assert "test_bad" in outcome.log.read_text()
    assert not outcome.kept


def test_what_held_is_known_the_next_time_and_what_did_not_is_run_again(tmp_path: Path) -> None:
    test = tmp_path / "test_one.py"
    test.write_text(
        "import os\n"
        "from tests.support.promises import show\n"
        "def test_it(): show('F1', 'good', commits=int(os.environ['NUNATAK_TEST_COMMITS']))\n"
    )
    trial = dataclasses.replace(KILLED, test=str(test))
    outcome = run(trial, 1.0, "this", tmp_path)

    assert outcome.kept
    assert held_before(trial, 1.0, "this", tmp_path) == outcome
    assert held_before(trial, 1.0, "another", tmp_path) is None
    assert held_before(trial, 0.5, "this", tmp_path) is None
    assert held_before(dataclasses.replace(trial, goals={"commits": 1001}), 1.0, "this", tmp_path) is None
    assert held_before(dataclasses.replace(trial, test="never.py"), 1.0, "this", tmp_path) is None


def test_a_report_of_several_commits_says_what_ran_on_which() -> None:
    later = dataclasses.replace(an_outcome(), commit="4567def", trial=dataclasses.replace(KILLED, fault="F6"))
    whole = report.Soak([an_outcome(), an_outcome(), later], "abcd", 1.0, datetime(2026, 5, 4, tzinfo=UTC), 1)

    assert "- Commit: `0123abc` (F1); `4567def` (F6)\n" in report.text_of(whole, "2 cores")


def test_a_call_without_results_has_failed(tmp_path: Path) -> None:
    assert count(tmp_path / "none.xml") == (0, 1, 0)


def test_the_report_says_what_was_promised_what_came_of_it_and_how_to_repeat_it() -> None:
    whole = report.Soak([an_outcome(), an_outcome(failed=1)], "abcd", 1.0, datetime(2026, 5, 4, 3, 2, tzinfo=UTC), 2700)

    text = report.text_of(whole, "2 cores")

    assert "1 of 2 promises held, at full size." in text
    assert "| F1 | kill -9 | 7 | 61 s | held |\n| F1 | kill -9 | 8 | 61 s | **did not hold** |\n" in text
    assert "- killed: commits 1,000, lost 0, restart seconds 0.5" in text
    assert "It held: 7 tests passed, 61 s. Test: [faults/test_kill.py](../../tests/faults/test_kill.py)." in text
    assert "It **did not hold**: 7 tests passed, 1 failed" in text
    for said in ("`0123abc`", "`abcd`", "2026-05-04 03:02 UTC", "45 min", "2 cores", "kill -9 is not a power cut"):
        assert said in text
    assert all((report.PAGE.parent / link).exists() for link in re.findall(r"\]\(([^)]+)\)", text))


def test_the_report_names_the_machine_and_the_commit() -> None:
    assert re.search(r"\d+ cores \(.+\), \d+ GiB, .*Python 3", report.machine())
    assert f"Python {sys.version_info.major}" in report.machine()
    assert re.match(r"[0-9a-f]{40}|unknown", commit())
    assert (PROJECT / "Makefile").exists()
