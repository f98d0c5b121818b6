"""A body that admission has to understand, to know what the request needs, is not decoded again by the handler."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nunatak.api import http
from nunatak.iceberg import commit_request
from tests.api.wire import a_commit, a_table, ok, path_of, set_properties
from tests.support.catalogs.local import LocalCatalog

POLICY = {"securable": "namespace:default/ns", "policy": {"type": "snapshot-expiry"}}
LEASE = {"securable": "namespace:default/ns", "worker": "w"}


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[LocalCatalog]:
    made = LocalCatalog(tmp_path, auth=True)
    made.namespace("ns")
    made.table("ns", "t")
    yield made
    made.close()


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/namespaces", {"namespace": ["other"]}),
        ("POST", path_of("ns", "properties"), {"updates": {"a": "b"}}),
        ("POST", path_of("ns", "tables"), a_table("u")),
        ("POST", path_of("ns", "tables", "t"), a_commit(set_properties(a="b"))),
        ("POST", "/management/v1/policies", POLICY),
        ("POST", "/management/v1/maintenance/lease", LEASE),
    ],
)
def test_a_body_is_decoded_once(
    catalog: LocalCatalog, monkeypatch: pytest.MonkeyPatch, method: str, path: str, body: Any
) -> None:
    decoded: list[bytes] = []
    check = commit_request.check_utf8  # the first step of every decoding

    def counted(data: bytes) -> None:
        decoded.append(data)
        check(data)

    monkeypatch.setattr(http, "check_utf8", counted)
    monkeypatch.setattr(commit_request, "check_utf8", counted)

    answer = catalog.call(method, path, body)

    assert answer.status in (200, 204), answer.body
    assert len(decoded) == 1


def test_a_body_is_decoded_again_for_another_type(catalog: LocalCatalog) -> None:
    """An answer that is replayed needs only the name in the body; the type of the first time would not do."""
    key = {"Idempotency-Key": "0192d5a0-0000-7000-8000-000000000001"}
    first = ok(catalog.call("POST", path_of("ns", "tables"), a_table("u"), key))

    assert ok(catalog.call("POST", path_of("ns", "tables"), a_table("u"), key)) == first
