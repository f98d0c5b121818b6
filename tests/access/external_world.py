"""A server's view of external issuers, with a clock that moves when somebody moves it."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from nunatak.access.oidc import OidcAuthenticator
from nunatak.access.sessions import Proof
from nunatak.database.records import Write
from nunatak.database.sqlite import SqliteStore
from nunatak.database.store import Store
from nunatak.settings import Settings, load
from tests.backends.conftest import Run
from tests.support.issuer import Issuer, IssuerProcess, running_issuers
from tests.support.sentinel import Sentinel, listening_sentinel

NOW = 1_750_000_000  # seconds
AUDIENCE = "lake"


@dataclass
class Clock:
    ms: int = NOW * 1000

    def __call__(self) -> int:
        return self.ms

    def pass_seconds(self, seconds: float) -> None:
        self.ms += int(seconds * 1000)


@pytest.fixture
def plain_store(tmp_path: Path, run: Run[Any]) -> Iterator[SqliteStore]:
    """For what does not depend on the database."""
    opened = SqliteStore(tmp_path / "catalog.db")
    yield opened
    run(opened.close())


@pytest.fixture(scope="session")
def issuers() -> Iterator[IssuerProcess]:
    """A process of issuers; every test makes one of its own there."""
    with running_issuers() as process:
        yield process


@pytest.fixture
def sentinel() -> Iterator[Sentinel]:
    with listening_sentinel() as listener:
        yield listener


def settings_of(**values: Any) -> Settings:
    return load(values, {"NUNATAK_CONFIG": os.devnull})


def a_proof(headers: dict[str, str], *, address: str | None = "127.0.0.1", certificate: str | None = None) -> Proof:
    encoded = {name.lower().encode(): value.encode() for name, value in headers.items()}
    return Proof("GET", b"/v1/config", b"", encoded, address, certificate)


def bearer(token: str) -> Proof:
    return a_proof({"Authorization": f"Bearer {token}"})


def claims_of(issuer: Issuer, **changed: Any) -> dict[str, Any]:
    """Those of a good token; a claim that is None is left out."""
    claims = {"iss": issuer.url, "aud": AUDIENCE, "sub": "alice", "iat": NOW, "exp": NOW + 900, **changed}
    return {name: value for name, value in claims.items() if value is not None}


@dataclass
class Believer:
    """An authenticator that trusts one issuer."""

    issuer: Issuer
    store: Store
    clock: Clock = field(default_factory=Clock)
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.authenticator = self.restarted()

    def restarted(self) -> OidcAuthenticator:
        given = {"auth": "oidc", "oidc_issuers": self.issuer.url, "oidc_audience": AUDIENCE, **self.settings}
        return OidcAuthenticator(settings_of(**given), self.store, self.clock)


def a_principal(name: str, *roles: str, disabled: bool = False) -> list[Write]:
    """What the database must hold for it."""
    writes = [Write("add_principal", {"principal": name, "note": None, "created_ms": 0})]
    if disabled:
        writes.append(Write("set_principal", {"principal": name, "disabled": 1, "note": None}))
    return [*writes, *(Write("add_member", {"role": role, "principal": name}) for role in roles)]
