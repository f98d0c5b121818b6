"""A real server that asks who you are, and principals with everything they can log in with."""

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

from prometheus_client.parser import text_string_to_metric_families

from tests.access.guarded_server import ADMINISTRATOR, MANAGEMENT, GuardedServer, guarded_server

SHORT_SECONDS = 2  # the life of a token in the tests that see it end
EXPIRY_SECONDS = SHORT_SECONDS + 1.2  # lives are counted from the next whole second


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


@dataclass(frozen=True)
class LoginServer:
    guarded: GuardedServer
    root: Login

    @property
    def uri(self) -> str:
        return self.guarded.running.uri

    @property
    def token_uri(self) -> str:
        return f"{self.uri}/v1/oauth/tokens"

    def principal(self, name: str, **granted: str) -> Login:
        """`granted` maps `server`, `warehouse` or the name of a namespace to privileges, separated by commas."""
        self.guarded.expect(200, "POST", f"{MANAGEMENT}/principals", {"name": name})
        for where, privileges in granted.items():
            self.grant(name, where, privileges)
        return self.login(name)

    def grant(self, name: str, where: str, privileges: str) -> None:
        self.grant_on(name, _securable(where), privileges)

    def grant_on(self, name: str, securable: str, privileges: str) -> None:
        """`securable` as people write it, for a single table too."""
        wanted = {"grantee": f"principal:{name}", "securable": securable, "privileges": privileges.split(",")}
        self.guarded.expect(204, "POST", f"{MANAGEMENT}/grants", wanted)

    def revoke(self, name: str, where: str, privileges: str) -> None:
        query = {"grantee": f"principal:{name}", "securable": _securable(where), "privileges": privileges}
        self.guarded.expect(204, "DELETE", f"{MANAGEMENT}/grants?{urlencode(query)}")

    def login(self, name: str) -> Login:
        client, (_, api_key), access_key = (
            self.guarded.new_credential(name, kind) for kind in ("client", "api-key", "access-key")
        )
        return Login(name, client, api_key, access_key)

    def token(self, login: Login) -> str:
        """A bearer token, which ends after the server's `token_seconds`."""
        client_id, secret = login.client
        fields = {"grant_type": "client_credentials", "client_id": client_id, "client_secret": secret}
        answer = self.guarded.ask_token(fields)
        assert answer.status == 200, answer.body
        token: str = answer.json["access_token"]
        return token

    def end_all_tokens(self) -> None:
        """Long before their time, as after a leak: clients are not told, they are refused."""
        self.guarded.expect(200, "POST", f"{MANAGEMENT}/keys/rotate", {"forget-older": True})

    def tokens_issued(self) -> int:
        """How often anybody got a token from this server since it started."""
        return self._answered(operation="getToken", status="200")

    def turned_away(self) -> int:
        """How many requests came with no, or no longer good, credentials."""
        return self._answered(status="401")

    def _answered(self, **labels: str) -> int:
        page = self.guarded.call("GET", "/metrics").body.decode()
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


def outlive_token() -> None:
    time.sleep(EXPIRY_SECONDS)


@contextlib.contextmanager
def login_server(data: Path, environment: Mapping[str, str] | None = None) -> Iterator[LoginServer]:
    """With an administrator who can log in in every way."""
    with guarded_server(data, environment) as guarded:
        unknown = Login(ADMINISTRATOR, ("", ""), "", ("", ""))
        root = LoginServer(guarded, unknown).login(ADMINISTRATOR)
        yield LoginServer(guarded, root)


@contextlib.contextmanager
def short_lived(data: Path) -> Iterator[LoginServer]:
    """One whose tokens end while a test runs."""
    with login_server(data, {"NUNATAK_TOKEN_SECONDS": str(SHORT_SECONDS)}) as server:
        yield server
