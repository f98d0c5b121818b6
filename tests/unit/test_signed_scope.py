"""S1 for remote signing: a signed request touches the table's own place and nothing else, however it is written.

Generated requests around generated tables; what a signed one does is read from it by code that the signer knows
nothing of. `make soak SOAK=S1` runs 100,000 tables.
"""

import os
import random
from collections.abc import Callable
from urllib.parse import unquote, urlsplit

import pytest

from nunatak.errors import BadRequest, Forbidden
from nunatak.objectstore.profile import S3Profile, S3Secret
from nunatak.objectstore.signing.s3_signer import S3Signer
from nunatak.objectstore.storage import AccessLevel, CredentialScope, SignedRequest, SigningRequest
from tests.support.evaluator.s3_requests import Effect, Kind, effects
from tests.support.generated_requests import delete_body, hostile_request, usual_requests
from tests.support.generated_scopes import GeneratedTable, generate
from tests.support.judges import scope_of
from tests.support.promises import show
from tests.support.workload import seeded

TABLES = int(os.environ.get("NUNATAK_TEST_TABLES", "200"))
USUAL_REQUESTS, HOSTILE_REQUESTS = 10, 20  # for each table
ENDPOINT = "http://127.0.0.1:9000"
READ, READ_WRITE = AccessLevel.READ, AccessLevel.READ_WRITE
Sign = Callable[[SigningRequest, CredentialScope], SignedRequest]
PERMITTED = {READ: {Kind.READ, Kind.LIST}, READ_WRITE: {Kind.READ, Kind.LIST, Kind.WRITE, Kind.DELETE}}


def our_signer() -> Sign:
    return S3Signer(
        S3Profile(endpoint=ENDPOINT, verifies_bodies=True), lambda: S3Secret("key", "secret"), lambda: 1_795_000_000_000
    ).sign


def try_to_sign(sign: Sign, request: SigningRequest, scope: CredentialScope) -> SignedRequest | None:
    try:
        return sign(request, scope)
    except (Forbidden, BadRequest):
        return None


def forbidden_effects(
    request: SigningRequest, signed: SignedRequest, table: GeneratedTable, level: AccessLevel
) -> list[Effect]:
    """Returns what the signed request does besides what the level permits inside the table."""
    done = effects(request.method, signed.uri, request.headers, request.body, ENDPOINT)
    return [
        effect
        for effect in done
        if effect.kind not in PERMITTED[level] or effect.bucket != table.bucket or not table.contains(effect.key)
    ]


def faults_of(sign: Sign, chance: random.Random, table: GeneratedTable, level: AccessLevel) -> list[str]:
    scope, found = scope_of(table, "s3", level), []
    usual = chance.sample(usual_requests(ENDPOINT, table), USUAL_REQUESTS) if table.is_plain else []
    for request, changes in usual:
        if (try_to_sign(sign, request, scope) is not None) is not (level is READ_WRITE or not changes):
            found.append(f"decided wrongly: {request.method} {request.uri}")
    for _ in range(HOSTILE_REQUESTS):
        request = hostile_request(chance, ENDPOINT, table)
        signed = try_to_sign(sign, request, scope)
        if signed is None:
            continue
        if signed.uri != request.uri:
            found.append(f"returned another address: {request.uri} became {signed.uri}")
        forbidden = forbidden_effects(request, signed, table, level)
        found += [f"signed {effect}: {request}" for effect in forbidden]
    return found


@pytest.mark.timeout(7200)
def test_a_signed_request_touches_its_table_and_nothing_else() -> None:
    chance, sign = seeded("signed requests"), our_signer()
    for _ in range(TABLES):
        table, level = generate(chance, chance.choice(["lake", "lake-1"])), chance.choice([READ, READ_WRITE])

        faults = faults_of(sign, chance, table, level)

        assert not faults, (table, level, faults[:3])
    show("S1", "signed requests touch their table and nothing else", tables=TABLES, requests=TABLES * HOSTILE_REQUESTS)


def test_hostile_requests_inside_the_table_are_signed_too() -> None:
    """So that the search above does not pass because everything unusual is refused."""
    chance, sign, table = random.Random(1), our_signer(), GeneratedTable("lake", ("wh", "t1"))
    scope = scope_of(table, "s3", READ_WRITE)

    signed = [try_to_sign(sign, hostile_request(chance, ENDPOINT, table), scope) for _ in range(2000)]

    assert sum(each is not None for each in signed) > 50


TABLE = GeneratedTable("lake", ("wh", "t1"))


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "/lake/wh/t10/f"),
        ("GET", "/lake/wh/t1"),
        ("GET", "/lake/wh//t1/f"),
        ("GET", "/lake//wh/t1/f"),
        ("GET", "/lake/wh/t1/../t2/f"),
        ("GET", "/lake/wh/t1/%2e%2e/t2/f"),
        ("GET", "/lake/wh/t1/..%2ft2/f"),
        ("GET", "/lake/wh%2Ft10/f"),
        ("GET", "/lake?list-type=2&prefix=wh/t1"),
        ("GET", "/lake?list-type=2&prefix=wh/t10/"),
        ("GET", "/lake?list-type=2"),
        ("GET", "/lake?list-type=2&prefix=wh/t1/&prefix="),
        ("GET", "/lake?prefix=wh/t1/"),
        ("GET", "/lake?versions&prefix=wh/t1/"),
        ("GET", "/lake/wh/t1/f?acl"),
        ("GET", "/lake/wh/t1/f?versionId=1"),
        ("PUT", "/lake/wh/t1/f?acl"),
        ("PUT", "/lake?policy"),
        ("DELETE", "/lake"),
        ("POST", "/lake?delete"),
        ("GET", "/other/wh/t1/f"),
    ],
)
def test_a_known_trick_is_refused(method: str, target: str) -> None:
    request = SigningRequest(method, f"{ENDPOINT}{target}", "us-east-1", {}, None)

    with pytest.raises(Forbidden):
        our_signer()(request, scope_of(TABLE, "s3", READ_WRITE))


# --- the search bites ---


def _key(request: SigningRequest) -> str:
    return unquote(urlsplit(request.uri).path).removeprefix("/lake/")


def signs_by_characters(request: SigningRequest, scope: CredentialScope) -> SignedRequest:
    """Compares a prefix without its slash, and nothing else."""
    if not _key(request).startswith("/".join(scope.places[0].segments)):
        raise Forbidden("outside")
    return SignedRequest(request.uri, {})


def signs_inside(request: SigningRequest, scope: CredentialScope) -> SignedRequest:
    """Right about the key, and blind to method, query, host and headers."""
    if not _key(request).startswith("/".join(scope.places[0].segments) + "/"):
        raise Forbidden("outside")
    return SignedRequest(request.uri, {})


def signs_deletes_unseen(request: SigningRequest, scope: CredentialScope) -> SignedRequest:
    if "?delete" not in request.uri:
        raise Forbidden("only deletes")
    return SignedRequest(request.uri, {})


def signs_what_it_resolved(request: SigningRequest, scope: CredentialScope) -> SignedRequest:
    """Checks one string and returns another."""
    signed = our_signer()(request, scope)
    return SignedRequest(signed.uri.replace("/data/", "/"), signed.headers)


@pytest.mark.parametrize("mistaken", [signs_by_characters, signs_inside, signs_deletes_unseen, signs_what_it_resolved])
def test_the_search_finds_a_mistake(mistaken: Sign) -> None:
    chance = random.Random(1)
    found = [fault for _ in range(100) for fault in faults_of(mistaken, chance, TABLE, READ_WRITE)]

    assert any(fault.startswith(("signed", "returned")) for fault in found)


def test_every_key_of_a_batch_counts() -> None:
    done = effects("POST", f"{ENDPOINT}/lake?delete", {}, delete_body(["wh/t1/a", "wh/t2/<b>"]), ENDPOINT)

    assert done == [Effect(Kind.DELETE, "lake", "wh/t1/a"), Effect(Kind.DELETE, "lake", "wh/t2/<b>")]


def test_a_copy_reads_its_source() -> None:
    done = effects("PUT", f"{ENDPOINT}/lake/wh/t1/a", {"X-Amz-Copy-Source": ["lake/wh/t2/b%20c"]}, None, ENDPOINT)

    assert Effect(Kind.READ, "lake", "wh/t2/b c") in done
