"""Limits that no honest client meets: what goes beyond them is refused with 400 and changes nothing."""

import pytest

from tests.api.local import LocalCatalog
from tests.api.wire import a_commit, path_of, set_properties

TOO_MANY = {f"k{number}": "v" for number in range(1001)}
TOO_LARGE = {"k": "v" * (32 * 1024 + 1)}


@pytest.mark.parametrize("properties", [TOO_MANY, TOO_LARGE], ids=["too many", "too large"])
def test_properties_of_a_table_are_bounded(catalog: LocalCatalog, properties: dict[str, str]) -> None:
    catalog.table("ns", "t")
    before = catalog.call("GET", path_of("ns", "tables", "t")).body

    answer = catalog.call("POST", path_of("ns", "tables", "t"), a_commit(set_properties(**properties)))

    assert answer.status == 400
    assert catalog.call("GET", path_of("ns", "tables", "t")).body == before
