"""Encrypts the secrets in the database: AES-256-GCM with the first key of the key file.

A sealed value is `magic | key id | nonce | ciphertext and tag`. `about` is associated data, so that a value moved to
another row cannot be decrypted: it is the row's primary key, the name in nunatak_secrets, the credential_id in
nunatak_credentials and `warehouse:NAME` in nunatak_warehouses. Key rotation (rotation.py) relies on that.
"""

import hashlib
import hmac
import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from nunatak.access.key_file import ID_BYTES, KeyFile, open_key_file
from nunatak.database.records import SaveSecret, Write
from nunatak.database.store import Store
from nunatak.settings import Settings, SettingsError

MAGIC = b"NKS1"
NONCE_BYTES = 12  # 96 bits, random: far fewer than 2^32 values are ever encrypted with one key
_KEY_ID = slice(len(MAGIC), len(MAGIC) + ID_BYTES)
_NONCE = slice(_KEY_ID.stop, _KEY_ID.stop + NONCE_BYTES)
_TAG_BYTES = 16

SECRET_BYTES = 32
PEPPER = "pepper"
# Earlier versions stored these unencrypted. Any other value that is not encrypted was not written by this server.
PLAIN_BEFORE = {"page-token"}


class UnknownKey(SettingsError):
    """Encrypted with a key that is not in the key file."""


class BrokenSeal(SettingsError):
    """Authentication failed: the value is damaged, or belongs to another row."""


class Vault:
    """Call `unlock` once before `hmac`; all other methods work at once."""

    def __init__(self, key_file: KeyFile) -> None:
        self.key_file = key_file
        self._pepper: bytes | None = None

    async def unlock(self, store: Store) -> None:
        """Loads the key of `hmac`; raises SettingsError if the key file lacks the key that encrypts it."""
        self._pepper = await self.secret(store, PEPPER)

    def seal(self, plain: bytes, about: str) -> bytes:
        key = self.key_file.first()
        header = MAGIC + bytes.fromhex(key.key_id)
        nonce = secrets.token_bytes(NONCE_BYTES)
        return header + nonce + AESGCM(key.material).encrypt(nonce, plain, header + about.encode("utf-8"))

    def open(self, sealed: bytes, about: str) -> bytes:
        key_id = key_id_of(sealed)
        if key_id is None:
            raise BrokenSeal(f"{about} in the database is not encrypted, though it should be: restore it from a backup")
        key = self.key_file.find(key_id)
        if key is None:
            raise UnknownKey(
                f"{about} in the database is encrypted with key {key_id}, which the key file {self.key_file.path} does "
                f"not hold: copy the line that begins with {key_id} from the key file of the server that wrote it "
                "(or from its backup); servers on one database share one key file, set by key_file"
            )
        associated = sealed[: _KEY_ID.stop] + about.encode("utf-8")
        try:
            return AESGCM(key.material).decrypt(sealed[_NONCE], sealed[_NONCE.stop :], associated)
        except InvalidTag as error:
            raise BrokenSeal(f"{about} in the database was modified: restore it from a backup") from error

    def hmac(self, data: bytes, about: str) -> bytes:
        """Returns a stable digest that cannot be computed, or tested against guesses, with the database alone."""
        if self._pepper is None:
            raise RuntimeError("the vault was not unlocked")
        # The length prefix keeps two pairs of `about` and `data` with the same concatenation apart.
        which = about.encode("utf-8")
        return hmac.new(self._pepper, len(which).to_bytes(4, "big") + which + data, hashlib.sha256).digest()

    async def secret(self, store: Store, name: str) -> bytes:
        """Returns the random secret of this name, created on first use, the same for all servers on this database."""
        value = await _find(store, name)
        if value is None:
            await store.apply([SaveSecret(name, self.seal(secrets.token_bytes(SECRET_BYTES), name))])
            # Read again: if another server saved its own first, ours was ignored.
            value = await _find(store, name)
            assert value is not None
        if name in PLAIN_BEFORE and key_id_of(value) is None:
            value = await self._sealed_in_place(store, name, value)
        return self.open(value, name)

    async def _sealed_in_place(self, store: Store, name: str, plain: bytes) -> bytes:
        """Encrypts an unencrypted value; returns the stored value, since another server may have been first."""
        sealed = self.seal(plain, name)
        await store.apply([Write("replace_secret", {"name": name, "value": sealed, "expected": plain})])
        # The unencrypted value must not stay in the database's files.
        await store.forget_overwritten()
        value = await _find(store, name)
        assert value is not None
        return value


def open_vault(settings: Settings) -> Vault:
    """Returns the vault for these settings; reads and writes nothing yet."""
    return Vault(open_key_file(settings))


def about_warehouse(name: str) -> str:
    """Returns the associated data of a warehouse's secret: the prefix keeps it apart from a secret of the same name."""
    return f"warehouse:{name}"


def key_id_of(value: bytes) -> str | None:
    """Returns the id of the key that encrypts a stored value; None if it is not encrypted."""
    if not value.startswith(MAGIC) or len(value) < _NONCE.stop + _TAG_BYTES:
        return None
    return value[_KEY_ID].hex()


async def _find(store: Store, name: str) -> bytes | None:
    rows = await store.rows("find_secret", {"name": name})
    return bytes(rows[0][0]) if rows else None
