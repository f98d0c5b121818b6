"""What a load answers about storage: where the store is, a credential for the caller, and an ETag that knows both."""

import hashlib
import logging
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from nunatak.access.decisions import PolicyChanged
from nunatak.api.admission import require_current
from nunatak.api.encoded import Encoded, LoadResult, PackedHead, matches, pack_head
from nunatak.api.http import COMPRESS_FROM_BYTES, Request, choose_encoding
from nunatak.api.route import handler
from nunatak.api.wire import LoadCredentialsResponse, StorageCredential
from nunatak.catalog import storage_access
from nunatak.catalog.cache import NO_CONFIG, Loaded, StorageFacts, decode_storage_facts
from nunatak.catalog.large_work import LARGE_METADATA_BYTES
from nunatak.catalog.ownership import securable_of
from nunatak.catalog.pointers import find_pointer, key_of, not_found
from nunatak.catalog.temporary_access import TemporaryAccess, find_access, scope_of_record
from nunatak.database.records import Key
from nunatak.errors import CatalogError, Forbidden
from nunatak.iceberg.identifiers import Identifier
from nunatak.objectstore.profile import LocalProfile
from nunatak.objectstore.signing.signers import signs
from nunatak.objectstore.storage import AccessLevel, CredentialScope
from nunatak.objectstore.vending.cache import Kept
from nunatak.objectstore.vending.vendors import refresh_properties, vends

log = logging.getLogger(__name__)

Shape = TypeVar("Shape")
VENDED, SIGNED = "vended-credentials", "remote-signing"
# Fields of LoadCredentialsResponse by the property of an S3 credential that they repeat.
FLAT_KEYS = {
    "s3_access_key_id": "s3.access-key-id",
    "s3_secret_access_key": "s3.secret-access-key",
    "s3_session_token": "s3.session-token",
}
_STAGED_HEAD = b'{"metadata":'
# ClickHouse puts the endpoint of `config` before every path a second time (ClickHouse#93283).
_WITHOUT_ENDPOINT = "ClickHouse/"
_PYICEBERG = "PyIceberg"


def asked_delegation(request: Request) -> list[str]:
    """Returns the ways of access that the client can use, as the header lists them."""
    return [item.strip().lower() for item in (request.header(b"x-iceberg-access-delegation") or "").split(",")]


async def level_of_caller(request: Request, key: Key) -> AccessLevel | None:
    """Returns the caller's level on the table, by its current rights.

    Cached rights suffice for the highest level; others are read again, so that a new grant counts at once.
    """
    securable = securable_of(key)
    if request.known is not None:
        cached = storage_access.level_of(request.warehouse, request.known.rights.get(securable, 0))
        if cached is AccessLevel.READ_WRITE:
            return cached
    return storage_access.level_of(request.warehouse, await request.rights(securable))


async def _level_after(request: Request, key: Key) -> AccessLevel | None:
    """As `level_of_caller`. A create or register was carried out before: it gets no credential rather than an error."""
    try:
        return await level_of_caller(request, key)
    except (PolicyChanged, CatalogError):
        if request.method == "GET":
            raise
        return None


async def join_access(
    request: Request, identifier: Identifier, loaded: Loaded, result: LoadResult[Shape]
) -> LoadResult[Shape]:
    """Adds to a load, create or register what the caller needs to reach the files; nothing for a local table."""
    if isinstance(request.warehouse.profile, LocalProfile):
        return result
    facts = await _facts_of(request, loaded)
    key = key_of(request.warehouse, identifier)
    level = await _level_after(request, key) if wants_credential(request) else None
    joined = await _joined(request, identifier, facts, level, result)
    if joined.not_modified or not _accepts_gzip(request, joined):
        return joined
    return msgspec.structs.replace(joined, packed_head=await _packed_head(request, loaded, joined.body))


async def _facts_of(request: Request, loaded: Loaded) -> StorageFacts:
    is_large = loaded.storage_facts is None and loaded.parsed is None and len(loaded.answer) > LARGE_METADATA_BYTES
    return await request.catalog.large_work.run_if(is_large, loaded.find_storage_facts)


async def join_staged_access(request: Request, identifier: Identifier, result: LoadResult[Shape]) -> LoadResult[Shape]:
    """As `join_access`, for a table that was staged, checked against all live tables and recorded just now."""
    if isinstance(request.warehouse.profile, LocalProfile):
        return result
    facts = decode_storage_facts(memoryview(result.body)[len(_STAGED_HEAD) : -len(NO_CONFIG)])
    level = None
    if wants_credential(request) and not request.warehouse.read_only:
        level = AccessLevel.READ_WRITE  # the caller may create the table, and will own it
    return await _joined(request, identifier, facts, level, result, staged=True)


def wants_credential(request: Request) -> bool:
    return VENDED in asked_delegation(request) and vends(request.warehouse.profile)


async def _joined(
    request: Request,
    identifier: Identifier,
    facts: StorageFacts,
    level: AccessLevel | None,
    result: LoadResult[Shape],
    *,
    staged: bool = False,
) -> LoadResult[Shape]:
    catalog, warehouse = request.catalog, request.warehouse
    try:
        where = storage_access.storage_of(catalog, warehouse, facts).client_config()
    except Forbidden as error:
        log.warning("table %s: %s", facts.table_uuid, error.message)
        return result
    config = dict(where)
    if (request.header(b"user-agent") or "").startswith(_WITHOUT_ENDPOINT):
        config.pop("s3.endpoint", None)
    tags = _Tags(request, result.etag, level)
    if tags.match(request):
        return msgspec.structs.replace(result, caller_etag=tags.matched, not_modified=True)
    kept = None if level is None else await _vended(request, identifier, facts, level, staged=staged)
    joined: dict[str, Any] = {"caller_etag": tags.made(kept)}
    if kept is not None:
        secrets = kept.credential.config
        refresh = refresh_properties(warehouse.profile, credentials_path(request, identifier))
        joined["storage_credentials"] = [StorageCredential(facts.location.rstrip("/"), {**where, **secrets, **refresh})]
        config |= {**secrets, **refresh}
    elif SIGNED in asked_delegation(request) and signs(warehouse.profile):
        config |= signing_properties(request, identifier)
    return msgspec.structs.replace(result, config=config, **joined)


async def _vended(
    request: Request, identifier: Identifier, facts: StorageFacts, level: AccessLevel, *, staged: bool
) -> Kept | None:
    """Returns a credential, or None if none can be limited to the table.

    A store that issues none now fails a load, which the client repeats. It does not fail a create or register, which
    was carried out already.
    """
    catalog, warehouse, caller = request.catalog, request.warehouse, request.caller
    key = key_of(warehouse, identifier)
    try:
        if staged:
            scope = await scope_of_record(catalog, warehouse, caller, key, TemporaryAccess("staged", level, facts))
        else:
            scope = await storage_access.scope_of_table(catalog, warehouse, key, facts, caller.principal, level)
        kept, given = await storage_access.vend(catalog, warehouse, scope)
    except Forbidden as error:
        log.warning("table %s: %s", facts.table_uuid, error.message)
    except CatalogError as error:
        if request.method == "GET":
            raise
        log.warning("table %s: %s", facts.table_uuid, error.message)
    else:
        return kept if given is level else msgspec.structs.replace(kept, renew_ms=0)
    return None


def credentials_path(request: Request, identifier: Identifier) -> str:
    """Returns the path of the table's credentials, relative to the catalog's address, as clients resolve it."""
    return f"{_table_path(request, identifier)}/credentials"


def _table_path(request: Request, identifier: Identifier) -> str:
    home = f"{quote(request.asked_warehouse, safe='')}/" if request.asked_warehouse else ""
    return f"v1/{home}namespaces/{request.path_names[0]}/tables/{quote(identifier.name, safe='')}"


def signing_properties(request: Request, identifier: Identifier) -> dict[str, str]:
    """Returns the properties by which Java 1.11, Java 1.12 and PyIceberg have their requests signed by the catalog."""
    endpoint = f"{_table_path(request, identifier)}/sign"
    properties = {
        "s3.remote-signing-enabled": "true",
        "signer.endpoint": endpoint,
        "s3.signer.endpoint": endpoint,
        "s3.signer": "S3V4RestSigner",
    }
    if (request.header(b"user-agent") or "").startswith(_PYICEBERG):
        properties["py-io-impl"] = "pyiceberg.io.fsspec.FsspecFileIO"  # its other file system ignores the signer
    return properties


@handler
async def load_credentials(request: Request) -> Encoded[LoadCredentialsResponse]:
    """Returns a new or cached credential; the query parameters planId and referenced-by change nothing.

    Besides the specification's list, the body holds the properties of the credential themselves.
    """
    identifier = request.identifier("table")
    catalog, warehouse = request.catalog, request.warehouse
    key = key_of(warehouse, identifier)
    loaded = await find_pointer(catalog, key, "TABLE", request.caller.policy)
    if loaded is None:
        return await _temporary_credentials(request, identifier, key)
    if not vends(warehouse.profile):
        return _secret(LoadCredentialsResponse(storage_credentials=[]))
    facts = await _facts_of(request, loaded)
    scope = await _scope_of_caller(request, identifier, key, facts)
    return await _credentials_of(request, identifier, facts.location, scope)


async def scope_to_sign(request: Request) -> CredentialScope:
    """Returns the places in which requests of the caller are signed; raises NoSuchTable or Forbidden.

    Tables that the caller staged or just dropped have a scope, too: engines write before the commit and delete after
    the drop. The files of a shadow belong to another catalog, so writes to it are not signed.
    """
    identifier = request.identifier("table")
    catalog, warehouse = request.catalog, request.warehouse
    key = key_of(warehouse, identifier)
    loaded = await find_pointer(catalog, key, "TABLE", request.caller.policy)
    if loaded is not None:
        scope = await _scope_of_caller(request, identifier, key, await _facts_of(request, loaded))
        return await storage_access.without_writes_to_shadows(catalog, warehouse, scope)
    found = await _record_of_caller(request, identifier, key)
    return await scope_of_record(catalog, warehouse, request.caller, key, found)


async def _scope_of_caller(request: Request, identifier: Identifier, key: Key, facts: StorageFacts) -> CredentialScope:
    level = await level_of_caller(request, key)
    if level is None:
        raise Forbidden(
            f"Principal {request.caller.principal} may not read the data of {identifier}",
            hint="It needs TABLE_READ_DATA.",
        )
    principal = request.caller.principal
    return await storage_access.scope_of_table(request.catalog, request.warehouse, key, facts, principal, level)


async def _record_of_caller(request: Request, identifier: Identifier, key: Key) -> TemporaryAccess:
    """Returns the record of a table that the caller staged or dropped; raises NoSuchTable if there is none."""
    await require_current(request)  # there was no pointer to read the policy version with
    found = await find_access(request.catalog, request.caller, key)
    if found is None:
        raise await not_found(request.catalog, key, identifier, "TABLE")
    return found


async def _temporary_credentials(
    request: Request, identifier: Identifier, key: Key
) -> Encoded[LoadCredentialsResponse]:
    """Answers for a table that the caller staged or dropped; raises NoSuchTable if there is no record of that."""
    catalog, warehouse = request.catalog, request.warehouse
    found = await _record_of_caller(request, identifier, key)
    if not vends(warehouse.profile):
        return _secret(LoadCredentialsResponse(storage_credentials=[]))
    scope = await scope_of_record(catalog, warehouse, request.caller, key, found)
    return await _credentials_of(request, identifier, found.facts.location, scope)


async def _credentials_of(
    request: Request, identifier: Identifier, location: str, scope: CredentialScope
) -> Encoded[LoadCredentialsResponse]:
    catalog, warehouse = request.catalog, request.warehouse
    kept, _ = await storage_access.vend(catalog, warehouse, scope)
    secrets = kept.credential.config
    refresh = refresh_properties(warehouse.profile, credentials_path(request, identifier))
    where = catalog.objects.storage_of(scope.places[0]).client_config()
    return _secret(
        LoadCredentialsResponse(
            storage_credentials=[StorageCredential(location.rstrip("/"), {**where, **secrets, **refresh})],
            expiration_ms=kept.credential.expires_ms - catalog.now_ms(),
            **{name: secrets[key] for name, key in FLAT_KEYS.items() if key in secrets},
        )
    )


def _secret(value: LoadCredentialsResponse) -> Encoded[LoadCredentialsResponse]:
    return Encoded(msgspec.json.encode(value), cache_control=b"no-store")


# ETags


class _Tags:
    """ETags of an answer for one caller: they change with everything that its config and credential depend on.

    An answer with a credential also says until when it may be reused: half of the credential's life at most. A later
    304 would leave the client with keys that end.
    """

    def __init__(self, request: Request, etag: str | None, level: AccessLevel | None) -> None:
        warehouse, caller = request.warehouse, request.caller
        agent = (request.header(b"user-agent") or "").startswith(_WITHOUT_ENDPOINT)
        signed = SIGNED in asked_delegation(request) and signs(warehouse.profile)
        varied = (warehouse.name, warehouse.version, level.value if level else "", caller.principal, agent, signed)
        digest = hashlib.blake2b(repr(varied).encode("utf-8", "surrogatepass"), digest_size=9).hexdigest()
        self._stem = None if etag is None else f"{etag[:-1]}-{digest}"
        self._has_credential = level is not None
        self._now_ms = request.catalog.now_ms()
        self.matched: str | None = None

    def made(self, kept: Kept | None) -> str | None:
        """Returns the ETag of an answer; None if it may not be reused: it should hold a credential, and holds none."""
        if self._stem is None or (self._has_credential and kept is None):
            return None
        return f'{self._stem}-{kept.renew_ms if kept is not None else 0}"'

    def match(self, request: Request) -> bool:
        """Whether the client holds an answer that it may go on using; `matched` is its ETag."""
        header = request.header(b"if-none-match")
        if header is None or self._stem is None or request.method != "GET":
            return False
        matches(header, "")  # refuses `*`
        for item in header.split(","):
            stem, _, renew = item.strip().removeprefix("W/").removesuffix('"').rpartition("-")
            if stem == self._stem and (not self._has_credential or _is_later(renew, self._now_ms)):
                self.matched = f'{stem}-{renew}"'
                return True
        return False


def _is_later(text: str, now_ms: int) -> bool:
    """Whether the time in an ETag is to come; a client that forges it fools only itself."""
    return text.isascii() and text.isdigit() and len(text) < 16 and int(text) > now_ms


# Compression


def _accepts_gzip(request: Request, result: LoadResult[Any]) -> bool:
    header = request.header(b"accept-encoding")
    return len(result.body) >= COMPRESS_FROM_BYTES and header is not None and choose_encoding(header) == "gzip"


async def _packed_head(request: Request, loaded: Loaded, body: bytes) -> PackedHead:
    """Returns the stored part of the answer compressed, made once for each metadata file."""
    name = "gzip-head" if body is loaded.answer else "gzip-refs-head"
    kept = loaded.packed.get(name)
    if kept is None:
        kept = loaded.packed[name] = await request.catalog.large_work.run_if(
            len(body) > LARGE_METADATA_BYTES, pack_head, memoryview(body)[: -len(NO_CONFIG)]
        )
    return PackedHead(kept)
