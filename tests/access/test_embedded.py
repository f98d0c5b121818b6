"""What a bearer of ours is worth: as much as its credential, its principal and their roles are at that moment."""

import asyncio
import logging
from typing import Any

import pytest

from nunatak.access.credentials import CLIENT, new_access_key, new_secret
from nunatak.access.embedded import WRONG_KEY
from nunatak.access.grants import Grants
from nunatak.access.guard import Guard
from nunatak.access.sessions import NEVER_MS
from nunatak.errors import NotAuthenticated, ServiceUnavailable
from tests.access.home import MOMENT, Home, a_proof, said
from tests.backends.conftest import Run


async def last_used(home: Home, principal: str) -> int | None:
    await home.identity.close()
    rows = await home.store.rows("list_credentials", {"principal": principal})
    found: int | None = rows[0][7]
    return found


def test_a_token_is_worth_its_principal_and_all_of_its_roles(home: Home, run: Run[Any]) -> None:
    async def check() -> None:
        await home.principal("alice", "reader", "writer")
        session = await home.show(await home.token(await home.client("alice")))
        assert session is not None
        assert session.principal == "alice"
        assert session.grantees == ("p:alice", "r:reader", "r:writer")
        assert session.expires_ms == MOMENT + 900_000

    run(check())


def test_a_token_for_one_role_is_worth_that_role_alone(home: Home, run: Run[Any]) -> None:
    async def check() -> None:
        await home.principal("alice", "reader", "writer")
        session = await home.show(await home.token(await home.client("alice"), "PRINCIPAL_ROLE:reader"))
        assert session is not None
        assert session.principal == "alice"
        assert session.grantees == ("r:reader",)

    run(check())


@pytest.mark.parametrize("limit", [["reader"], ["reader", "no-longer-held"]])
def test_a_limited_credential_is_worth_its_roles_alone(limit: list[str], home: Home, run: Run[Any]) -> None:
    async def check() -> None:
        await home.principal("alice", "reader", "writer")
        token = await home.token(await home.client("alice", roles=limit))
        key = await home.api_key("alice", roles=limit)
        for shown in (token, key):
            session = await home.show(shown)
            assert session is not None
            assert session.grantees == ("r:reader",)

    run(check())


def test_a_limit_that_is_set_later_counts_for_the_tokens_from_before(home: Home, run: Run[Any]) -> None:
    async def check() -> None:
        await home.principal("alice", "reader", "writer")
        client = await home.client("alice")
        wide = await home.token(client)
        both = await home.token(client, "PRINCIPAL_ROLE:reader PRINCIPAL_ROLE:writer")
        stored = home.vault.hmac(client[1].encode(), client[0])
        await home.write("drop_credential", credential_id=client[0], principal="alice")
        await home.write(
            "add_credential",
            credential_id=client[0],
            principal="alice",
            kind="client",
            secret=stored,
            roles='["reader"]',
            note=None,
            created_ms=MOMENT,
            expires_ms=None,
        )
        for token in (wide, both):
            session = await home.show(token)
            assert session is not None
            assert session.grantees == ("r:reader",)

    run(check())


def test_a_credential_limited_to_no_role_is_worth_nothing(home: Home, run: Run[Any]) -> None:
    async def check() -> None:
        await home.principal("alice", "reader")
        token = await home.token(await home.client("alice", roles=[]))
        again = said(await home.exchange(token))["access_token"]
        key = await home.api_key("alice", roles=[])
        for shown in (token, again, key):
            session = await home.show(shown)
            assert session is not None
            assert session.grantees == ()

    run(check())


def test_an_api_key_is_worth_its_principal(home: Home, run: Run[Any]) -> None:
    """MISSION: 002-03"""

    async def check() -> None:
        await home.principal("alice", "reader")
        session = await home.show(await home.api_key("alice"))
        assert session is not None
        assert (session.principal, session.method) == ("alice", "api-key")
        assert session.grantees == ("p:alice", "r:reader")
        assert session.expires_ms < NEVER_MS, "or its last use would never be seen"
        assert session.ends_ms == NEVER_MS

    run(check())


def test_the_word_bearer_may_be_written_in_any_case(home: Home, run: Run[Any]) -> None:
    async def check() -> None:
        await home.principal("alice")
        key = await home.api_key("alice")
        for header in (f"bearer {key}", f"BEARER  {key} "):
            assert await home.identity.authenticate(a_proof(header)) is not None

    run(check())


@pytest.mark.parametrize("header", [None, "", "Basic YTpi", "Negotiate abc", "Bearer a.b.c", "Bearer something", "x"])
def test_what_is_not_of_our_kind_is_left_to_the_other_modes(header: str | None, home: Home, run: Run[Any]) -> None:
    assert run(home.identity.authenticate(a_proof(header))) is None


@pytest.mark.parametrize("header", ["Bearer None", "Bearer null", "Bearer ", "Bearer"])
def test_a_client_that_has_no_credentials_is_told_so(header: str, home: Home, run: Run[Any]) -> None:
    """By the guard: a certificate or a proxy may yet say who it is."""
    assert run(home.identity.authenticate(a_proof(header))) is None
    guard = Guard(home.store, Grants(home.store), [home.identity], home.clock)
    with pytest.raises(NotAuthenticated, match="No credentials were sent") as refusal:
        run(guard.identify(a_proof(header)))
    assert "PyIceberg" in (refusal.value.hint or "")


def test_an_api_key_with_a_wrong_secret_or_id_is_refused_alike(home: Home, run: Run[Any]) -> None:
    async def check() -> None:
        await home.principal("alice")
        key = await home.api_key("alice")
        wrong_secret = key[:-1] + ("A" if key[-1] != "A" else "B")
        wrong_id = key.replace(key.split("_")[1], "zzzzzzzz")
        messages = set()
        for text in (wrong_secret, wrong_id):
            with pytest.raises(NotAuthenticated) as refusal:
                await home.show(text)
            messages.add((refusal.value.message, refusal.value.hint))
        assert messages == {(WRONG_KEY, None)}

    run(check())


def test_a_client_and_an_access_key_are_no_api_keys(home: Home, run: Run[Any]) -> None:
    async def check() -> None:
        await home.principal("alice")
        made = new_access_key(home.vault)
        for kind, stored in (("client", home.vault.hmac(b"x" * 43, "abcdefgh")), ("access-key", made.stored)):
            await home.write("drop_credential", credential_id="abcdefgh", principal="alice")
            await home.write(
                "add_credential",
                credential_id="abcdefgh",
                principal="alice",
                kind=kind,
                secret=stored,
                roles=None,
                note=None,
                created_ms=MOMENT,
                expires_ms=None,
            )
            with pytest.raises(NotAuthenticated):
                await home.show("nunatak_abcdefgh_" + "x" * 43)

    run(check())


def test_an_api_key_ends_when_it_expires(home: Home, run: Run[Any]) -> None:
    async def check() -> None:
        await home.principal("alice")
        key = await home.api_key("alice", expires_ms=MOMENT + 30_000)
        session = await home.show(key)
        assert session is not None
        assert session.expires_ms == session.ends_ms == MOMENT + 30_000
        home.clock.pass_seconds(30)
        with pytest.raises(NotAuthenticated, match="expired"):
            await home.show(key)

    run(check())


def test_whatever_is_taken_away_counts_from_the_next_request_on(home: Home, run: Run[Any]) -> None:
    """S9, for what was issued before: a token does not outlive what it stands for."""

    async def check() -> None:
        await home.principal("alice", "reader", "writer")
        client = await home.client("alice")
        key = await home.api_key("alice")
        token = await home.token(client)

        await home.write("drop_member", role="writer", principal="alice")
        for shown in (token, key):
            session = await home.show(shown)
            assert session is not None
            assert session.roles == ("reader",)

        await home.write("set_principal", principal="alice", disabled=1, note=None)
        for shown in (token, key):
            with pytest.raises(NotAuthenticated, match="disabled"):
                await home.show(shown)
        await home.write("set_principal", principal="alice", disabled=0, note=None)

        await home.write("drop_credential", credential_id=client[0], principal="alice")
        with pytest.raises(NotAuthenticated, match="was deleted"):
            await home.show(token)
        await home.write("drop_credential", credential_id=key.split("_")[1], principal="alice")
        with pytest.raises(NotAuthenticated, match=WRONG_KEY):
            await home.show(key)

    run(check())


def test_a_token_of_a_secret_that_was_changed_ends(home: Home, run: Run[Any]) -> None:
    """It could otherwise be exchanged for new ones for ever, by whoever stole it with the secret."""

    async def check() -> None:
        await home.principal("alice")
        client = await home.client("alice")
        token = await home.token(client)
        renewed = new_secret(home.vault, client[0], CLIENT)
        await home.write("set_credential_secret", credential_id=client[0], secret=renewed.stored)
        with pytest.raises(NotAuthenticated, match="was changed"):
            await home.show(token)
        assert (await home.exchange(token)).status == 400
        assert await home.show(await home.token((client[0], renewed.shown.reveal()))) is not None

    run(check())


def test_a_client_id_that_now_is_somebody_elses_gives_its_tokens_to_nobody(home: Home, run: Run[Any]) -> None:
    async def check() -> None:
        await home.principal("alice")
        await home.principal("bob")
        client = await home.client("alice")
        token = await home.token(client)
        stored = home.vault.hmac(client[1].encode(), client[0])
        await home.write("drop_credential", credential_id=client[0], principal="alice")
        await home.write(
            "add_credential",
            credential_id=client[0],
            principal="bob",
            kind="client",
            secret=stored,
            roles=None,
            note=None,
            created_ms=MOMENT,
            expires_ms=None,
        )
        with pytest.raises(NotAuthenticated, match="was deleted"):
            await home.show(token)

    run(check())


def test_the_last_use_of_a_key_is_written_down_once_a_minute(home: Home, run: Run[Any]) -> None:
    async def check() -> None:
        await home.principal("alice")
        key = await home.api_key("alice")
        assert await last_used(home, "alice") is None
        await home.show(key)
        assert await last_used(home, "alice") == MOMENT
        home.clock.pass_seconds(59)
        await home.show(key)
        assert await last_used(home, "alice") == MOMENT
        home.clock.pass_seconds(1)
        await home.show(key)
        assert await last_used(home, "alice") == MOMENT + 60_000

    run(check())


def test_many_requests_at_once_write_the_last_use_once(home: Home, run: Run[Any]) -> None:
    async def check() -> None:
        await home.principal("alice")
        key = await home.api_key("alice")
        store: Any = home.store
        before = store.counts["transaction"]
        await asyncio.gather(*(home.show(key) for _ in range(50)))
        await home.identity.close()
        assert store.counts["transaction"] == before + 1

    run(check())


def test_a_last_use_that_cannot_be_written_turns_nobody_away(
    home: Home, run: Run[Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def check() -> None:
        await home.principal("alice")
        key = await home.api_key("alice")

        async def full_disk(changes: object) -> list[object]:
            raise ServiceUnavailable("disk full")

        monkeypatch.setattr(home.store, "apply", full_disk)
        with caplog.at_level(logging.DEBUG):
            assert await home.show(key) is not None
            await home.identity.close()
        assert "disk full" in caplog.text
        assert key.split("_", 2)[2] not in caplog.text

    run(check())


def test_a_request_costs_one_read_of_the_database(home: Home, run: Run[Any]) -> None:
    async def check() -> None:
        store: Any = home.store
        await home.principal("alice", "reader", "writer")
        key = await home.api_key("alice")
        token = await home.token(await home.client("alice"))
        for shown in (key, token):
            await home.show(shown)  # the first one may find that the keys have to be read again
            before = store.counts["read"]
            await home.show(shown)
            assert store.counts["read"] == before + 1

    run(check())
