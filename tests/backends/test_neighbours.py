"""What every database tells of the places that tables write to, and of pointers that others have set."""

from typing import Any

from nunatak.database.records import InsertPointer, Key, Stored
from nunatak.database.store import Store
from tests.backends.builders import create_namespace, entry, insert, key
from tests.backends.conftest import Run

START = {"catalog": "", "namespace": "", "name": "", "limit": 10}


def test_places_inside_a_folder_are_found_and_no_others(store: Store, run: Run[Any]) -> None:
    run(store.apply([create_namespace()]))
    places = {"in": "file:///w/a/x", "deep": "file:///w/a/x/y", "beside": "file:///w/a-b", "above": "file:///w"}
    for name, place in places.items():
        new = Stored(f"file:///w/{name}/metadata/v1.json", name, f"file:///w/{name}", b"{}", (place,))
        run(store.apply([InsertPointer(key(name), "TABLE", new, entry("create"), name, "ns", check_overlap=False)]))

    rows = run(store.rows("places_inside", {"first": "file:///w/a/", "behind": "file:///w/a0"}))

    assert {Key(*row) for row in rows} == {key("in"), key("deep")}


def test_a_pointer_of_ours_is_not_unknown(store: Store, run: Run[Any]) -> None:
    run(store.apply([create_namespace(), insert("t"), insert("v", kind="VIEW")]))

    rows = run(store.rows("unknown_pointers", START))
    assert [tuple(row) for row in rows] == [
        (*names, None) for names in (("default", "ns", "t"), ("default", "ns", "v"))
    ]
