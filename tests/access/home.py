"""An embedded identity on a database of its own: principals, clients and keys in one line each, and a clock to set."""

import base64
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pytest

from nunatak.access.credentials import NewCredential, new_api_key, new_client
from nunatak.access.embedded import EmbeddedIdentity, open_identity
from nunatak.access.sessions import Proof, Session
from nunatak.access.vault import Vault, open_vault
from nunatak.api import oauth
from nunatak.api.http import Request, Response
from nunatak.catalog.catalog import Caller
from nunatak.database.records import Write
from nunatak.database.sqlite import SqliteStore
from nunatak.database.store import Store
from nunatak.settings import Settings, load
from tests.backends.conftest import Run

MOMENT = 1_750_000_000_000
TOKENS = "/v1/oauth/tokens"


@dataclass
class Clock:
    ms: int = MOMENT

    def __call__(self) -> int:
        return self.ms

    def pass_seconds(self, seconds: float) -> None:
        self.ms += int(seconds * 1000)


@dataclass
class Home:
    """One server's identity. Another one on the same database has the same store, vault and clock."""

    settings: Settings
    store: Store
    vault: Vault
    clock: Clock
    identity: EmbeddedIdentity

    async def another_server(self) -> "Home":
        identity = await open_identity(self.settings, self.store, self.vault, self.clock)
        return Home(self.settings, self.store, self.vault, self.clock, identity)

    async def close(self) -> None:
        await self.identity.close()
        await self.store.close()

    async def write(self, statement: str, **values: object) -> None:
        await self.store.apply([Write(statement, values), Write("bump_policy", {})])

    async def principal(self, name: str, *roles: str) -> None:
        await self.write("add_principal", principal=name, note=None, created_ms=self.clock())
        for role in roles:
            await self.write("add_role", role=role, note=None, created_ms=self.clock())
            await self.write("add_member", role=role, principal=name)

    async def client(self, principal: str, **fields: Any) -> tuple[str, str]:
        """The id and the secret of a new client."""
        made = new_client(self.vault)
        await self._add(made, principal, **fields)
        return made.credential_id, made.shown.reveal()

    async def api_key(self, principal: str, **fields: Any) -> str:
        made = new_api_key(self.vault)
        await self._add(made, principal, **fields)
        return made.shown.reveal()

    async def _add(
        self, made: NewCredential, principal: str, *, roles: list[str] | None = None, expires_ms: int | None = None
    ) -> None:
        await self.write(
            "add_credential",
            credential_id=made.credential_id,
            principal=principal,
            kind=made.kind,
            secret=made.stored,
            roles=None if roles is None else json.dumps(roles),
            note=None,
            created_ms=self.clock(),
            expires_ms=expires_ms,
        )

    async def show(self, text: str) -> Session | None:
        """What the server makes of `Authorization: Bearer <text>`."""
        return await self.identity.authenticate(a_proof(f"Bearer {text}"))

    async def token(self, client: tuple[str, str], scope: str = "catalog") -> str:
        answer = await self.ask_as(client, scope=scope)
        assert answer.status == 200, answer.body
        text: str = json.loads(answer.body)["access_token"]
        return text

    async def ask_as(self, client: tuple[str, str], **fields: str) -> Response:
        form = {"grant_type": "client_credentials", "client_id": client[0], "client_secret": client[1], **fields}
        return await self.ask(form)

    async def exchange(self, subject: str, authorization: str | None = None, **fields: str) -> Response:
        form = {
            "grant_type": oauth.TOKEN_EXCHANGE,
            "subject_token": subject,
            "subject_token_type": oauth.ACCESS_TOKEN,
            **fields,
        }
        return await self.ask(form, authorization)

    async def ask(
        self,
        form: dict[str, str] | bytes,
        authorization: str | None = None,
        *,
        address: str = "10.0.0.1",
        **headers: str,
    ) -> Response:
        request = self.request("POST", headers, address)
        if authorization is not None:
            request.headers[b"authorization"] = authorization.encode("latin-1")
        request.body = form if isinstance(form, bytes) else urlencode(form).encode()
        return await oauth.post_token(request)

    def request(self, method: str, headers: dict[str, str] | None = None, address: str = "10.0.0.1") -> Request:
        """As the application hands it to a handler; no catalog and no warehouse are needed here."""
        sent = {"content_type": "application/x-www-form-urlencoded", **(headers or {})}
        encoded = {name.replace("_", "-").encode(): value.encode("latin-1") for name, value in sent.items()}
        context: Any = SimpleNamespace(
            identity=self.identity,
            note_failed_login=_ignored,
            note_issued_token=_ignored,
            distinct_errors=False,
        )
        nothing: Any = None
        request = Request(nothing, nothing, method, [], b"", encoded, context)
        request.caller, request.host = Caller(address=(address, 50_000)), address
        return request


def _ignored(*_: object) -> None:
    """What the audit trail is told; the whole server has one (test_login_audit.py)."""


async def open_home(folder: Path, store: Store | None = None, token_seconds: int = 900) -> Home:
    settings = load({"data": folder, "token_seconds": token_seconds}, {"NUNATAK_CONFIG": os.devnull})
    opened = store or SqliteStore(folder / "catalog.db")
    vault = open_vault(settings)
    await vault.unlock(opened)
    clock = Clock()
    return Home(settings, opened, vault, clock, await open_identity(settings, opened, vault, clock))


@pytest.fixture
def home(tmp_path: Path, run: Run[Any]) -> Iterator[Home]:
    opened: Home = run(open_home(tmp_path))
    yield opened
    run(opened.close())


def a_proof(authorization: str | None = None) -> Proof:
    headers = {} if authorization is None else {b"authorization": authorization.encode("latin-1")}
    return Proof("GET", b"/v1/config", b"", headers, "10.0.0.1")


def basic(client: tuple[str, str]) -> str:
    return f"Basic {base64.b64encode(':'.join(client).encode()).decode()}"


def said(answer: Response) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(answer.body)
    return body
