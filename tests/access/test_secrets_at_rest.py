"""S12: what lies in the database's files opens nothing, and keys are rotated under load and under kill -9."""

import asyncio
import base64
import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nunatak import server as servers
from nunatak.access.credentials import new_access_key
from nunatak.access.rotation import list_keys
from nunatak.access.vault import Vault, open_vault
from nunatak.database.records import Write
from nunatak.database.store import Store
from nunatak.settings import Settings
from tests.api.wire import Answer
from tests.support.catalogs.local import settings_of
from tests.support.catalogs.principals import MANAGEMENT
from tests.support.catalogs.process import RunningServer, running_server
from tests.support.postgres import PostgresServer

ACCESS_KEYS = int(os.environ.get("NUNATAK_TEST_ROTATION_KEYS", "2000"))
ROTATIONS = int(os.environ.get("NUNATAK_TEST_ROTATIONS", "2"))
KILLS = int(os.environ.get("NUNATAK_TEST_ROTATION_KILLS", "2"))
SEED = int(os.environ.get("NUNATAK_TEST_SEED") or random.randrange(2**32))
ANSWER_SECONDS = 60

Environment = dict[str, str]


@pytest.fixture(params=["sqlite", "postgres"])
def environment(request: pytest.FixtureRequest) -> Environment:
    """On which database."""
    return {} if request.param == "sqlite" else {"NUNATAK_DATABASE_URL": request.getfixturevalue("database")}


def on_postgres(environment: Environment) -> bool:
    return "NUNATAK_DATABASE_URL" in environment


def on_database(settings: Settings, work: Callable[[Store, Vault], Any]) -> Any:
    """Look into the database, beside a server that may run."""

    async def once() -> Any:
        async with servers.open_database_read_only(settings, exclusive=False) as store:
            vault = open_vault(settings)
            await vault.unlock(store)
            return await work(store, vault)

    return asyncio.run(once())


def keys_command(settings: Settings, environment: Environment, *arguments: str) -> "subprocess.Popen[str]":
    clean = {name: value for name, value in os.environ.items() if not name.startswith("NUNATAK_")}
    return subprocess.Popen(
        [sys.executable, "-m", "nunatak", "encryption-key", *arguments, "--data", str(settings.data)],
        env={**clean, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finished(process: "subprocess.Popen[str]") -> str:
    printed, _ = process.communicate(timeout=ANSWER_SECONDS)
    assert process.returncode == 0, printed
    return printed


# Nothing readable


ENCODED = 43  # letters that 32 random bytes take


def forms_of(secret: str | bytes) -> set[bytes]:
    """As somebody might have stored it: as it is, or encoded, or only the part that counts."""
    raw = secret.encode() if isinstance(secret, str) else secret
    forms = {raw, raw.hex().encode(), base64.b64encode(raw), base64.urlsafe_b64encode(raw)}
    if isinstance(secret, str):
        part = secret.split("_", 2)[-1] if secret.startswith("nunatak_") else secret.rpartition(".")[2]
        forms.add(part.encode())
        if len(part) == ENCODED:
            forms.add(base64.urlsafe_b64decode(part + "="))
    return {form for form in forms if len(form) >= 16}


def places_with(secrets: dict[str, str | bytes], files: Iterator[Path]) -> list[str]:
    wanted = [(name, form) for name, secret in secrets.items() for form in forms_of(secret)]
    contents = [(path, path.read_bytes()) for path in files if path.is_file()]
    assert any(content for _, content in contents)
    return sorted({f"{name} in {path.name}" for path, content in contents for name, form in wanted if form in content})


def use_every_credential(server: RunningServer, count: int) -> dict[str, str | bytes]:
    """Clients, API keys, access keys and tokens, each used as its owner would; returns what is secret about them."""
    found: dict[str, str | bytes] = {"the administrator's key": server.key}
    for number in range(count):
        principal = server.new_principal(f"user{number}")
        client = server.new_credential(principal, "client")
        _, api_key = server.new_credential(principal, "api-key")
        pair = server.new_credential(principal, "access-key")
        form = {"grant_type": "client_credentials", "client_id": client[0], "client_secret": client[1]}
        token = server.ask_token(form).json["access_token"]
        server.expect(200, "GET", "/v1/config", authorization=f"Bearer {token}")
        server.expect(200, "GET", "/v1/config", authorization=f"Bearer {api_key}")
        assert signed_call(server, pair).status == 200
        found |= {f"client {number}": client[1], f"API key {number}": api_key, f"access key {number}": pair[1]}
        found[f"token {number}"] = token
    return found


def signed_call(server: RunningServer, pair: tuple[str, str]) -> Answer:
    headers = server.signed(pair, "GET", "/v1/config")
    return server.call("GET", "/v1/config", authorization=headers.pop("Authorization"), headers=headers)


async def plain_secrets(store: Store, vault: Vault) -> dict[str, str | bytes]:
    """Everything that is sealed, opened: the pepper, the page token, the private keys that sign tokens."""
    rows = await store.rows("all_secrets", {"after": "", "limit": 100})
    opened = {row[0]: vault.open(bytes(row[1]), row[0]) for row in rows}
    private = {name: value[8:] for name, value in opened.items() if name.startswith("signing-key/")}
    assert private
    return {**opened, **private}


def test_the_database_holds_no_secret_in_a_readable_form(
    tmp_path: Path, environment: Environment, request: pytest.FixtureRequest
) -> None:
    def files() -> Iterator[Path]:
        if on_postgres(environment):
            postgres: PostgresServer = request.getfixturevalue("postgres")
            postgres.execute("CHECKPOINT")
            return (postgres.folder / "data").rglob("*")  # tables and the log
        return (path for path in data.rglob("*") if not path.name.startswith("nunatak.keys"))

    data = tmp_path / "data"
    with running_server(data, environment=environment, auth=True) as server:
        secrets = use_every_credential(server, 3)
        server.expect(200, "POST", f"{MANAGEMENT}/encryption-keys/rotate")
        secrets |= use_every_credential_again(server)
        secrets |= on_database(server.settings, plain_secrets)
        secrets |= {key.key_id: key.material for key in open_vault(server.settings).key_file.ring().keys}
        assert len(secrets) >= 18

        server.new_principal("planted-canary-name")

        assert places_with({"planted": "planted-canary-name"}, files()) != []  # the scan finds what is there
        assert places_with(secrets, files()) == []
    assert places_with(secrets, files()) == []


def use_every_credential_again(server: RunningServer) -> dict[str, str | bytes]:
    """After a rotation old and new ones work alike."""
    server.expect(200, "GET", "/v1/config")
    _, api_key = server.new_credential("user0", "api-key")
    return {"API key after rotating": api_key}


# Under load


class Load:
    """Threads that use every kind of credential on every server until told to stop, and note what went wrong."""

    def __init__(self, servers: list[RunningServer], chance: random.Random) -> None:
        self._servers = servers
        self._stop = threading.Event()
        self._pairs = [servers[0].new_credential("worker", "access-key")]
        self._client = servers[0].new_credential("worker", "client")
        self.count = 0
        self.errors: list[str] = []
        seeds = [chance.random() for _ in range(3)]
        self._threads = [threading.Thread(target=self._work, args=(random.Random(seed),)) for seed in seeds]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(ANSWER_SECONDS)

    def await_more(self, count: int) -> None:
        wanted, deadline = self.count + count, time.monotonic() + ANSWER_SECONDS
        while self.count < wanted and not self.errors and time.monotonic() < deadline:
            time.sleep(0.01)

    def _work(self, chance: random.Random) -> None:
        while not self._stop.is_set() and len(self.errors) < 10:
            server = chance.choice(self._servers)
            try:
                answer = chance.choice([self._signed, self._signed, self._token, self._new_pair])(server, chance)
                if answer.status != 200:
                    self.errors.append(f"{answer.status} {answer.body.decode()}")
            except Exception as error:
                self.errors.append(repr(error))
            self.count += 1

    def _signed(self, server: RunningServer, chance: random.Random) -> Answer:
        return signed_call(server, chance.choice(self._pairs))

    def _token(self, server: RunningServer, _: random.Random) -> Answer:
        form = {"grant_type": "client_credentials", "client_id": self._client[0], "client_secret": self._client[1]}
        answer = server.ask_token(form)
        if answer.status != 200:
            return answer
        return server.call("GET", "/v1/config", authorization=f"Bearer {answer.json['access_token']}")

    def _new_pair(self, server: RunningServer, _: random.Random) -> Answer:
        self._pairs.append(server.new_credential("worker", "access-key"))
        return signed_call(server, self._pairs[-1])


def test_keys_are_rotated_under_load_without_one_error(tmp_path: Path, environment: Environment) -> None:
    """On SQLite through the server; on PostgreSQL by another process, beside two servers."""
    print(f"seed {SEED}")
    data = tmp_path / "data"
    with running_server(data, environment=environment, auth=True) as first, running_second(first) as second:
        servers = [first] if second is None else [first, second]
        first.new_principal("worker")
        ids = set()
        with Load(servers, random.Random(SEED)) as load:
            for _ in range(ROTATIONS):
                load.await_more(20)
                if second is None:
                    ids.add(first.expect(200, "POST", f"{MANAGEMENT}/encryption-keys/rotate")["key-id"])
                else:
                    ids.add(finished(keys_command(first.settings, environment, "rotate")).split()[-1])
            load.await_more(20)
        print(f"{load.count} requests on {len(servers)} servers during {len(ids)} rotations")

        assert load.errors == []
        assert len(ids) == ROTATIONS
        uses = on_database(first.settings, list_keys)
        assert [use.values > 0 for use in uses] == [True] + [False] * ROTATIONS


@contextlib.contextmanager
def running_second(first: RunningServer) -> Iterator[RunningServer | None]:
    """Another server on the same database and key file, where the database takes two."""
    if not on_postgres(first.environment):
        yield None
        return
    with running_server(first.data, environment=first.environment, auth=True, key=first.key) as second:
        yield second


# Under kill -9


async def add_access_keys(store: Store, vault: Vault) -> dict[str, bytes]:
    made = [new_access_key(vault) for _ in range(ACCESS_KEYS)]
    same = {"principal": "p", "kind": "access-key", "roles": None, "note": None, "created_ms": 1, "expires_ms": None}
    for start in range(0, len(made), 100):
        await store.apply(
            [
                Write("add_credential", {"credential_id": each.credential_id, "secret": each.stored, **same})
                for each in made[start : start + 100]
            ]
        )
    return {each.credential_id: each.shown.reveal().encode() for each in made}


async def opened_access_keys(store: Store, vault: Vault) -> dict[str, bytes]:
    rows = await store.rows("sealed_credentials", {"after": "", "limit": 1_000_000})
    return {row[0]: vault.open(bytes(row[1]), row[0]) for row in rows}


def test_a_rotation_killed_at_any_moment_loses_nothing_and_is_finished_later(
    tmp_path: Path, environment: Environment
) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    settings = settings_of(tmp_path, environment)
    access_keys = on_database(settings, add_access_keys)
    key_file = open_vault(settings).key_file
    unfinished = 0
    for _ in range(KILLS):
        before = key_file.ring()
        process = keys_command(settings, environment, "rotate")
        deadline = time.monotonic() + ANSWER_SECONDS
        while key_file.ring() == before and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.15))
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=ANSWER_SECONDS)
        uses = on_database(settings, list_keys)
        unfinished += sum(use.values > 0 for use in uses) > 1
        assert on_database(settings, opened_access_keys) == access_keys

    printed = finished(keys_command(settings, environment, "rotate"))

    print(f"{unfinished} of {KILLS} rotations were killed before they had finished; then: {printed}")
    assert sum(use.values > 0 for use in on_database(settings, list_keys)) == 1
    assert on_database(settings, opened_access_keys) == access_keys
