"""What the check-up finds on machines and servers that are in order, and on those that are not."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from nunatak.client import Client, ClientCredential
from nunatak_spark.compatibility import compatibility_matrix
from nunatak_spark.doctor import DoctorCheck, check_machine, check_server
from tests.support.catalogs.process import RunningServer, running_server


def by_name(checks: list[DoctorCheck]) -> dict[str, DoctorCheck]:
    return {check.name: check for check in checks}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("secured") / "nunatak-data", auth=True) as server:
        yield server


@pytest.fixture
def namespace(shared_server: RunningServer) -> str:
    name = f"doctor_{uuid4().hex[:12]}"
    with Client(shared_server.uri) as client:
        client.create_namespace((name,), {})
    return name


# The machine


def test_a_wrong_java_is_a_problem_with_a_fix(tmp_path: Path) -> None:
    found = by_name(check_machine({"JAVA_HOME": str(tmp_path), "HOME": str(tmp_path), "PATH": ""}))

    assert found["python"].state == "ok"
    assert found["java"].state == "problem"
    assert "no Java at all" in found["java"].found
    assert found["java"].fix


def test_a_jar_that_is_not_there_is_a_problem_and_is_not_downloaded(tmp_path: Path) -> None:
    java = tmp_path / "jdk"
    (java / "bin").mkdir(parents=True)
    (java / "bin" / "java").touch()
    (java / "release").write_text('JAVA_VERSION="17.0.1"')
    environment = {"JAVA_HOME": str(java), "HOME": str(tmp_path), "NUNATAK_MAVEN_URL": "http://127.0.0.1:1/"}

    found = by_name(check_machine(environment))

    assert found["java"] == DoctorCheck("java", "ok", str(java))
    assert found["jar"].state == "problem"
    assert compatibility_matrix().spark("4.1").runtime.file_name in found["jar"].found
    assert found["jar"].fix == "nunatak spark fetch-jars"


# The server


def test_a_server_in_order_is_well_and_left_as_it_was(shared_server: RunningServer, namespace: str) -> None:
    with Client(shared_server.uri) as client:
        checks = check_server(client, (namespace,))
        tables = list(client.list_tables((namespace,)))

    assert [(check.name, check.state) for check in checks] == [("server", "ok"), ("login", "ok"), ("write", "ok")]
    assert tables == []
    assert list((shared_server.data / "warehouse" / namespace).iterdir()) == []


def test_a_server_that_is_not_there_is_the_only_problem_told() -> None:
    with Client("http://127.0.0.1:1") as client:
        (check,) = check_server(client)

    assert (check.name, check.state) == ("server", "problem")
    assert "nunatak serve" in (check.fix or "")


def test_without_a_namespace_writing_is_not_checked(server: RunningServer) -> None:
    with Client(server.uri) as client:
        found = by_name(check_server(client))

    assert found["write"].state == "not checked"
    assert found["write"].fix == "nunatak namespace create demo"


def test_whoever_does_not_log_in_is_told_so(secured: RunningServer) -> None:
    with Client(secured.uri) as client:
        found = by_name(check_server(client))

    assert found["server"].state == "ok"
    assert found["login"].state == "problem"
    assert "write" not in found


def test_a_wrong_secret_is_a_problem_of_the_login(secured: RunningServer) -> None:
    with Client(secured.uri, credential=ClientCredential(secured.root.client[0], "guessed")) as client:
        found = by_name(check_server(client))

    assert found["login"].state == "problem"
    assert "guessed" not in str(found)


def test_a_reader_lacks_the_right_to_write(secured: RunningServer) -> None:
    name = f"doctor_{uuid4().hex[:12]}"
    with Client(secured.uri, credential=ClientCredential(*secured.root.client)) as client:
        client.create_namespace((name,), {})
        assert by_name(check_server(client, (name,)))["write"].state == "ok"
    reader = secured.principal(f"reader_{uuid4().hex[:8]}", **{name: "READ"})

    with Client(secured.uri, credential=ClientCredential(*reader.client)) as client:
        found = by_name(check_server(client, (name,)))

    assert found["login"] == DoctorCheck("login", "ok", f"as {reader.name}")
    assert found["write"].state == "problem"
    assert "lacks TABLE_CREATE" in found["write"].found


def test_a_namespace_that_is_not_there_is_a_problem(shared_server: RunningServer) -> None:
    with Client(shared_server.uri) as client:
        found = by_name(check_server(client, ("nowhere",)))

    assert found["write"].state == "problem"
    assert "nowhere" in found["write"].found
