"""The vault: what is sealed opens only unchanged, only as what it was sealed, and only with a key of the key file."""

import asyncio
import base64
import contextlib
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nunatak.access.key_file import KEY_BYTES, KeyFile, KeyFileKey, KeyRing, new_key, parse_keys
from nunatak.access.vault import BrokenSeal, UnknownKey, Vault, key_id_of, open_vault
from nunatak.database import sqlite
from nunatak.database.records import SaveSecret
from nunatak.database.sqlite import SqliteStore
from nunatak.database.store import Store
from nunatak.settings import SettingsError, load

Run = Callable[..., Any]
PLAIN = b"the plain text that nobody else may read"


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return tmp_path / "keys" / "nunatak.keys"


@pytest.fixture
def vault(key_file: Path) -> Vault:
    return Vault(KeyFile(key_file))


# Sealing


def test_what_was_sealed_opens_again(vault: Vault) -> None:
    assert vault.open(vault.seal(PLAIN, "a"), "a") == PLAIN
    assert vault.open(vault.seal(b"", "a"), "a") == b""


def test_sealing_twice_gives_two_values_that_show_nothing(vault: Vault) -> None:
    first, second = vault.seal(PLAIN, "a"), vault.seal(PLAIN, "a")

    assert first[12:] != second[12:]
    assert first[12:24] != second[12:24]  # a nonce used twice would give the key away
    assert PLAIN not in first + second
    assert len(first) == 40 + len(PLAIN)


def test_a_sealed_value_opens_only_as_what_it_was_sealed(vault: Vault) -> None:
    sealed = vault.seal(PLAIN, "a")

    with pytest.raises(BrokenSeal, match="b in the database was modified"):
        vault.open(sealed, "b")


def test_no_changed_bit_goes_unnoticed(vault: Vault) -> None:
    sealed = vault.seal(PLAIN, "a")

    for place in range(len(sealed)):
        changed = sealed[:place] + bytes([sealed[place] ^ 1]) + sealed[place + 1 :]
        with pytest.raises((BrokenSeal, UnknownKey)):
            vault.open(changed, "a")
    for length in range(len(sealed)):
        with pytest.raises((BrokenSeal, UnknownKey)):
            vault.open(sealed[:length], "a")


def test_a_value_sealed_with_another_key_names_the_key_and_the_remedy(vault: Vault, tmp_path: Path) -> None:
    other = Vault(KeyFile(tmp_path / "other.keys"))
    sealed = other.seal(PLAIN, "a")

    with pytest.raises(UnknownKey, match="servers on one database share one key file") as refused:
        vault.open(sealed, "a")

    assert str(key_id_of(sealed)) in str(refused.value)
    assert str(vault.key_file.path) in str(refused.value)
    assert not vault.key_file.path.exists()  # looking makes no key


# The key file


def test_the_key_file_is_made_on_first_use_for_its_owner_alone(vault: Vault, key_file: Path) -> None:
    assert not key_file.exists()
    umask = os.umask(0)
    try:
        vault.seal(PLAIN, "a")
    finally:
        os.umask(umask)

    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    (line,) = [line for line in key_file.read_text().splitlines() if not line.startswith("#")]
    assert len(base64.b64decode(line.split(" ")[1])) == KEY_BYTES
    assert Vault(KeyFile(key_file)).open(vault.seal(PLAIN, "a"), "a") == PLAIN


def test_two_installations_have_two_keys(tmp_path: Path) -> None:
    first, second = (KeyFile(tmp_path / name).first() for name in ("a", "b"))

    assert first.material != second.material


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o601])
def test_a_key_file_that_others_may_touch_is_refused_with_the_remedy(vault: Vault, key_file: Path, mode: int) -> None:
    vault.seal(PLAIN, "a")
    key_file.chmod(mode)

    with pytest.raises(SettingsError, match=f"chmod 600 {key_file}"):
        Vault(KeyFile(key_file)).seal(PLAIN, "a")


def test_a_key_file_that_only_its_owner_may_read_will_do(vault: Vault, key_file: Path) -> None:
    sealed = vault.seal(PLAIN, "a")
    key_file.chmod(0o400)

    assert Vault(KeyFile(key_file)).open(sealed, "a") == PLAIN


@pytest.mark.parametrize(
    ("text", "trouble"),
    [
        ("", "holds no key"),
        ("# nothing but a comment\n", "holds no key"),
        ("0123456789abcdef", "line 1 .* is not"),
        ("0123456789abcdef notbase64!", "line 1 .* is not"),
        ("0123456789abcdef " + base64.b64encode(b"short").decode(), "line 1 .* is not"),
        ("# x\n0123456789abcdef " + base64.b64encode(bytes(32)).decode(), "line 2 .* was damaged"),
        ("\N{SNOWMAN}", "is not text"),
    ],
)
def test_a_key_file_that_is_none_is_refused_without_showing_it(key_file: Path, text: str, trouble: str) -> None:
    key_file.parent.mkdir()
    key_file.write_text(text, "utf-8")
    key_file.chmod(0o600)

    with pytest.raises(SettingsError, match=trouble) as refused:
        KeyFile(key_file).first()

    assert not any(word in str(refused.value) for word in text.split() if len(word) > 3)


def test_a_key_never_prints_its_material() -> None:
    key = new_key()

    shown = f"{key!r} {key} {KeyRing((key,))}"

    assert key.key_id in shown
    assert key.line().split(" ")[1] not in shown
    assert repr(key.material) not in shown


def test_what_is_written_is_read_again() -> None:
    ring = KeyRing((new_key(), new_key()))

    assert parse_keys(ring.text(), Path("x")) == ring


def test_a_key_that_somebody_adds_is_noticed_by_a_running_server(vault: Vault, key_file: Path) -> None:
    old = vault.seal(PLAIN, "a")
    elsewhere = KeyFile(key_file)

    elsewhere.change(lambda ring: KeyRing((new_key(), *ring.keys)))
    new = Vault(elsewhere).seal(PLAIN, "a")

    assert key_id_of(new) != key_id_of(old)
    assert vault.open(new, "a") == vault.open(old, "a") == PLAIN
    assert key_id_of(vault.seal(PLAIN, "a")) == key_id_of(new)


def test_a_key_file_that_vanishes_is_not_made_anew(vault: Vault, key_file: Path) -> None:
    sealed = vault.seal(PLAIN, "a")
    key_file.unlink()

    with pytest.raises(SettingsError, match="does not exist: restore it"):
        vault.seal(PLAIN, "a")

    assert not key_file.exists()
    assert vault.open(sealed, "a") == PLAIN


def test_a_crash_while_the_file_is_written_leaves_the_old_one(vault: Vault, key_file: Path) -> None:
    sealed = vault.seal(PLAIN, "a")
    left_behind = Path(f"{key_file}.new")
    left_behind.write_text("half a li")

    again = KeyFile(key_file)
    again.change(lambda ring: KeyRing((new_key(), *ring.keys)))

    assert not left_behind.exists()
    assert Vault(again).open(sealed, "a") == PLAIN


def test_servers_that_start_at_once_make_one_key(key_file: Path) -> None:
    code = (
        "import pathlib, sys\nfrom nunatak.access.key_file import KeyFile\n"
        "sys.stdin.readline()\nprint(KeyFile(pathlib.Path(sys.argv[1])).first().key_id)"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(key_file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    with contextlib.ExitStack() as stack:
        for process in started:
            stack.enter_context(process)
        for process in started:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        ids = {process.communicate(timeout=60)[0].strip() for process in started}

    assert ids == {KeyFile(key_file).first().key_id}


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    occupied = tmp_path / "file"
    occupied.write_text("")

    with pytest.raises(SettingsError, match=r"cannot be (written|read)"):
        KeyFile(occupied / "nunatak.keys").first()


def test_the_key_file_is_where_the_settings_say(tmp_path: Path) -> None:
    environment = {"NUNATAK_CONFIG": os.devnull}

    assert open_vault(load({"data": tmp_path}, environment)).key_file.path == tmp_path / "nunatak.keys"
    chosen = load({"data": tmp_path}, {**environment, "NUNATAK_KEY_FILE": "/run/secrets/keys"})
    assert open_vault(chosen).key_file.path == Path("/run/secrets/keys")


# Secrets of the database


def test_a_secret_is_made_once_and_lies_sealed_in_the_database(store: Store, vault: Vault, run: Run) -> None:
    first = run(vault.secret(store, "page-token"))

    assert len(first) == 32
    assert run(vault.secret(store, "page-token")) == first
    assert run(vault.secret(store, "another")) != first
    stored = {name: bytes(value) for name, value in run(store.rows("all_secrets", {"after": "", "limit": 9}))}
    assert key_id_of(stored["page-token"]) == vault.key_file.first().key_id
    assert first not in stored["page-token"]


def test_a_secret_of_an_earlier_version_is_kept_and_sealed(store: Store, vault: Vault, run: Run) -> None:
    plain = run(store.secret("page-token"))

    async def both() -> list[bytes]:
        return list(await asyncio.gather(vault.secret(store, "page-token"), vault.secret(store, "page-token")))

    assert run(both()) == [plain, plain]
    ((_, stored),) = run(store.rows("all_secrets", {"after": "", "limit": 9}))
    assert plain not in bytes(stored)
    assert vault.open(bytes(stored), "page-token") == plain


def test_a_secret_that_somebody_put_there_in_the_clear_is_refused(store: Store, vault: Vault, run: Run) -> None:
    run(store.apply([SaveSecret("pepper", bytes(32))]))

    with pytest.raises(BrokenSeal, match="pepper in the database is not encrypted"):
        run(vault.unlock(store))


def test_a_server_without_the_key_does_not_start_on_the_database(
    store: Store, vault: Vault, run: Run, tmp_path: Path
) -> None:
    run(vault.unlock(store))
    stranger = Vault(KeyFile(tmp_path / "other.keys"))

    with pytest.raises(UnknownKey, match=vault.key_file.first().key_id):
        run(stranger.unlock(store))


def test_of_servers_with_keys_of_their_own_only_one_starts(store: Store, run: Run, tmp_path: Path) -> None:
    vaults = [Vault(KeyFile(tmp_path / f"{number}.keys")) for number in range(3)]

    async def start() -> list[object]:
        return await asyncio.gather(*(vault.unlock(store) for vault in vaults), return_exceptions=True)

    outcomes = run(start())

    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["NoneType", "UnknownKey", "UnknownKey"]


def test_digests_are_the_same_for_every_server_and_differ_by_what_they_are_about(
    store: Store, vault: Vault, run: Run
) -> None:
    run(vault.unlock(store))
    second = Vault(KeyFile(vault.key_file.path))
    run(second.unlock(store))

    assert vault.hmac(b"x", "a") == second.hmac(b"x", "a")
    assert len({vault.hmac(b"x", "a"), vault.hmac(b"x", "b"), vault.hmac(b"y", "a")}) == 3
    assert len(vault.hmac(b"x", "a")) == 32
    assert vault.hmac(b"bc", "a") != vault.hmac(b"c", "ab")


def test_a_vault_that_was_not_unlocked_digests_nothing(vault: Vault) -> None:
    with pytest.raises(RuntimeError):
        vault.hmac(b"x", "a")


# What stays behind in a file


def files_with(folder: Path, wanted: bytes) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_file() and wanted in path.read_bytes())


def a_database_of_an_earlier_version(path: Path, *, in_the_log: bool) -> bytes:
    """One that holds its page token in the clear, in its pages or still in the log, and other secrets around it."""
    connection = sqlite._connect(path)
    connection.execute("PRAGMA secure_delete=OFF").fetchall()
    sqlite.migrate(connection)
    token = os.urandom(32)
    for name, value in (("a", b"before"), ("page-token", token), ("z", b"behind")):
        connection.execute("INSERT INTO nunatak_secrets VALUES (?, ?)", (name, value)).fetchall()
    log = {name: Path(f"{path}{name}").read_bytes() for name in ("", "-wal")}  # what a crash would leave
    connection.close()  # which moves the log into the pages
    for name, content in log.items() if in_the_log else ():
        Path(f"{path}{name}").write_bytes(content)
    return token


@pytest.mark.parametrize("in_the_log", [False, True], ids=["in the pages", "in the log"])
def test_sealing_an_old_secret_leaves_no_copy_in_any_file(
    tmp_path: Path, vault: Vault, run: Run, in_the_log: bool
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    path = folder / "catalog.db"
    token = a_database_of_an_earlier_version(path, in_the_log=in_the_log)
    assert files_with(folder, token) != []  # the scan finds what is there
    store = SqliteStore(path)
    try:
        assert run(vault.secret(store, "page-token")) == token

        assert files_with(folder, token) == []
    finally:
        run(store.close())
    assert files_with(folder, token) == []


def test_the_key_is_in_no_file_but_the_key_file(tmp_path: Path, vault: Vault, run: Run) -> None:
    store = SqliteStore(tmp_path / "catalog.db")
    run(vault.unlock(store))
    run(store.close())
    key: KeyFileKey = vault.key_file.first()

    for text in (key.material, base64.b64encode(key.material), key.material.hex().encode()):
        assert files_with(tmp_path, text) == []
    assert files_with(vault.key_file.path.parent, base64.b64encode(key.material)) == ["nunatak.keys"]
