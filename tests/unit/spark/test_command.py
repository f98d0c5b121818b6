"""`nunatak spark …`: what it prints is what Spark reads, and secrets only where somebody asked for them."""

import json
import stat
from pathlib import Path

import pytest

from nunatak.settings import load
from nunatak_spark.compatibility import compatibility_matrix
from nunatak_spark.configuration import JARS, PACKAGES, parse_properties
from nunatak_spark.jars import sha256_of
from tests.support.catalogs.process import RunningServer
from tests.unit.cli.conftest import run_command

RUNTIME = compatibility_matrix().spark("4.1").runtime
LOGIN = {"NUNATAK_TOKEN": "", "NUNATAK_CREDENTIAL": "robot:t0psecret"}


@pytest.fixture(autouse=True)
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No jar, no Maven and no login of whoever runs the tests."""
    for name, value in {"HOME": str(tmp_path), "XDG_CACHE_HOME": "", "PATH": "/nowhere", "SPARK_HOME": ""}.items():
        monkeypatch.setenv(name, value)
    for name in ("NUNATAK_SPARK_JARS", "NUNATAK_MAVEN_URL", "NUNATAK_TOKEN", "NUNATAK_CREDENTIAL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def test_conf_prints_what_spark_reads() -> None:
    outcome = run_command("spark", "conf", "--uri", "http://catalog:8181/", "--warehouse", "sales", "--catalog", "ice")

    settings = parse_properties(outcome.out)
    assert outcome.code == 0
    assert settings["spark.sql.catalog.ice.uri"] == "http://catalog:8181"
    assert settings["spark.sql.catalog.ice.warehouse"] == "sales"
    assert settings["spark.sql.extensions"].endswith("IcebergSparkSessionExtensions")
    assert settings[PACKAGES] == RUNTIME.coordinate


def test_conf_follows_the_spark_and_the_bundles_that_were_asked_for() -> None:
    old = parse_properties(run_command("spark", "conf", "--spark", "3.5.9").out)
    cloud = parse_properties(run_command("spark", "conf", "--bundle", "aws", "--bundle", "gcp").out)

    assert old[PACKAGES] == compatibility_matrix().spark("3.5").runtime.coordinate
    assert cloud[PACKAGES] == ",".join(
        jar.coordinate for jar in compatibility_matrix().spark("4.1").chosen_jars(("aws", "gcp"))
    )


def test_conf_names_a_jar_that_is_here_unless_told_otherwise(cache_folder: Path, tmp_path: Path) -> None:
    kept = cache_folder / "jars" / RUNTIME.file_name
    if not kept.exists():
        pytest.skip(f"NOT RUN: {kept} is not there; the Spark tests bring it")
    cached = tmp_path / ".cache" / "nunatak" / "jars" / RUNTIME.file_name
    cached.parent.mkdir(parents=True)
    cached.symlink_to(kept)

    assert parse_properties(run_command("spark", "conf").out)[JARS] == str(cached)
    assert PACKAGES in parse_properties(run_command("spark", "conf", "--packages").out)


def test_conf_keeps_secrets_to_itself_unless_asked() -> None:
    quiet = run_command("spark", "conf", **LOGIN)
    asked = run_command("spark", "conf", "--with-secret", **LOGIN)

    assert "t0psecret" not in quiet.out + quiet.err
    assert "--with-secret" in quiet.err
    settings = parse_properties(asked.out)
    assert settings["spark.sql.catalog.lake.credential"] == "robot:t0psecret"
    assert settings["spark.sql.catalog.lake.oauth2-server-uri"].endswith("/v1/oauth/tokens")


def test_conf_never_puts_in_the_secret_of_the_administrator(tmp_path: Path) -> None:
    data = tmp_path / "nunatak-data"
    assert run_command("init", "--data", str(data)).code == 0

    asked = run_command("spark", "conf", "--with-secret", NUNATAK_DATA=str(data))

    assert asked.code == 1
    assert "nunatak credential create" in asked.err
    assert json.loads((data / "admin.json").read_text())["client-secret"] not in asked.out + asked.err
    assert "--with-secret" in run_command("spark", "conf", NUNATAK_DATA=str(data)).err


def test_conf_writes_a_file_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "spark.conf"
    file.touch(mode=0o644)

    outcome = run_command("spark", "conf", "--with-secret", "--to", str(file), **LOGIN)

    assert outcome.code == 0
    assert "t0psecret" in file.read_text()
    assert "t0psecret" not in outcome.out + outcome.err
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_spark_without_a_runtime_is_refused_with_a_hint() -> None:
    outcome = run_command("spark", "conf", "--spark", "4.3")

    assert outcome.code == 1
    assert "no Iceberg runtime" in outcome.err
    assert "Hint: pip install 'nunatak[spark]'" in outcome.err


def test_fetch_jars_says_how_when_it_cannot(tmp_path: Path) -> None:
    outcome = run_command("spark", "fetch-jars")

    assert outcome.code == 1
    assert "Install Maven" in outcome.err
    assert outcome.out == ""


def test_fetch_jars_copies_what_is_there(cache_folder: Path, tmp_path: Path) -> None:
    kept = cache_folder / "jars" / RUNTIME.file_name
    if not kept.exists():
        pytest.skip(f"NOT RUN: {kept} is not there; the Spark tests bring it")

    outcome = run_command(
        "spark", "fetch-jars", "--to", str(tmp_path / "image"), XDG_CACHE_HOME=str(cache_folder.parent)
    )

    assert outcome.out.split() == [str(tmp_path / "image" / RUNTIME.file_name)]
    assert sha256_of(tmp_path / "image" / RUNTIME.file_name) == RUNTIME.sha256


def test_the_variables_of_spark_are_no_mistake_to_the_server() -> None:
    variables = {"NUNATAK_SPARK_JARS": "/a.jar", "NUNATAK_MAVEN_URL": "https://repository.example/maven"}

    assert load({}, variables) == load({}, {})


def test_doctor_ends_with_1_if_something_is_wrong(shared_server: RunningServer) -> None:
    outcome = run_command("spark", "doctor", "-o", "json", "--start", NUNATAK_URI=shared_server.uri)

    found = {check["name"]: check for check in outcome.json}
    assert outcome.code == 1
    assert found["server"]["state"] == "ok"
    assert found["session"]["state"] == "not checked"
    assert any(check["state"] == "problem" and check["fix"] for check in outcome.json)


def test_doctor_prints_a_line_for_each_check(shared_server: RunningServer) -> None:
    outcome = run_command("spark", "doctor", NUNATAK_URI=shared_server.uri)

    for name in ("python", "pyspark", "server", "login"):
        assert f"\n {name} " in outcome.out or f"\n{name} " in outcome.out


def test_doctor_takes_an_address_that_is_none_for_a_problem() -> None:
    outcome = run_command("spark", "doctor", "-o", "json", "--uri", "ftp://host")

    assert outcome.code == 1
    assert "is not the address of a catalog" in outcome.json[-1]["found"]
