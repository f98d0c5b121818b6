"""The locations that a request chooses for files: in a create request, the updates of a commit, or a namespace.

The required privileges and the checks of locations both use these functions, so neither can miss one.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import assert_never

import msgspec

from nunatak.iceberg import commit_request, view_commit
from nunatak.iceberg.commit_request import Update
from nunatak.iceberg.conventions import STEERING_PROPERTIES
from nunatak.iceberg.view_commit import ViewUpdate

NAMESPACE_LOCATION = "location"
# The updates that set a location. Every commit is checked, and most have none of these.
_NAMING_PLACES = (
    commit_request.SetLocation,
    commit_request.SetProperties,
    view_commit.SetLocation,
    view_commit.SetProperties,
)


class ChosenPlace(msgspec.Struct, frozen=True):
    """A chosen location: `field` is its name in errors, `text` the location as the client sent it."""

    field: str
    text: str


def places_of(location: str | None, properties: Mapping[str, str] | None) -> Iterator[ChosenPlace]:
    """Yield the locations of a table or view: its own, and each property that sets where clients write files."""
    if location is not None:
        yield ChosenPlace("location", location)
    if properties and not properties.keys().isdisjoint(STEERING_PROPERTIES):
        for name in STEERING_PROPERTIES:
            if name in properties:
                yield ChosenPlace(f"property {name}", properties[name])


def places_of_updates(updates: Iterable[Update | ViewUpdate]) -> Iterator[ChosenPlace]:
    """Yield all locations that the updates set, also those that a later update replaces or removes."""
    for update in updates:
        if not isinstance(update, _NAMING_PLACES):
            continue
        match update:
            case commit_request.SetLocation() | view_commit.SetLocation():
                yield from places_of(update.location, None)
            case commit_request.SetProperties():
                # Old clients send `updated`.
                yield from places_of(None, update.updates)
                yield from places_of(None, update.updated)
            case view_commit.SetProperties():
                yield from places_of(None, update.updates)
            case _:
                assert_never(update)


def places_of_namespace(properties: Mapping[str, str] | None) -> Iterator[ChosenPlace]:
    """Yield the default location of the tables of a namespace, if it is set."""
    if properties and NAMESPACE_LOCATION in properties:
        yield ChosenPlace(NAMESPACE_LOCATION, properties[NAMESPACE_LOCATION])
