"""Request bodies as the REST specification writes them; what is inside schemas and versions is checked by iceberg/."""

from typing import Any

import msgspec

from nunatak.iceberg.identifiers import Identifier, check_name, check_namespace


class Wire(msgspec.Struct, frozen=True, rename="kebab"):
    pass


class CreateNamespaceRequest(Wire, frozen=True):
    namespace: list[str]
    properties: dict[str, str] | None = None


class UpdateNamespaceRequest(Wire, frozen=True):
    removals: list[str] | None = None
    updates: dict[str, str] | None = None


class NamedRequest(Wire, frozen=True):
    """What every request that makes a table or view says of it."""

    name: str


class CreateTableRequest(Wire, frozen=True):
    name: str
    schema: dict[str, Any]
    location: str | None = None
    partition_spec: dict[str, Any] | None = None
    write_order: dict[str, Any] | None = None
    stage_create: bool | None = None
    properties: dict[str, str] | None = None


class CreateViewRequest(Wire, frozen=True):
    name: str
    schema: dict[str, Any]
    view_version: dict[str, Any]
    location: str | None = None
    properties: dict[str, str] | None = None


class RegisterTableRequest(Wire, frozen=True):
    name: str
    metadata_location: str
    overwrite: bool | None = None
    shadow_of: str | None = None


class RegisterViewRequest(Wire, frozen=True):
    name: str
    metadata_location: str


class WireIdentifier(Wire, frozen=True):
    namespace: list[str]
    name: str


class RenameRequest(Wire, frozen=True):
    source: WireIdentifier
    destination: WireIdentifier


def identifier_of(wire: Any, what: str) -> Identifier:
    """A name from a body, checked like one from a path."""
    return Identifier(check_namespace(tuple(wire.namespace)), check_name(wire.name, what))
