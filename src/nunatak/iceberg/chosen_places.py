"""Every place that a request names for files: by a create request, by the updates of a commit, or by a namespace.

The same functions tell which right a request needs and which places are checked, so neither can miss one.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import assert_never

import msgspec

from nunatak.iceberg import commit_request, view_commit
from nunatak.iceberg.commit_request import Update
from nunatak.iceberg.metadata_files import STEERING_PROPERTIES
from nunatak.iceberg.view_commit import ViewUpdate

NAMESPACE_LOCATION = "location"
# Most commits hold none of these, and all commits are looked at.
_NAMING_PLACES = (
    commit_request.SetLocation,
    commit_request.SetProperties,
    view_commit.SetLocation,
    view_commit.SetProperties,
)


class ChosenPlace(msgspec.Struct, frozen=True):
    """`field` is how an error names it; `text` is as the client wrote it."""

    field: str
    text: str


def places_of(location: str | None, properties: Mapping[str, str] | None) -> Iterator[ChosenPlace]:
    """Those of a table or view: its location, and each property that says where writers put files."""
    if location is not None:
        yield ChosenPlace("location", location)
    if properties and not properties.keys().isdisjoint(STEERING_PROPERTIES):
        for name in STEERING_PROPERTIES:
            if name in properties:
                yield ChosenPlace(f"property {name}", properties[name])


def places_of_updates(updates: Iterable[Update | ViewUpdate]) -> Iterator[ChosenPlace]:
    """All that these updates set, also what a later one sets again or removes, in the old spelling and the new."""
    for update in updates:
        if not isinstance(update, _NAMING_PLACES):
            continue
        match update:
            case commit_request.SetLocation() | view_commit.SetLocation():
                yield from places_of(update.location, None)
            case commit_request.SetProperties():
                yield from places_of(None, update.updates)
                yield from places_of(None, update.updated)
            case view_commit.SetProperties():
                yield from places_of(None, update.updates)
            case _:
                assert_never(update)


def places_of_namespace(properties: Mapping[str, str] | None) -> Iterator[ChosenPlace]:
    """Where the tables of a namespace are put unless they say otherwise."""
    if properties and NAMESPACE_LOCATION in properties:
        yield ChosenPlace(NAMESPACE_LOCATION, properties[NAMESPACE_LOCATION])
