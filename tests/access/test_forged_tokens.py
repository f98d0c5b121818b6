"""S3: no forged or odd token is believed, by any verifier; the table of them is in forged_tokens.py."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt
import pytest

from nunatak.access.sessions import Session
from nunatak.access.tokens import KEY_NAMES, LEEWAY_MS
from nunatak.errors import NotAuthenticated
from tests.access.forged_tokens import FORGERIES, LEFT_OUT, Mint
from tests.access.home import Home, open_home
from tests.backends.conftest import Run


@dataclass(frozen=True)
class Verifier:
    """One way to check a token: `show` gives a session, None for a token of another kind, or NotAuthenticated."""

    mint: Mint
    show: Callable[[str], Awaitable[Session | None]]
    close: Callable[[], Awaitable[None]]

    async def believes(self, token: str) -> bool:
        try:
            return await self.show(token) is not None
        except NotAuthenticated:
            return False


async def embedded_home(folder: Path) -> tuple[Mint, Home]:
    """Our own tokens. The retired key was replaced longer ago than any of its tokens may live."""
    home = await open_home(folder)
    await home.principal("alice", "reader")
    client = await home.client("alice")
    tokens = home.identity.tokens
    retired = tokens.signing_key
    home.clock.pass_seconds(3600)
    await tokens.rotate()
    home.clock.pass_seconds(home.settings.token_seconds + LEEWAY_MS / 1000 + 1)
    token = await home.token(client)
    mint = Mint(
        tokens.signing_key.private,
        "ES256",
        jwt.get_unverified_header(token),
        jwt.decode(token, options={"verify_signature": False}),
        home.clock() // 1000,
        LEEWAY_MS // 1000,
        (retired.private, retired.key_id),
    )
    return mint, home


async def embedded(folder: Path) -> Verifier:
    mint, home = await embedded_home(folder)
    return Verifier(mint, home.show, home.close)


VERIFIERS: dict[str, Callable[[Path], Awaitable[Verifier]]] = {"embedded": embedded}


@pytest.mark.parametrize("kind", VERIFIERS)
def test_the_token_that_all_are_made_from_is_accepted(kind: str, tmp_path: Path, run: Run[Any]) -> None:
    async def check() -> None:
        verifier = await VERIFIERS[kind](tmp_path)
        session = await verifier.show(verifier.mint.token())
        assert session is not None
        assert session.principal == "alice"
        assert session.roles == ("reader",)
        assert await verifier.believes(verifier.mint.signed(claims={"jti": "another"}))
        await verifier.close()

    run(check())


@pytest.mark.parametrize("kind", VERIFIERS)
@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_token_is_refused(forgery: str, kind: str, tmp_path: Path, run: Run[Any]) -> None:
    async def check() -> None:
        verifier = await VERIFIERS[kind](tmp_path)
        assert not await verifier.believes(FORGERIES[forgery](verifier.mint))
        await verifier.close()

    run(check())


@pytest.mark.parametrize("forgery", FORGERIES)
def test_our_own_check_refuses_even_what_does_not_claim_to_be_ours(forgery: str, tmp_path: Path, run: Run[Any]) -> None:
    """Such a token is left to other modes; should it get as far as our check, that does not rely on this."""

    async def check() -> None:
        mint, home = await embedded_home(tmp_path)
        forged = FORGERIES[forgery](mint)
        with pytest.raises(NotAuthenticated) as refusal:
            await home.identity.check_token(forged)
        assert forged not in refusal.value.message
        await home.close()

    run(check())


@pytest.mark.parametrize(
    ("header", "claims"),
    [
        ({"typ": "JWT"}, {}),
        ({"typ": LEFT_OUT}, {}),
        ({"cty": "JWT"}, {}),
        ({}, {"admin": True}),
        ({}, {"roles": LEFT_OUT}),
        ({}, {"roles": "reader"}),
        ({}, {"client_id": LEFT_OUT}),
        ({}, {"client_id": "client-nobody"}),
        ({}, {"generation": "0" * 16}),
        ({}, {"sub": "bob"}),
        ({}, {"exp": True}),
        ({}, {"aud": ["nunatak:catalog"]}),
    ],
)
def test_what_our_key_signs_must_be_exactly_what_we_issue(
    header: dict[str, Any], claims: dict[str, Any], tmp_path: Path, run: Run[Any]
) -> None:
    async def check() -> None:
        mint, home = await embedded_home(tmp_path)
        await home.principal("bob")
        with pytest.raises(NotAuthenticated):
            await home.show(mint.signed(header, claims))
        await home.close()

    run(check())


def test_there_are_at_least_forty_forgeries() -> None:
    assert len(FORGERIES) >= 40


def test_the_database_alone_does_not_hold_a_key(home: Home, run: Run[Any]) -> None:
    key = home.identity.tokens.signing_key
    rows = run(home.store.rows("list_secrets", {"first": KEY_NAMES, "behind": KEY_NAMES + "~"}))
    assert [name for name, _ in rows] == [KEY_NAMES + key.key_id]
    assert key.private.private_numbers().private_value.to_bytes(32, "big") not in bytes(rows[0][1])
