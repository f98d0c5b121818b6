"""Rotates the key that encrypts secrets while servers run: adds a key, re-encrypts all values, removes the old key.

A rotation killed at any moment is finished by the next call: a key is in the file before any value is encrypted with
it, and leaves the file after the last value that needs it.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from nunatak.access.key_file import KeyFileKey, KeyRing, new_key
from nunatak.access.vault import Vault, about_warehouse, key_id_of
from nunatak.database.records import Write
from nunatak.database.store import Store
from nunatak.errors import Conflict

STEP = 100  # values read and re-encrypted at a time
MAX_PASSES = 10  # each finds what servers encrypted during the previous one; in practice the second finds nothing
SETTLED_MS = 60_000  # twice a statement's time limit: whatever a server encrypted before is stored or refused by then


@dataclass(frozen=True, slots=True)
class Sealed:
    """An encrypted value, and the write that replaces it by another encryption of the same secret."""

    about: str
    value: bytes
    swap: Callable[[bytes], Write]


@dataclass(frozen=True, slots=True)
class Rotation:
    """`added` is false if an earlier rotation was finished instead of starting a new one."""

    key_id: str
    added: bool
    sealed_anew: int


@dataclass(frozen=True, slots=True)
class KeyUse:
    """The number of stored values that need a key; one that is not `held` is missing from the key file."""

    key_id: str
    encrypts: bool
    values: int
    held: bool


async def rotate(store: Store, vault: Vault) -> Rotation:
    """Re-encrypts everything with a new key, or finishes doing so; running servers keep reading and writing."""
    before = vault.key_file.first()
    finished = set(await _count(store)) <= {before.key_id}
    if finished:
        vault.key_file.change(lambda ring: _with_new(ring, before))
    return Rotation(vault.key_file.first().key_id, finished, await _seal_all(store, vault))


async def retire(store: Store, vault: Vault, now_ms: int) -> list[str]:
    """Removes the keys that no stored value needs; returns their ids. Raises Conflict if the file just changed."""
    changed_ms = vault.key_file.changed_ms()
    if changed_ms is not None and now_ms - changed_ms < SETTLED_MS:
        raise Conflict(
            "The key file was changed a moment ago, and a server may not have stored its last encrypted secrets yet",
            hint=f"Try again in {SETTLED_MS // 1000} seconds.",
        )
    used = await _count(store)
    before = vault.key_file.ring()
    # The first key stays even if no value needs it yet: it encrypts the next one.
    after = vault.key_file.change(
        lambda ring: KeyRing((*ring.keys[:1], *(key for key in ring.keys[1:] if key.key_id in used)))
    )
    return [key.key_id for key in before.keys if after.find(key.key_id) is None]


async def list_keys(store: Store, vault: Vault) -> list[KeyUse]:
    """Returns the keys of the file in order, then the keys that stored values need but the file lacks."""
    used = await _count(store)
    held = [key.key_id for key in vault.key_file.ring().keys]
    missing = sorted(key_id for key_id in used if key_id not in held)
    return [
        *(KeyUse(key_id, number == 0, used[key_id], held=True) for number, key_id in enumerate(held)),
        *(KeyUse(key_id, False, used[key_id], held=False) for key_id in missing),
    ]


def _with_new(ring: KeyRing, before: KeyFileKey) -> KeyRing:
    """Adds a new key, unless another rotation has just added one, which serves as well."""
    return KeyRing((new_key(), *ring.keys)) if ring.keys[:1] == (before,) else ring


async def _seal_all(store: Store, vault: Vault) -> int:
    done = 0
    for _ in range(MAX_PASSES):
        found = await _seal_stale(store, vault)
        if not found:
            return done
        done += found
    raise Conflict(
        "Other servers still encrypt with another key", hint="Let every server read the same key file; see key_file."
    )


async def _seal_stale(store: Store, vault: Vault) -> int:
    """Re-encrypts all values that are not encrypted with the first key; returns their number."""
    count = 0
    async for step in _steps(store):
        first = vault.key_file.first().key_id
        stale = [each for each in step if key_id_of(each.value) not in (first, None)]
        if stale:
            await store.apply([each.swap(vault.seal(vault.open(each.value, each.about), each.about)) for each in stale])
        count += len(stale)
    return count


async def _count(store: Store) -> Counter[str]:
    """Returns how many values are encrypted with each key."""
    found: Counter[str] = Counter()
    async for step in _steps(store):
        found.update(key_id for each in step if (key_id := key_id_of(each.value)) is not None)
    return found


async def _steps(store: Store) -> AsyncIterator[list[Sealed]]:
    """Yields all stored values in bounded batches; a value of an earlier version may be unencrypted."""
    for statement, sealed in (
        ("all_secrets", _secret),
        ("sealed_credentials", _credential),
        ("sealed_warehouses", _warehouse),
    ):
        after = ""
        while rows := await store.rows(statement, {"after": after, "limit": STEP}):
            yield [sealed(row[0], bytes(row[1])) for row in rows]
            after = rows[-1][0]


def _secret(name: str, value: bytes) -> Sealed:
    return Sealed(name, value, lambda new: Write("replace_secret", {"name": name, "value": new, "expected": value}))


def _credential(credential_id: str, value: bytes) -> Sealed:
    def swap(new: bytes) -> Write:
        return Write("reseal_credential", {"credential_id": credential_id, "secret": new, "expected": value})

    return Sealed(credential_id, value, swap)


def _warehouse(name: str, value: bytes) -> Sealed:
    def swap(new: bytes) -> Write:
        return Write("reseal_warehouse", {"warehouse": name, "secret": new, "expected": value})

    return Sealed(about_warehouse(name), value, swap)
