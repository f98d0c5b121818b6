"""A real server process that asks who you are: its first administrator, and requests as anybody, on any database."""

import asyncio
import contextlib
import http.client
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from nunatak import server
from nunatak.access import administration, securables
from nunatak.access.administration import Actor
from nunatak.access.credentials import new_api_key
from nunatak.access.privileges import EVERYTHING, Privilege
from nunatak.access.sessions import principal_grantee
from nunatak.access.vault import open_vault
from nunatak.settings import Settings, load
from tests.access.secured import UNLIMITED
from tests.support.server import RunningServer, running_server

ADMINISTRATOR = "root"
MANAGEMENT = "/management/v1"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class GuardedServer:
    """`key` is the administrator's API key; `environment` is what the process was started with."""

    running: RunningServer
    environment: dict[str, str]
    key: str

    @property
    def settings(self) -> Settings:
        return settings_of(self.running.data, self.environment)

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        authorization: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """By the administrator unless told otherwise; an empty `authorization` sends none."""
        sent = {"Authorization": f"Bearer {self.key}" if authorization is None else authorization, **(headers or {})}
        if not sent["Authorization"]:
            del sent["Authorization"]
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        if isinstance(body, dict | list):
            sent = {"Content-Type": "application/json", **sent}
        connection = http.client.HTTPConnection("127.0.0.1", self.running.port, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, content, sent)
            response = connection.getresponse()
            names = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, names, response.read())

    def expect(self, status: int, method: str, path: str, body: Any = None, **how: Any) -> Any:
        answer = self.call(method, path, body, **how)
        assert answer.status == status, (method, path, answer.status, answer.body)
        return answer.json if answer.body else None

    def ask_token(self, fields: Mapping[str, str], **how: Any) -> Answer:
        form = {"Content-Type": "application/x-www-form-urlencoded", **how.pop("headers", {})}
        how = {"authorization": "", **how}
        return self.call("POST", "/v1/oauth/tokens", urlencode(fields).encode(), headers=form, **how)

    def new_principal(self, name: str, privilege: Privilege = Privilege.TABLE_READ_META) -> str:
        self.expect(200, "POST", f"{MANAGEMENT}/principals", {"name": name})
        grant = {"grantee": f"principal:{name}", "securable": "server", "privileges": [privilege.name]}
        self.call("POST", f"{MANAGEMENT}/grants", grant)
        return name

    def new_credential(self, principal: str, kind: str) -> tuple[str, str]:
        """Its id and its secret."""
        path, key = f"{MANAGEMENT}/principals/{principal}/credentials", {"Idempotency-Key": str(uuid4())}
        made = self.expect(200, "POST", path, {"kind": kind}, headers=key)
        return made["credential-id"], made["secret"]

    def signed(self, pair: tuple[str, str], method: str, path: str, body: bytes = b"") -> dict[str, str]:
        """The headers of a request that is signed with an access key."""
        request = AWSRequest(method, f"{self.running.uri}{path}", data=body)
        SigV4Auth(Credentials(*pair), "execute-api", "us-east-1").add_auth(request)
        return dict(request.headers.items())


def settings_of(data: Path, environment: Mapping[str, str]) -> Settings:
    return load({"data": data}, {"NUNATAK_CONFIG": os.devnull, **environment})


async def _bootstrap(settings: Settings) -> str:
    """The first administrator, in the database; returns its API key."""
    async with server.open_database_read_only(settings, exclusive=True) as store:
        vault = open_vault(settings)
        await vault.unlock(store)
        actor = Actor(ADMINISTRATOR, time.time_ns() // 1_000_000)
        key = new_api_key(vault)
        whole = administration.grant(
            actor, int(EVERYTHING), principal_grantee(ADMINISTRATOR), securables.SERVER, Privilege.SERVER_ADMIN
        )
        await store.apply(administration.create_principal(actor, ADMINISTRATOR))
        await store.apply(administration.create_credential(actor, ADMINISTRATOR, key))
        await store.apply(whole)
        return key.shown.reveal()


@contextlib.contextmanager
def guarded_server(data: Path, environment: Mapping[str, str] | None = None) -> Iterator[GuardedServer]:
    """With `auth` embedded, and without limits, unless the environment says otherwise."""
    chosen = {"NUNATAK_AUTH": "embedded", **UNLIMITED, **(environment or {})}
    data.mkdir(parents=True, exist_ok=True)
    key = asyncio.run(_bootstrap(settings_of(data, chosen)))
    with running_server(data, environment=chosen) as running:
        yield GuardedServer(running, chosen, key)
