"""The list of the mission's ids, and the tests that name them, agree."""

import pytest

from tests.support import mission


def test_the_ids_of_each_seed_are_numbered_without_a_gap() -> None:
    seeds, ids, _ = mission.known()
    for seed in seeds:
        numbers = [int(mission_id.partition("-")[2]) for mission_id in ids if mission_id.startswith(f"{seed}-")]
        assert numbers == list(range(1, len(numbers) + 1)), seed
    assert {mission_id.partition("-")[0] for mission_id in ids} == set(seeds)


def test_no_test_names_an_id_that_the_mission_does_not_know() -> None:
    _, ids, _ = mission.known()
    cited = list(mission.citations(mission.TESTS))

    assert [citation for citation in cited if citation.mission_id not in ids] == []
    assert {citation.mission_id for citation in cited} > {"000-33", "002-30", "004-04"}


def test_what_is_missing_is_missing_of_an_id_that_the_mission_knows() -> None:
    _, ids, missing = mission.known()

    assert missing.keys() <= ids.keys()


def test_the_report_counts_and_lists_what_has_no_test() -> None:
    seeds, ids = {"000": "One", "001": "Two"}, {"000-01": "first", "000-02": "second", "001-01": "third"}

    lines = list(mission.report(seeds, ids, {"000-02": "the rest"}, {"000-02": ["test_a", "test_b"]}))

    assert lines == [
        "000  One: 1 of 2 have a test",
        "  000-02  second  (2 tests; not yet: the rest)",
        "  without a test:",
        "    000-01  first",
        "",
        "001  Two: 0 of 1 have a test",
        "  without a test:",
        "    001-01  third",
        "",
        "1 of 3 have a test, 1 of these for a part",
    ]


def test_make_mission_prints_every_id_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert mission.main() == 0

    printed = capsys.readouterr().out.splitlines()
    _, ids, _ = mission.known()
    shown = [line.split()[0] for line in printed if line.startswith("  ") and line.strip()[0].isdigit()]
    assert sorted(shown) == sorted(ids)
