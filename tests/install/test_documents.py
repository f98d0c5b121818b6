"""The documents are followed in order: README, the tutorial, then every how-to, each with only what it says to install.

The environment of the other tests holds every library, so it cannot show that a page does not name one. README and the
tutorial are followed in a copy of the project, as they say. A how-to gets an environment with the wheel, in which its
own `pip install` lines are run. Those that need no server of their own share the catalog that README has started, so
that one page must not stand in the way of the next.
"""

import contextlib
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from nunatak_spark.errors import CannotRun
from tests.conftest import Say
from tests.support.issuer import running_issuers
from tests.support.mariadb import find_server, running_mariadb
from tests.support.opa import NOT_INSTALLED, find_opa, running_opa
from tests.support.pages import DOCS, PROJECT, README, blocks_of, blocks_with, title
from tests.support.postgres import find_binaries, running_postgres
from tests.support.reader import Reader, Wheel, make_installation, reading
from tests.support.spark import find_installation

SECONDS = 900
HOW_TO = DOCS / "how-to"
LEAN = "spark.driver.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC\nspark.master local[1]\n"
# An API key, a secret in JSON, a secret alone in its file, an encryption key.
SECRET = re.compile(rb'nunatak_\w{8}_[\w-]{43}|secret": ?"[\w-]{43}"|\A(?:\w+:)?[\w-]{43}\s*\Z|^\w+ [\w+/]{43}=$', re.M)
# In a checkout, where README has started a server by `make serve`.
IN_THE_PROJECT = [README, DOCS / "tutorial" / "first-table.md"]
# The rest of the pages in the order of README. `shared`: on the catalog of README; `alone`: in a new folder.
SHARED = [
    "connect-an-engine", "back-up-and-restore", "check-and-repair", "audit", "rotate-keys", "watch-the-catalog",
    "keep-tables-healthy", "use-spark", "run-a-spark-worker", "see-what-happens",
]  # fmt: skip
ALONE = [
    "move-a-jdbc-catalog", "choose-where-tables-lie", "use-postgresql", "use-mariadb", "run-several-servers",
    "require-login", "manage-access", "use-an-identity-provider", "sign-requests", "decide-with-opa",
    "decide-with-cedar", "migrate-a-catalog",
]  # fmt: skip
ON_SPARK = {"use-spark", "run-a-spark-worker", "migrate-a-catalog", "see-what-happens"}
# Pages without a block that is followed here, and what is run of them elsewhere.
ELSEWHERE = {
    "docs/tutorial/demo-pipeline.md": "tests/spark/demo/test_demo.py",
    "docs/how-to/measure-speed.md": "tests/bench/test_bench.py",
    "docs/how-to/run-behind-a-proxy.md": "tests/access/test_proxy.py",
    "docs/how-to/test-with-a-catalog-in-memory.md": "tests/unit/cli/test_serve.py",
    "docs/how-to/manage-warehouses.md": "tests/unit/cli/test_warehouse.py",
    "docs/how-to/use-s3.md": "tests/api/test_storage_access.py",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    return Wheel.build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def base(wheel: Wheel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel and what it depends on."""
    return make_installation(tmp_path_factory.mktemp("base"), wheel)


Installer = Callable[[Path], Path]


@pytest.fixture(scope="module")
def installer(wheel: Wheel, base: Path, tmp_path_factory: pytest.TempPathFactory) -> Installer:
    """The programs for a page: pages with the same `pip install` lines share an environment."""
    made: dict[tuple[str, ...], Path] = {}

    def installed(page: Path) -> Path:
        text = "\n".join(block.text for block in blocks_of(page) if block.is_followed)
        lines = tuple(re.findall(r"^pip install .*$", text, re.MULTILINE))
        if lines not in made:
            made[lines] = make_installation(tmp_path_factory.mktemp("venv"), wheel, base)
        return made[lines]

    return installed


@pytest.fixture(scope="module")
def project(wheel: Wheel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """A reader in a copy of the project, as a checkout would be."""
    folder = tmp_path_factory.mktemp("project") / "nunatak"
    left_out = shutil.ignore_patterns(".git", ".venv", "nunatak-*", ".*cache", "__pycache__", ".hypothesis", "tests")
    shutil.copytree(PROJECT, folder, ignore=left_out)
    make_repository(folder)
    with reading(folder, folder / ".venv" / "bin", pins=wheel.pins) as reader:
        yield reader


@pytest.fixture(scope="module")
def spark_settings(cache_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The Java and the jars of the other tests, and a Spark that starts quickly."""
    try:
        installation = find_installation(cache_folder / "jars")
    except CannotRun as reason:
        pytest.skip(f"NOT RUN: {reason}")
    conf = tmp_path_factory.mktemp("conf")
    (conf / "spark-defaults.conf").write_text(LEAN)
    jars = ",".join(map(str, installation.jars))
    return {"JAVA_HOME": str(installation.java_home), "NUNATAK_SPARK_JARS": jars, "SPARK_CONF_DIR": str(conf)}


@dataclass(frozen=True)
class World:
    """What a page takes for granted: words of it that mean something else here, and settings of Spark."""

    replaced: Mapping[str, str]
    variables: Mapping[str, str]


@contextlib.contextmanager
def world_of(name: str, folder: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    """Starts what the page connects to, as far as this machine has it."""
    replaced = {"/etc/nunatak": str(folder / "etc"), "file:///srv": f"file://{folder}/srv"}
    variables: dict[str, str] = request.getfixturevalue("spark_settings") if name in ON_SPARK else {}
    with contextlib.ExitStack() as stack:
        if name in ("use-postgresql", "run-several-servers"):
            if find_binaries() is None:
                pytest.skip("NOT RUN: there is no PostgreSQL on this machine")
            database = stack.enter_context(running_postgres()).new_database()
            replaced["postgresql://nunatak@db.example.com/lake"] = database
        if name == "use-mariadb":
            if find_server() is None:
                pytest.skip("NOT RUN: there is no MariaDB on this machine")
            database = stack.enter_context(running_mariadb()).new_database()
            replaced["mariadb://nunatak:…@db.example.com/lake"] = database
        if name == "decide-with-opa":
            if find_opa() is None:
                pytest.skip(NOT_INSTALLED)
            (policy,) = blocks_with(HOW_TO / f"{name}.md", "rego")
            (folder / "nunatak.rego").write_text(policy)
            address = stack.enter_context(running_opa([folder / "nunatak.rego"], folder / "opa.log"))
            replaced["http://127.0.0.1:8182"] = address
        if name == "decide-with-cedar":
            (policies,) = blocks_with(HOW_TO / f"{name}.md", "cedar")
            (folder / "etc").mkdir()
            (folder / "etc" / "policies.cedar").write_text(policies)
        if name == "use-an-identity-provider":
            issuer = stack.enter_context(running_issuers()).new_issuer()
            replaced["https://login.example.com/realms/lake"] = issuer.url
        if name == "migrate-a-catalog":
            replaced["--hive thrift://metastore:9083"] = f"--rest {old_catalog(stack, folder, request)}"
        yield World(replaced, variables)


def old_catalog(stack: contextlib.ExitStack, folder: Path, request: pytest.FixtureRequest) -> str:
    """The metastore of the page is a REST catalog here; its address."""
    base: Path = request.getfixturevalue("base")
    wheel: Wheel = request.getfixturevalue("wheel")
    old = stack.enter_context(reading(folder / "srv" / "warehouse", base, pins=wheel.pins))
    uri = old.serve("nunatak serve").split()[2]
    old.run("nunatak namespace create sales && nunatak table create sales.orders --column id:long")
    return uri


def pages() -> list[object]:
    found: list[object] = [pytest.param(page, id=title(page)) for page in IN_THE_PROJECT]
    for name in (*SHARED, *ALONE):
        marks = [pytest.mark.spark] if name in ON_SPARK else []
        found.append(pytest.param(HOW_TO / f"{name}.md", id=f"how-to/{name}.md", marks=marks))
    return found


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("page", pages())
def test_the_documents_are_followed_in_order(
    page: Path, tmp_path: Path, request: pytest.FixtureRequest, wheel: Wheel, say: Say
) -> None:
    if page in IN_THE_PROJECT:
        reader: Reader = request.getfixturevalue("project")
        reader.follow(page)
    else:
        programs = request.getfixturevalue("installer")(page)
        with world_of(page.stem, tmp_path, request) as world, contextlib.ExitStack() as stack:
            if page.stem in SHARED:
                project: Reader = request.getfixturevalue("project")
                reader = project.beside(programs, page.stem, **world.variables)
                reader.replaced |= world.replaced
            else:
                make_repository(tmp_path)
                reader = stack.enter_context(
                    reading(tmp_path, programs, pins=wheel.pins, replaced=world.replaced, **world.variables)
                )
            reader.follow(page)
    if (check := OUTCOMES.get(page.stem)) is not None:
        check(reader)
    assert files_with_secrets_that_git_would_take(reader.folder) == []
    left = [block.text.splitlines()[0] for block in blocks_of(page) if block.has_commands and not block.is_followed]
    if left:
        say(f"NOT FOLLOWED, only shown: {'; '.join(left)}")


def make_repository(folder: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)


def files_with_secrets_that_git_would_take(folder: Path) -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--others", "--exclude-standard", "-z"], cwd=folder, capture_output=True, check=True
    ).stdout
    names = [name.decode() for name in listed.split(b"\0") if name]
    return [name for name in names if (folder / name).is_file() and SECRET.search((folder / name).read_bytes())]


# What the pages promise of their examples, beyond that they run.


def check_login(reader: Reader) -> None:
    assert "created the administrator admin" in reader.said("nunatak init")
    assert "role:analysts" in reader.said("access matrix")
    assert "2 rows" in reader.said("pyiceberg.catalog")
    assert re.search(r"2 .*second", reader.said("duckdb.connect"))
    listed, refused = reader.said("curl").split("}]}")[:2]
    assert '"orders"' in listed
    assert "nunatak access explain ana TABLE_DROP table:default/sales/orders" in refused
    assert "principal:admin" in reader.said("credential list")
    assert "disabled principal ana" in reader.said("credential list")
    kept = [reader.folder / "nunatak-data" / name for name in ("etl.json", "ana.key", "admin.json")]
    assert [path.stat().st_mode & 0o077 for path in kept] == [0, 0, 0]
    secrets = [json.loads(kept[0].read_text())["secret"], kept[1].read_text().strip()]
    secrets.append(json.loads(kept[2].read_text())["client-secret"])
    for text in (*(said for _, said in reader.printed), (reader.folder / "server.log").read_text()):
        assert not any(secret in text for secret in secrets)


def check_spark(reader: Reader) -> None:
    said = reader.said("compare(before")
    assert "|  1|Oslo|" in said
    assert "values differ in: city" in said


def check_migration(reader: Reader) -> None:
    assert "sales.orders" in (reader.folder / "migration.html").read_text("utf-8")
    states = json.loads(reader.run("nunatak migrate status -o json"))
    assert [table["state"] for table in states["tables"]] == ["retired"]


def check_telemetry(reader: Reader) -> None:
    said = reader.said("report ingest")
    report, _ = json.JSONDecoder().raw_decode(said[said.index("{") :])
    assert report["lines"]["events"] >= 1
    shown = (reader.folder / "report.html").read_text("utf-8")
    assert "<h1>Catalog report: " in shown
    assert re.search(r"system\.events \([1-9]\d* rows\)", shown)


OUTCOMES: dict[str, Callable[[Reader], None]] = {
    "require-login": check_login,
    "use-spark": check_spark,
    "migrate-a-catalog": check_migration,
    "see-what-happens": check_telemetry,
}


def test_every_page_to_follow_is_followed_or_run_elsewhere() -> None:
    known = {title(page) for page in IN_THE_PROJECT} | {f"docs/how-to/{name}.md" for name in (*SHARED, *ALONE)}
    wanted = [README, *(DOCS / "tutorial").glob("*.md"), *HOW_TO.glob("*.md")]

    assert {title(page) for page in wanted} == known | set(ELSEWHERE)
    assert [file for file in ELSEWHERE.values() if not (PROJECT / file).is_file()] == []
    assert [name for name in known if not any(block.is_followed for block in blocks_of(PROJECT / name))] == []
