"""PyIceberg against a server that asks who you are: every way to log in, tokens that end, and what each may do."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    OAuthError,
    UnauthorizedError,
)
from pyiceberg.table import Table

from tests.support.catalogs.principals import Login, outlive_token
from tests.support.catalogs.process import RunningServer

CITIES = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("city", pa.string())])
OSLO, BERGEN, BODO = (1, "Oslo"), (2, "Bergen"), (3, "Bodø")

Properties = dict[str, Any]


def with_credential(server: RunningServer, login: Login) -> Properties:
    return {"credential": login.credential}


def with_credential_and_token_endpoint(server: RunningServer, login: Login) -> Properties:
    return {"credential": login.credential, "oauth2-server-uri": server.token_uri, "scope": "PRINCIPAL_ROLE:ALL"}


def with_basic_at_the_token_endpoint(server: RunningServer, login: Login) -> Properties:
    client_id, client_secret = login.client
    client = {"client_id": client_id, "client_secret": client_secret, "token_url": server.token_uri, "scope": "catalog"}
    return {"auth": {"type": "oauth2", "oauth2": client}}


def with_token(server: RunningServer, login: Login) -> Properties:
    return {"token": server.token(login)}


def with_api_key(server: RunningServer, login: Login) -> Properties:
    return {"token": login.api_key}


def with_api_key_as_credential(server: RunningServer, login: Login) -> Properties:
    return {"credential": login.api_key}


def with_signature(server: RunningServer, login: Login) -> Properties:
    key, secret = login.access_key
    return {
        "rest.sigv4-enabled": "true",
        "rest.signing-name": "execute-api",
        "rest.signing-region": "eu-north-1",
        "client.access-key-id": key,
        "client.secret-access-key": secret,
    }


WAYS = (
    with_credential,
    with_credential_and_token_endpoint,
    with_basic_at_the_token_endpoint,
    with_token,
    with_api_key,
    with_api_key_as_credential,
    with_signature,
)


@contextmanager
def opened(
    server: RunningServer, login: Login, way: Callable[[RunningServer, Login], Properties] = with_credential
) -> Iterator[RestCatalog]:
    with closing(RestCatalog("lake", uri=server.uri, **way(server, login))) as catalog:
        yield catalog


def a_name(what: str) -> str:
    return f"{what}_{uuid.uuid4().hex[:12]}"


def rows(*pairs: tuple[int, str]) -> pa.Table:
    return pa.Table.from_pylist([{"id": number, "city": city} for number, city in pairs], schema=CITIES)


def contents(table: Table) -> list[tuple[int, str]]:
    found = table.catalog.load_table(table.name()).scan().to_arrow().to_pylist()
    return sorted((row["id"], row["city"]) for row in found)


@pytest.fixture
def writer(secured: RunningServer) -> Login:
    return secured.principal(a_name("writer"), warehouse="WRITE")


@pytest.fixture
def cities(secured: RunningServer, writer: Login) -> Iterator[Table]:
    """A table of the writer's, in a namespace of its own, that holds Oslo and Bergen."""
    with opened(secured, writer) as catalog:
        namespace = a_name("pyiceberg")
        catalog.create_namespace(namespace)
        table = catalog.create_table((namespace, "cities"), CITIES)
        table.append(rows(OSLO, BERGEN))
        yield table


# Logging in


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_every_way_to_log_in_lets_a_client_work(
    secured: RunningServer, writer: Login, way: Callable[[RunningServer, Login], Properties]
) -> None:
    """Names that must be encoded, queries and bodies: a signature covers them all. MISSION: 003-01, 003-63"""
    with opened(secured, writer, way) as catalog:
        namespace = (a_name("pyiceberg"), "a b/ø+")
        catalog.create_namespace(namespace[:1])
        catalog.create_namespace(namespace, {"owner": "ops"})
        table = catalog.create_table((*namespace, "cities"), CITIES)
        table.append(rows(OSLO, BERGEN))
        table.delete("id = 1")

        assert contents(table) == [BERGEN]
        assert catalog.list_namespaces(namespace[:1]) == [namespace]
        assert catalog.table_exists((*namespace, "cities"))
        catalog.drop_table((*namespace, "cities"))
        assert catalog.list_tables(namespace) == []


def test_a_wrong_secret_is_refused_by_its_reason(secured: RunningServer, writer: Login) -> None:
    with pytest.raises(OAuthError, match="Unknown client or wrong secret"):
        RestCatalog("lake", uri=secured.uri, credential=f"{writer.client[0]}:guessed")


def test_a_client_without_credentials_is_told_to_send_some(secured: RunningServer) -> None:
    with pytest.raises(UnauthorizedError, match=r"(?i)no credentials"):
        RestCatalog("lake", uri=secured.uri)


def test_a_wrong_signature_is_refused_by_its_reason(secured: RunningServer, writer: Login) -> None:
    wrong = Login(writer.name, writer.client, writer.api_key, (writer.access_key[0], "guessed"))
    with pytest.raises(UnauthorizedError, match="signature was refused"):
        RestCatalog("lake", uri=secured.uri, **with_signature(secured, wrong))


# Tokens that end


def test_work_goes_on_after_the_token_has_ended(hurried: RunningServer) -> None:
    """The client asks for another one and sends the request again; a transaction is not lost."""
    writer = hurried.principal(a_name("writer"), warehouse="WRITE")
    with opened(hurried, writer) as catalog:
        namespace = a_name("pyiceberg")
        catalog.create_namespace(namespace)
        table = catalog.create_table((namespace, "cities"), CITIES)
        table.append(rows(OSLO))
        issued, turned_away = hurried.tokens_issued(), hurried.turned_away()

        with table.transaction() as transaction:
            transaction.append(rows(BERGEN))
            outlive_token()
        outlive_token()
        table.append(rows(BODO))

        assert contents(table) == [OSLO, BERGEN, BODO]
        assert hurried.tokens_issued() - issued >= 2
        assert hurried.turned_away() - turned_away >= 2


def test_work_goes_on_after_all_tokens_were_taken_away(secured: RunningServer, cities: Table) -> None:
    secured.end_all_tokens()
    cities.append(rows(BODO))

    assert contents(cities) == [OSLO, BERGEN, BODO]


def test_a_token_that_cannot_be_replaced_ends_with_its_reason(hurried: RunningServer) -> None:
    writer = hurried.principal(a_name("writer"), warehouse="WRITE")
    with opened(hurried, writer, with_token) as catalog:
        outlive_token()
        with pytest.raises(UnauthorizedError, match="The access token has expired"):
            catalog.list_namespaces()


# What each may do


def test_a_reader_reads_and_is_refused_everything_else(secured: RunningServer, cities: Table) -> None:
    """The refusal names the principal, the privilege and the object. MISSION: 000-78"""
    namespace, name = cities.name()
    reader = secured.principal(a_name("reader"), **{namespace: "READ"})
    with opened(secured, reader) as catalog:
        table = catalog.load_table(cities.name())
        assert contents(table) == [OSLO, BERGEN]

        def refused(privilege: str, where: str, action: Callable[[], object]) -> None:
            with pytest.raises(ForbiddenError, match=f"{reader.name} lacks {privilege} on {where}$"):
                action()

        refused("TABLE_WRITE", f"table:default/{namespace}/{name}", lambda: table.append(rows(BODO)))
        refused("TABLE_WRITE", f"table:default/{namespace}/{name}", lambda: table.delete("id = 1"))
        refused("TABLE_DROP", f"table:default/{namespace}/{name}", lambda: catalog.drop_table(cities.name()))
        refused(
            "TABLE_CREATE", f"namespace:default/{namespace}", lambda: catalog.create_table((namespace, "t"), CITIES)
        )
        refused("NS_CREATE", f"namespace:default/{namespace}", lambda: catalog.create_namespace((namespace, "below")))
        refused("NS_CREATE", "warehouse:default", lambda: catalog.create_namespace(a_name("own")))
        refused("NS_DROP", f"namespace:default/{namespace}", lambda: catalog.drop_namespace(namespace))
        refused(
            "TABLE_ALTER",
            f"table:default/{namespace}/{name}",
            lambda: catalog.rename_table(cities.name(), (namespace, "other")),
        )

    assert contents(cities) == [OSLO, BERGEN]


def test_whoever_was_granted_nothing_finds_nothing(secured: RunningServer, cities: Table) -> None:
    """Neither tables nor namespaces are shown."""
    with opened(secured, secured.principal(a_name("stranger"))) as catalog:
        with pytest.raises(NoSuchNamespaceError):
            catalog.list_tables(cities.name()[:1])
        with pytest.raises(NoSuchTableError):
            catalog.load_table(cities.name())
        with pytest.raises(NoSuchTableError):
            catalog.drop_table(cities.name())
        assert not catalog.table_exists(cities.name())
        assert not catalog.namespace_exists(cities.name()[:1])

    assert contents(cities) == [OSLO, BERGEN]


def test_lists_hold_only_what_the_caller_sees(secured: RunningServer, cities: Table) -> None:
    namespace, name = cities.name()
    cities.catalog.create_table((namespace, "hidden"), CITIES)
    elsewhere = a_name("elsewhere")
    cities.catalog.create_namespace(elsewhere)
    guest = secured.principal(a_name("guest"))
    secured.grant_on(guest.name, f"table:default/{namespace}/{name}", "READ")

    with opened(secured, guest) as catalog:
        assert catalog.list_namespaces() == [(namespace,)]
        assert catalog.list_tables(namespace) == [cities.name()]
        assert contents(catalog.load_table(cities.name())) == [OSLO, BERGEN]
        with pytest.raises(NoSuchTableError):
            catalog.load_table((namespace, "hidden"))
        with pytest.raises(NoSuchNamespaceError):
            catalog.list_tables(elsewhere)


def test_the_creator_may_drop_a_table_and_another_writer_may_not(secured: RunningServer, cities: Table) -> None:
    with opened(secured, secured.principal(a_name("writer"), warehouse="WRITE")) as other:
        other.load_table(cities.name()).append(rows(BODO))
        with pytest.raises(ForbiddenError, match="lacks TABLE_DROP"):
            other.drop_table(cities.name())

    assert contents(cities) == [OSLO, BERGEN, BODO]
    cities.catalog.drop_table(cities.name())
    assert not cities.catalog.table_exists(cities.name())


def test_what_was_granted_goes_along_with_a_renamed_table(secured: RunningServer, cities: Table) -> None:
    namespace, name = cities.name()
    guest = secured.principal(a_name("guest"))
    secured.grant_on(guest.name, f"table:default/{namespace}/{name}", "READ")

    renamed = cities.catalog.rename_table(cities.name(), (namespace, "towns"))

    with opened(secured, guest) as catalog:
        assert catalog.list_tables(namespace) == [(namespace, "towns")]
        assert contents(catalog.load_table(renamed.name())) == [OSLO, BERGEN]
    cities.catalog.drop_table(renamed.name())  # and so does the ownership


def test_a_staged_table_is_no_choice_of_a_location(secured: RunningServer, cities: Table) -> None:
    """The location comes from the server, though the commit that makes the table names it."""
    namespace = cities.name()[0]
    with cities.catalog.create_table_transaction((namespace, "staged"), CITIES) as transaction:
        transaction.append(rows(BODO))

    assert contents(cities.catalog.load_table((namespace, "staged"))) == [BODO]


def test_a_location_is_chosen_only_by_who_may(secured: RunningServer, writer: Login, cities: Table) -> None:
    namespace = cities.name()[0]
    chosen = f"{cities.location()}-chosen"

    with pytest.raises(ForbiddenError, match="lacks LOCATION_CHOOSE"):
        cities.catalog.create_table((namespace, "placed"), CITIES, location=chosen)
    secured.grant(writer.name, namespace, "LOCATION_CHOOSE")

    assert cities.catalog.create_table((namespace, "placed"), CITIES, location=chosen).location() == chosen


def test_a_right_that_is_taken_away_is_gone_with_the_next_request(secured: RunningServer, cities: Table) -> None:
    namespace = cities.name()[0]
    reader = secured.principal(a_name("reader"), **{namespace: "READ"})
    with opened(secured, reader) as catalog:
        assert contents(catalog.load_table(cities.name())) == [OSLO, BERGEN]
        secured.revoke(reader.name, namespace, "READ")
        with pytest.raises(NoSuchTableError):
            catalog.load_table(cities.name())
