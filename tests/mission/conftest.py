"""One server for all of the mission's examples; after each test its catalog is empty again."""

from collections.abc import Iterator
from urllib.parse import quote

import pytest

from tests.mission.wire import send
from tests.support.catalogs.process import RunningServer, running_server


@pytest.fixture(scope="session")
def _mission_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("mission") / "nunatak-data") as started:
        yield started


@pytest.fixture
def catalog(_mission_server: RunningServer) -> Iterator[RunningServer]:
    """A server with an empty catalog: the documents' names are free in every test."""
    yield _mission_server
    _empty(_mission_server, ())


def _empty(server: RunningServer, parent: tuple[str, ...]) -> None:
    path = "%1F".join(quote(level, safe="") for level in parent)
    below = f"?parent={path}" if parent else ""
    for namespace in send(server, "GET", f"/v1/namespaces{below}").json["namespaces"]:
        _empty(server, tuple(namespace))
    if parent:
        for kind in ("tables", "views"):
            for identifier in send(server, "GET", f"/v1/namespaces/{path}/{kind}").json["identifiers"]:
                name = quote(identifier["name"], safe="")
                assert send(server, "DELETE", f"/v1/namespaces/{path}/{kind}/{name}").status == 204
        assert send(server, "DELETE", f"/v1/namespaces/{path}").status == 204
