"""`nunatak config check`: where each value came from, and what is wrong."""

from pathlib import Path

import pytest

from nunatak.settings import OTHER_VARIABLES, SETTINGS
from tests.unit.cli.conftest import run_command


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_setting_is_printed_with_its_origin(in_an_empty_folder: Path) -> None:
    (in_an_empty_folder / "nunatak.toml").write_text('host = "localhost"\n')

    checked = run_command("config", "check", "-o", "json", NUNATAK_PORT="9000").json

    assert set(checked) == {setting.name for setting in SETTINGS}
    assert checked["host"] == {"value": "localhost", "origin": "nunatak.toml"}
    assert checked["port"] == {"value": "9000", "origin": "NUNATAK_PORT"}
    assert checked["workers"] == {"value": "1", "origin": "default"}
    assert checked["warehouse"]["value"] == f"file://{in_an_empty_folder}/nunatak-data/warehouse"
    assert checked["database_url"]["value"] == "sqlite:///nunatak-data/nunatak.db"
    assert list(in_an_empty_folder.iterdir()) == [in_an_empty_folder / "nunatak.toml"]  # nothing was made


def test_people_get_a_table() -> None:
    lines = [line.split() for line in run_command("config", "check").out.splitlines()]

    assert ["setting", "value", "from"] in lines
    assert ["port", "8181", "default"] in lines


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("NUNATAK_PORT", "99999", "a port is a number from 0 to 65535"),
        ("NUNATAK_PROT", "1", "did you mean 'NUNATAK_PORT'?"),
        ("NUNATAK_WAREHOUSES", "lake", "name=location"),
        ("NUNATAK_CACHE_BYTES", "64MB", "a whole number is needed"),
        ("NUNATAK_LOG_LEVEL", "foo", "choose debug, info, warning or error"),
        ("NUNATAK_CONFIG", "/nope.toml", "NUNATAK_CONFIG names /nope.toml, which does not exist"),
    ],
)
def test_a_wrong_setting_ends_with_2_and_says_what_would_do(variable: str, value: str, message: str) -> None:
    outcome = run_command("config", "check", **{variable: value})

    assert outcome.code == 2
    assert message in outcome.err


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("NUNATAK_HOST", "0.0.0.0", "auth is none"),
        ("NUNATAK_WORKERS", "3", "SQLite supports one server process"),
        ("NUNATAK_WAREHOUSE", "ftp://host/x", "supported are file, s3, abfss, gs"),
        ("NUNATAK_ALLOWED_LOCATIONS", "s3://bucket/x", "needs another storage profile; this one serves file:"),
        ("NUNATAK_WAREHOUSE_ROOTS", "ftp//host", "Invalid location"),
        ("NUNATAK_STORAGE", '{"lab": {}}', "names the warehouse lab; configured are default"),
        ("NUNATAK_WAREHOUSES", "lab=file:///a,lab=file:///b", "two warehouses are named lab"),
        ("NUNATAK_SPOOL_LOCATION", "s3://bucket/x", "write a folder, or off"),
        ("NUNATAK_AUTH", "oidc", "needs oidc_issuers"),
        ("NUNATAK_AUTH", "proxy", "needs trusted_proxies"),
        ("NUNATAK_AUTH", "certificate", "needs tls_certificate"),
        ("NUNATAK_TLS_CERTIFICATE", "/nope", "tls_certificate"),
        ("NUNATAK_DATA", "/etc/passwd", "/etc/passwd is not a folder"),
        ("NUNATAK_DATABASE_URL", "sqlite:////tmp", "/tmp is a folder"),
    ],
)
def test_what_serve_would_refuse_is_refused_in_the_same_words(
    variable: str, value: str, message: str, in_an_empty_folder: Path
) -> None:
    outcome = run_command("config", "check", **{variable: value})
    served = run_command("serve", "--port", "0", **{variable: value})

    assert (outcome.code, served.code) == (2, 2)
    assert message in outcome.err
    assert outcome.err == served.err
    assert variable in outcome.out  # the table is printed all the same: it shows where the value came from
    assert list(in_an_empty_folder.iterdir()) == []


@pytest.mark.parametrize("authorizer", ["opa", "cedar"])
def test_a_decision_point_without_its_settings_is_refused(authorizer: str) -> None:
    outcome = run_command("config", "check", NUNATAK_AUTH="embedded", NUNATAK_AUTHORIZER=authorizer)

    assert outcome.code == 2
    assert f"{authorizer}_" in outcome.err


@pytest.mark.parametrize("name", OTHER_VARIABLES)
def test_what_other_commands_read_keeps_none_from_starting(name: str, in_an_empty_folder: Path) -> None:
    there = in_an_empty_folder / "other.toml"
    there.write_text("")

    assert run_command("config", "check", **{name: str(there)}).code == 0


def test_a_mistyped_key_of_the_file_is_refused(in_an_empty_folder: Path) -> None:
    (in_an_empty_folder / "nunatak.toml").write_text("porrt = 1\n")

    outcome = run_command("config", "check")

    assert outcome.code == 2
    assert "did you mean 'port'?" in outcome.err


def test_a_password_in_the_database_url_is_not_printed() -> None:
    outcome = run_command("config", "check", NUNATAK_DATABASE_URL="postgresql://me:hunter2@db/lake")

    assert "hunter2" not in outcome.out
    assert "postgresql://me:***@db/lake" in outcome.out
