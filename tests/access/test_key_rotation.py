"""Rotating keys: all is sealed anew while servers work, whenever it is killed, and no key goes that is needed."""

import asyncio
import itertools
import json
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from nunatak.access import rotation
from nunatak.access.administration import Actor, WarehouseRow, create_warehouse
from nunatak.access.credentials import find_credential, is_secret_of, new_access_key, new_client
from nunatak.access.key_file import KeyFile, KeyRing, new_key
from nunatak.access.rotation import SETTLED_MS, list_keys, retire, rotate
from nunatak.access.vault import BrokenSeal, Vault, about_warehouse, key_id_of
from nunatak.cli.main import root
from nunatak.database.records import Change, Write
from nunatak.database.store import Store
from nunatak.errors import Conflict
from tests.support.catalogs.process import running_server

Run = Callable[..., Any]
ACCESS_KEYS = 25
ROOT = Actor("root", 1000)
SEED = int(os.environ.get("NUNATAK_TEST_SEED") or random.randrange(2**32))


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few rows are many steps."""
    monkeypatch.setattr(rotation, "STEP", 4)


@pytest.fixture
def vault(tmp_path: Path, store: Store, run: Run) -> Vault:
    made = Vault(KeyFile(tmp_path / "nunatak.keys"))
    run(made.unlock(store))
    return made


async def add_access_key(store: Store, vault: Vault) -> tuple[str, bytes]:
    made = new_access_key(vault)
    values = {"principal": "p", "kind": made.kind, "roles": None, "note": None, "created_ms": 1, "expires_ms": None}
    stored = {"credential_id": made.credential_id, "secret": made.stored, **values}
    await store.apply([Write("add_credential", stored)])
    return made.credential_id, made.shown.reveal().encode()


async def add_access_keys(store: Store, vault: Vault, count: int = ACCESS_KEYS) -> dict[str, bytes]:
    return dict([await add_access_key(store, vault) for _ in range(count)])


async def opened(store: Store, vault: Vault) -> dict[str, bytes]:
    """Every access key as it is read from the database."""
    rows = await store.rows("sealed_credentials", {"after": "", "limit": 100_000})
    return {row[0]: vault.open(bytes(row[1]), row[0]) for row in rows}


async def keys_in_use(store: Store, vault: Vault) -> list[str]:
    return [use.key_id for use in await list_keys(store, vault) if use.values]


def settled_ms(vault: Vault) -> int:
    changed_ms = vault.key_file.changed_ms()
    assert changed_ms is not None
    return changed_ms + SETTLED_MS


def test_after_a_rotation_everything_is_sealed_with_the_new_key_and_nothing_has_changed(
    store: Store, vault: Vault, run: Run
) -> None:
    before = vault.key_file.first()
    access_keys = run(add_access_keys(store, vault))
    page_token, digest = run(vault.secret(store, "page-token")), vault.hmac(b"x", "a")

    done = run(rotate(store, vault))

    assert done.added
    assert done.sealed_anew == ACCESS_KEYS + 2  # and the pepper, and the page token
    assert done.key_id == vault.key_file.first().key_id != before.key_id
    assert run(keys_in_use(store, vault)) == [done.key_id]
    later = Vault(KeyFile(vault.key_file.path))
    run(later.unlock(store))
    assert run(opened(store, later)) == access_keys
    assert run(later.secret(store, "page-token")) == page_token
    assert later.hmac(b"x", "a") == digest


def test_a_client_still_knows_its_secret_after_a_rotation(store: Store, vault: Vault, run: Run) -> None:
    made = new_client(vault)
    values = {"credential_id": made.credential_id, "principal": "p", "kind": made.kind, "secret": made.stored}
    more = {"roles": None, "note": None, "created_ms": 1, "expires_ms": None}
    run(store.apply([Write("add_credential", {**values, **more})]))

    run(rotate(store, vault))
    run(retire(store, vault, settled_ms(vault)))

    later = Vault(KeyFile(vault.key_file.path))
    run(later.unlock(store))
    found = run(find_credential(store, made.credential_id))
    assert is_secret_of(later, found, made.credential_id, made.shown.reveal())


def test_the_secret_of_a_warehouse_is_sealed_anew_and_bound_to_its_row(store: Store, vault: Vault, run: Run) -> None:
    names = [f"w{number}" for number in range(9)] + ["pepper"]
    for name in names:
        sealed = vault.seal(f"keys of {name}".encode(), about_warehouse(name))
        run(store.apply(create_warehouse(ROOT, WarehouseRow(name, f"s3://{name}/x", secret=sealed))))
    run(store.apply(create_warehouse(ROOT, WarehouseRow("bare", "s3://bare/x"))))

    done = run(rotate(store, vault))
    run(retire(store, vault, settled_ms(vault)))

    later = Vault(KeyFile(vault.key_file.path))
    rows = run(store.rows("sealed_warehouses", {"after": "", "limit": 100}))
    assert {row[0]: later.open(bytes(row[1]), about_warehouse(row[0])) for row in rows} == {
        name: f"keys of {name}".encode() for name in names
    }
    assert {key_id_of(bytes(row[1])) for row in rows} == {done.key_id}
    (of_pepper,) = (bytes(row[1]) for row in rows if row[0] == "pepper")
    with pytest.raises(BrokenSeal):  # a secret of the server has that name, too
        later.open(of_pepper, "pepper")
    versions = run(store.rows("list_warehouses", {}))
    assert {row[3] for row in versions} == {1}  # nothing that clients see has changed


class Crash(Exception):
    """The process ends here."""


class Mortal:
    """A store that dies before or after its n-th change."""

    def __init__(self, store: Store, steps: int, *, after: bool) -> None:
        self._store = store
        self._steps = steps
        self._after = after
        self.rows = store.rows

    async def apply(self, changes: Sequence[Change]) -> list[object]:
        self._steps -= 1
        if self._steps == 0 and not self._after:
            raise Crash
        results = await self._store.apply(changes)
        if self._steps == 0:
            raise Crash
        return results


def test_a_rotation_killed_around_any_step_is_finished_by_the_next(store: Store, vault: Vault, run: Run) -> None:
    access_keys = run(add_access_keys(store, vault))
    steps = 1 + -(-ACCESS_KEYS // rotation.STEP)  # one of secrets, the others of access keys
    for step, after in itertools.product(range(1, steps + 1), (False, True)):
        mortal = Vault(KeyFile(vault.key_file.path))
        with pytest.raises(Crash):
            run(rotate(Mortal(store, step, after=after), mortal))  # type: ignore[arg-type]
        assert run(opened(store, mortal)) == access_keys

        restarted = Vault(KeyFile(vault.key_file.path))
        done = run(rotate(store, restarted))

        assert done.added == (step == steps and after)  # otherwise something was left to do
        assert run(keys_in_use(store, restarted)) == [done.key_id]
        assert run(opened(store, restarted)) == access_keys
    assert len(vault.key_file.ring().keys) == 1 + 2 * steps + 1


def test_a_rotation_killed_after_its_key_was_made_is_finished_by_the_next(store: Store, vault: Vault, run: Run) -> None:
    access_keys = run(add_access_keys(store, vault))
    made = vault.key_file.change(lambda ring: KeyRing((new_key(), *ring.keys))).keys[0]

    done = run(rotate(store, vault))

    assert (done.key_id, done.added, done.sealed_anew) == (made.key_id, False, ACCESS_KEYS + 1)
    assert len(vault.key_file.ring().keys) == 2
    assert run(opened(store, vault)) == access_keys


def test_two_rotations_at_once_make_one_key(store: Store, vault: Vault, run: Run) -> None:
    access_keys = run(add_access_keys(store, vault))
    other = Vault(KeyFile(vault.key_file.path))

    async def both() -> list[rotation.Rotation]:
        return list(await asyncio.gather(rotate(store, vault), rotate(store, other)))

    first, second = run(both())

    assert first.key_id == second.key_id
    assert len(vault.key_file.ring().keys) == 2
    assert run(keys_in_use(store, vault)) == [first.key_id]
    assert run(opened(store, vault)) == access_keys


def test_an_access_key_that_gets_a_new_secret_meanwhile_keeps_it(store: Store, vault: Vault, run: Run) -> None:
    """The swap of the rotation finds another value than it read, and lets it be."""
    (credential_id,) = run(add_access_keys(store, vault, 1))
    ((_, read),) = run(store.rows("sealed_credentials", {"after": "", "limit": 9}))
    renewed = vault.seal(b"renewed", credential_id)
    run(store.apply([Write("set_credential_secret", {"credential_id": credential_id, "secret": renewed})]))

    swap = {"credential_id": credential_id, "secret": vault.seal(b"old", credential_id), "expected": read}
    assert run(store.apply([Write("reseal_credential", swap)])) == [0]

    assert run(opened(store, vault)) == {credential_id: b"renewed"}


# Retiring


def test_retiring_removes_the_keys_that_nothing_needs(store: Store, vault: Vault, run: Run) -> None:
    first = vault.key_file.first().key_id
    access_keys = run(add_access_keys(store, vault, 3))
    second = run(rotate(store, vault)).key_id
    third = run(rotate(store, vault)).key_id

    assert sorted(run(retire(store, vault, settled_ms(vault)))) == sorted([first, second])

    assert [key.key_id for key in vault.key_file.ring().keys] == [third]
    assert run(opened(store, Vault(KeyFile(vault.key_file.path)))) == access_keys
    assert run(retire(store, vault, settled_ms(vault))) == []


def test_retiring_keeps_a_key_that_a_single_value_needs(store: Store, vault: Vault, run: Run) -> None:
    old = vault.key_file.first()
    run(rotate(store, vault))
    elsewhere = Vault(KeyFile(vault.key_file.path.with_name("copy")))
    elsewhere.key_file.change(lambda _: KeyRing((old,)))
    access_keys = run(add_access_keys(store, elsewhere, 1))  # by a server that has not heard of the new key

    assert run(retire(store, vault, settled_ms(vault))) == []

    assert run(opened(store, vault)) == access_keys


def test_retiring_waits_until_the_last_change_of_the_file_has_settled(store: Store, vault: Vault, run: Run) -> None:
    run(rotate(store, vault))

    with pytest.raises(Conflict, match="changed a moment ago"):
        run(retire(store, vault, settled_ms(vault) - 1))

    assert len(vault.key_file.ring().keys) == 2


def test_a_key_that_is_needed_and_missing_is_listed(store: Store, vault: Vault, run: Run, tmp_path: Path) -> None:
    stranger = Vault(KeyFile(tmp_path / "other.keys"))
    own = stranger.key_file.first().key_id

    uses = run(list_keys(store, stranger))

    assert [(use.key_id, use.encrypts, use.values, use.held) for use in uses] == [
        (own, True, 0, True),
        (vault.key_file.first().key_id, False, 1, False),
    ]


# While servers work


def test_rotations_go_unnoticed_by_servers_that_work_meanwhile(store: Store, vault: Vault, run: Run) -> None:
    """S12: 0 errors while keys are made, read and sealed anew, on two servers; the seed tells the order of the work."""
    print(f"seed {SEED}")
    servers = [Vault(KeyFile(vault.key_file.path)) for _ in range(2)]
    known: dict[str, bytes] = {}
    rotations: list[str] = []
    reads = 0

    async def work(server: Vault, chance: random.Random) -> None:
        nonlocal reads
        await server.unlock(store)
        while len(rotations) < 3:
            if not known or chance.random() < 0.05:
                credential_id, secret = await add_access_key(store, server)
                known[credential_id] = secret
            else:
                credential_id, secret = chance.choice(list(known.items()))
                found = await find_credential(store, credential_id)
                assert found is not None
                assert server.open(found.stored, credential_id) == secret
                reads += 1
            await asyncio.sleep(0)

    async def rotate_often() -> None:
        for _ in range(3):
            expected = len(known) + ACCESS_KEYS
            while len(known) < expected:  # noqa: ASYNC110 - several workers make them
                await asyncio.sleep(0.001)
            rotations.append((await rotate(store, vault)).key_id)

    async def everything() -> None:
        async with asyncio.timeout(60):
            await asyncio.gather(
                rotate_often(), *(work(server, random.Random(SEED + n)) for n, server in enumerate(servers * 2))
            )

    run(everything())
    run(rotate(store, vault))

    print(f"{len(known)} access keys, {reads} reads, rotations to {rotations}")
    assert len(set(rotations)) == 3
    assert reads > 0
    assert run(opened(store, vault)) == known
    removed = run(retire(store, vault, settled_ms(vault)))
    assert set(rotations[:2]) <= set(removed)
    assert run(opened(store, Vault(KeyFile(vault.key_file.path)))) == known


def test_what_is_sealed_says_which_key_it_needs(vault: Vault) -> None:
    assert key_id_of(vault.seal(b"x", "a")) == vault.key_file.first().key_id
    assert key_id_of(b"NKS1 but much too short") is None
    assert key_id_of(bytes(100)) is None


# On the command line


def keys_command(data: Path, *arguments: str, **environment: str) -> Result:
    variables = {"NUNATAK_CONFIG": os.devnull, "NUNATAK_DATA": str(data), **environment}
    return CliRunner().invoke(root, ["encryption-key", *arguments], env=variables)


def test_beside_a_server_on_sqlite_the_command_lets_the_server_do_it(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running_server(data, auth=True) as server:
        alone = keys_command(data, "rotate")
        stranger = keys_command(data, "rotate", "--uri", server.uri)
        known = {"NUNATAK_URI": server.uri, "NUNATAK_TOKEN": server.key}
        rotated = keys_command(data, "rotate", **known)
        at_once = keys_command(data, "retire", **known)
        listed = keys_command(data, "list", "-o", "json", **known)
        beside = keys_command(data, "list", "-o", "json")

    assert (alone.exit_code, stranger.exit_code) == (1, 1)
    assert "--uri" in alone.output
    assert "NUNATAK_CREDENTIAL" in stranger.output
    assert rotated.exit_code == 0, rotated.output
    assert (at_once.exit_code, "Try again in 60 seconds" in at_once.output) == (1, True)
    assert [key["in-key-file"] for key in json.loads(listed.output)] == [True, True]
    assert json.loads(beside.output) == json.loads(listed.output)


def test_without_a_server_the_command_works_on_the_database(tmp_path: Path) -> None:
    with running_server(tmp_path, auth=True):
        pass

    rotated = keys_command(tmp_path, "rotate")
    at_once = keys_command(tmp_path, "retire")
    os.utime(tmp_path / "nunatak.keys", (1, 1))
    retired = keys_command(tmp_path, "retire")
    os.utime(tmp_path / "nunatak.keys", (1, 1))
    again = keys_command(tmp_path, "retire")

    assert (rotated.exit_code, at_once.exit_code, retired.exit_code, again.exit_code) == (0, 1, 0, 0)
    assert rotated.output.split()[-1] in keys_command(tmp_path, "list").output
    assert "removed" in retired.output
    assert "backup" in retired.output
    assert "none was removed" in again.output
    assert "there is no database" in keys_command(tmp_path / "elsewhere", "list").output


def test_a_generated_line_is_a_key_file(tmp_path: Path) -> None:
    key_file = tmp_path / "keys"
    key_file.write_text(keys_command(tmp_path, "generate").output)
    key_file.chmod(0o600)

    vault = Vault(KeyFile(key_file))

    assert vault.open(vault.seal(b"x", "a"), "a") == b"x"
