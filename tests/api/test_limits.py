"""Limits that no honest client meets: what goes beyond them is refused with 400 and changes nothing."""

import pytest

from tests.api.wire import a_commit, path_of, set_properties
from tests.support.catalogs.local import LocalCatalog

TOO_MANY = {f"k{number}": "v" for number in range(1001)}
TOO_LARGE = {"k": "v" * (32 * 1024 + 1)}


@pytest.mark.parametrize("properties", [TOO_MANY, TOO_LARGE], ids=["too many", "too large"])
def test_properties_of_a_table_are_bounded(catalog: LocalCatalog, properties: dict[str, str]) -> None:
    catalog.table("ns", "t")
    before = catalog.call("GET", path_of("ns", "tables", "t")).body

    answer = catalog.call("POST", path_of("ns", "tables", "t"), a_commit(set_properties(**properties)))

    assert answer.status == 400
    assert catalog.call("GET", path_of("ns", "tables", "t")).body == before


def nested(levels: int) -> object:
    inner: object = "long"
    for level in range(levels):
        inner = {"type": "list", "element-id": level + 2, "element": inner, "element-required": True}
    return inner


def a_nested_table(levels: int) -> dict[str, object]:
    field = {"id": 1, "name": "deep [{[{", "type": nested(levels), "required": False}
    return {"name": f"t{levels}", "schema": {"type": "struct", "fields": [field]}}


def test_json_may_be_nested_sixty_four_levels_deep_and_no_deeper(catalog: LocalCatalog) -> None:
    """The body, its schema, the list of fields and a field are four levels; brackets inside a name are none."""
    deepest = catalog.call("POST", path_of("ns", "tables"), a_nested_table(60))
    deeper = catalog.call("POST", path_of("ns", "tables"), a_nested_table(61))

    assert deepest.status == 200
    assert deeper.status == 400
    assert b"nested deeper than 64 levels" in deeper.body


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", path_of("ns", "tables", "t")), ("POST", path_of("ns", "tables")), ("POST", path_of("ns", "views", "v"))],
)
def test_bytes_that_are_not_utf8_are_refused_wherever_they_stand(catalog: LocalCatalog, method: str, path: str) -> None:
    catalog.table("ns", "t")
    catalog.view("ns", "v")
    body = b'{"name":"n","schema":{"type":"struct","fields":[]},"updates":[],"nobody-knows":"\xff\xfe"}'

    answer = catalog.call(method, path, body)

    assert answer.status == 400
