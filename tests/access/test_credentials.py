"""Credentials as they are made, kept and recognised, on every database."""

import re
from pathlib import Path
from typing import Any

import pytest

from nunatak.access.credentials import (
    API_KEY,
    CLIENT,
    check_usable,
    find_credential,
    is_secret_of,
    new_access_key,
    new_api_key,
    new_client,
    new_secret,
    split_api_key,
)
from nunatak.database.store import Store
from nunatak.errors import NotAuthenticated
from tests.access.home import MOMENT, Home, open_home
from tests.backends.conftest import Run


def test_a_client_has_an_id_and_a_secret_of_256_bits(home: Home) -> None:
    made = new_client(home.vault)
    assert re.fullmatch(r"client-[a-z0-9]{12}", made.credential_id)
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", made.shown.reveal())


def test_an_api_key_says_its_own_id(home: Home) -> None:
    made = new_api_key(home.vault)
    parts = split_api_key(made.shown.reveal())
    assert parts is not None
    assert parts[0] == made.credential_id
    assert re.fullmatch(r"nunatak_[a-z0-9]{8}_[A-Za-z0-9_-]{43}", made.shown.reveal())


def test_an_access_key_can_be_read_again_with_the_vault_only(home: Home) -> None:
    made = new_access_key(home.vault)
    assert re.fullmatch(r"NK[A-Z0-9]{18}", made.credential_id)
    assert made.shown.reveal().encode() not in made.stored
    assert home.vault.open(made.stored, made.credential_id) == made.shown.reveal().encode()


@pytest.mark.parametrize("make", [new_client, new_api_key, new_access_key])
def test_nothing_made_shows_its_secret(make: Any, home: Home) -> None:
    made = make(home.vault)
    secret = made.shown.reveal().rpartition(made.credential_id + "_")[2]
    assert secret not in repr(made)
    assert secret not in f"{made}"
    assert secret.encode() not in made.stored
    assert repr(made.stored) not in repr(made)


@pytest.mark.parametrize("make", [new_client, new_api_key, new_access_key])
def test_no_two_are_alike(make: Any, home: Home) -> None:
    made = [make(home.vault) for _ in range(200)]
    assert len({each.credential_id for each in made}) == 200
    assert len({each.shown.reveal() for each in made}) == 200


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nunatak_",
        "nunatak_abcdefgh",
        "nunatak_abcdefgh_",
        "nunatak_abcdefgh_" + "x" * 42,
        "nunatak_abcdefgh_" + "x" * 44,
        "nunatak_ABCDEFGH_" + "x" * 43,
        "nunatak_abcdefgh_" + "x" * 42 + "\n",
        " nunatak_abcdefgh_" + "x" * 43,
        "nunatak_abcdefg'_" + "x" * 43,
        "NUNATAK_abcdefgh_" + "x" * 43,
    ],
)
def test_what_has_not_the_form_of_an_api_key_is_none(text: str) -> None:
    assert split_api_key(text) is None


def test_a_secret_with_underscores_is_split_at_the_right_ones() -> None:
    assert split_api_key("nunatak_abcdefgh_" + "_" * 43) == ("abcdefgh", "_" * 43)


def test_a_credential_is_found_with_its_principal_and_roles(store: Store, tmp_path: Path, run: Run[Any]) -> None:
    async def check() -> None:
        home = await open_home(tmp_path, store)
        await home.principal("alice", "writer", "reader")
        client_id, secret = await home.client("alice", roles=["reader"], expires_ms=MOMENT + 1000)

        found = await find_credential(store, client_id)

        assert found is not None
        assert (found.principal, found.enabled, found.kind) == ("alice", True, CLIENT)
        assert found.roles == ("reader", "writer")
        assert found.limit == frozenset({"reader"})
        assert (found.expires_ms, found.last_used_ms) == (MOMENT + 1000, None)
        assert is_secret_of(home.vault, found, client_id, secret)
        assert not is_secret_of(home.vault, found, client_id, secret[:-1])
        assert secret not in repr(found)
        assert await find_credential(store, "client-nobody") is None
        await home.identity.close()

    run(check())


def test_the_policy_version_a_credential_is_read_with_grows_with_every_change(home: Home, run: Run[Any]) -> None:
    async def check() -> None:
        await home.principal("alice")
        client_id, _ = await home.client("alice")
        before = await find_credential(home.store, client_id)
        await home.principal("bob")
        after = await find_credential(home.store, client_id)
        assert before is not None
        assert after is not None
        assert after.policy_version > before.policy_version

    run(check())


def test_a_digest_belongs_to_one_credential(home: Home) -> None:
    """Copied to another row, a known digest opens nothing."""
    assert home.vault.hmac(b"secret", "client-a") != home.vault.hmac(b"secret", "client-b")


def test_a_secret_of_nobody_is_no_secret(home: Home) -> None:
    assert not is_secret_of(home.vault, None, "client-nobody", "secret")


def test_a_credential_is_usable_until_it_expires(home: Home, run: Run[Any]) -> None:
    async def check() -> None:
        await home.principal("alice")
        client_id, _ = await home.client("alice", expires_ms=MOMENT)
        found = await find_credential(home.store, client_id)
        assert found is not None
        check_usable(found, MOMENT - 1)
        with pytest.raises(NotAuthenticated, match="expired"):
            check_usable(found, MOMENT)

    run(check())


def test_the_credential_of_a_disabled_or_unknown_principal_is_not_usable(home: Home, run: Run[Any]) -> None:
    async def check() -> None:
        await home.principal("alice")
        client_id, _ = await home.client("alice")
        await home.write("set_principal", principal="alice", disabled=1, note=None)
        disabled = await find_credential(home.store, client_id)
        await home.write("drop_principal", principal="alice")
        gone = await find_credential(home.store, client_id)
        for found in (disabled, gone):
            assert found is not None
            with pytest.raises(NotAuthenticated, match="disabled"):
                check_usable(found, MOMENT)

    run(check())


def test_another_secret_is_another_generation(home: Home, run: Run[Any]) -> None:
    async def check() -> None:
        await home.principal("alice")
        client_id, secret = await home.client("alice")
        before = await find_credential(home.store, client_id)
        renewed = new_secret(home.vault, client_id, CLIENT)
        await home.write("set_credential_secret", credential_id=client_id, secret=renewed.stored)
        after = await find_credential(home.store, client_id)
        assert before is not None
        assert after is not None
        assert before.generation != after.generation
        assert not is_secret_of(home.vault, after, client_id, secret)
        assert is_secret_of(home.vault, after, client_id, renewed.shown.reveal())

    run(check())


def test_a_new_secret_of_an_api_key_is_shown_as_a_whole_key(home: Home) -> None:
    renewed = new_secret(home.vault, "abcdefgh", API_KEY)
    assert renewed.shown.reveal().startswith("nunatak_abcdefgh_")
