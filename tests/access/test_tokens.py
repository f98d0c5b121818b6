"""Access tokens and the keys that sign them: shared by the servers on a database, replaced in time, or at once."""

import asyncio
from pathlib import Path
from typing import Any

import jwt
import pytest
from jwt import PyJWKSet

from nunatak.access.tokens import AUDIENCE, ISSUER, LEEWAY_MS, ROTATE_AFTER_MS, is_ours
from nunatak.access.vault import UnknownKey
from nunatak.database.store import Store
from nunatak.errors import NotAuthenticated
from tests.access.home import MOMENT, Home, open_home
from tests.backends.conftest import Run


async def alice(home: Home, *roles: str) -> tuple[str, str]:
    await home.principal("alice", *roles)
    return await home.client("alice")


def key_of(token: str) -> str:
    key_id: str = jwt.get_unverified_header(token)["kid"]
    return key_id


def test_a_token_says_who_for_what_and_until_when(home: Home, run: Run[Any]) -> None:
    async def check() -> None:
        client = await alice(home, "reader")
        token = await home.token(client, "PRINCIPAL_ROLE:reader")
        claims = jwt.decode(token, options={"verify_signature": False})
        assert set(jwt.get_unverified_header(token)) == {"alg", "kid", "typ"}
        assert jwt.get_unverified_header(token)["alg"] == "ES256"
        assert (claims["iss"], claims["aud"], claims["sub"]) == (ISSUER, AUDIENCE, "alice")
        assert (claims["iat"], claims["exp"]) == (MOMENT // 1000, MOMENT // 1000 + 900)
        assert (claims["client_id"], claims["scope"]) == (client[0], "PRINCIPAL_ROLE:reader")
        assert claims["roles"] == ["reader"]

    run(check())


def test_no_two_tokens_have_the_same_id(home: Home, run: Run[Any]) -> None:
    async def check() -> None:
        client = await alice(home)
        tokens = [await home.identity.tokens.verify(await home.token(client)) for _ in range(20)]
        assert len({token.jti for token in tokens}) == 20

    run(check())


def test_anybody_can_verify_a_token_with_the_published_keys(home: Home, run: Run[Any]) -> None:
    async def check() -> None:
        token = await home.token(await alice(home))
        document = await home.identity.tokens.jwks()
        assert all("d" not in key for key in document["keys"])
        public = PyJWKSet.from_dict(document)[key_of(token)]
        options: Any = {"verify_exp": False, "verify_iat": False, "verify_nbf": False}
        assert jwt.decode(token, public, ["ES256"], options, audience=AUDIENCE)["sub"] == "alice"

    run(check())


def test_a_token_expires_at_its_very_second(home: Home, run: Run[Any]) -> None:
    async def check() -> None:
        token = await home.token(await alice(home))
        home.clock.ms = MOMENT + 900_000 - 1
        assert (await home.identity.tokens.verify(token)).sub == "alice"
        home.clock.ms = MOMENT + 900_000
        with pytest.raises(NotAuthenticated, match="expired"):
            await home.identity.tokens.verify(token)
        assert (await home.identity.tokens.verify(token, expired_too=True)).sub == "alice"

    run(check())


def test_a_server_whose_clock_is_a_little_behind_accepts_a_new_token(home: Home, run: Run[Any]) -> None:
    async def check() -> None:
        token = await home.token(await alice(home))
        home.clock.ms = MOMENT - LEEWAY_MS
        await home.identity.tokens.verify(token)
        home.clock.ms = MOMENT - LEEWAY_MS - 1
        with pytest.raises(NotAuthenticated, match="not valid yet"):
            await home.identity.tokens.verify(token)

    run(check())


@pytest.mark.parametrize("within_second_ms", [0, 1, 999])
def test_a_token_lives_as_long_as_its_client_was_told(home: Home, run: Run[Any], within_second_ms: int) -> None:
    """Java renews when a tenth of that is left, be it a tenth of a second."""

    async def check() -> None:
        client = await alice(home)
        home.clock.ms += within_second_ms
        token = await home.token(client)
        home.clock.pass_seconds(899.999)
        assert (await home.identity.tokens.verify(token)).sub == "alice"
        home.clock.pass_seconds(1.001)
        with pytest.raises(NotAuthenticated, match="expired"):
            await home.identity.tokens.verify(token)

    run(check())


def test_a_token_does_not_outlive_the_credential(home: Home, run: Run[Any]) -> None:
    async def check() -> None:
        await home.principal("alice")
        client = await home.client("alice", expires_ms=MOMENT + 60_000)
        token = await home.token(client)
        assert (await home.identity.tokens.verify(token)).exp == MOMENT // 1000 + 60

    run(check())


def test_servers_on_one_database_accept_each_others_tokens(store: Store, tmp_path: Path, run: Run[Any]) -> None:
    async def check() -> None:
        one = await open_home(tmp_path, store)
        other = await one.another_server()
        client = await alice(one)
        token = await one.token(client)
        assert key_of(token) == key_of(await other.token(client))
        assert (await other.identity.tokens.verify(token)).sub == "alice"
        await one.identity.close()
        await other.identity.close()

    run(check())


def test_after_a_rotation_the_new_key_signs_everywhere_and_the_old_one_verifies(
    store: Store, tmp_path: Path, run: Run[Any]
) -> None:
    async def check() -> None:
        one = await open_home(tmp_path, store)
        other, third = await one.another_server(), await one.another_server()
        client = await alice(one)
        old = await one.token(client)

        new_key = await one.identity.tokens.rotate()

        new = await one.token(client)
        assert key_of(new) == new_key != key_of(old)
        assert key_of(await other.token(client)) == new_key
        assert (await third.identity.tokens.verify(new)).sub == "alice", "the key is younger than what was read here"
        for home in (one, other, third):
            assert await home.show(old) is not None
            assert await home.show(new) is not None
        assert [key["kid"] for key in (await other.identity.tokens.jwks())["keys"]] == [key_of(old), new_key]
        for home in (one, other, third):
            await home.identity.close()

    run(check())


def test_a_token_from_before_a_rotation_lives_as_long_as_it_was_to(home: Home, run: Run[Any]) -> None:
    async def check() -> None:
        client = await alice(home)
        home.clock.pass_seconds(100)
        await home.identity.tokens.rotate()
        token = await home.token(client)
        await home.identity.tokens.rotate()
        home.clock.pass_seconds(899)
        assert await home.show(token) is not None

    run(check())


def test_a_replaced_key_verifies_nothing_once_its_tokens_have_expired(home: Home, run: Run[Any]) -> None:
    """Whoever steals it then can forge nothing with it, whatever time the forgery tells."""

    async def check() -> None:
        old = home.identity.tokens.signing_key
        client = await alice(home)
        await home.identity.tokens.rotate()
        home.clock.pass_seconds(900 + LEEWAY_MS / 1000 + 1)
        current = await home.token(client)
        claims = jwt.decode(current, options={"verify_signature": False})
        forged = jwt.encode(claims, old.private, "ES256", {"kid": old.key_id, "typ": "at+jwt"})
        with pytest.raises(NotAuthenticated, match="no longer"):
            await home.identity.tokens.verify(forged)

    run(check())


def test_keys_of_which_no_token_lives_are_deleted_at_the_next_rotation(home: Home, run: Run[Any]) -> None:
    async def check() -> None:
        first = home.identity.tokens.signing_key.key_id
        second = await home.identity.tokens.rotate()
        home.clock.pass_seconds(2000)
        third = await home.identity.tokens.rotate()
        rows = await home.store.rows("list_secrets", {"first": "signing-key/", "behind": "signing-key0"})
        assert {name.removeprefix("signing-key/") for name, _ in rows} == {second, third}
        assert first not in {second, third}

    run(check())


def test_a_key_is_replaced_after_a_month_by_whoever_issues_a_token(home: Home, run: Run[Any]) -> None:
    async def check() -> None:
        client = await alice(home)
        first = key_of(await home.token(client))
        home.clock.ms += ROTATE_AFTER_MS - 1
        assert key_of(await home.token(client)) == first
        home.clock.ms += 1
        assert key_of(await home.token(client)) != first

    run(check())


def test_many_who_find_that_a_key_is_due_replace_it_once(home: Home, run: Run[Any]) -> None:
    async def check() -> None:
        client = await alice(home)
        other = await home.another_server()
        home.clock.ms += ROTATE_AFTER_MS
        tokens = await asyncio.gather(*(home.token(client) for _ in range(10)))
        assert len({key_of(token) for token in [*tokens, await other.token(client)]}) == 1
        assert len((await home.identity.tokens.jwks())["keys"]) == 2
        await other.identity.close()

    run(check())


def test_giving_up_a_leaked_key_ends_every_token_on_every_server(store: Store, tmp_path: Path, run: Run[Any]) -> None:
    async def check() -> None:
        one = await open_home(tmp_path, store)
        other = await one.another_server()
        client = await alice(one)
        token = await one.token(client)
        assert await other.show(token) is not None

        await one.identity.tokens.rotate(forget_older=True)

        for home in (one, other):
            with pytest.raises(NotAuthenticated, match="no longer"):
                await home.show(token)
            assert await home.show(await home.token(client)) is not None
            await home.identity.close()

    run(check())


def test_a_new_key_signs_although_the_server_that_made_the_last_one_is_ahead(home: Home, run: Run[Any]) -> None:
    async def check() -> None:
        client = await alice(home)
        home.clock.pass_seconds(600)
        await home.identity.tokens.rotate()
        home.clock.pass_seconds(-600)
        newest = await home.identity.tokens.rotate()
        assert key_of(await home.token(client)) == newest

    run(check())


def test_a_rotation_is_a_change_of_the_policy(home: Home, run: Run[Any]) -> None:
    """So that no server goes on with a session it remembers from a key that was given up."""

    async def check() -> None:
        before = (await home.store.rows("policy_version", {}))[0][0]
        await home.identity.tokens.rotate()
        assert (await home.store.rows("policy_version", {}))[0][0] > before

    run(check())


def test_two_servers_that_start_at_once_understand_each_other(home: Home, run: Run[Any]) -> None:
    """Both may have made a first key."""

    async def check() -> None:
        other = await home.another_server()
        await other.identity.tokens.rotate()
        client = await alice(home)
        assert await home.show(await other.token(client)) is not None
        assert await other.show(await home.token(client)) is not None
        await other.identity.close()

    run(check())


def test_without_the_key_file_the_signing_keys_cannot_be_read(home: Home, tmp_path: Path, run: Run[Any]) -> None:
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(UnknownKey):
        run(open_home(tmp_path / "elsewhere", home.store))


@pytest.mark.parametrize("text", ["", "None", "a.b", "a.b.c", "....", "ä.ö.ü", "e30.e30.e30", "x" * 20_000])
def test_a_text_that_is_no_token_does_not_claim_to_be_ours(text: str) -> None:
    assert not is_ours(text)
