"""Each extra by itself: in an environment with `nunatak[EXTRA]` and nothing else, the how-to's commands work.

The environment of the other tests holds every library, so it cannot show that an extra lacks one.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.mariadb import find_server, running_mariadb
from tests.support.postgres import find_binaries, running_postgres
from tests.support.server import await_address
from tests.support.spark import find_installation

ROOT = Path(__file__).parents[2]
HOW_TO = ROOT / "docs" / "how-to"
SECONDS = 900  # the largest, with PySpark, takes about a minute on a quiet machine
BLOCK = re.compile(r"^```(?:bash(?: test)?)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PYTHON_BLOCK = re.compile(r"^```python spark\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SCHEMA_COLUMN = "id:long"
LEAN = "spark.driver.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC\nspark.master local[1]\n"


@dataclass(frozen=True)
class Environment:
    """A folder with an interpreter that has one extra; commands run in `work` and find `nunatak` by their PATH."""

    folder: Path
    work: Path

    def run(self, command: str, **more: str) -> str:
        ended = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=self.work, env=self.variables(more), capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, f"{command}\n{ended.stdout[-4000:]}\n{ended.stderr[-4000:]}"
        return ended.stdout

    @contextlib.contextmanager
    def serving(self, name: str, **more: str) -> Iterator[str]:
        """`nunatak serve` on a free port; its address."""
        command = [self.folder / "bin" / "nunatak", "serve", "--port", "0", "--data", self.work / name]
        variables = {**self.variables(more), "PYTHONUNBUFFERED": "1"}
        with (
            (self.work / f"{name}.log").open("wb") as log,
            subprocess.Popen(command, cwd=self.work, env=variables, stdout=subprocess.PIPE, stderr=log) as server,
        ):
            try:
                yield await_address(server)
            finally:
                server.terminate()
                server.wait(30)

    def variables(self, more: Mapping[str, str]) -> dict[str, str]:
        dropped = ("PYTEST_", "NUNATAK_", "PYTHONPATH", "SPARK_", "VIRTUAL_ENV")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        return {**clean, "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}", **more}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a release would be, built from the tree."""
    folder = tmp_path_factory.mktemp("wheel")
    pip(sys.executable, "wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT))
    (found,) = folder.glob("*.whl")
    return found


def pip(python: str | Path, *words: str) -> None:
    command = [sys.executable, "-m", "pip", "--python", str(python), *words, "--quiet", "--no-input"]
    # What lies on the path of this process would pass for installed.
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run(command, env=clean, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert ended.returncode == 0, ended.stderr


def with_extra(extra: str, wheel: Path, folder: Path) -> Environment:
    """A new environment with one extra, of the versions that the lock file names."""
    venv.create(folder / "venv", symlinks=True)
    locks = [*ROOT.glob("requirements*.lock"), *ROOT.glob("requirements/*.lock")]
    pins = {pin for lock in locks for pin in re.findall(r"^[\w.-]+==[\w.+!-]+", lock.read_text(), re.MULTILINE)}
    (folder / "pins").write_text("\n".join(sorted(pins)))
    pip(folder / "venv" / "bin" / "python", "install", "--no-compile", "-c", str(folder / "pins"), f"{wheel}[{extra}]")
    (folder / "work").mkdir()
    return Environment(folder / "venv", folder / "work")


def first_block(page: str, extra: str) -> list[str]:
    """The lines of the page's first block, which begins with the installation."""
    install, *lines = BLOCK.search((HOW_TO / page).read_text("utf-8")).group(1).splitlines()  # type: ignore[union-attr]
    assert install == f"pip install 'nunatak[{extra}]'"
    return lines


def settings_of(lines: list[str], **instead: str) -> dict[str, str]:
    """What a block exports, with the example's own values where ours have to be others."""
    given = dict(line.removeprefix("export ").split("=", 1) for line in lines if line.startswith("export "))
    assert instead.keys() <= given.keys()
    return {**given, **instead}


def make_a_table(environment: Environment, uri: str) -> None:
    environment.run("nunatak namespace create demo", NUNATAK_URI=uri)
    environment.run(f"nunatak table create demo.events --column {SCHEMA_COLUMN}", NUNATAK_URI=uri)
    assert "events" in environment.run("nunatak table list demo", NUNATAK_URI=uri)


@pytest.mark.timeout(SECONDS)
def test_postgres(wheel: Path, tmp_path: Path) -> None:
    if find_binaries() is None:
        pytest.skip("NOT RUN: there is no PostgreSQL on this machine")
    environment = with_extra("postgres", wheel, tmp_path)
    with running_postgres() as database:
        follow_database_page(environment, "use-postgresql.md", "postgres", database.new_database())


@pytest.mark.timeout(SECONDS)
def test_mariadb(wheel: Path, tmp_path: Path) -> None:
    if find_server() is None:
        pytest.skip("NOT RUN: there is no MariaDB on this machine")
    environment = with_extra("mariadb", wheel, tmp_path)
    with running_mariadb() as database:
        follow_database_page(environment, "use-mariadb.md", "mariadb", database.new_database())


def follow_database_page(environment: Environment, page: str, extra: str, url: str) -> None:
    lines = first_block(page, extra)
    settings = settings_of(lines, NUNATAK_DATABASE_URL=url)
    assert lines[-2:] == ["nunatak database migrate", "nunatak serve"]
    environment.run("nunatak database migrate", **settings)
    with environment.serving("data", **settings) as uri:
        make_a_table(environment, uri)


@pytest.mark.timeout(SECONDS)
def test_cedar(wheel: Path, tmp_path: Path) -> None:
    environment = with_extra("cedar", wheel, tmp_path)
    page = (HOW_TO / "decide-with-cedar.md").read_text("utf-8")
    policies = re.search(r"^```cedar\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert policies is not None
    (tmp_path / "policies.cedar").write_text(policies.group(1))
    lines = first_block("decide-with-cedar.md", "cedar")
    settings = settings_of(lines, NUNATAK_CEDAR_POLICIES=str(tmp_path / "policies.cedar"))
    assert lines[-1] == "nunatak serve"
    data = {"NUNATAK_DATA": str(environment.work / "data")}
    environment.run("nunatak init", **data)
    with environment.serving("data", NUNATAK_AUTH="embedded") as uri:
        environment.run("nunatak role create admins && nunatak role add admins admin", NUNATAK_URI=uri, **data)
    with environment.serving("data", **settings) as uri:
        # As the first policy permits; the administrator's own grants count for nothing here.
        assert "admin" in environment.run("nunatak principal list", NUNATAK_URI=uri, **data)


@pytest.fixture(scope="module")
def spark_settings(cache_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The Java and the jars of the other tests, and a Spark that starts quickly."""
    installation = find_installation(cache_folder / "jars")
    conf = tmp_path_factory.mktemp("conf")
    (conf / "spark-defaults.conf").write_text(LEAN)
    jars = ",".join(map(str, installation.jars))
    return {"JAVA_HOME": str(installation.java_home), "NUNATAK_SPARK_JARS": jars, "SPARK_CONF_DIR": str(conf)}


@pytest.mark.spark
@pytest.mark.timeout(SECONDS)
def test_spark(wheel: Path, tmp_path: Path, spark_settings: dict[str, str]) -> None:
    environment = with_extra("spark", wheel, tmp_path)
    page = (HOW_TO / "use-spark.md").read_text("utf-8")
    example = PYTHON_BLOCK.search(page)
    assert example is not None
    with environment.serving("data") as uri:
        settings = {**spark_settings, "NUNATAK_URI": uri}
        environment.run("nunatak spark doctor", **settings)
        (environment.work / "example.py").write_text(example.group(1).replace("http://127.0.0.1:8181", uri))
        assert "Oslo" in environment.run("python example.py", **settings)
        environment.run("nunatak spark worker --once", **settings)


@pytest.mark.spark
@pytest.mark.timeout(SECONDS)
def test_migration(wheel: Path, tmp_path: Path, spark_settings: dict[str, str]) -> None:
    """Every command of the page, in order; the metastore of the page is a REST catalog here."""
    environment = with_extra("migration", wheel, tmp_path)
    page = (HOW_TO / "migrate-a-catalog.md").read_text("utf-8")
    allowed = {"NUNATAK_ALLOWED_LOCATIONS": f"file://{tmp_path}"}
    with environment.serving("old") as old, environment.serving("new", **allowed) as new:
        environment.run("nunatak namespace create sales", NUNATAK_URI=old)
        environment.run(f"nunatak table create sales.orders --column {SCHEMA_COLUMN}", NUNATAK_URI=old)
        settings = {**spark_settings, "NUNATAK_URI": new}
        for block in BLOCK.findall(page):
            if "--state rehearsal" in block or "nunatak migrate" not in block:
                continue
            environment.run(block.replace("--hive thrift://metastore:9083", f"--rest {old}"), **settings)
        assert "sales.orders" in (environment.work / "migration.html").read_text("utf-8")
        states = json.loads(environment.run("nunatak migrate status -o json", **settings))
        assert [table["state"] for table in states["tables"]] == ["retired"]
