"""Malformed, impossible and hostile requests: exact status, type and message, and nothing changed."""

import gzip
import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import zstandard

from tests.api.wire import SCHEMA, a_commit, a_table, a_version, a_view, identifier, rename, set_properties
from tests.api.world import World, build_world
from tests.support.catalogs.process import running_server

BAD, ILLEGAL, INVALID = "BadRequestException", "IllegalArgumentException", "ValidationException"
NO_NAMESPACE, NO_TABLE, NO_VIEW = "NoSuchNamespaceException", "NoSuchTableException", "NoSuchViewException"
TAKEN, FAILED, NOT_ALLOWED = "AlreadyExistsException", "CommitFailedException", "MethodNotAllowedException"
LARGE = "PayloadTooLargeException"

LONG = "x" * 256
TWO_MIB = 2 * 1024 * 1024
BODY_LIMIT = 8 * 1024 * 1024
UUID = "01890a5d-ac96-774b-bcce-b302099a8057"

NAMESPACES = "/v1/namespaces"
NS = "/v1/namespaces/ns"
TABLES, VIEWS = f"{NS}/tables", f"{NS}/views"
T, V = f"{TABLES}/t", f"{VIEWS}/v"
REGISTER, REGISTER_VIEW = f"{NS}/register", f"{NS}/register-view"
RENAME, RENAME_VIEW, TRANSACTION = "/v1/tables/rename", "/v1/views/rename", "/v1/transactions/commit"


@dataclass(frozen=True)
class Case:
    """One request and the refusal it must get."""

    what: str
    method: str
    path: str
    body: Any
    status: int
    type: str
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)


def get(what: str, path: str, status: int, type: str, message: str, **headers: str) -> Case:
    return Case(what, "GET", path, None, status, type, message, _dashed(headers))


def post(what: str, path: str, body: Any, status: int, type: str, message: str, **headers: str) -> Case:
    return Case(what, "POST", path, body, status, type, message, _dashed(headers))


def delete(what: str, path: str, status: int, type: str, message: str, **headers: str) -> Case:
    return Case(what, "DELETE", path, None, status, type, message, _dashed(headers))


def _dashed(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def _no_route(method: str, path: str) -> str:
    return f"No route for request: {method} {path}"


ROUTES = [
    get("unknown word", "/v1/nothing", 400, BAD, _no_route("GET", "/v1/nothing")),
    get("unknown version", "/v2/namespaces", 400, BAD, _no_route("GET", "/v2/namespaces")),
    get("nothing after v1", "/v1", 400, BAD, _no_route("GET", "/v1")),
    get("no v1 at all", "/namespaces", 400, BAD, _no_route("GET", "/namespaces")),
    get("a word too many", f"{T}/extra", 400, BAD, _no_route("GET", f"{T}/extra")),
    get("doubled slash before v1", "//v1/namespaces", 400, BAD, _no_route("GET", "//v1/namespaces")),
    get("doubled slash before tables", f"{NS}//tables", 400, BAD, _no_route("GET", f"{NS}//tables")),
    post("token endpoint", "/v1/oauth/tokens", b"grant_type=client_credentials", 404, "NotFoundException",
         "This server issues no tokens"),
    get("unknown warehouse as prefix", "/v1/nowhere/namespaces", 404, "NoSuchWarehouseException",
        "Warehouse does not exist: nowhere"),
    get("unknown warehouse", "/v1/config?warehouse=nowhere", 404, "NoSuchWarehouseException",
        "Warehouse does not exist: nowhere"),
    get("prefix not UTF-8", "/v1/%FF/namespaces", 400, BAD, "Malformed path: '%FF' is not valid UTF-8"),
    Case("put", "PUT", NAMESPACES, {"namespace": ["n"]}, 405, NOT_ALLOWED,
         f"Method PUT is not allowed for {NAMESPACES}"),
    Case("patch", "PATCH", T, {}, 405, NOT_ALLOWED, f"Method PATCH is not allowed for {T}"),
    Case("options", "OPTIONS", T, None, 405, NOT_ALLOWED, f"Method OPTIONS is not allowed for {T}"),
    delete("delete of a list", NAMESPACES, 405, NOT_ALLOWED, f"Method DELETE is not allowed for {NAMESPACES}"),
    delete("delete of all tables", TABLES, 405, NOT_ALLOWED, f"Method DELETE is not allowed for {TABLES}"),
    post("post to config", "/v1/config", {}, 405, NOT_ALLOWED, "Method POST is not allowed for /v1/config"),
    post("post to search", "/v1/search", {}, 405, NOT_ALLOWED, "Method POST is not allowed for /v1/search"),
    get("get of rename", RENAME, 405, NOT_ALLOWED, f"Method GET is not allowed for {RENAME}"),
    get("get of transaction", TRANSACTION, 405, NOT_ALLOWED, f"Method GET is not allowed for {TRANSACTION}"),
]  # fmt: skip

LONG_NAME = "256 bytes, at most 255 are allowed"
PATHS = [
    get("empty namespace", f"{NAMESPACES}//tables", 400, BAD, "Invalid namespace name: must not be empty"),
    get("empty level", f"{NAMESPACES}/ns%1F", 400, BAD, "Invalid namespace name: must not be empty"),
    get("dot namespace", f"{NAMESPACES}/.", 400, BAD, "Invalid namespace name: '.'"),
    get("dot dot namespace", f"{NAMESPACES}/%2E%2E", 400, BAD, "Invalid namespace name: '..'"),
    get("namespace with NUL", f"{NAMESPACES}/a%00", 400, BAD,
         "Invalid namespace name: 'a\\x00' holds a control character"),
    get("long namespace", f"{NAMESPACES}/{LONG}", 400, BAD, f"Invalid namespace name: {LONG_NAME}"),
    get("17 levels", f"{NAMESPACES}/{'%1F'.join('abcdefghijklmnopq')}", 400, BAD,
        "Invalid namespace: 17 levels, at most 16 are allowed"),
    get("namespace not UTF-8", f"{NAMESPACES}/%C3%28", 400, BAD, "Malformed path: '%C3%28' is not valid UTF-8"),
    get("empty table", f"{TABLES}//", 400, BAD, "Invalid table name: must not be empty"),
    get("dot table", f"{TABLES}/.", 400, BAD, "Invalid table name: '.'"),
    get("dot dot table", f"{TABLES}/..", 400, BAD, "Invalid table name: '..'"),
    get("table with newline", f"{TABLES}/a%0Ab", 400, BAD, "Invalid table name: 'a\\nb' holds a control character"),
    get("table with the separator", f"{TABLES}/a%1Fb", 400, BAD,
         "Invalid table name: 'a\\x1fb' holds a control character"),
    get("long table", f"{TABLES}/{LONG}", 400, BAD, f"Invalid table name: {LONG_NAME}"),
    get("long table in 2-byte letters", f"{TABLES}/{'%C3%A9' * 128}", 400, BAD, f"Invalid table name: {LONG_NAME}"),
    get("table not UTF-8", f"{TABLES}/%FF", 400, BAD, "Malformed path: '%FF' is not valid UTF-8"),
    delete("drop dot dot", f"{TABLES}/..", 400, BAD, "Invalid table name: '..'"),
    post("commit to dot dot", f"{TABLES}/..", a_commit(), 400, BAD, "Invalid table name: '..'"),
    get("empty view", f"{VIEWS}//", 400, BAD, "Invalid view name: must not be empty"),
    get("dot dot view", f"{VIEWS}/..", 400, BAD, "Invalid view name: '..'"),
    get("view with DEL", f"{VIEWS}/a%7F", 400, BAD, "Invalid view name: 'a\\x7f' holds a control character"),
    get("long view", f"{VIEWS}/{LONG}", 400, BAD, f"Invalid view name: {LONG_NAME}"),
    get("view not UTF-8", f"{VIEWS}/%E2%82", 400, BAD, "Malformed path: '%E2%82' is not valid UTF-8"),
]  # fmt: skip

SIZE = "Invalid pageSize: {!r} is not a positive number"
QUERIES = [
    get("page size 0", f"{TABLES}?pageSize=0", 400, BAD, SIZE.format("0")),
    get("page size negative", f"{TABLES}?pageSize=-1", 400, BAD, SIZE.format("-1")),
    get("page size not a number", f"{VIEWS}?pageSize=ten", 400, BAD, SIZE.format("ten")),
    get("page size in other digits", f"{NAMESPACES}?pageSize=%D9%A1", 400, BAD, SIZE.format("١")),
    get("page size with a fraction", f"{NAMESPACES}?pageSize=1.5", 400, BAD, SIZE.format("1.5")),
    get("page size beyond any number", f"{TABLES}?pageSize={'9' * 5000}", 400, BAD, SIZE.format("9" * 50)),
    get("page size empty", f"{TABLES}?pageSize=", 400, BAD, SIZE.format("")),
    get("page token made up", f"{TABLES}?pageToken=abc", 400, BAD, "Invalid pageToken"),
    get("page token not base64", f"{VIEWS}?pageToken=%21%21", 400, BAD, "Invalid pageToken"),
    get("page token of zeros", f"{NAMESPACES}?pageToken={'A' * 40}", 400, BAD, "Invalid pageToken"),
    get("page token beyond ASCII", f"{NAMESPACES}?pageToken=%C3%A9", 400, BAD, "Invalid pageToken"),
    get("parent with NUL", f"{NAMESPACES}?parent=%00", 400, BAD,
        "Invalid namespace name: '\\x00' holds a control character"),
    get("parent dot dot", f"{NAMESPACES}?parent=..", 400, BAD, "Invalid namespace name: '..'"),
    get("parent long", f"{NAMESPACES}?parent={LONG}", 400, BAD, f"Invalid namespace name: {LONG_NAME}"),
    get("parent missing", f"{NAMESPACES}?parent=nobody", 404, NO_NAMESPACE, "Namespace does not exist: nobody"),
    get("snapshots neither", f"{T}?snapshots=some", 400, BAD, "Invalid snapshots: 'some' is neither all nor refs"),
    get("search for another type", "/v1/search?type=index", 400, BAD,
         "Invalid type: 'index' is neither table nor view"),
    get("query not UTF-8", f"{TABLES}?pageToken=%FF", 400, BAD,
        "Malformed query string: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
    get("101 query parameters", f"{TABLES}?{'&'.join(['a=1'] * 101)}", 400, BAD,
        "Malformed query string: Max number of fields exceeded"),
    delete("purge maybe", f"{T}?purgeRequested=maybe", 400, BAD,
         "Invalid purgeRequested: 'maybe' is neither true nor false"),
    delete("purge empty", f"{T}?purgeRequested=", 400, BAD, "Invalid purgeRequested: '' is neither true nor false"),
    get("if-none-match star", T, 400, BAD, "If-None-Match: * is not supported for a load", If_None_Match="*"),
    get("if-none-match star on a view", V, 400, BAD, "If-None-Match: * is not supported for a load",
         If_None_Match=" * "),
]  # fmt: skip

MISSING = [
    get("missing namespace", f"{NAMESPACES}/no", 404, NO_NAMESPACE, "Namespace does not exist: no"),
    get("missing child", f"{NAMESPACES}/ns%1Fno", 404, NO_NAMESPACE, "Namespace does not exist: ns.no"),
    get("tables of a missing namespace", f"{NAMESPACES}/no/tables", 404, NO_NAMESPACE, "Namespace does not exist: no"),
    get("views of a missing namespace", f"{NAMESPACES}/no/views", 404, NO_NAMESPACE, "Namespace does not exist: no"),
    get("missing table", f"{TABLES}/no", 404, NO_TABLE, "Table does not exist: ns.no"),
    get("table of a missing namespace", f"{NAMESPACES}/no/tables/t", 404, NO_TABLE, "Table does not exist: no.t"),
    get("view as a table", f"{TABLES}/v", 404, NO_TABLE, "Table does not exist: ns.v"),
    get("table as a view", f"{VIEWS}/t", 404, NO_VIEW, "View does not exist: ns.t"),
    get("view of a missing namespace", f"{NAMESPACES}/no/views/v", 404, NO_VIEW, "View does not exist: no.v"),
    delete("drop a missing namespace", f"{NAMESPACES}/no", 404, NO_NAMESPACE, "Namespace does not exist: no"),
    delete("drop a full namespace", NS, 409, "NamespaceNotEmptyException",
           "Namespace ns is not empty. Contains 2 table(s)."),
    delete("drop a missing table", f"{TABLES}/no", 404, NO_TABLE, "Table does not exist: ns.no"),
    delete("purge a missing table", f"{TABLES}/no?purgeRequested=true", 404, NO_TABLE, "Table does not exist: ns.no"),
    delete("drop a view as a table", f"{TABLES}/v", 404, NO_TABLE, "Table does not exist: ns.v"),
    delete("drop a table as a view", f"{VIEWS}/t", 404, NO_VIEW, "View does not exist: ns.t"),
    post("unregister a missing table", f"{TABLES}/no/unregister", None, 404, NO_TABLE, "Table does not exist: ns.no"),
    post("unregister a view", f"{TABLES}/v/unregister", None, 404, NO_TABLE, "Table does not exist: ns.v"),
    post("metrics of a missing table", f"{TABLES}/no/metrics", {}, 404, NO_TABLE, "Table does not exist: ns.no"),
]  # fmt: skip

TOO_DEEP = "Malformed request: JSON nested deeper than 64 levels"
DEEP = b'{"namespace": ["a"], "properties": ' + b'{"k":' * 10_000 + b"1" + b"}" * 10_000 + b"}"
BODIES = [
    post("no body", NAMESPACES, None, 400, BAD,
         "Malformed request: the body is not valid JSON: Input data was truncated"),
    post("not JSON", NAMESPACES, b"namespace=a", 400, BAD,
         "Malformed request: the body is not valid JSON: JSON is malformed: invalid character (byte 4)"),
    post("JSON cut short", NAMESPACES, b'{"namespace": ["a"', 400, BAD,
         "Malformed request: the body is not valid JSON: Input data was truncated"),
    post("JSON and more", NAMESPACES, b'{"namespace": ["a"]} {}', 400, BAD,
         "Malformed request: the body is not valid JSON: JSON is malformed: trailing characters (byte 22)"),
    post("a list", NAMESPACES, [], 400, BAD, "Malformed request: Expected `object`, got `array`"),
    post("null", NAMESPACES, b"null", 400, BAD, "Malformed request: Expected `object`, got `null`"),
    post("not UTF-8", NAMESPACES, b'{"namespace": ["\xff"]}', 400, BAD,
         "Malformed request: the body is not valid JSON: 'utf-8' codec can't decode byte 0xff in position 16: "
         "invalid start byte"),
    post("half a surrogate pair", NAMESPACES, b'{"namespace": ["\\ud800"]}', 400, BAD,
         "Malformed request: the body is not valid JSON: Input data was truncated"),
    post("10,000 levels deep", NAMESPACES, DEEP, 400, BAD,
         TOO_DEEP),
    post("10,000 levels deep in a schema", TABLES,
         b'{"name": "n", "schema": ' + b'{"type":' * 10_000 + b"1" + b"}" * 10_001, 400, BAD,
         TOO_DEEP),
    post("10,000 levels deep in a commit", T, b'{"updates": ' + b"[" * 10_000 + b"]" * 10_000 + b"}", 400, BAD,
         TOO_DEEP),
    post("10,000 levels deep in an unknown field", T, b'{"updates": [], "x": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
         400, BAD, TOO_DEEP),
    post("10,000 levels deep in metrics", f"{T}/metrics", b'{"x":' * 10_000 + b"1" + b"}" * 10_000, 400, BAD,
         TOO_DEEP),
    post("metrics not an object", f"{T}/metrics", [], 400, BAD, "Malformed request: Expected `object`, got `array`"),
]  # fmt: skip


def _namespace(**fields: Any) -> dict[str, Any]:
    return {"namespace": ["n"], **fields}


NAMESPACE_BODIES = [
    post("namespace left out", NAMESPACES, {}, 400, BAD,
         "Malformed request: Object missing required field `namespace`"),
    post("namespace as text", NAMESPACES, {"namespace": "n"}, 400, BAD,
         "Malformed request: Expected `array`, got `str` - at `$.namespace`"),
    post("level as a number", NAMESPACES, {"namespace": [1]}, 400, BAD,
         "Malformed request: Expected `str`, got `int` - at `$.namespace[0]`"),
    post("namespace without levels", NAMESPACES, {"namespace": []}, 400, BAD,
         "Invalid namespace: must have at least one level"),
    post("level empty", NAMESPACES, {"namespace": ["n", ""]}, 400, BAD, "Invalid namespace name: must not be empty"),
    post("level dot", NAMESPACES, {"namespace": ["."]}, 400, BAD, "Invalid namespace name: '.'"),
    post("level dot dot", NAMESPACES, {"namespace": ["n", ".."]}, 400, BAD, "Invalid namespace name: '..'"),
    post("level with a control character", NAMESPACES, {"namespace": ["\x01"]}, 400, BAD,
         "Invalid namespace name: '\\x01' holds a control character"),
    post("level with the separator", NAMESPACES, {"namespace": ["a\x1fb"]}, 400, BAD,
         "Invalid namespace name: 'a\\x1fb' holds a control character"),
    post("level too long", NAMESPACES, {"namespace": [LONG]}, 400, BAD, f"Invalid namespace name: {LONG_NAME}"),
    post("too many levels", NAMESPACES, {"namespace": ["n"] * 17}, 400, BAD,
         "Invalid namespace: 17 levels, at most 16 are allowed"),
    post("properties as a list", NAMESPACES, _namespace(properties=["a"]), 400, BAD,
         "Malformed request: Expected `object | null`, got `array` - at `$.properties`"),
    post("property as a number", NAMESPACES, _namespace(properties={"a": 1}), 400, BAD,
         "Malformed request: Expected `str`, got `int` - at `$.properties[...]`"),
    post("property without a key", NAMESPACES, _namespace(properties={"": "a"}), 400, BAD,
         "Invalid property: its key is empty"),
    post("property too large", NAMESPACES, _namespace(properties={"k": "x" * 32 * 1024}), 400, BAD,
         "Invalid property 'k': larger than 32768 bytes"),
    post("too many properties", NAMESPACES, _namespace(properties={str(n): "" for n in range(1001)}), 400, BAD,
         "Too many properties: 1001, at most 1000 are allowed"),
    post("namespace taken", NAMESPACES, {"namespace": ["ns"]}, 409, TAKEN, "Namespace already exists: ns"),
    post("update as a list", f"{NS}/properties", {"updates": []}, 400, BAD,
         "Malformed request: Expected `object | null`, got `array` - at `$.updates`"),
    post("removal as text", f"{NS}/properties", {"removals": "owner"}, 400, BAD,
         "Malformed request: Expected `array | null`, got `str` - at `$.removals`"),
    post("key set and removed", f"{NS}/properties", {"updates": {"a": "1"}, "removals": ["a"]}, 422,
         "UnprocessableEntityException",
         "Invalid namespace update, cannot simultaneously set and remove keys: [a]"),
    post("update without a key", f"{NS}/properties", {"updates": {"": "1"}}, 400, BAD,
         "Invalid property: its key is empty"),
    post("too many removals", f"{NS}/properties", {"removals": [str(n) for n in range(1001)]}, 400, BAD,
         "Too many properties: 1001, at most 1000 are allowed"),
    post("properties of a missing namespace", f"{NAMESPACES}/no/properties", {"updates": {"a": "1"}}, 404, NO_NAMESPACE,
         "Namespace does not exist: no"),
]  # fmt: skip


def _fields(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def _field(field_id: Any, name: str, type: Any) -> dict[str, Any]:
    return {"id": field_id, "name": name, "type": type, "required": False}


OUTSIDE = "Invalid {}: {} lies outside the locations allowed for this warehouse (WAREHOUSE)"
TABLE_BODIES = [
    post("table without a name", TABLES, {"schema": SCHEMA}, 400, BAD,
         "Malformed request: Object missing required field `name`"),
    post("table without a schema", TABLES, {"name": "n"}, 400, BAD,
         "Malformed request: Object missing required field `schema`"),
    post("table name as a number", TABLES, {"name": 1, "schema": SCHEMA}, 400, BAD,
         "Malformed request: Expected `str`, got `int` - at `$.name`"),
    post("table name empty", TABLES, a_table(""), 400, BAD, "Invalid table name: must not be empty"),
    post("table name dot dot", TABLES, a_table(".."), 400, BAD, "Invalid table name: '..'"),
    post("table name with a tab", TABLES, a_table("a\tb"), 400, BAD,
         "Invalid table name: 'a\\tb' holds a control character"),
    post("table name too long", TABLES, a_table(LONG), 400, BAD, f"Invalid table name: {LONG_NAME}"),
    post("schema as a list", TABLES, {"name": "n", "schema": []}, 400, BAD,
         "Malformed request: Expected `object`, got `array` - at `$.schema`"),
    post("schema of another type", TABLES, a_table("n", schema={"type": "list"}), 400, ILLEGAL,
         'Cannot create schema, not a struct type: "list"'),
    post("schema without fields", TABLES, a_table("n", schema={"type": "struct"}), 400, ILLEGAL,
         "Cannot parse struct fields from non-array: null"),
    post("column of an unknown type", TABLES, a_table("n", schema=_fields(_field(1, "a", "int32"))), 400, ILLEGAL,
         "Cannot parse type string to primitive: int32"),
    post("two columns of one name", TABLES, a_table("n", schema=_fields(_field(1, "a", "int"), _field(2, "a", "int"))),
         400, INVALID, "Invalid schema: multiple fields for name a: 1 and 2"),
    post("column id as text", TABLES, a_table("n", schema=_fields(_field("1", "a", "int"))), 400, ILLEGAL,
         'Cannot parse to an integer value: id: "1"'),
    post("type of a later format", TABLES, a_table("n", schema=_fields(_field(1, "a", "variant"))), 400, INVALID,
         "Invalid schema for v2:\n- Invalid type for a: variant is not supported until v3"),
    post("partition by a missing column", TABLES,
         a_table("n", partition_spec={"fields": [{"name": "p", "transform": "identity", "source-id": 9}]}), 400,
         INVALID,
         "Cannot find source column for partition field: 1000: p: identity(9)"),
    post("partition spec as a list", TABLES, a_table("n", partition_spec=[]), 400, BAD,
         "Malformed request: Expected `object | null`, got `array` - at `$.partition-spec`"),
    post("sort order without direction", TABLES,
         a_table("n", write_order={"order-id": 1, "fields": [{"transform": "identity", "source-id": 1}]}), 400, ILLEGAL,
         "Cannot parse sort order: Object missing required field `direction` - at `$.fields[0]`"),
    post("format version 4", TABLES, a_table("n", properties={"format-version": "4"}), 400, ILLEGAL,
         "Unsupported format version: v4 (supported: v3)"),
    post("format version in words", TABLES, a_table("n", properties={"format-version": "two"}), 400, ILLEGAL,
         'Table property format-version must have integer value: "two"'),
    post("table property as a number", TABLES, a_table("n", properties={"a": 1}), 400, BAD,
         "Malformed request: Expected `str`, got `int` - at `$.properties[...]`"),
    post("stage-create as text", TABLES, a_table("n", stage_create="yes"), 400, BAD,
         "Malformed request: Expected `bool | null`, got `str` - at `$.stage-create`"),
    post("table in a missing namespace", f"{NAMESPACES}/no/tables", a_table("n"), 404, NO_NAMESPACE,
         "Namespace does not exist: no"),
    post("table name taken", TABLES, a_table("t"), 409, TAKEN, "Table already exists: ns.t"),
    post("table name taken by a view", TABLES, a_table("v"), 409, TAKEN, "View with same name already exists: ns.v"),
    post("staged table taken", TABLES, a_table("t", stage_create=True), 409, TAKEN, "Table already exists: ns.t"),
]  # fmt: skip

THROUGH = "Invalid location: {} passes through a symbolic link or a file"
OVERLAP = "Location {} overlaps that of another table or view"
LOCATIONS = [
    *(
        post(f"namespace's location {what} at {how}", path, {**body, field: {"location": place}}, 400, BAD, said)
        for what, place, said in (
            ("in a bucket", "s3://bucket/n", OUTSIDE.format("namespace location", "s3://bucket/n")),
            ("outside", "file:///etc/n", OUTSIDE.format("namespace location", "file:///etc/n")),
            ("that is none", "somewhere", "Invalid location: 'somewhere'"),
            ("that is empty", "", "Invalid location: ''"),
        )
        for how, path, body, field in (
            ("creation", NAMESPACES, {"namespace": ["n"]}, "properties"),
            ("update", f"{NS}/properties", {"removals": ["owner"]}, "updates"),
        )
    ),
    post("location outside", TABLES, a_table("n", location="file:///etc/tables"), 400, BAD,
         OUTSIDE.format("location", "file:///etc/tables")),
    post("location of the whole warehouse's parent", TABLES, a_table("n", location="WAREHOUSE-2/n"), 400, BAD,
         OUTSIDE.format("location", "WAREHOUSE-2/n")),
    post("location in a bucket", TABLES, a_table("n", location="s3://bucket/n"), 400, BAD,
         OUTSIDE.format("location", "s3://bucket/n")),
    post("location at a cloud's metadata service", TABLES, a_table("n", location="http://169.254.169.254/latest"), 400,
         BAD,
         OUTSIDE.format("location", "http://169.254.169.254/latest")),
    post("location on another host", TABLES, a_table("n", location="file://evil/etc"), 400, BAD,
         "Invalid location: 'file://evil/etc' names a host"),
    post("location with dot dot", TABLES, a_table("n", location="WAREHOUSE/../../etc"), 400, BAD,
         "Invalid location: 'WAREHOUSE/../../etc' holds an empty segment, '.' or '..'"),
    post("location with a doubled slash", TABLES, a_table("n", location="WAREHOUSE//n"), 400, BAD,
         "Invalid location: 'WAREHOUSE//n' holds an empty segment, '.' or '..'"),
    post("location relative", TABLES, a_table("n", location="tables/n"), 400, BAD, "Invalid location: 'tables/n'"),
    post("location with NUL", TABLES, a_table("n", location="WAREHOUSE/a\x00"), 400, BAD,
         "Invalid location: 'WAREHOUSE/a\\x00' holds a character that is not allowed in one"),
    post("location with a query", TABLES, a_table("n", location="WAREHOUSE/a?b"), 400, BAD,
         "Invalid location: 'WAREHOUSE/a?b' holds a character that is not allowed in one"),
    post("location with a backslash", TABLES, a_table("n", location="WAREHOUSE/a\\..\\b"), 400, BAD,
         "Invalid location: 'WAREHOUSE/a\\\\..\\\\b' holds a character that is not allowed in one"),
    post("location with a name too long", TABLES, a_table("n", location=f"WAREHOUSE/{LONG}"), 400, BAD,
         f"Invalid location: a name in WAREHOUSE/{LONG}/metadata/FILE is too long"),
    post("location through a link", TABLES, a_table("n", location="WAREHOUSE/link/n"), 400, BAD,
         THROUGH.format("WAREHOUSE/link/n/metadata/FILE")),
    post("location that is a link", TABLES, a_table("n", location="WAREHOUSE/link"), 400, BAD,
         THROUGH.format("WAREHOUSE/link/metadata/FILE")),
    post("location below a file", TABLES, a_table("n", location="WAREHOUSE/a-file/n"), 400, BAD,
         THROUGH.format("WAREHOUSE/a-file/n/metadata/FILE")),
    post("location whose data folder is a file", TABLES, a_table("n", location="WAREHOUSE/blocked"), 400, BAD,
         THROUGH.format("WAREHOUSE/blocked/data")),
    post("staged location whose data folder is a file", TABLES,
         a_table("n", location="WAREHOUSE/blocked", stage_create=True), 400, BAD,
         THROUGH.format("WAREHOUSE/blocked/data")),
    post("location of another table", TABLES, a_table("n", location="OTHER"), 400, BAD, OVERLAP.format("OTHER")),
    post("location of another table, with a slash", TABLES, a_table("n", location="OTHER/"), 400, BAD,
         OVERLAP.format("OTHER")),
    post("location inside another table", TABLES, a_table("n", location="OTHER/data/n"), 400, BAD,
         OVERLAP.format("OTHER/data/n")),
    post("location around other tables", TABLES, a_table("n", location="WAREHOUSE/ns"), 400, BAD,
         OVERLAP.format("WAREHOUSE/ns")),
    post("staged location outside", TABLES, a_table("n", location="s3://bucket/", stage_create=True), 400, BAD,
         OUTSIDE.format("location", "s3://bucket")),
    *(
        post(f"{name} outside", TABLES, a_table("n", properties={name: "file:///etc/x"}), 400, BAD,
             OUTSIDE.format(f"property {name}", "file:///etc/x"))
        for name in ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")
    ),
    post("metadata path in another table", TABLES, a_table("n", properties={"write.metadata.path": "OTHER/metadata"}),
         400,
         BAD, "Invalid property write.metadata.path: OTHER/metadata overlaps the location of another table or view"),
    post("data path around other tables", TABLES, a_table("n", properties={"write.data.path": "WAREHOUSE/ns"}), 400,
         BAD,
         "Invalid property write.data.path: WAREHOUSE/ns overlaps the location of another table or view"),
    post("metadata path through a link", TABLES, a_table("n", properties={"write.metadata.path": "WAREHOUSE/link/m"}),
         400,
         BAD, THROUGH.format("WAREHOUSE/link/m/FILE")),
    post("commit sets a location outside", T, a_commit({"action": "set-location", "location": "file:///etc"}), 400, BAD,
         OUTSIDE.format("location", "file:///etc")),
    post("commit sets the location of another table", T, a_commit({"action": "set-location", "location": "OTHER"}), 400,
         BAD, OVERLAP.format("OTHER")),
    post("commit sets a location through a link", T, a_commit({"action": "set-location", "location": "WAREHOUSE/link"}),
         400, BAD, THROUGH.format("WAREHOUSE/link/metadata/FILE")),
    post("commit sets a metadata path outside", T, a_commit(set_properties(**{"write.metadata.path": "http://a/b"})),
         400,
         BAD, OUTSIDE.format("property write.metadata.path", "http://a/b")),
    post("commit sets a metadata path in another table", T,
         a_commit(set_properties(**{"write.metadata.path": "OTHER/metadata"})), 400, BAD,
         "Invalid property write.metadata.path: OTHER/metadata overlaps the location of another table or view"),
    post("view location outside", VIEWS, a_view("n", location="file:///etc/v"), 400, BAD,
         OUTSIDE.format("location", "file:///etc/v")),
    post("view location of a table", VIEWS, a_view("n", location="OTHER"), 400, BAD, OVERLAP.format("OTHER")),
    post("view location through a link", VIEWS, a_view("n", location="WAREHOUSE/link/v"), 400, BAD,
         THROUGH.format("WAREHOUSE/link/v/metadata/FILE")),
    post("view commit sets a location outside", V, a_commit({"action": "set-location", "location": "s3://b/v"}), 400,
         BAD,
         OUTSIDE.format("location", "s3://b/v")),
]  # fmt: skip


def _file(location: str, **fields: Any) -> dict[str, Any]:
    return {"name": "n", "metadata-location": location, **fields}


def _gone(location: str) -> str:
    return f"Failed to open input stream for file: {location}"


REGISTRATIONS = [
    post("register without a location", REGISTER, {"name": "n"}, 400, BAD,
         "Malformed request: Object missing required field `metadata-location`"),
    post("register with overwrite as text", REGISTER, _file("TABLE_FILE", overwrite="yes"), 400, BAD,
         "Malformed request: Expected `bool | null`, got `str` - at `$.overwrite`"),
    post("register dot dot", REGISTER, _file("TABLE_FILE") | {"name": ".."}, 400, BAD, "Invalid table name: '..'"),
    post("register /etc/passwd", REGISTER, _file("file:///etc/passwd"), 400, BAD,
         OUTSIDE.format("metadata location", "file:///etc/passwd")),
    post("register out of the warehouse", REGISTER, _file("WAREHOUSE/../../../etc/passwd"), 400, BAD,
         "Invalid location: 'WAREHOUSE/../../../etc/passwd' holds an empty segment, '.' or '..'"),
    post("register from the network", REGISTER, _file("http://169.254.169.254/latest/meta-data"), 400, BAD,
         OUTSIDE.format("metadata location", "http://169.254.169.254/latest/meta-data")),
    post("register from a bucket", REGISTER, _file("s3://bucket/m.json"), 400, BAD,
         OUTSIDE.format("metadata location", "s3://bucket/m.json")),
    post("register a missing file", REGISTER, _file("WAREHOUSE/no.metadata.json"), 404, "NotFoundException",
         _gone("WAREHOUSE/no.metadata.json")),
    post("register a folder", REGISTER, _file("WAREHOUSE/ns"), 404, "NotFoundException", _gone("WAREHOUSE/ns")),
    post("register below a file", REGISTER, _file("WAREHOUSE/a-file/m.json"), 404, "NotFoundException",
         _gone("WAREHOUSE/a-file/m.json")),
    post("register a link", REGISTER, _file("WAREHOUSE/linked.metadata.json"), 404, "NotFoundException",
         _gone("WAREHOUSE/linked.metadata.json")),
    post("register through a link", REGISTER, _file("WAREHOUSE/link/real.metadata.json"), 404, "NotFoundException",
         _gone("WAREHOUSE/link/real.metadata.json")),
    post("register what is not JSON", REGISTER, _file("WAREHOUSE/text.metadata.json"), 400, INVALID,
         "Cannot parse table metadata: JSON is malformed: invalid character (byte 0)"),
    post("register a list", REGISTER, _file("WAREHOUSE/list.metadata.json"), 400, INVALID,
         "Cannot parse table metadata: Expected `object`, got `array`"),
    post("register half a table", REGISTER, _file("WAREHOUSE/half.metadata.json"), 400, INVALID,
         "Cannot parse table metadata: Object missing required field `location`"),
    post("register torn gzip", REGISTER, _file("WAREHOUSE/torn.gz.metadata.json"), 400, INVALID,
         "The metadata file WAREHOUSE/torn.gz.metadata.json cannot be decompressed: "
         "Compressed file ended before the end-of-stream marker was reached"),
    post("register a view as a table", REGISTER, _file("VIEW_FILE"), 400, INVALID,
         "Cannot parse table metadata: Object missing required field `last-updated-ms`"),
    post("register a table that says it lies outside", REGISTER, _file("WAREHOUSE/moved.metadata.json"), 400, BAD,
         OUTSIDE.format("location", "ELSEWHERE/table")),
    post("register over a table", REGISTER, _file("TABLE_FILE") | {"name": "other"}, 409, TAKEN,
         "Table already exists: ns.other"),
    post("register over a view", REGISTER, _file("TABLE_FILE", overwrite=True) | {"name": "v"}, 409, TAKEN,
         "View with same name already exists: ns.v"),
    post("register into a missing namespace", f"{NAMESPACES}/no/register", _file("TABLE_FILE"), 404, NO_NAMESPACE,
         "Namespace does not exist: no"),
    post("register view from outside", REGISTER_VIEW, _file("file:///etc/passwd"), 400, BAD,
         OUTSIDE.format("metadata location", "file:///etc/passwd")),
    post("register a table as a view", REGISTER_VIEW, _file("TABLE_FILE"), 400, INVALID,
         "Cannot parse view metadata: Object missing required field `view-uuid`"),
    post("register view over a table", REGISTER_VIEW, _file("VIEW_FILE") | {"name": "t"}, 409, TAKEN,
         "Table with same name already exists: ns.t"),
    post("register view over a view", REGISTER_VIEW, _file("VIEW_FILE") | {"name": "v"}, 409, TAKEN,
         "View already exists: ns.v"),
    post("register view without a name", REGISTER_VIEW, {"metadata-location": "VIEW_FILE"}, 400, BAD,
         "Malformed request: Object missing required field `name`"),
]  # fmt: skip


def _update(action: str, **fields: Any) -> dict[str, Any]:
    return {"action": action, **{name.replace("_", "-"): value for name, value in fields.items()}}


def _requiring(type: str, **fields: Any) -> dict[str, Any]:
    requirement = {"type": type, **{name.replace("_", "-"): value for name, value in fields.items()}}
    return a_commit(set_properties(a="b"), requires=[requirement])


COMMITS = [
    post("commit without updates", T, {"requirements": []}, 400, BAD,
         "Malformed commit request: Object missing required field `updates`"),
    post("updates as an object", T, {"updates": {}}, 400, BAD,
         "Malformed commit request: Expected `array`, got `object` - at `$.updates`"),
    post("requirements as text", T, {"updates": [], "requirements": "none"}, 400, BAD,
         "Malformed commit request: Expected `array`, got `str` - at `$.requirements`"),
    post("update as text", T, {"updates": ["add-schema"]}, 400, BAD,
         "Malformed commit request: Expected `object`, got `str` - at `$.updates[0]`"),
    post("update without action", T, {"updates": [{}]}, 400, BAD,
         "Malformed commit request: Object missing required field `action` - at `$.updates[0]`"),
    post("unknown action", T, a_commit(_update("grow-legs")), 400, BAD, "Unknown update action: grow-legs"),
    post("unknown requirement", T, _requiring("assert-good-mood"), 400, BAD,
         "Unknown requirement type: assert-good-mood"),
    post("action of a view", T, a_commit(_update("add-view-version", view_version=a_version())), 400, BAD,
         "Cannot apply update AddViewVersion to a table"),
    post("requirement of a view", T, _requiring("assert-view-uuid", uuid=UUID), 400, INVALID,
         "Cannot validate AssertViewUUID against a table"),
    post("1,001 updates", T, {"updates": [set_properties(a="b")] * 1001}, 400, BAD,
         "Too many updates: 1001, at most 1000 are allowed in one commit"),
    post("body names another table", T, a_commit() | {"identifier": identifier("ns", "other")}, 400, BAD,
         "Invalid commit: the body names ns.other, the path names ns.t"),
    post("body names nothing", T, a_commit() | {"identifier": {"namespace": [], "name": "t"}}, 400, BAD,
         "Invalid namespace: must have at least one level"),
    post("property as null", T, a_commit(_update("set-properties", updates={"a": None})), 400, BAD,
         "Malformed commit request: Expected `str`, got `null` - at `$.updates[0].updates[...]`"),
    post("removals as an object", T, a_commit(_update("remove-properties", removals={})), 400, BAD,
         "Malformed commit request: Expected `array | null`, got `object` - at `$.updates[0].removals`"),
    post("snapshot id beyond 64 bits", T, a_commit(_update("set-current-snapshot", snapshot_id=2**63)), 400, BAD,
         "Malformed commit request: Expected `int` <= 9223372036854775807 - at `$.updates[0].snapshot-id`"),
    post("schema id beyond 32 bits", T, a_commit(_update("set-current-schema", schema_id=2**31)), 400, BAD,
         "Malformed commit request: Expected `int` <= 2147483647 - at `$.updates[0].schema-id`"),
    post("schema id as a fraction", T, a_commit(_update("set-current-schema", schema_id=0.5)), 400, BAD,
         "Malformed commit request: Expected `int`, got `float` - at `$.updates[0].schema-id`"),
    post("unknown schema", T, a_commit(_update("set-current-schema", schema_id=9)), 400, ILLEGAL,
         "Cannot set current schema to unknown schema: 9"),
    post("last schema of none", T, a_commit(_update("set-current-schema", schema_id=-1)), 400, INVALID,
         "Cannot set last added schema: no schema has been added"),
    post("unknown snapshot", T, a_commit(_update("set-current-snapshot", snapshot_id=9)), 400, INVALID,
         "Cannot set main to unknown snapshot: 9"),
    post("snapshot without an id", T, a_commit(_update("add-snapshot", snapshot={})), 400, ILLEGAL,
         "Cannot parse snapshot: Object missing required field `snapshot-id`"),
    post("downgrade", T, a_commit(_update("upgrade-format-version", format_version=1)), 400, ILLEGAL,
         "Cannot downgrade v2 table to v1"),
    post("format of the future", T, a_commit(_update("upgrade-format-version", format_version=4)), 400, ILLEGAL,
         "Cannot upgrade table to unsupported format version: v4 (supported: v3)"),
    post("uuid of another table", T, a_commit(_update("assign-uuid", uuid=UUID)), 400, ILLEGAL,
         f"Cannot reassign table UUID: TABLE_UUID to {UUID}"),
    post("good update and bad update", T, a_commit(set_properties(a="b"), _update("set-default-spec", spec_id=7)), 400,
         ILLEGAL, "Cannot set default partition spec to unknown spec: 7"),
    post("another uuid required", T, _requiring("assert-table-uuid", uuid=UUID), 409, FAILED,
         f"Requirement failed: UUID does not match: expected TABLE_UUID != {UUID}"),
    post("another snapshot required", T, _requiring("assert-ref-snapshot-id", ref="main", snapshot_id=5), 409, FAILED,
         "Requirement failed: branch or tag main is missing, expected 5"),
    post("absence required", T, _requiring("assert-create"), 409, FAILED, "Requirement failed: table already exists"),
    post("absence and more required", T,
         a_commit(requires=[{"type": "assert-create"}, {"type": "assert-default-spec-id", "default-spec-id": 0}]), 400,
         ILLEGAL, "Invalid create requirements: [assert-default-spec-id]"),
    post("requirement without its id", T, _requiring("assert-current-schema-id"), 400, BAD,
         "Malformed commit request: Object missing required field `current-schema-id` - at `$.requirements[0]`"),
    post("commit to a missing table", f"{TABLES}/no", a_commit(set_properties(a="b")), 404, NO_TABLE,
         "Table does not exist: ns.no"),
    post("commit to a view as a table", f"{TABLES}/v", a_commit(set_properties(a="b")), 404, NO_TABLE,
         "Table does not exist: ns.v"),
    post("create by commit over a view", f"{TABLES}/v", a_commit(requires=[{"type": "assert-create"}]), 409, TAKEN,
         "View with same name already exists: ns.v"),
    post("create by commit in a missing namespace", f"{NAMESPACES}/no/tables/n",
         a_commit(requires=[{"type": "assert-create"}]),
         404, NO_NAMESPACE, "Namespace does not exist: no"),
    post("create by commit without a schema", f"{TABLES}/n", a_commit(requires=[{"type": "assert-create"}]), 400,
         INVALID,
         "Cannot create table: no schema has been added"),
]  # fmt: skip


def _change(name: str, *updates: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {**a_commit(*updates), "identifier": identifier("ns", name), **fields}


def _together(*changes: Any) -> dict[str, Any]:
    return {"table-changes": list(changes)}


GOOD = _change("t", set_properties(a="b"))
TRANSACTIONS = [
    post("transaction of nothing", TRANSACTION, _together(), 400, BAD, "Invalid transaction: table-changes is empty"),
    post("transaction without changes", TRANSACTION, {}, 400, BAD,
         "Malformed commit request: Object missing required field `table-changes`"),
    post("transaction as a list", TRANSACTION, [GOOD], 400, BAD,
         "Malformed commit request: Expected `object`, got `array`"),
    post("change without identifier", TRANSACTION, _together(GOOD, a_commit()), 400, BAD,
         "Malformed commit request: Object missing required field `identifier` - at `$.table-changes[1]`"),
    post("change with a bad name", TRANSACTION, _together(GOOD, _change("..")), 400, BAD, "Invalid table name: '..'"),
    post("second table missing", TRANSACTION, _together(GOOD, _change("no", set_properties(a="b"))), 404, NO_TABLE,
         "Table does not exist: ns.no"),
    post("second table unwilling", TRANSACTION,
         _together(GOOD, _change("other", requirements=[{"type": "assert-default-spec-id", "default-spec-id": 3}])),
         409,
         FAILED, "ns.other: Requirement failed: default partition spec changed: expected id 3 != 0"),
    post("second update impossible", TRANSACTION,
         _together(GOOD, _change("other", _update("set-current-schema", schema_id=9))), 400, ILLEGAL,
         "Cannot set current schema to unknown schema: 9"),
    post("second table steered outside", TRANSACTION,
         _together(GOOD, _change("other", set_properties(**{"write.data.path": "file:///etc"}))), 400, BAD,
         OUTSIDE.format("property write.data.path", "file:///etc")),
    post("second table written through a link", TRANSACTION,
         _together(GOOD, _change("other", set_properties(**{"write.metadata.path": "WAREHOUSE/link/m"}))), 400, BAD,
         THROUGH.format("WAREHOUSE/link/m/FILE")),
    post("unknown action in a transaction", TRANSACTION, _together(GOOD, _change("other", _update("x"))), 400, BAD,
         "Unknown update action: x"),
    post("too many updates in a transaction", TRANSACTION, _together(_change("t", *[set_properties(a="b")] * 1001)),
         400,
         BAD, "Too many updates: 1001, at most 1000 are allowed in one commit"),
]  # fmt: skip

RENAMES = [
    post("rename without destination", RENAME, {"source": identifier("ns", "t")}, 400, BAD,
         "Malformed request: Object missing required field `destination`"),
    post("rename from text", RENAME, rename("ns.t", identifier("ns", "n")), 400, BAD,  # type: ignore[arg-type]
         "Malformed request: Expected `object`, got `str` - at `$.source`"),
    post("rename to an empty name", RENAME, rename(identifier("ns", "t"), identifier("ns", "")), 400, BAD,
         "Invalid table name: must not be empty"),
    post("rename to no namespace", RENAME, rename(identifier("ns", "t"), {"namespace": [], "name": "t"}), 400, BAD,
         "Invalid namespace: must have at least one level"),
    post("rename to dot dot", RENAME, rename(identifier("ns", "t"), identifier("..", "t")), 400, BAD,
         "Invalid namespace name: '..'"),
    post("rename a missing table", RENAME, rename(identifier("ns", "no"), identifier("ns", "n")), 404, NO_TABLE,
         "Table does not exist: ns.no"),
    post("rename into a missing namespace", RENAME, rename(identifier("ns", "t"), identifier("no", "t")), 404,
         NO_NAMESPACE, "Namespace does not exist: no"),
    post("rename onto a table", RENAME, rename(identifier("ns", "t"), identifier("ns", "other")), 409, TAKEN,
         "Table already exists: ns.other"),
    post("rename onto a view", RENAME, rename(identifier("ns", "t"), identifier("ns", "v")), 409, TAKEN,
         "Cannot rename ns.t to ns.v. View already exists"),
    post("rename a view as a table", RENAME, rename(identifier("ns", "v"), identifier("ns", "n")), 404, NO_TABLE,
         "Table does not exist: ns.v"),
    post("rename a table as a view", RENAME_VIEW, rename(identifier("ns", "t"), identifier("ns", "n")), 404, NO_VIEW,
         "View does not exist: ns.t"),
    post("rename a view onto a table", RENAME_VIEW, rename(identifier("ns", "v"), identifier("ns", "t")), 409, TAKEN,
         "Cannot rename ns.v to ns.t. Table already exists"),
    post("rename a view to a long name", RENAME_VIEW, rename(identifier("ns", "v"), identifier("ns", LONG)), 400, BAD,
         f"Invalid view name: {LONG_NAME}"),
    post("rename a view without source", RENAME_VIEW, {"destination": identifier("ns", "n")}, 400, BAD,
         "Malformed request: Object missing required field `source`"),
]  # fmt: skip

TWICE = a_version() | {"representations": a_version()["representations"] * 2}
VIEW_BODIES = [
    post("view without a version", VIEWS, {"name": "n", "schema": SCHEMA}, 400, BAD,
         "Malformed request: Object missing required field `view-version`"),
    post("view without a schema", VIEWS, {"name": "n", "view-version": a_version()}, 400, BAD,
         "Malformed request: Object missing required field `schema`"),
    post("view without a query", VIEWS, a_view("n", view_version=a_version() | {"representations": []}), 400, ILLEGAL,
         "Cannot create view without specifying a query"),
    post("view with two queries of one dialect", VIEWS, a_view("n", view_version=TWICE), 400, ILLEGAL,
         "Invalid view version: Cannot add multiple queries for dialect spark"),
    post("view version without representations", VIEWS, a_view("n", view_version={"version-id": 1}), 400, ILLEGAL,
         "Cannot parse view version: Object missing required field `schema-id`"),
    post("view name dot", VIEWS, a_view("."), 400, BAD, "Invalid view name: '.'"),
    post("view name too long", VIEWS, a_view(LONG), 400, BAD, f"Invalid view name: {LONG_NAME}"),
    post("view name taken", VIEWS, a_view("v"), 409, TAKEN, "View already exists: ns.v"),
    post("view name taken by a table", VIEWS, a_view("t"), 409, TAKEN, "Table with same name already exists: ns.t"),
    post("view in a missing namespace", f"{NAMESPACES}/no/views", a_view("n"), 404, NO_NAMESPACE,
         "Namespace does not exist: no"),
    post("view commit without updates", V, {}, 400, ILLEGAL,
         "Cannot parse commit view request: Object missing required field `updates`"),
    post("view commit not JSON", V, b"{", 400, BAD, "Cannot parse commit view request: Input data was truncated"),
    post("view commit with an unknown action", V, a_commit(_update("grow-legs")), 400, BAD,
         "Unknown update action: grow-legs"),
    post("view commit with an action of a table", V, a_commit(_update("set-current-schema", schema_id=0)), 400, BAD,
         "Cannot apply update SetCurrentSchema to a view"),
    post("view commit with an unknown requirement", V, _requiring("assert-good-mood"), 400, BAD,
         "Unknown update requirement: assert-good-mood"),
    post("view commit with a requirement of a table", V, _requiring("assert-create"), 400, INVALID,
         "Cannot validate AssertTableDoesNotExist against a view"),
    post("view commit for another uuid", V, _requiring("assert-view-uuid", uuid=UUID), 409, FAILED,
         f"Requirement failed: view UUID does not match: expected VIEW_UUID != {UUID}"),
    post("view commit to a missing version", V, a_commit(_update("set-current-view-version", view_version_id=9)), 400,
         ILLEGAL, "Cannot set current version to unknown version: 9"),
    post("view commit naming another view", V, a_commit() | {"identifier": identifier("ns", "w")}, 400, BAD,
         "Invalid commit: the body names ns.w, the path names ns.v"),
    post("view commit to a missing view", f"{VIEWS}/no", a_commit(set_properties(a="b")), 404, NO_VIEW,
         "View does not exist: ns.no"),
    post("view commit to a table", f"{VIEWS}/t", a_commit(set_properties(a="b")), 404, NO_VIEW,
         "View does not exist: ns.t"),
]  # fmt: skip


def _padded(size: int) -> bytes:
    """A create that would be fine, if it were not so large."""
    return json.dumps({"namespace": ["large"]}).encode().ljust(size)


TOO_LARGE = f"Request body is larger than {BODY_LIMIT} bytes"
ENCODINGS = [
    post("33 MiB", NAMESPACES, _padded(33 * 1024 * 1024), 413, LARGE, TOO_LARGE),
    post("gzip bomb", NAMESPACES, gzip.compress(_padded(BODY_LIMIT + 1), 9), 413, LARGE, TOO_LARGE,
         Content_Encoding="gzip"),
    post("gzip bomb in many members", NAMESPACES, gzip.compress(_padded(TWO_MIB), 9) * 17, 413, LARGE, TOO_LARGE,
         Content_Encoding="gzip"),
    post("zstd bomb", NAMESPACES, zstandard.compress(_padded(BODY_LIMIT + 1)), 413, LARGE, TOO_LARGE,
         Content_Encoding="zstd"),
    post("not gzip", NAMESPACES, b'{"namespace": ["a"]}', 400, BAD,
         "Malformed request: the gzip body cannot be decompressed", Content_Encoding="gzip"),
    post("gzip cut short", NAMESPACES, gzip.compress(b'{"namespace": ["a"]}')[:-9], 400, BAD,
         "Malformed request: the gzip body is cut short", Content_Encoding="gzip"),
    post("gzip and garbage", NAMESPACES, gzip.compress(b'{"namespace": ["a"]}') + b"garbage", 400, BAD,
         "Malformed request: the gzip body cannot be decompressed", Content_Encoding="gzip"),
    post("not zstd", NAMESPACES, b'{"namespace": ["a"]}', 400, BAD,
         "Malformed request: the zstd body cannot be decompressed", Content_Encoding="zstd"),
    post("zstd cut short", NAMESPACES, zstandard.compress(b'{"namespace": ["a"]}')[:-3], 400, BAD,
         "Malformed request: the zstd body is cut short", Content_Encoding="zstd"),
    post("another encoding", NAMESPACES, b"x", 415, "UnsupportedMediaTypeException", "Unsupported Content-Encoding: br",
         Content_Encoding="br"),
    post("two encodings", NAMESPACES, b"x", 415, "UnsupportedMediaTypeException",
         "Unsupported Content-Encoding: gzip, gzip", Content_Encoding="gzip, gzip"),
]  # fmt: skip

KEYS = [
    post(f"idempotency key {what}", NAMESPACES, {"namespace": ["keyed"]}, 400, BAD,
         f"Invalid Idempotency-Key: {key[:50]!r} is not a UUID", Idempotency_Key=key)
    for what, key in [("in words", "again"), ("empty", ""), ("without dashes", UUID.replace("-", "")),
                      ("in braces", f"{{{UUID}}}"), ("too long", "a" * 5000), ("not hexadecimal", UUID.replace("0",
                      "g"))]
]  # fmt: skip

CASES = [
    *ROUTES, *PATHS, *QUERIES, *MISSING, *BODIES, *NAMESPACE_BODIES, *TABLE_BODIES, *LOCATIONS, *REGISTRATIONS,
         *COMMITS,
    *TRANSACTIONS, *RENAMES, *VIEW_BODIES, *ENCODINGS, *KEYS,
]  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with running_server(tmp_path_factory.mktemp("malformed") / "nunatak-data") as server:
        built = build_world(server)
        yield built
        built.connection.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what.replace(" ", "-"))
def test_it_is_refused_in_these_words_and_changes_nothing(world: World, case: Case) -> None:
    before = world.state()

    answer = world.call(case.method, case.path, case.body, case.headers)

    assert answer.error == (case.status, case.type, _same_words(world, case, answer.error[2]))
    assert world.state() == before


def _same_words(world: World, case: Case, said: str) -> str:
    """What the case expects; a new metadata file's name cannot be known, so it is taken from the answer."""
    expected = world.fill(case.message)
    head, marker, tail = expected.partition("FILE")
    if marker and said.startswith(head) and said.endswith(tail):
        name = said[len(head) : len(said) - len(tail)]
        assert name.endswith(".metadata.json")
        assert "/" not in name
        return said
    return expected


def test_at_least_a_hundred_different_requests_are_refused() -> None:
    assert len({(case.method, case.path, repr(case.body), repr(case.headers)) for case in CASES}) >= 100
    assert len({case.what for case in CASES}) == len(CASES)


HEADS = [
    ("a missing namespace", f"{NAMESPACES}/no", 404),
    ("a bad namespace", f"{NAMESPACES}/..", 400),
    ("a missing table", f"{TABLES}/no", 404),
    ("a table in a missing namespace", f"{NAMESPACES}/no/tables/t", 404),
    ("a view as a table", f"{TABLES}/v", 404),
    ("a bad table", f"{TABLES}/a%00", 400),
    ("a missing view", f"{VIEWS}/no", 404),
    ("a table as a view", f"{VIEWS}/t", 404),
    ("a bad view", f"{VIEWS}/%FF", 400),
    ("a list of namespaces", NAMESPACES, 405),
    ("a list of tables", TABLES, 405),
    ("the configuration", "/v1/config", 405),
    ("a commit", TRANSACTION, 405),
    ("no route", "/v1/nothing", 400),
]


@pytest.mark.parametrize(("what", "path", "status"), HEADS, ids=[head[0].replace(" ", "-") for head in HEADS])
def test_a_refused_head_has_a_status_and_no_body(world: World, what: str, path: str, status: int) -> None:
    before = world.state()

    answer = world.call("HEAD", path)

    assert (answer.status, answer.body) == (status, b"")
    assert world.state() == before


def test_a_body_without_a_length_is_refused_where_it_grows_too_large(world: World) -> None:
    before = world.state()
    chunk = b"%x\r\n" % TWO_MIB + b" " * TWO_MIB + b"\r\n"

    answer = world.raw(
        b"POST /v1/namespaces HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk * 17 + b"0\r\n\r\n"
    )

    assert answer.error == (413, LARGE, TOO_LARGE)
    assert world.state() == before


def test_a_path_in_bytes_that_are_not_utf_8_is_refused(world: World) -> None:
    answer = world.raw(b"GET /v1/namespaces/ns/tables/\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n")

    assert answer.error == (400, BAD, "Invalid HTTP request received.")


def test_a_header_in_strange_bytes_breaks_nothing(world: World) -> None:
    """Headers are bytes; what they hold beyond ASCII is nobody's reason to fall over."""
    strange = b"If-None-Match: \xe9\xff\r\nX-Request-Id: \xc3\xa9\r\n"

    answer = world.raw(b"GET /v1/namespaces/ns/tables/t HTTP/1.1\r\nHost: x\r\n" + strange + b"\r\n")

    assert answer.status == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (NAMESPACES, {"namespace": ["another"]}),
        (TABLES, a_table("another")),
        (T, a_commit(set_properties(a="b"))),
        (RENAME, rename(identifier("ns", "t"), identifier("ns", "moved"))),
    ],
    ids=["another body", "another operation", "a commit", "a rename"],
)
def test_a_key_used_again_for_something_else_is_refused(world: World, path: str, body: Any) -> None:
    """A key is bound to its operation, its resource and its body."""
    key = {"Idempotency-Key": str(uuid.uuid4())}
    first = world.call("POST", f"{NS}/properties", {"updates": {"owner": "ann"}}, key)
    assert first.status == 200
    before = world.state()

    answer = world.call("POST", path, body, key)

    assert answer.error == (
        422,
        "UnprocessableEntityException",
        "This Idempotency-Key was used for another request",
    )
    assert world.state() == before


def test_a_page_token_is_refused_by_every_other_list(world: World) -> None:
    token = world.call("GET", f"{TABLES}?pageSize=1").json["next-page-token"]
    lists = [VIEWS, NAMESPACES, f"{NAMESPACES}/empty/tables", f"{NAMESPACES}?parent=ns"]

    answers = [world.call("GET", f"{path}{'&' if '?' in path else '?'}pageToken={token}") for path in lists]

    assert [answer.error for answer in answers] == [(400, BAD, "Invalid pageToken")] * len(lists)
    assert world.call("GET", f"{TABLES}?pageToken={token}").json["identifiers"] == [identifier("ns", "t")]


def test_the_server_never_failed_inside(world: World) -> None:
    """Runs last: none of the requests above was answered with 5xx."""
    page = world.call("GET", "/metrics").body.decode()
    counts = [line for line in page.splitlines() if line.startswith("nunatak_requests_total{")]
    statuses = {line.split('status="')[1][:3] for line in counts}

    assert statuses
    assert {status for status in statuses if status >= "500"} == set()
