"""Principals of a real server that has `auth`: made by its administrator over HTTP, with everything to log in with."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from prometheus_client.parser import text_string_to_metric_families

from nunatak.access.privileges import Privilege
from tests.api.wire import Answer
from tests.support.catalogs.local import ADMINISTRATOR

MANAGEMENT = "/management/v1"
SHORT_SECONDS = 2  # the life of a token in the tests that see it end
EXPIRY_SECONDS = SHORT_SECONDS + 1.2  # lives are counted from the next whole second


def outlive_token() -> None:
    time.sleep(EXPIRY_SECONDS)


@dataclass(frozen=True)
class Login:
    """One principal; the three ways in which it can prove who it is."""

    name: str
    client: tuple[str, str] = field(repr=False)
    api_key: str = field(repr=False)
    access_key: tuple[str, str] = field(repr=False)

    @property
    def credential(self) -> str:
        """As Java and PyIceberg take it."""
        return ":".join(self.client)


class Principals:
    """What the administrator of a running server does."""

    uri: str

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        authorization: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        raise NotImplementedError

    def expect(self, status: int, method: str, path: str, body: Any = None, **how: Any) -> Any:
        """The answer's JSON, once its status was found to be the expected one."""
        answer = self.call(method, path, body, **how)
        assert answer.status == status, (method, path, answer.status, answer.body)
        return answer.json if answer.body else None

    @cached_property
    def root(self) -> Login:
        """The administrator, who can log in in every way."""
        return self.login(ADMINISTRATOR)

    @property
    def token_uri(self) -> str:
        return f"{self.uri}/v1/oauth/tokens"

    def principal(self, name: str, **granted: str) -> Login:
        """`granted` maps `server`, `warehouse` or the name of a namespace to privileges, separated by commas."""
        self.expect(200, "POST", f"{MANAGEMENT}/principals", {"name": name})
        for where, privileges in granted.items():
            self.grant(name, where, privileges)
        return self.login(name)

    def new_principal(self, name: str, privilege: Privilege = Privilege.TABLE_READ_META) -> str:
        """One without credentials."""
        self.expect(200, "POST", f"{MANAGEMENT}/principals", {"name": name})
        grant = {"grantee": f"principal:{name}", "securable": "server", "privileges": [privilege.name]}
        self.call("POST", f"{MANAGEMENT}/grants", grant)
        return name

    def new_credential(self, principal: str, kind: str) -> tuple[str, str]:
        """Its id and its secret."""
        path, key = f"{MANAGEMENT}/principals/{principal}/credentials", {"Idempotency-Key": str(uuid4())}
        made = self.expect(200, "POST", path, {"kind": kind}, headers=key)
        return made["credential-id"], made["secret"]

    def grant(self, name: str, where: str, privileges: str) -> None:
        self.grant_on(name, _securable(where), privileges)

    def grant_on(self, name: str, securable: str, privileges: str) -> None:
        """`securable` as people write it, for a single table too."""
        wanted = {"grantee": f"principal:{name}", "securable": securable, "privileges": privileges.split(",")}
        self.expect(204, "POST", f"{MANAGEMENT}/grants", wanted)

    def revoke(self, name: str, where: str, privileges: str) -> None:
        query = {"grantee": f"principal:{name}", "securable": _securable(where), "privileges": privileges}
        self.expect(204, "DELETE", f"{MANAGEMENT}/grants?{urlencode(query)}")

    def login(self, name: str) -> Login:
        client, (_, api_key), access_key = (
            self.new_credential(name, kind) for kind in ("client", "api-key", "access-key")
        )
        return Login(name, client, api_key, access_key)

    def ask_token(self, fields: Mapping[str, str], **how: Any) -> Answer:
        form = {"Content-Type": "application/x-www-form-urlencoded", **how.pop("headers", {})}
        how = {"authorization": "", **how}
        return self.call("POST", "/v1/oauth/tokens", urlencode(fields).encode(), headers=form, **how)

    def token(self, login: Login) -> str:
        """A bearer token, which ends after the server's `token_seconds`."""
        client_id, secret = login.client
        fields = {"grant_type": "client_credentials", "client_id": client_id, "client_secret": secret}
        answer = self.ask_token(fields)
        assert answer.status == 200, answer.body
        token: str = answer.json["access_token"]
        return token

    def end_all_tokens(self) -> None:
        """Long before their time, as after a leak: clients are not told, they are refused."""
        self.expect(200, "POST", f"{MANAGEMENT}/keys/rotate", {"forget-older": True})

    def signed(self, pair: tuple[str, str], method: str, path: str, body: bytes = b"") -> dict[str, str]:
        """The headers of a request that is signed with an access key."""
        request = AWSRequest(method, f"{self.uri}{path}", data=body)
        SigV4Auth(Credentials(*pair), "execute-api", "us-east-1").add_auth(request)
        return dict(request.headers.items())

    def tokens_issued(self) -> int:
        """How often anybody got a token from this server since it started."""
        return self._answered(operation="getToken", status="200")

    def turned_away(self) -> int:
        """How many requests came with no, or no longer good, credentials."""
        return self._answered(status="401")

    def _answered(self, **labels: str) -> int:
        page = self.call("GET", "/metrics").body.decode()
        samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
        return sum(
            int(sample.value)
            for sample in samples
            if sample.name == "nunatak_requests_total" and labels.items() <= sample.labels.items()
        )


def _securable(where: str) -> str:
    if where == "server":
        return where
    return "warehouse:default" if where == "warehouse" else f"namespace:default/{where}"
