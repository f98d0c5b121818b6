"""`nunatak config check`: where each value came from, and what is wrong."""

from pathlib import Path

import pytest

from nunatak.settings import SETTINGS
from tests.unit.cli.conftest import run_command


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_setting_is_printed_with_its_origin(in_an_empty_folder: Path) -> None:
    (in_an_empty_folder / "nunatak.toml").write_text('host = "0.0.0.0"\n')

    checked = run_command("config", "check", "-o", "json", NUNATAK_PORT="9000").json

    assert set(checked) == {setting.name for setting in SETTINGS}
    assert checked["host"] == {"value": "0.0.0.0", "origin": "nunatak.toml"}
    assert checked["port"] == {"value": "9000", "origin": "NUNATAK_PORT"}
    assert checked["workers"] == {"value": "1", "origin": "default"}


def test_people_get_a_table() -> None:
    lines = [line.split() for line in run_command("config", "check").out.splitlines()]

    assert ["setting", "value", "from"] in lines
    assert ["port", "8181", "default"] in lines


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("NUNATAK_PORT", "99999", "a port lies between 0 and 65535"),
        ("NUNATAK_PROT", "1", "did you mean 'NUNATAK_PORT'?"),
        ("NUNATAK_WAREHOUSES", "lake", "name=location"),
    ],
)
def test_a_wrong_setting_ends_with_2_and_says_what_would_do(variable: str, value: str, message: str) -> None:
    outcome = run_command("config", "check", **{variable: value})

    assert outcome.code == 2
    assert message in outcome.err


def test_a_mistyped_key_of_the_file_is_refused(in_an_empty_folder: Path) -> None:
    (in_an_empty_folder / "nunatak.toml").write_text("porrt = 1\n")

    outcome = run_command("config", "check")

    assert outcome.code == 2
    assert "did you mean 'port'?" in outcome.err


def test_a_password_in_the_database_url_is_not_printed() -> None:
    outcome = run_command("config", "check", NUNATAK_DATABASE_URL="postgresql://me:hunter2@db/lake")

    assert "hunter2" not in outcome.out
    assert "postgresql://me:***@db/lake" in outcome.out
